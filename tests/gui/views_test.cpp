// SPDX-License-Identifier: GPL-3.0-or-later
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include <QAbstractItemView>
#include <QApplication>
#include <QHeaderView>
#include <QImage>
#include <QTest>

#include "gui/app/export.h"
#include "gui/model/commands.h"
#include "gui/plot/chart.h"
#include "gui/views/table_model.h"
#include "gui/views/view.h"
#include "tests/gui/fixtures.h"

/// What every view of the catalogue owes the others.
namespace foretrain::gui {
namespace {

/// Whether a picture has more than one colour.
bool shows_something(const QImage& image) {
  const QRgb first = image.pixel(0, 0);
  for (int y = 0; y < image.height(); y += 3)
    for (int x = 0; x < image.width(); x += 3)
      if (image.pixel(x, y) != first) return true;
  return false;
}

class Views : public testing::TestWithParam<ViewEntry> {
protected:
  void fill(int rows) {
    // Accuracy starts a program when an export waits for it: its own test covers that.
    session.set_waiting(std::string_view(GetParam().id) != "accuracy");
    if (rows > 0) {
      session.set_results(test::made_up_results(rows));
      session.select({0});
    }
    view = GetParam().make({session, commands});
    view->flush();
  }
  QImage picture(QSize size) {
    QImage image(size, QImage::Format_ARGB32_Premultiplied);
    image.fill(Qt::transparent);
    view->paint_to(image, size);
    return image;
  }
  Session session{test::environment()};
  CommandRegistry commands;
  std::unique_ptr<View> view;
};

TEST_P(Views, HaveIdTitleAndHelp) {
  EXPECT_GT(std::string_view(GetParam().id).size(), 2U);
  EXPECT_GT(std::string_view(GetParam().title).size(), 2U);
  EXPECT_GT(std::string_view(GetParam().help).size(), 30U);
  EXPECT_EQ(find_view(GetParam().id)->title, GetParam().title);
}

TEST_P(Views, PaintWithoutResultsAndSmall) {
  fill(0);
  EXPECT_TRUE(shows_something(picture({600, 300})));
  (void)picture({100, 80});
}

TEST_P(Views, FitBetweenTheDocksOfASmallWindow) {
  fill(50);
  view->show();
  QApplication::processEvents();
  EXPECT_LE(view->minimumSizeHint().width(), 560);
  EXPECT_LE(view->minimumSizeHint().height(), 300);
  if (view->minimumSizeHint().width() <= 560) return;
  for (const QWidget* child : view->findChildren<QWidget*>(Qt::FindDirectChildrenOnly))
    if (child->isVisible())
      ADD_FAILURE() << child->metaObject()->className() << " " << child->accessibleName().toStdString() << " needs "
                    << child->minimumSizeHint().width();
}

TEST_P(Views, PaintOneAndManyLayouts) {
  fill(1);
  EXPECT_TRUE(shows_something(picture({800, 500})));
  session.set_results(test::made_up_results(300));
  session.select({2, 3, 4});
  view->flush();
  EXPECT_TRUE(shows_something(picture({4000, 2000})));
}

TEST_P(Views, PaintAHundredThousandLayouts) {
  fill(100'000);
  EXPECT_TRUE(shows_something(picture({1200, 700})));
}

TEST_P(Views, AreReachedByKeyboardAndNamed) {
  fill(5);
  const QWidget* proxy = view->focusProxy();
  ASSERT_NE(proxy, nullptr) << "the focus has to go somewhere";
  while (proxy->focusProxy()) proxy = proxy->focusProxy();
  EXPECT_NE(proxy->focusPolicy() & Qt::TabFocus, 0);
  EXPECT_FALSE(view->focusProxy()->accessibleName().isEmpty() &&
               static_cast<const QWidget*>(view->focusProxy())->property("text").toString().isEmpty());
}

TEST_P(Views, PaintNothingThatIsBehindTheSession) {
  fill(300);
  view->resize(600, 400);
  view->show();
  QApplication::processEvents();
  view->hide();
  session.set_results(test::made_up_results(400)); // more rows than it has looked at, then fewer
  view->resize(700, 450);
  view->show();
  QApplication::processEvents();
  view->hide();
  session.set_results(test::made_up_results(3));
  view->resize(600, 400);
  view->show();
  QApplication::processEvents();
}

TEST_P(Views, AreDeletedWithTheFocus) {
  fill(20);
  view->resize(600, 400);
  view->show();
  view->activateWindow();
  EXPECT_TRUE(QTest::qWaitForWindowActive(view.get()));
  view->setFocus();
  QApplication::processEvents();
  view.reset();
  QApplication::processEvents();
}

TEST_P(Views, BringTheirStateBack) {
  fill(50);
  if (auto* plot = dynamic_cast<Chart*>(view->focusProxy())) {
    view->flush();
    plot->zoom(0.5, plot->frame().area.center());
  }
  const QVariantMap kept = view->kept();
  const auto other = GetParam().make({session, commands});
  other->bring_back(kept);
  EXPECT_EQ(other->kept(), kept);
  other->flush();
  EXPECT_EQ(other->kept(), kept) << "the same data: the same part of them";
}

/// Views with something to point at.
class WalkedViews : public Views {};

TEST_P(WalkedViews, KeysWalkThroughWhatThePointerShows) {
  fill(50);
  session.select({8}); // of four stages
  view->resize(700, 400);
  view->show();
  auto* plot = dynamic_cast<Chart*>(view->focusProxy());
  ASSERT_NE(plot, nullptr);
  QTest::keyClick(plot->focusProxy(), Qt::Key_Right);
  const QString first = plot->accessibleDescription();
  QTest::keyClick(plot->focusProxy(), Qt::Key_Right);
  EXPECT_NE(plot->accessibleDescription(), first);
  QTest::keyClick(plot->focusProxy(), Qt::Key_Left);
  EXPECT_EQ(plot->accessibleDescription(), first);
  for (int i = 0; i < 100; ++i) QTest::keyClick(plot->focusProxy(), i % 2 == 0 ? Qt::Key_Left : Qt::Key_Down);
  EXPECT_FALSE(plot->zoomed()) << "keys that walk do not move the plot";
}

TEST_P(Views, ExportTablesAndVectors) {
  fill(50);
  const test::Folder folder;
  const std::string csv = view->csv();
  EXPECT_NE(csv.find(','), std::string::npos);
  EXPECT_EQ(csv.back(), '\n');
  for (const std::string& kind : export_kinds()) {
    const std::string file = (folder / ("view." + kind).c_str()).string();
    const auto written = export_view(*view, file, {700, 420}, 1);
    ASSERT_TRUE(written) << to_string(written.error());
    EXPECT_GT(std::filesystem::file_size(file), 20U) << kind;
  }
  EXPECT_FALSE(export_view(*view, (folder / "view.gif").string(), {700, 420}, 1));
  EXPECT_FALSE(export_view(*view, "/proc/nowhere/view.png", {700, 420}, 1));
}

TEST_P(Views, DifferBetweenThemes) {
  fill(20);
  view->set_theme(light_theme());
  const QImage light = picture({500, 300});
  view->set_theme(dark_theme());
  view->setPalette(palette_of(dark_theme()));
  EXPECT_NE(picture({500, 300}), light);
}

TEST_P(Views, TakeEveryChange) {
  fill(30);
  view->resize(600, 400);
  view->show();
  QApplication::processEvents();
  session.set_hover(3);
  session.select({5, 6});
  session.toggle_pin(5);
  session.set_baseline(6);
  ASSERT_TRUE(session.set_chip({Chip::Kind::column, "tp", "<4"}));
  session.set_results(test::made_up_results(3));
  session.set_results(std::make_shared<Results>());
  view->fit();
  view->frame_selection();
  QApplication::processEvents();
}

std::string name_of_view(const testing::TestParamInfo<ViewEntry>& info) {
  return info.param.id;
}

std::vector<ViewEntry> all_views() {
  return {views().begin(), views().end()};
}

INSTANTIATE_TEST_SUITE_P(All, Views, testing::ValuesIn(all_views()), name_of_view);

INSTANTIATE_TEST_SUITE_P(All, WalkedViews,
                         testing::Values(*find_view("memory"), *find_view("topology"), *find_view("parallel"),
                                         *find_view("waterfall")),
                         name_of_view);

/// The columns of figures beside long names, in a view between the docks of a small window.
class NarrowLists : public testing::TestWithParam<const char*> {};

TEST_P(NarrowLists, KeepFiguresInSight) {
  Session session{test::environment()};
  session.set_waiting(true);
  auto results = std::make_shared<Results>(*test::made_up_results(20));
  for (Row& row : results->rows) row.layout.recompute = {RecomputeKind::full, RecomputeMethod::uniform, 12, {}};
  results->near_misses.front().layout = results->rows[11].layout;
  session.set_results(results);
  CommandRegistry commands;
  const auto view = find_view(GetParam())->make({session, commands});
  view->resize(720, 330);
  view->show();
  QApplication::processEvents();
  for (const auto* list : view->findChildren<QAbstractItemView*>()) {
    const auto* header = list->findChild<QHeaderView*>();
    if (!header || header->orientation() != Qt::Horizontal) continue;
    int last = header->count() - 1;
    if (list->accessibleName() == QStringLiteral("Near misses")) last = 3; // what would be legal, and why, may follow
    EXPECT_LE(header->sectionViewportPosition(last) + header->sectionSize(last), list->viewport()->width() + 1)
        << list->accessibleName().toStdString();
    EXPECT_GE(header->sectionSize(0), 100) << list->accessibleName().toStdString();
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowLists, testing::Values("rejections", "sensitivity"));

TEST(TableModel, MarksTheRowToTakeAndSaysWhy) {
  Results results = *test::made_up_results(3);
  results.tied_with_best = 2;
  results.preferred = 1;
  Session session(test::environment());
  session.set_results(std::make_shared<const Results>(results));
  TableModel model(session);
  model.reload();
  const auto header = [&](int row, int role) {
    return model.headerData(model.position_of(row), Qt::Vertical, role).toString().toStdString();
  };
  EXPECT_EQ(header(1, Qt::DisplayRole), "✓ 2");
  EXPECT_EQ(header(0, Qt::DisplayRole), "1");
  EXPECT_NE(header(1, Qt::ToolTipRole).find("preferred among the 2 plans that tie with the best"), std::string::npos);
  results.tied_with_best = 1;
  session.set_results(std::make_shared<const Results>(results));
  model.reload();
  EXPECT_EQ(header(1, Qt::DisplayRole), "2") << "nothing ties";
}

TEST(ViewCatalogue, HasTheViewsOfTheCommandLine) {
  for (const char* id : {"table", "pareto", "parallel", "memory", "timeline", "topology", "waterfall", "rejections",
                         "compare", "measured", "accuracy"})
    EXPECT_NE(find_view(id), nullptr) << id;
  EXPECT_EQ(find_view("nothing"), nullptr);
}

} // namespace
} // namespace foretrain::gui
