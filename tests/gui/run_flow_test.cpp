// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include <QLineEdit>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QTest>
#include <QTreeWidget>
#include <QUndoStack>

#include "core/base/json.h"
#include "gui/views/view.h"
#include "tests/gui/window.h"

/// Acting on a plan: running it, cancelling, importing, comparing, learning from runs.
namespace foretrain::gui {
namespace {

/// Two ranks of this machine, a model that takes milliseconds.
Json host_study(std::int64_t batch = 8) {
  return {
      {"model",
       {{"name", "tiny"},
        {"layers", 4},
        {"hidden", 64},
        {"heads", 4},
        {"kv_heads", 4},
        {"head_dim", 16},
        {"ffn", 128},
        {"vocab", 128}}},
      {"cluster", {{"preset", "cpu-host"}, {"devices", 2}}},
      {"job", {{"sequence_length", 64}, {"global_batch", batch}, {"precision", "fp32"}, {"semantics", "foretrain"}}},
      {"space", {{"sharding", {"none"}}, {"micro_batch", {1}}, {"tp", {1}}, {"pp", {1}}, {"cp", {1}}}}};
}

class RunFlow : public testing::Test {
protected:
  void SetUp() override {
    const Environment here = test::environment();
    if (here.command.empty() || here.executor.empty()) GTEST_SKIP() << "this build has no executor";
    w->session().set_path(w.folder / "s.foretrain");
    w->session().open_study(host_study(), "open");
    ASSERT_TRUE(w->session().study()) << w->session().problems().front().message;
    ASSERT_TRUE(w->commands().run("search.start"));
    ASSERT_TRUE(w.wait([&] { return !w->session().searching() && !w->session().saving(); }));
    ASSERT_GE(w->session().current(), 0);
  }
  QString log() { return w->view("run")->findChild<QPlainTextEdit*>()->toPlainText(); }
  QTreeWidget* list(const char* name) {
    for (auto* found : w->view("measured")->findChildren<QTreeWidget*>())
      if (found->accessibleName() == QString::fromUtf8(name)) return found;
    return nullptr;
  }
  void press(const char* view, const char* text) {
    for (auto* found : w->view(view)->findChildren<QAbstractButton*>())
      if (found->text() == QString::fromUtf8(text)) return QTest::mouseClick(found, Qt::LeftButton);
    FAIL() << "no button " << text;
  }
  test::Window w;
};

TEST_F(RunFlow, RunsComparesAndLearns) {
  w->session().set_waiting(false);
  EXPECT_TRUE(w->commands().run("run.start"));
  View* run = w->view("run");
  EXPECT_TRUE(run->isVisible());
  EXPECT_TRUE(run->busy());
  ASSERT_TRUE(w.wait([&] { return !run->busy(); }));
  EXPECT_FALSE(log().isEmpty()) << "what the ranks say";
  const std::string steps = run->csv();
  EXPECT_GT(std::count(steps.begin(), steps.end(), '\n'), 10) << steps;

  w->show_view("measured");
  View* measured = w->view("measured");
  QTreeWidget* runs = list("Runs");
  ASSERT_NE(runs, nullptr);
  ASSERT_TRUE(w.wait([&] { return runs->topLevelItemCount() == 1; }));
  EXPECT_EQ(runs->topLevelItem(0)->text(1), QStringLiteral("done"));
  QTreeWidget* terms = list("Terms of the selected run");
  ASSERT_TRUE(w.wait([&] { return terms->topLevelItemCount() > 3; })) << "step, memory and axes of each rank";
  ASSERT_TRUE(w.wait([&] { return !measured->busy(); }));

  EXPECT_TRUE(w->commands().run("runs.calibrate"));
  ASSERT_TRUE(w.wait([&] {
    QTreeWidget* fits = list("Runs before and after");
    return fits && fits->isVisible() && fits->topLevelItemCount() == 1;
  }));
  EXPECT_FALSE(w->session().stale()) << "nothing is changed before it is accepted";
  press("measured", "Use this calibration");
  EXPECT_TRUE(w->session().stale());
  EXPECT_TRUE(std::filesystem::exists(own_calibration(w->session().environment(), "cpu-core")));
}

TEST_F(RunFlow, MakesCheckpointsAndExportsTheirWeights) {
  View* run = w->view("run");
  const auto type = [&](const char* name, const std::string& text) {
    for (auto* field : run->findChildren<QLineEdit*>())
      if (field->accessibleName() == QString::fromUtf8(name)) return field->setText(QString::fromStdString(text));
    FAIL() << "no field " << name;
  };
  EXPECT_TRUE(w->commands().run("run.options"));
  type("Resume from", w.folder / "nowhere");
  EXPECT_FALSE(w->view("run")->focusProxy()->isEnabled()) << "there is no such checkpoint";
  type("Resume from", "");
  type("Checkpoints into", w.folder / "c");
  EXPECT_TRUE(w->view("run")->focusProxy()->isEnabled());
  ASSERT_TRUE(w->commands().run("run.start"));
  ASSERT_TRUE(w.wait([&] { return !run->busy(); }));
  EXPECT_TRUE(std::filesystem::is_directory(w.folder / "c")) << log().toStdString();
  type("Export weights to", w.folder / "hf");
  ASSERT_TRUE(w->commands().run("run.export-weights"));
  ASSERT_TRUE(w.wait([&] { return !run->busy(); }));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(w.folder / "hf") / "model.safetensors"))
      << log().toStdString();
  const QVariantMap state = run->state();
  type("Checkpoints into", "");
  run->restore(state);
  EXPECT_EQ(run->state(), state);
}

