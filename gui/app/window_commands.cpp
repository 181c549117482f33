// SPDX-License-Identifier: GPL-3.0-or-later
#include <QApplication>
#include <QClipboard>
#include <QDockWidget>
#include <QFileInfo>
#include <QMenuBar>
#include <QPushButton>
#include <QSplitter>
#include <QStackedWidget>
#include <QTabWidget>
#include <QTimer>
#include <QToolBar>
#include <QToolButton>
#include <QUndoStack>
#include <QWhatsThis>

#include "gui/app/main_window.h"
#include "gui/app/panels.h"
#include "gui/app/study_editor.h"
#include "gui/model/plan_text.h"
#include "gui/model/study_form.h"
#include "gui/views/table_model.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

void copy(const std::string& text) {
  QGuiApplication::clipboard()->setText(QString::fromStdString(text));
}

/// The selected rows with their titles, for spreadsheets.
std::string selected_cells(const Session& session) {
  std::string text = "rank";
  std::vector<const Field*> columns;
  for (const std::string& id : table_columns(session))
    if (const Field* field = find_field(id)) {
      columns.push_back(field);
      text += "\t" + std::string(field->id);
    }
  text += "\n";
  for (const int row : session.selection()) {
    text += std::to_string(row + 1);
    for (const Field* field : columns)
      text +=
          "\t" + csv_value(value_of(*field, session.results().study, session.rows()[static_cast<std::size_t>(row)]));
    text += "\n";
  }
  return text;
}

} // namespace

