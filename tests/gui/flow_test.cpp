// SPDX-License-Identifier: GPL-3.0-or-later
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include <QClipboard>
#include <QDialog>
#include <QDockWidget>
#include <QDragEnterEvent>
#include <QDropEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMimeData>
#include <QPushButton>
#include <QTableView>
#include <QTest>
#include <QToolButton>
#include <QUndoStack>

#include "gui/app/export.h"
#include "gui/app/table_dialog.h"
#include "gui/views/view.h"
#include "tests/gui/window.h"
#include "tests/support/places.h"

/// What a person does, through the commands.
namespace foretrain::gui {
namespace {

using test::Window;

QAbstractButton* button(QWidget& in, const char* text) {
  for (auto* found : in.findChildren<QAbstractButton*>())
    if (found->text() == QString::fromUtf8(text) && found->isVisible()) return found;
  return nullptr;
}

TEST(Flow, ThreeClicksFromTheStartToARankedList) {
  Window w;
  QAbstractButton* example = button(*w.window, "Llama 3 8B on one node");
  ASSERT_NE(example, nullptr);
  QTest::mouseClick(example, Qt::LeftButton);
  QAbstractButton* search = button(*w.window, "Search");
  ASSERT_NE(search, nullptr);
  QTest::mouseClick(search, Qt::LeftButton);
  ASSERT_TRUE(w.wait([&] { return !w->session().searching(); }));
  EXPECT_GT(w->session().rows().size(), 10U);
  EXPECT_TRUE(w->view("table")->isVisible());
}

TEST(Flow, FilterPinUndoExport) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(200));
  w->session().select({0});
  ASSERT_TRUE(w->session().set_chip({Chip::Kind::expression, "", "tp >= 4"}));
  EXPECT_TRUE(w->commands().run("row.pin"));
  EXPECT_TRUE(w->session().pinned(0));
  EXPECT_EQ(w->undo_stack().undoText().toStdString(), "pin #1");
  EXPECT_TRUE(w->commands().run("edit.undo"));
  EXPECT_TRUE(w->commands().run("edit.undo"));
  EXPECT_FALSE(w->session().pinned(0));
  EXPECT_EQ(w->session().shown().size(), 200U);
  EXPECT_TRUE(w->commands().run("edit.redo"));
  EXPECT_LT(w->session().shown().size(), 200U);
  const std::string file = (w.folder / "out.svg").string();
  w->ask.save = [&](const QString&, const QString&, const QString&) { return QString::fromStdString(file); };
  EXPECT_TRUE(w->commands().run("file.export"));
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(Flow, ColumnsAreSortedAndHiddenByKeyboard) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(20));
  w->session().select({0});
  w->show_view("table");
  auto* table = w->view("table")->findChild<QTableView*>();
  ASSERT_NE(table, nullptr);
  table->setCurrentIndex(table->model()->index(0, 1));
  const QString title = table->model()->headerData(1, Qt::Horizontal).toString();
  const int columns = table->model()->columnCount();
  EXPECT_TRUE(w->commands().run("table.sort"));
  ASSERT_EQ(w->session().edits().sort.size(), 1U);
  table->setCurrentIndex(table->model()->index(0, 2));
  EXPECT_TRUE(w->commands().run("table.add-to-sort"));
  EXPECT_EQ(w->session().edits().sort.size(), 2U);
  table->setCurrentIndex(table->model()->index(0, 1));
  EXPECT_TRUE(w->commands().run("table.hide"));
  EXPECT_EQ(table->model()->columnCount(), columns - 1);
  EXPECT_TRUE(w->commands().run("edit.undo"));
  EXPECT_EQ(table->model()->columnCount(), columns);
  EXPECT_TRUE(w->commands().run("table.hide"));
  EXPECT_TRUE(w->commands().run("table.reset-columns"));
  EXPECT_EQ(table->model()->columnCount(), columns);
  EXPECT_TRUE(table->model()->headerData(1, Qt::Horizontal).toString().startsWith(title + QStringLiteral(" ")))
      << "its place in the order follows";
}