TEST_F(RunFlow, CancelsAndKeepsWhatWasDone) {
  w->session().open_study(host_study(4096), "many micro-batches"); // steps that take a while
  ASSERT_TRUE(w->commands().run("search.start"));
  ASSERT_TRUE(w.wait([&] { return !w->session().searching() && !w->session().saving(); }));
  ASSERT_TRUE(w->commands().run("run.start"));
  View* run = w->view("run");
  QTest::qWait(500);
  ASSERT_TRUE(run->busy());
  EXPECT_TRUE(w->commands().run("run.cancel"));
  ASSERT_TRUE(w.wait([&] { return !run->busy(); }));
  EXPECT_FALSE(w->commands().run("run.cancel")) << "there is nothing to cancel any more";
  w->show_view("measured");
  QTreeWidget* runs = list("Runs");
  ASSERT_TRUE(w.wait([&] { return runs->topLevelItemCount() == 1; }));
  EXPECT_EQ(runs->topLevelItem(0)->text(1), QStringLiteral("interrupted"));
}

TEST_F(RunFlow, ImportsARunByDroppingItsRecords) {
  EXPECT_TRUE(w->commands().run("run.start"));
  ASSERT_TRUE(w.wait([&] { return !w->view("run")->busy(); }));
  const std::filesystem::path runs_folder = w.folder / "s-runs";
  ASSERT_TRUE(std::filesystem::is_directory(runs_folder));
  const auto folder = std::filesystem::directory_iterator(runs_folder)->path();
  const std::filesystem::path elsewhere = w.folder / "elsewhere";
  std::filesystem::copy(folder, elsewhere, std::filesystem::copy_options::recursive);
  w->open(QString::fromStdString((elsewhere / "run.json").string()));
  w->show_view("measured");
  QTreeWidget* runs = list("Runs");
  ASSERT_TRUE(w.wait([&] { return runs->topLevelItemCount() == 2; }))
      << (w->session().problems().empty() ? "" : w->session().problems().back().message);
  EXPECT_EQ(w->undo_stack().undoText(), QStringLiteral("import of runs"));
  EXPECT_TRUE(w->commands().run("edit.undo"));
  ASSERT_TRUE(w.wait([&] { return runs->topLevelItemCount() == 1; })) << "the run that was made here stays";
  EXPECT_TRUE(w->commands().run("edit.redo"));
  ASSERT_TRUE(w.wait([&] { return runs->topLevelItemCount() == 2; }));
}

TEST_F(RunFlow, ClosesWhileRunning) {
  ASSERT_TRUE(w->commands().run("run.start"));
  EXPECT_TRUE(w->view("run")->busy());
  w->close();
  w.window.reset();
}

TEST(RunView, SaysWhyItCannotRun) {
  test::Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(5));
  w->session().select({0});
  w->show_view("run");
  auto* start = w->view("run")->focusProxy();
  EXPECT_FALSE(start->isEnabled()) << "there is no session file, and eight times an H100's memory";
  EXPECT_FALSE(w->view("run")->busy());
  w->view("run")->act("start");
  EXPECT_FALSE(w->view("run")->busy());
}

TEST(Export, ToFrameworksIsGreyWithTheReason) {
  test::Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(5));
  w->session().select({0});
  const Command* command = w->commands().find("row.export-framework");
  ASSERT_NE(command, nullptr);
  EXPECT_FALSE(w->commands().enabled(*command));
  EXPECT_NE(command->title.find("no exporter"), std::string::npos);
}

} // namespace
} // namespace foretrain::gui
