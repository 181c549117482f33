// SPDX-License-Identifier: GPL-3.0-or-later
#include <random>

#include <gtest/gtest.h>

#include <QUndoStack>

#include "tests/gui/window.h"

namespace foretrain::gui {
namespace {

/// 2,000 commands in any order: nothing may crash, and undoing everything leads back to the beginning.
TEST(Monkey, UndoLeadsBackFromTwoThousandCommands) {
  test::Window w;
  w->session().open_study(test::small_document(), "open");
  w->session().set_results(test::made_up_results(60));
  w->undo_stack().clear();
  const Edits before = w->session().edits();
  std::vector<std::string> ids;
  for (const Command& command : w->commands().all())
    if (!command.asks && command.id != "file.close" && command.id != "file.new" && !command.id.starts_with("search.") &&
        command.id != "view.larger" && command.id != "view.smaller")
      ids.push_back(command.id);
  ASSERT_GT(ids.size(), 20U);
  std::mt19937 random(20240607);
  int done = 0;
  for (int i = 0; i < 2000; ++i) {
    switch (random() % 8) {
    case 0:
      w->session().select({static_cast<int>(random() % 60)});
      break;
    case 1:
      (void)w->session().set_chip({Chip::Kind::column, "tp", random() % 2 == 0 ? "" : ">=2"});
      break;
    case 2:
      w->session().set_hover(static_cast<int>(random() % 70) - 5);
      break;
    default:
      done += w->commands().run(ids[random() % ids.size()]) ? 1 : 0;
    }
    if (i % 20 == 0) QApplication::processEvents();
  }
  EXPECT_GT(done, 500);
  while (w->undo_stack().canUndo()) w->undo_stack().undo();
  EXPECT_EQ(w->session().edits(), before);
}

TEST(Monkey, SearchesAndClosesInAnyOrder) {
  test::Window w;
  std::mt19937 random(7);
  const std::array ids = {"search.start", "search.stop", "file.new", "escape", "edit.undo", "edit.redo", "file.close"};
  for (int i = 0; i < 40; ++i) {
    if (w->session().edits().document.is_null()) w->session().open_study(test::small_document(), "open");
    w->commands().run(ids[random() % ids.size()]);
    QApplication::processEvents(QEventLoop::AllEvents, 5);
  }
  w->close();
}

} // namespace
} // namespace foretrain::gui