TEST(Flow, ToolsAreGreyWhenThereIsNothingToDo) {
  Window w;
  const auto tool = [&](const char* id) { return w->findChild<QToolButton*>(QString::fromLatin1(id)); };
  for (const char* id : {"edit.undo", "row.pin", "file.export"}) EXPECT_FALSE(tool(id)->isEnabled()) << id;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(20));
  EXPECT_FALSE(tool("row.pin")->isEnabled()) << "nothing is selected";
  w->session().select({3});
  for (const char* id : {"edit.undo", "row.pin", "file.export"}) EXPECT_TRUE(tool(id)->isEnabled()) << id;
  QTest::mouseClick(tool("row.pin"), Qt::LeftButton);
  EXPECT_TRUE(w->session().pinned(3));
}

TEST(Flow, NotesAreKeptWithThePinAndUndone) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(20));
  w->session().select({4});
  w->ask.text = [](const QString& title, const QString& before) {
    EXPECT_EQ(title, QStringLiteral("Note on #5"));
    return std::optional<QString>(before + QStringLiteral("try this"));
  };
  EXPECT_TRUE(w->commands().run("row.note"));
  EXPECT_TRUE(w->session().pinned(4));
  EXPECT_EQ(w->session().note(4), "try this");
  EXPECT_TRUE(w->commands().run("row.note"));
  EXPECT_EQ(w->session().note(4), "try thistry this");
  w->ask.text = [](const QString&, const QString&) { return std::optional<QString>(); };
  EXPECT_TRUE(w->commands().run("row.note"));
  EXPECT_EQ(w->session().note(4), "try thistry this") << "cancelled";
  EXPECT_TRUE(w->commands().run("edit.undo"));
  EXPECT_TRUE(w->commands().run("edit.undo"));
  EXPECT_FALSE(w->session().pinned(4));
}

TEST(Flow, PanelsCloseAndComeBack) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  auto* why = w->findChild<QDockWidget*>(QStringLiteral("details"));
  ASSERT_TRUE(why && why->isVisible());
  EXPECT_TRUE(w->commands().run("view.why"));
  EXPECT_FALSE(why->isVisible());
  EXPECT_TRUE(w->commands().run("view.why"));
  EXPECT_TRUE(why->isVisible());
}

TEST(Export, TakesTheSuffixOfTheChosenKind) {
  EXPECT_EQ(with_suffix("/a.b/out", "pareto.svg", "PNG (*.png)"), "/a.b/out.png");
  EXPECT_EQ(with_suffix("/a/pareto.svg", "pareto.svg", "PNG (*.png)"), "/a/pareto.png");
  EXPECT_EQ(with_suffix("/a/mine.pdf", "pareto.svg", "PNG (*.png)"), "/a/mine.pdf") << "what was typed counts";
  EXPECT_EQ(with_suffix("/a/pareto.svg", "pareto.svg", "SVG (*.svg)"), "/a/pareto.svg");
  EXPECT_EQ(with_suffix("/a/x", "x.json", "All files (*)"), "/a/x");
  EXPECT_EQ(with_suffix("", "x.svg", "SVG (*.svg)"), "");
}

TEST(TableOfAView, ReadsWhatViewsWrite) {
  using Lines = std::vector<std::vector<std::string>>;
  EXPECT_EQ(csv_cells("a,b\n1,\"x, \"\"y\"\"\"\n"), (Lines{{"a", "b"}, {"1", "x, \"y\""}}));
  EXPECT_EQ(csv_cells("a\n\"two\nlines\"\n"), (Lines{{"a"}, {"two\nlines"}}));
  EXPECT_EQ(csv_cells("a,\n"), (Lines{{"a", ""}}));
  EXPECT_TRUE(csv_cells("").empty());
  const auto dialog = table_dialog("Table", "rank,tp\n1,8\n2,4\n", nullptr);
  auto* table = dialog->findChild<QTableView*>();
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->model()->rowCount(), 2);
  for (auto* found : dialog->findChildren<QPushButton*>())
    if (found->text() == QStringLiteral("Copy all")) found->click();
  EXPECT_EQ(QGuiApplication::clipboard()->text(), QStringLiteral("1\t8\n2\t4\n"));
}

