// SPDX-License-Identifier: GPL-3.0-or-later
#include <QApplication>
#include <QDialog>
#include <QDialogButtonBox>
#include <QDockWidget>
#include <QEvent>
#include <QHeaderView>
#include <QInputDialog>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMessageBox>
#include <QScreen>
#include <QSettings>
#include <QSplitter>
#include <QTabWidget>
#include <QTreeWidget>
#include <QUndoStack>
#include <QVBoxLayout>

#include "gui/app/export.h"
#include "gui/app/main_window.h"
#include "gui/app/panels.h"
#include "gui/app/study_editor.h"
#include "gui/app/table_dialog.h"
#include "gui/model/examples.h"
#include "gui/model/plan_text.h"
#include "gui/views/view.h"
#include "simulator/trace.h"

namespace foretrain::gui {
namespace {

constexpr int kMostRecent = 8;

/// Up and down reach the list while one types.
class KeysToList final : public QObject {
public:
  KeysToList(QLineEdit* box, QListWidget* list) : QObject(box), list_(list) { box->installEventFilter(this); }
  bool eventFilter(QObject* object, QEvent* event) override {
    if (event->type() == QEvent::KeyPress) {
      const int key = static_cast<QKeyEvent*>(event)->key();
      if (key == Qt::Key_Up || key == Qt::Key_Down) {
        QApplication::sendEvent(list_, event);
        return true;
      }
    }
    return QObject::eventFilter(object, event);
  }

private:
  QListWidget* list_;
};

bool platform_is_dark() {
  return QApplication::palette().color(QPalette::Window).lightness() < 128;
}

} // namespace

void MainWindow::open_example(int number) {
  const Example& example = examples()[static_cast<std::size_t>(number)];
  const auto document = parse_json(example.document, example.id);
  if (document) session_.open_study(*document, std::string("open ") + example.title);
}

void MainWindow::new_study() {
  session_.open_study({{"model", "llama3-8b"},
                       {"cluster", {{"preset", "dgx-h100"}, {"devices", 8}}},
                       {"job", {{"sequence_length", 8192}, {"global_batch", 256}}}},
                      "new study");
}

void MainWindow::export_current() {
  View* view = current_view();
  if (!view) return;
  QString file = ask.save(QStringLiteral("Export ") + view->windowTitle(), view->objectName() + QStringLiteral(".svg"),
                          QStringLiteral("SVG (*.svg);;PNG (*.png);;PDF (*.pdf);;CSV (*.csv);;TSV (*.tsv)"));
  if (file.isEmpty()) return;
  if (QFileInfo(file).suffix().isEmpty()) file += QStringLiteral(".svg");
  double scale = 2;
  if (ask.scale && QFileInfo(file).suffix().toLower() == QStringLiteral("png")) {
    const auto chosen = ask.scale();
    if (!chosen) return;
    scale = *chosen;
  }
  const QSize size = view->size();
  const auto written = export_view(*view, file.toStdString(), size, scale);
  view->resize(size);
  if (!written) return session_.report({written.error().where, written.error().message, written.error().hint});
  say(QStringLiteral("Exported to ") + file);
}

void MainWindow::note() {
  const int row = session_.current();
  if (row < 0 || !ask.text) return;
  if (const auto text =
          ask.text(QStringLiteral("Note on #%1").arg(row + 1), QString::fromStdString(session_.note(row))))
    session_.set_note(row, text->trimmed().toStdString());
}

void MainWindow::show_as_table() {
  View* view = current_view();
  if (!view) return;
  table_dialog(view->windowTitle().toStdString(), view->csv(), this)->exec();
}

void MainWindow::toggle(QDockWidget* dock) {
  dock->setVisible(!dock->isVisible());
  if (dock->isVisible()) dock->widget()->setFocus();
}

void MainWindow::save_plan(bool trace) {
  const int row = session_.current();
  const QString file =
      ask.save(trace ? QStringLiteral("Save timeline") : QStringLiteral("Save plan"),
               trace ? QStringLiteral("timeline.json") : QStringLiteral("plan.json"), QStringLiteral("JSON (*.json)"));
  if (file.isEmpty() || row < 0) return;
  std::string text = plan_json(session_, row) + "\n";
  if (trace) {
    const auto detail = session_.detail(row);
    if (!detail || !detail->simulation) return say(QStringLiteral("The timeline is still being replayed: try again"));
    text = chrome_trace(*detail->simulation);
  }
  if (const auto written = write_text_file(file.toStdString(), text); !written)
    session_.report({written.error().where, written.error().message, written.error().hint});
}

void MainWindow::compare() {
  if (view("compare")) show_view("compare");
}

void MainWindow::show_palette() {
  QDialog dialog(this);
  dialog.setWindowTitle(QStringLiteral("Find a command"));
  auto* layout = new QVBoxLayout(&dialog);
  auto* box = new QLineEdit(&dialog);
  box->setPlaceholderText(QStringLiteral("Letters of what you want to do"));
  box->setAccessibleName(QStringLiteral("Find a command"));
  auto* list = new QListWidget(&dialog);
  list->setAccessibleName(QStringLiteral("Commands"));
  layout->addWidget(box);
  layout->addWidget(list);
  new KeysToList(box, list);
  const auto fill = [&] {
    list->clear();
    for (const Command* command : commands_.matching(box->text().toStdString())) {
      if (!commands_.enabled(*command)) continue;
      std::string text = command->title + (command->menu.empty() ? "" : "   – " + command->menu);
      if (!command->key.empty()) text += "   (" + command->key + ")";
      auto* item = new QListWidgetItem(QString::fromStdString(text), list);
      item->setData(Qt::UserRole, QString::fromStdString(command->id));
    }
    list->setCurrentRow(0);
  };
  QString chosen;
  const auto take = [&] {
    if (list->currentItem()) chosen = list->currentItem()->data(Qt::UserRole).toString();
    dialog.accept();
  };
  connect(box, &QLineEdit::textChanged, &dialog, fill);
  connect(box, &QLineEdit::returnPressed, &dialog, take);
  connect(list, &QListWidget::itemClicked, &dialog, take);
  fill();
  dialog.resize(fontMetrics().averageCharWidth() * 60, fontMetrics().height() * 22);
  dialog.exec();
  if (!chosen.isEmpty()) commands_.run(chosen.toStdString());
}

void MainWindow::show_keys() {
  QDialog dialog(this);
  dialog.setWindowTitle(QStringLiteral("Keys"));
  auto* layout = new QVBoxLayout(&dialog);
  auto* list = new QTreeWidget(&dialog);
  list->setHeaderLabels({QStringLiteral("What"), QStringLiteral("Key")});
  list->setAccessibleName(QStringLiteral("Keys"));
  for (const Command& command : commands_.all())
    if (!command.key.empty())
      new QTreeWidgetItem(list, {QString::fromStdString(command.title), QString::fromStdString(command.key)});
  const QStringList plots[] = {{QStringLiteral("Plots: zoom"), QStringLiteral("wheel, + −")},
                               {QStringLiteral("Plots: move"), QStringLiteral("drag, arrows, Shift+wheel")},
                               {QStringLiteral("Plots: show all"), QStringLiteral("double click, 0")},
                               {QStringLiteral("Timeline: measure"), QStringLiteral("Shift+drag")}};
  for (const QStringList& plot : plots) new QTreeWidgetItem(list, plot);
  list->header()->setSectionResizeMode(0, QHeaderView::ResizeToContents);
  list->setRootIsDecorated(false);
  layout->addWidget(list);
  dialog.resize(fontMetrics().averageCharWidth() * 64, fontMetrics().height() * 30);
  dialog.exec();
}

void MainWindow::show_about() {
  QMessageBox::about(
      this, QStringLiteral("About Foretrain"),
      QStringLiteral("<b>Foretrain %1</b><p>Forecasts distributed training steps before anyone pays for them."
                     "<p>This program uses no network, has no telemetry and needs no account."
                     "<p>The desktop program is under GPL-3.0-or-later (QCustomPlot is); everything else is under "
                     "Apache-2.0. Qt %2.")
          .arg(QString::fromStdString(session_.environment().version), QString::fromLatin1(qVersion())));
}

void MainWindow::remember(const QString& file) {
  QStringList recent = settings_->value(QStringLiteral("recent")).toStringList();
  recent.removeAll(file);
  recent.prepend(file);
  while (recent.size() > kMostRecent) recent.removeLast();
  settings_->setValue(QStringLiteral("recent"), recent);
  start_->set_recent(recent);
}

void MainWindow::maximise() {
  const bool alone = !study_dock_->isVisible() && !details_dock_->isVisible() && !upper_->isVisible();
  study_dock_->setVisible(alone);
  details_dock_->setVisible(alone);
  upper_->setVisible(alone);
}

void MainWindow::reset_layout() {
  restoreState(usual_layout_, kStateVersion);
  upper_->show();
  tabs_->show();
  const bool any = !session_.edits().document.is_null();
  study_dock_->setVisible(any);
  details_dock_->setVisible(any);
  splitter_->setSizes({height() / 2, height() / 2});
  const int unit = fontMetrics().averageCharWidth();
  resizeDocks({study_dock_, details_dock_}, {unit * 46, unit * 44}, Qt::Horizontal);
}

void MainWindow::restore_settings() {
  resize(1280, 800);
  // A small screen, or one that is gone since: the window fits the one there is.
  if (const QScreen* here = screen()) resize(size().boundedTo(here->availableSize()));
  restoreGeometry(settings_->value(QStringLiteral("geometry")).toByteArray());
  restoreState(settings_->value(QStringLiteral("docks")).toByteArray(), kStateVersion);
  splitter_->restoreState(settings_->value(QStringLiteral("splitter")).toByteArray());
  start_->set_recent(settings_->value(QStringLiteral("recent")).toStringList());
  const QString tab = settings_->value(QStringLiteral("view")).toString();
  if (View* front = view(tab.toStdString()); front && tabs_->indexOf(front) >= 0) tabs_->setCurrentWidget(front);
  for (const auto& [id, entry] : views_)
    entry->bring_back(settings_->value(QStringLiteral("views/") + QString::fromStdString(id)).toMap());
  const double points = settings_->value(QStringLiteral("font"), 0.0).toDouble();
  if (points > 0) scale_font(points / usual_points_);
  set_theme(settings_->value(QStringLiteral("theme"), QStringLiteral("system")).toString());
}

void MainWindow::save_settings() {
  settings_->setValue(QStringLiteral("geometry"), saveGeometry());
  settings_->setValue(QStringLiteral("docks"), saveState(kStateVersion));
  settings_->setValue(QStringLiteral("splitter"), splitter_->saveState());
  if (tabs_->currentWidget()) settings_->setValue(QStringLiteral("view"), tabs_->currentWidget()->objectName());
  settings_->setValue(QStringLiteral("theme"), theme_name_);
  for (const auto& [id, entry] : views_)
    settings_->setValue(QStringLiteral("views/") + QString::fromStdString(id), entry->kept());
  settings_->sync();
}

void MainWindow::scale_font(double factor) {
  QFont font = QApplication::font();
  const double points = factor == 0 ? usual_points_ : font.pointSizeF() * factor;
  font.setPointSizeF(std::clamp(points, usual_points_ * 0.6, usual_points_ * 3));
  QApplication::setFont(font);
  settings_->setValue(QStringLiteral("font"), factor == 0 ? 0.0 : font.pointSizeF());
  apply_theme();
}

void MainWindow::set_theme(const QString& name) {
  theme_name_ = name;
  apply_theme();
}

void MainWindow::apply_theme() {
  if (applying_theme_) return;
  applying_theme_ = true;
  if (theme_name_ == QStringLiteral("dark"))
    theme_ = &dark_theme();
  else if (theme_name_ == QStringLiteral("light"))
    theme_ = &light_theme();
  else
    theme_ = platform_is_dark() ? &dark_theme() : &light_theme();
  apply_palette(*theme_);
  banner_->setStyleSheet(QStringLiteral("background: %1; color: %2;").arg(theme_->warning.name(), theme_->text.name()));
  for (const auto& [id, entry] : views_) entry->set_theme(*theme_);
  editor_->set_theme(*theme_);
  details_->set_theme(*theme_);
  filter_->set_theme(*theme_);
  applying_theme_ = false;
}

} // namespace foretrain::gui
