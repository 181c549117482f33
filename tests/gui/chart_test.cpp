// SPDX-License-Identifier: GPL-3.0-or-later
#include <limits>

#include <gtest/gtest.h>

#include <QApplication>
#include <QComboBox>
#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <QTest>
#include <QToolButton>

#include "gui/plot/chart.h"
#include "gui/plot/theme.h"
#include "gui/plot/zoom_history.h"

namespace foretrain::gui {
namespace {

TEST(ZoomHistory, GoesBackAndForward) {
  ZoomHistory history;
  const Shown whole{0, 10, 0, 1};
  const Shown half{0, 5, 0, 1};
  const Shown nearer{0, 2, 0, 1};
  history.begin(whole);
  EXPECT_FALSE(history.step(-1));
  history.visit(half, 1.0);
  history.visit(nearer, 2.0);
  EXPECT_EQ(history.step(-1), half);
  EXPECT_EQ(history.step(-1), whole);
  EXPECT_FALSE(history.step(-1));
  EXPECT_EQ(history.step(1), half);
  history.visit(whole, 3.0); // another way: what lay ahead is gone
  EXPECT_FALSE(history.step(1));
  EXPECT_EQ(history.step(-1), half);
}

TEST(ZoomHistory, TakesATurnOfTheWheelAsOneStep) {
  ZoomHistory history;
  const Shown whole{0, 16, 0, 1};
  history.begin(whole);
  for (int i = 0; i < 4; ++i) history.visit({0, 8.0 / (i + 1), 0, 1}, 1 + 0.1 * i);
  EXPECT_EQ(history.step(-1), whole);
  for (int i = 0; i < 200; ++i) history.visit({0, 1.0 / (i + 1), 0, 1}, 10.0 + i);
  int steps = 0;
  while (history.step(-1)) ++steps;
  EXPECT_EQ(steps, static_cast<int>(ZoomHistory::kMost) - 1);
}

TEST(Theme, TextReadsOnEverythingBehindIt) {
  constexpr double kReadable = 4.5; // WCAG 2.1, level AA
  for (const Theme* theme : {&light_theme(), &dark_theme()}) {
    for (const QColor& back :
         {theme->window, theme->base, theme->raised, theme->selected, theme->hovered, theme->warning})
      EXPECT_GE(contrast(theme->text, back), kReadable) << back.name().toStdString();
    for (const QColor& back : {theme->window, theme->base}) {
      EXPECT_GE(contrast(theme->muted, back), kReadable) << back.name().toStdString();
      EXPECT_GE(contrast(theme->bad, back), kReadable);
      EXPECT_GE(contrast(theme->good, back), kReadable);
      EXPECT_GE(contrast(theme->accent, back), kReadable);
    }
    EXPECT_GE(contrast(theme->on_accent, theme->accent), kReadable);
    for (const QColor& fill : theme->series)
      EXPECT_GE(contrast(text_on(fill), fill), kReadable) << fill.name().toStdString();
  }
}

TEST(Theme, PartsDifferInColour) {
  for (const Theme* theme : {&light_theme(), &dark_theme()})
    for (int a = 0; a < kMemoryParts; ++a)
      for (int b = 0; b < a; ++b)
        EXPECT_NE(color_of(*theme, static_cast<MemoryPart>(a)), color_of(*theme, static_cast<MemoryPart>(b)));
}

QColor pixel(QWidget& widget, QPoint at) {
  return widget.grab().toImage().pixelColor(at);
}

TEST(Theme, ControlsHaveOneFrameThatIsSeen) {
  apply_palette(dark_theme());
  constexpr double kSeen = 3; // WCAG 2.1, 1.4.11: edges of controls
  QLineEdit line;
  QSpinBox number;
  QComboBox choice;
  QPushButton button(QStringLiteral("Run"));
  std::vector<QColor> frames;
  for (QWidget* control : {static_cast<QWidget*>(&line), static_cast<QWidget*>(&number), static_cast<QWidget*>(&choice),
                           static_cast<QWidget*>(&button)}) {
    control->setFocusPolicy(Qt::NoFocus); // what has the focus is framed otherwise
    control->resize(120, 30);
    control->show();
    QApplication::processEvents();
    int x = 0; // the first column that is no background
    while (x < 4 && contrast(pixel(*control, {x, 15}), dark_theme().window) < 1.1) ++x;
    frames.push_back(pixel(*control, {x, 15}));
    EXPECT_GE(contrast(frames.back(), dark_theme().window), kSeen)
        << control->metaObject()->className() << " " << frames.back().name().toStdString();
    EXPECT_LT(contrast(frames.back(), frames.front()), 1.1) << control->metaObject()->className();
  }
  apply_palette(light_theme());
}

TEST(Theme, ButtonsThatAreDownStandOut) {
  for (const Theme* theme : {&light_theme(), &dark_theme()}) {
    apply_palette(*theme);
    QToolButton button;
    button.setCheckable(true);
    button.setText(QStringLiteral("log"));
    button.resize(60, 30);
    button.show();
    show_checked(button, *theme);
    QApplication::processEvents();
    const QColor up = pixel(button, {5, 15});
    button.setChecked(true);
    show_checked(button, *theme);
    QApplication::processEvents();
    const QColor down = pixel(button, {5, 15});
    EXPECT_GE(contrast(up, down), 2) << up.name().toStdString() << " " << down.name().toStdString();
    EXPECT_GE(contrast(down, theme->on_accent), 3) << down.name().toStdString();
  }
  apply_palette(light_theme());
}

class Charts : public testing::Test {
protected:
  void SetUp() override {
    chart.resize(600, 400);
    chart.set_axes({}, {});
    chart.set_extent(0, 10, 0, 100);
    chart.show();
    QApplication::processEvents();
  }
  Chart chart;
};

TEST_F(Charts, PixelsAndValuesAgree) {
  const Frame frame = chart.frame();
  for (const QPointF value : {QPointF(1, 5), QPointF(9, 95), QPointF(5, 50)}) {
    const QPointF back = chart.value_at(frame.at(value.x(), value.y()));
    EXPECT_NEAR(back.x(), value.x(), 1e-9);
    EXPECT_NEAR(back.y(), value.y(), 1e-9);
  }
}

TEST_F(Charts, TitlesStayOnThePlotBesideWideNames) {
  AxisLook x;
  x.title = QStringLiteral("time in the step ").repeated(12) + QStringLiteral("(ms)");
  AxisLook y;
  y.ticks = {{50, QStringLiteral("a stage, and what it waits: 12 %")}};
  chart.set_axes(x, y);
  QImage image(600, 400, QImage::Format_ARGB32_Premultiplied);
  image.fill(chart.theme().base);
  chart.paint_to(image, image.size());
  for (int line = 370; line < 398; ++line)
    for (const int column : {0, 1, 2, 597, 598, 599})
      EXPECT_EQ(image.pixelColor(column, line), chart.theme().base) << column << ", " << line;
}

TEST_F(Charts, ZoomKeepsTheValueUnderThePointer) {
  const QPointF pixel = chart.frame().area.center() + QPointF(40, -30);
  const QPointF before = chart.value_at(pixel);
  chart.zoom(0.5, pixel);
  EXPECT_NEAR(chart.value_at(pixel).x(), before.x(), 1e-9);
  EXPECT_NEAR(chart.value_at(pixel).y(), before.y(), 1e-9);
  EXPECT_NEAR(chart.frame().shown.width(), 5, 1e-9);
  chart.fit();
  EXPECT_NEAR(chart.frame().shown.width(), 10, 1e-9);
}

TEST_F(Charts, NewDataLeaveTheZoomAlone) {
  chart.zoom(0.5, chart.frame().area.center());
  chart.set_extent(0, 20, 0, 100);
  EXPECT_NEAR(chart.frame().shown.width(), 5, 1e-9);
  QWidget* plot = chart.focusProxy();
  QTest::keyClick(plot, Qt::Key_0);
  EXPECT_NEAR(chart.frame().shown.width(), 20, 1e-9);
}

TEST_F(Charts, TheNextStartShowsTheSamePartOfTheSameData) {
  EXPECT_TRUE(chart.zoom_state().isEmpty());
  chart.zoom(0.5, chart.frame().area.center() + QPointF(40, 0));
  const QRectF shown = chart.frame().shown;
  const QVariantList state = chart.zoom_state();

  Chart next;
  next.restore_zoom(state);
  next.set_axes({}, {});
  next.set_extent(0, 3, 0, 100); // rows that are still being read
  EXPECT_EQ(next.frame().shown, QRectF(0, 0, 3, 100));
  EXPECT_EQ(next.zoom_state(), state) << "closed before all were there";
  next.set_extent(0, 10, 0, 100);
  EXPECT_EQ(next.frame().shown, shown);
  EXPECT_TRUE(next.zoomed());

  Chart other;
  other.restore_zoom(state);
  other.set_axes({}, {});
  other.set_extent(0, 20, 0, 100);
  EXPECT_EQ(other.frame().shown, QRectF(0, 0, 20, 100)) << "other data are shown whole";
  other.fit();
  EXPECT_TRUE(other.zoom_state().isEmpty());
  other.restore_zoom({1.0, 2.0, QStringLiteral("x")});
  other.restore_zoom({0, 1, 0, 1, 5, 5, 0, std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(other.zoom_state().isEmpty()) << "what is no range";
}

TEST_F(Charts, TellsClicksFromDrags) {
  int clicks = 0;
  QRectF box;
  chart.clicked = [&](QPointF, Qt::KeyboardModifiers) { ++clicks; };
  chart.boxed = [&](QRectF pixels, Qt::KeyboardModifiers) { box = pixels; };
  chart.set_drag(Chart::Drag::box);
  QWidget* plot = chart.focusProxy();
  QTest::mouseClick(plot, Qt::LeftButton, {}, QPoint(200, 200));
  EXPECT_EQ(clicks, 1);
  QTest::mousePress(plot, Qt::LeftButton, {}, QPoint(200, 200));
  QTest::mouseMove(plot, QPoint(260, 250));
  QTest::mouseRelease(plot, Qt::LeftButton, {}, QPoint(260, 250));
  EXPECT_EQ(clicks, 1);
  EXPECT_EQ(box, QRectF(200, 200, 60, 50));
}

} // namespace
} // namespace foretrain::gui