TEST(Flow, FitsASmallScreenWhateverItSays) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(200));
  w->session().select({0});
  auto* box = w->findChild<QLineEdit*>();
  for (auto* found : w->findChildren<QLineEdit*>())
    if (found->accessibleName() == QStringLiteral("Filter expression")) box = found;
  ASSERT_NE(box, nullptr);
  QTest::keyClicks(box, QStringLiteral("tp <= 4 and no_such_field > 3"));
  QTest::keyClick(box, Qt::Key_Return);
  for (const ViewEntry& entry : views()) {
    w->show_view(entry.id);
    QApplication::processEvents();
    const QSize least = w->minimumSizeHint();
    EXPECT_LE(least.width(), 1280) << entry.id;
    EXPECT_LE(least.height(), 720) << entry.id;
  }
  EXPECT_EQ(w->session().shown().size(), 200U) << "a filter that does not read changes nothing";
}

TEST(Flow, PlaysTheStepUntilEscape) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(5));
  w->session().select({0});
  w->show_view("topology");
  EXPECT_TRUE(w->commands().run("step.play"));
  ASSERT_TRUE(w.wait([&] { return w->session().moment() > 0; }));
  const double before = w->session().moment();
  ASSERT_TRUE(w.wait([&] { return w->session().moment() != before; }));
  w->session().select({});
  EXPECT_TRUE(w->commands().run("escape"));
  EXPECT_LT(w->session().moment(), 0);
  QTest::qWait(120);
  EXPECT_LT(w->session().moment(), 0) << "it goes on playing";
}

TEST(Flow, CopiesACommand) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(5));
  w->session().select({1});
  EXPECT_TRUE(w->commands().run("row.copy-command"));
  EXPECT_TRUE(QGuiApplication::clipboard()->text().contains(QStringLiteral("predict /dev/stdin <<'END'")));
  EXPECT_TRUE(w->commands().run("row.copy-cells"));
  EXPECT_TRUE(QGuiApplication::clipboard()->text().startsWith(QStringLiteral("rank\t")));
}

TEST(Flow, QuitAndStartSameFile) {
  Window w;
  const std::string file = (w.folder / "s.foretrain").string();
  w->ask.save = [&](const QString&, const QString&, const QString&) { return QString::fromStdString(file); };
  w->session().open_study(test::small_document(), "open");
  EXPECT_TRUE(w->commands().run("search.start"));
  ASSERT_TRUE(w.wait([&] { return !w->session().searching(); }));
  const std::size_t rows = w->session().rows().size();
  EXPECT_TRUE(w->commands().run("file.save-as"));
  ASSERT_TRUE(w.wait([&] { return !w->session().saving(); }));
  ASSERT_TRUE(w->session().set_chip({Chip::Kind::column, "tp", "2"}));
  w->show_view("memory");
  w->set_theme(QStringLiteral("dark"));
  ASSERT_GT(w->session().shown().size(), 1U);
  const int chosen = w->session().shown()[1];
  w->session().select({chosen});
  w->close();
  w.window = w.make();
  w->open(QString::fromStdString(file));
  ASSERT_TRUE(w.wait([&] { return !w->session().loading(); }));
  EXPECT_EQ(w->session().rows().size(), rows);
  EXPECT_EQ(w->session().edits().chips.size(), 1U);
  EXPECT_EQ(w->session().current(), chosen) << "the layout that was looked at";
  EXPECT_TRUE(w->view("memory")->isVisible()) << "the tab of before";
  EXPECT_TRUE(w->view("table")->theme().dark);
}