void add_commands(MainWindow& w) {
  CommandRegistry& c = w.commands_;
  Session& s = w.session_;
  const auto has_row = [&s] { return s.current() >= 0; };
  const auto has_study = [&s] { return !s.edits().document.is_null(); };

  c.add({"file.new", "File", "New study", "Ctrl+N", [&w] { w.new_study(); }});
  c.add({"file.open", "File", "Open…", "Ctrl+O",
         [&w] {
           const QString file =
               w.ask.open(QStringLiteral("Open"),
                          QStringLiteral("Sessions, studies, models (*.foretrain *.db *.json);;All files (*)"));
           if (!file.isEmpty()) w.open(file);
         },
         nullptr, nullptr, true});
  c.add({"file.save-as", "File", "Save session as…", "Ctrl+S",
         [&w, &s] {
           QString file = w.ask.save(QStringLiteral("Save session as"), QStringLiteral("session.foretrain"),
                                     QStringLiteral("Sessions (*.foretrain)"));
           if (file.isEmpty()) return;
           if (QFileInfo(file).suffix().isEmpty()) file += QStringLiteral(".foretrain");
           if (const auto saved = s.save_as(file.toStdString()); !saved)
             s.report({saved.error().where, saved.error().message, saved.error().hint});
           else
             w.remember(file);
         },
         has_study, nullptr, true});
  c.add({"file.save-study", "File", "Save study as JSON…", "",
         [&w, &s] {
           const QString file =
               w.ask.save(QStringLiteral("Save study"), QStringLiteral("study.json"), QStringLiteral("JSON (*.json)"));
           if (file.isEmpty()) return;
           if (const auto saved = write_text_file(file.toStdString(), s.edits().document.dump(2) + "\n"); !saved)
             s.report({saved.error().where, saved.error().message, saved.error().hint});
         },
         has_study, nullptr, true});
  c.add({"file.reload", "File", "Reload the session", "",
         [&w, &s] { w.open(QString::fromStdString(s.path().string())); }, [&s] { return s.conflicted(); }, nullptr,
         true});
  c.add({"file.keep-mine", "File", "Keep this window's state", "",
         [&s] {
           if (const auto kept = s.keep_mine(); !kept)
             s.report({kept.error().where, kept.error().message, kept.error().hint});
         },
         [&s] { return s.conflicted(); }, nullptr, true});
  c.add({"runs.import", "File", "Import runs…", "",
         [&w] {
           const QString file = w.ask.open(QStringLiteral("Import a run"),
                                           QStringLiteral("Runs of foretrain-run (run.json);;All files (*)"));
           if (!file.isEmpty()) w.import_runs({file});
         },
         has_study, nullptr, true});
  c.add({"file.export", "File", "Export view…", "Ctrl+E", [&w] { w.export_current(); }, has_study, nullptr, true});
  c.add({"file.close", "File", "Close study", "",
         [&w, &s] {
           s.stop_search();
           s.apply({});
           s.set_results(std::make_shared<Results>());
           w.undo_->clear();
         },
         has_study});
  c.add({"file.quit", "File", "Quit", "Ctrl+Q", [&w] { w.close(); }, nullptr, nullptr, true});

  c.add({"edit.undo", "Edit", "Undo", "Ctrl+Z", [&w] { w.undo_->undo(); }, [&w] { return w.undo_->canUndo(); }});
  c.add({"edit.redo", "Edit", "Redo", "Ctrl+Shift+Z", [&w] { w.undo_->redo(); }, [&w] { return w.undo_->canRedo(); }});
  c.add({"edit.filter", "Edit", "Filter", "Ctrl+F", [&w] { w.filter_->focus_box(); }, has_study});
  c.add({"edit.clear-filters", "Edit", "Clear all filters", "",
         [&s] { s.edit("clear filters", [](Edits& e) { e.chips.clear(); }); },
         [&s] { return !s.edits().chips.empty(); }});
  c.add({"edit.find-field", "Edit", "Find a field of the study", "Ctrl+Shift+F",
         [&w] {
           w.study_dock_->show();
           w.editor_->focus_search();
         },
         has_study});

  c.add({"search.start", "Study", "Search", "Ctrl+R", [&s] { s.start_search(); },
         [&s] { return s.study() && !s.searching(); }});
  c.add({"search.every", "Study", "Search every layout", "Ctrl+Alt+R", [&s] { s.start_search(Extent::exhaustive); },
         [&s] { return s.study() && !s.searching(); }});
  c.add({"search.stop", "Study", "Stop the search", "", [&s] { s.stop_search(); }, [&s] { return s.searching(); }});
  c.add({"study.expand-cluster", "Study", "Edit the cluster's tiers and device", "",
         [&s] {
           s.edit("write the cluster out",
                  [&s](Edits& e) { e.document = with_cluster_expanded(e.document, s.environment().data); });
         },
         [&s] { return s.study().has_value(); }});
  c.add({"study.copy-command", "Study", "Copy the search as a command", "Ctrl+Shift+C",
         [&s] { copy(search_command(s)); }, has_study});
  c.add({"escape", "", "Stop, or clear the selection", "Esc", [&w, &s] {
           if (s.searching())
             s.stop_search();
           else if (s.simulating() >= 0)
             s.stop_simulation();
           else if (s.moment() >= 0) {
             w.player_->stop();
             s.set_moment(-1);
           } else
             s.select({});
         }});

  c.add({"row.pin", "Layout", "Pin", "Space", [&s] { s.toggle_pin(s.current()); }, has_row});
  c.add({"row.note", "Layout", "Note on this layout…", "Ctrl+T", [&w] { w.note(); }, has_row, nullptr, true});
  c.add({"row.baseline", "Layout", "Set as baseline", "B", [&s] { s.set_baseline(s.current()); }, has_row});
  c.add({"row.compare", "Layout", "Compare pinned", "C", [&w] { w.compare(); }, has_row});
  c.add({"row.simulate", "Layout", "Simulate on the network (SimGrid)", "Ctrl+D", [&s] { s.simulate(s.current()); },
         [&s, has_row] { return has_row() && s.simulating() < 0 && !s.environment().worker.empty(); }, nullptr, true});
  c.add({"step.play", "Layout", "Play the step, or pause", "P", [&w] { w.play(); }, has_row,
         [&w] { return w.player_->isActive(); }});
  c.add({"row.run", "Layout", "Run…", "Ctrl+Shift+R", [&w] { w.show_view("run"); }, has_row});
  c.add({"run.start", "Layout", "Start the run", "",
         [&w] {
           w.show_view("run");
           w.view("run")->act("start");
         },
         [&w, has_row] { return has_row() && !w.view("run")->busy(); }, nullptr, true});
  c.add({"run.options", "Layout", "Checkpoints, data and weights of the run", "", [&w] {
           w.show_view("run");
           w.view("run")->act("options");
         }});
  c.add({"run.export-weights", "Layout", "Export a checkpoint's weights", "",
         [&w] {
           w.show_view("run");
           w.view("run")->act("export");
         },
         [&w] { return !w.view("run")->busy() && !w.session().environment().executor.empty(); }, nullptr, true});
  c.add({"run.cancel", "Layout", "Cancel the run", "", [&w] { w.view("run")->act("cancel"); },
         [&w] { return w.view("run")->busy(); }});
  c.add({"runs.calibrate", "Layout", "Calibrate from the runs of this session", "",
         [&w] {
           w.show_view("measured");
           w.view("measured")->act("calibrate");
         },
         [&w, has_study] { return has_study() && !w.view("measured")->busy(); }, nullptr, true});
  c.add({"row.export-framework", "Layout", "Export to a framework: this version has no exporter", "", [] {},
         [] { return false; }});
  c.add({"row.next", "Layout", "Next layout", "J", [&s] { s.step_selection(1); }, [&s] { return !s.shown().empty(); }});
  c.add({"row.previous", "Layout", "Previous layout", "K", [&s] { s.step_selection(-1); },
         [&s] { return !s.shown().empty(); }});
  c.add({"row.copy-command", "Layout", "Copy as a command", "", [&s] { copy(predict_command(s, s.current())); },
         has_row});
  c.add({"row.copy-json", "Layout", "Copy as JSON", "", [&s] { copy(plan_json(s, s.current())); }, has_row});
  c.add({"row.copy-cells", "Layout", "Copy cells", "Ctrl+C", [&s] { copy(selected_cells(s)); }, has_row});
  c.add({"row.save-plan", "Layout", "Save as plan.json…", "", [&w] { w.save_plan(false); }, has_row, nullptr, true});
  c.add({"row.save-trace", "Layout", "Save the timeline for Perfetto…", "", [&w] { w.save_plan(true); }, has_row,
         nullptr, true});

  const auto table_act = [&w](const char* what) {
    return [&w, what] {
      w.show_view("table");
      w.view("table")->act(what);
    };
  };
  c.add({"table.sort", "View", "Sort by the column of the current cell", "Ctrl+Alt+S", table_act("sort"), has_study});
  c.add({"table.add-to-sort", "View", "Sort by that column as well", "Ctrl+Alt+Shift+S", table_act("add-to-sort"),
         has_study});
  c.add({"table.hide", "View", "Hide the column of the current cell", "", table_act("hide"), has_study});
  c.add({"table.columns", "View", "Choose columns…", "", table_act("columns"), has_study, nullptr, true});
  c.add({"table.reset-columns", "View", "Reset columns", "", table_act("reset-columns"), has_study});

  int number = 0;
  for (const ViewEntry& entry : views()) {
    ++number;
    c.add({std::string("view.") + entry.id, "View", entry.title, number <= 9 ? "Ctrl+" + std::to_string(number) : "",
           [&w, id = entry.id] { w.show_view(id); }, has_study});
  }
  const auto any_view = [&w, has_study] { return has_study() && w.current_view() != nullptr; };
  c.add({"view.fit", "View", "Show all", "0", [&w] { w.current_view()->fit(); }, any_view});
  c.add({"view.frame", "View", "Show the selection", "F", [&w] { w.current_view()->frame_selection(); }, any_view});
  c.add({"view.back", "View", "Zoom before", "Alt+Left", [&w] { w.current_view()->step_zoom(-1); }, any_view});
  c.add({"view.forward", "View", "Zoom after", "Alt+Right", [&w] { w.current_view()->step_zoom(1); }, any_view});
  c.add({"view.as-table", "View", "Show as a table…", "Ctrl+Shift+T", [&w] { w.show_as_table(); }, any_view, nullptr,
         true});
  c.add({"view.study", "View", "Panel “Study”", "Alt+1", [&w] { w.toggle(w.study_dock_); }, has_study,
         [&w] { return w.study_dock_->isVisible(); }});
  c.add({"view.why", "View", "Panel “Why”", "Alt+2", [&w] { w.toggle(w.details_dock_); }, has_study,
         [&w] { return w.details_dock_->isVisible(); }});
  c.add({"view.maximise", "View", "Maximise the view", "F11", [&w] { w.maximise(); }, has_study});
  c.add({"view.larger", "View", "Larger", "Ctrl+=", [&w] { w.scale_font(1.1); }});
  c.add({"view.smaller", "View", "Smaller", "Ctrl+-", [&w] { w.scale_font(1 / 1.1); }});
  c.add({"view.usual-size", "View", "Usual size", "Ctrl+0", [&w] { w.scale_font(0); }});
  for (const char* theme : {"light", "dark", "system"})
    c.add({std::string("theme.") + theme, "View", std::string("Theme: ") + theme, "",
           [&w, theme] { w.set_theme(QString::fromLatin1(theme)); }, nullptr,
           [&w, theme] { return w.theme_name_ == QLatin1String(theme); }});
  c.add({"view.reset-layout", "View", "Reset layout", "", [&w] { w.reset_layout(); }});
  c.add(
      {"help.palette", "Help", "Find a command…", "Ctrl+Shift+P", [&w] { w.show_palette(); }, nullptr, nullptr, true});
  c.add({"help.keys", "Help", "Keys", "F1", [&w] { w.show_keys(); }, nullptr, nullptr, true});
  c.add({"help.view", "Help", "What am I looking at?", "Shift+F1",
         [&w] {
           View* front = w.current_view();
           QWhatsThis::showText(front->mapToGlobal(QPoint(20, 20)),
                                QString::fromUtf8(find_view(front->objectName().toStdString())->help), front);
         },
         any_view, nullptr, true});
  c.add({"help.about", "Help", "About Foretrain", "", [&w] { w.show_about(); }, nullptr, nullptr, true});
}