TEST(Flow, ClosesWhileSearching) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  EXPECT_TRUE(w->commands().run("search.start"));
  w->close();
  EXPECT_FALSE(w->session().searching());
}

TEST(Flow, OpeningAnotherFileWhileSearchingDropsTheFirst) {
  Window w;
  w->session().open_study(test::small_document(), "open");
  EXPECT_TRUE(w->commands().run("search.start"));
  w->commands().run("file.new");
  EXPECT_FALSE(w->session().searching());
  QTest::qWait(50);
  EXPECT_TRUE(w->session().rows().empty()) << "results of the study before have arrived";
}

TEST(Flow, WrongFilesSayWhyWithoutABox) {
  Window w;
  std::ofstream(w.folder / "x.json") << "{\"a\": 1}";
  w->open(QString::fromStdString((w.folder / "x.json").string()));
  ASSERT_FALSE(w->session().problems().empty());
  EXPECT_NE(w->session().problems().back().message.find("neither a session nor a study"), std::string::npos);
  w->open(QStringLiteral("/no/such/file.json"));
  EXPECT_EQ(w->session().problems().size(), 2U);
}

TEST(Flow, AStudyWithAMistakeOpensWithItsProblem) {
  Window w;
  Json study = test::small_document();
  study["job"]["global_batch"] = -5;
  std::ofstream(w.folder / "wrong.json") << study.dump();
  w->open(QString::fromStdString((w.folder / "wrong.json").string()));
  EXPECT_EQ(w->session().edits().document, study);
  ASSERT_EQ(w->session().problems().size(), 1U);
  EXPECT_EQ(w->session().problems().front().where, "study:/job/global_batch");
  QApplication::processEvents(); // the form is filled when nothing edits it
  const auto lists = w->findChildren<QListWidget*>();
  EXPECT_TRUE(std::any_of(lists.begin(), lists.end(), [](const QListWidget* list) {
    return list->accessibleName() == QStringLiteral("Problems") && list->isVisible() && list->count() == 1;
  })) << "the list beside the form";
}

TEST(Flow, TheStartPageSaysWhatCouldNotBeOpened) {
  Window w;
  w->open(QStringLiteral("/no/such/file.json"));
  const auto said = w->findChildren<QLabel*>();
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const QLabel* label) {
    return label->accessibleName() == QStringLiteral("Problems") && label->isVisible() &&
           label->text().contains(QStringLiteral("/no/such/file.json"));
  }));
}

void drop(QWidget& on, const std::filesystem::path& file) {
  QMimeData data;
  data.setUrls({QUrl::fromLocalFile(QString::fromStdString(file.string()))});
  QDragEnterEvent enter(QPoint(10, 10), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(&on, &enter);
  EXPECT_TRUE(enter.isAccepted()) << file;
  QDropEvent event(QPointF(10, 10), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
  QApplication::sendEvent(&on, &event);
}

TEST(Flow, DropsOpen) {
  Window w;
  drop(*w.window, foretrain::test::source_folder() / "tests/gui/small_study.json");
  ASSERT_TRUE(w->session().study());
  EXPECT_EQ(w->session().study()->job.global_batch, 32);
  drop(*w.window, foretrain::test::source_folder() / "tests/core/spec/configs/qwen3-8b.json");
  ASSERT_TRUE(w->session().study()) << w->session().problems().front().message;
  EXPECT_EQ(w->session().study()->model.layers, 36); // Qwen3-8B's config.json: num_hidden_layers
}

TEST(Commands, OfTheWindowHaveTitlesAndKeysOfTheirOwn) {
  Window w;
  std::map<std::string, std::string> keys;
  for (const Command& command : w->commands().all()) {
    EXPECT_FALSE(command.title.empty()) << command.id;
    if (command.key.empty()) continue;
    EXPECT_TRUE(keys.emplace(command.key, command.id).second)
        << command.key << " is on " << command.id << " and " << keys[command.key];
  }
  EXPECT_GT(keys.size(), 20U);
}

} // namespace
} // namespace foretrain::gui