void MainWindow::build_menus() {
  std::map<std::string, QMenu*> menus;
  for (const Command& command : commands_.all()) {
    auto* action = new QAction(QString::fromStdString(command.title), this);
    action->setObjectName(QString::fromStdString(command.id));
    if (!command.key.empty())
      action->setShortcut(QKeySequence(QString::fromStdString(command.key), QKeySequence::PortableText));
    action->setCheckable(command.checked != nullptr);
    connect(action, &QAction::triggered, this, [this, id = command.id] { commands_.run(id); });
    // A plain letter belongs to the table and the plots: elsewhere it is typed, and Space presses buttons.
    if (command.key == "Space" || command.key.size() == 1) {
      action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
      view("table")->addAction(action);
      if (command.key != "Space") tabs_->addAction(action);
    } else {
      addAction(action);
    }
    if (command.menu.empty()) continue;
    QMenu*& menu = menus[command.menu];
    if (!menu) {
      menu = menuBar()->addMenu(QStringLiteral("&") + QString::fromStdString(command.menu)); // Alt and its letter
      connect(menu, &QMenu::aboutToShow, this, [this, menu] {
        for (QAction* entry : menu->actions()) {
          const Command* known = commands_.find(entry->objectName().toStdString());
          if (!known) continue;
          entry->setEnabled(commands_.enabled(*known));
          if (known->checked) entry->setChecked(known->checked());
          if (known->id == "edit.undo") entry->setText(QStringLiteral("Undo ") + undo_->undoText());
          if (known->id == "edit.redo") entry->setText(QStringLiteral("Redo ") + undo_->redoText());
        }
      });
      // A disabled action would swallow its key until the menu is opened again.
      connect(menu, &QMenu::aboutToHide, this, [menu] {
        QMetaObject::invokeMethod(
            menu,
            [menu] {
              for (QAction* entry : menu->actions()) entry->setEnabled(true);
            },
            Qt::QueuedConnection);
      });
    }
    menu->addAction(action);
  }
  QToolBar* bar = addToolBar(QStringLiteral("Tools"));
  bar->setObjectName(QStringLiteral("tools"));
  bar->setMovable(false);
  search_button_ = new QPushButton(QStringLiteral("Search"), this);
  search_button_->setToolTip(QStringLiteral("Ctrl+R; Esc stops"));
  search_button_->setDefault(true);
  connect(search_button_, &QPushButton::clicked, this,
          [this] { commands_.run(session_.searching() ? "search.stop" : "search.start"); });
  bar->addWidget(search_button_);
  // Buttons of their own: a disabled action would swallow its key.
  for (const char* id :
       {"edit.undo", "edit.redo", "row.pin", "row.baseline", "row.compare", "file.export", "help.palette"}) {
    const Command& command = *commands_.find(id);
    auto* button = new QToolButton(bar);
    button->setText(QString::fromStdString(command.title));
    button->setToolTip(QString::fromStdString(command.title + (command.key.empty() ? "" : " (" + command.key + ")")));
    button->setObjectName(QString::fromLatin1(id));
    button->setFocusPolicy(Qt::TabFocus);
    connect(button, &QToolButton::clicked, this, [this, id = command.id] { commands_.run(id); });
    bar->addWidget(button);
    tools_.push_back(button);
  }
  connect(undo_, &QUndoStack::indexChanged, this, [this] { update_tools(); });
}

void MainWindow::update_tools() {
  for (QToolButton* button : tools_) {
    const Command* command = commands_.find(button->objectName().toStdString());
    button->setEnabled(commands_.enabled(*command));
  }
}

} // namespace foretrain::gui
