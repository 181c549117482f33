// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/view.h"

#include <QAction>
#include <QApplication>
#include <QMenu>
#include <QPainter>
#include <QVBoxLayout>

#include "gui/model/commands.h"
#include "gui/plot/chart.h"
#include "planner/explain.h"

namespace foretrain::gui {

View::View(ViewContext context, QWidget* parent) : QWidget(parent), context_(context) {
  observer_ = context_.session.observe([this](Changes changes) {
    if (isVisible())
      refresh(changes);
    else
      missed_ |= changes;
  });
}

View::~View() {
  context_.session.forget(observer_);
}

void View::flush() {
  missed_ = 0;
  refresh(kEverything);
}

void View::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  if (const Changes missed = std::exchange(missed_, 0); missed != 0) refresh(missed);
}

QVBoxLayout* View::add_column() {
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(4, 4, 4, 4);
  return column;
}

Chart* View::add_chart(QVBoxLayout* column, const QString& name) {
  auto* chart = new Chart(this);
  add_chart(column, chart, name);
  return chart;
}

void View::add_chart(QVBoxLayout* column, Chart* chart, const QString& name) {
  plot_ = chart;
  // A tab that is shown again is resized, and painted, before it hears what it has missed.
  chart->may_paint = [this] { return missed_ == 0; };
  chart->setAccessibleName(name);
  column->addWidget(chart, 1);
  setFocusProxy(chart);
}

void View::fit() {
  if (plot_) plot_->fit();
}

void View::step_zoom(int by) {
  if (plot_) plot_->step_zoom(by);
}

QVariantMap View::kept() const {
  QVariantMap all = state();
  if (plot_) all[QStringLiteral("zoom")] = plot_->zoom_state();
  return all;
}

void View::bring_back(const QVariantMap& kept) {
  restore(kept);
  if (plot_) plot_->restore_zoom(kept[QStringLiteral("zoom")].toList());
}

void View::set_theme(const Theme& theme) {
  if (plot_) plot_->set_theme(theme);
  theme_ = &theme;
  if (isVisible())
    refresh(kEverything);
  else
    missed_ = kEverything;
}

void View::paint_to(QPaintDevice& device, QSize size) {
  resize(size);
  if (plot_) {
    flush();
    return plot_->paint_to(device, size);
  }
  const bool shown = isVisible();
  if (!shown) { // headers and scroll areas lay themselves out only once they are shown
    setAttribute(Qt::WA_DontShowOnScreen);
    show();
  }
  flush();
  resize(size); // what was hidden by now needs no room
  QApplication::processEvents(QEventLoop::ExcludeUserInputEvents);
  QPainter painter(&device);
  painter.fillRect(QRect(QPoint(0, 0), size), theme_->base);
  render(&painter, QPoint(), QRegion(), QWidget::DrawChildren);
  if (!shown) {
    hide();
    setAttribute(Qt::WA_DontShowOnScreen, false);
  }
}

QString View::row_title(int row) const {
  if (row < 0 || row >= static_cast<int>(session().rows().size())) return {};
  return QStringLiteral("#%1  ").arg(row + 1) +
         QString::fromStdString(describe(session().rows()[static_cast<std::size_t>(row)].layout));
}

void View::show_menu(std::span<const char* const> ids, QPoint global) {
  QMenu menu(this);
  for (const char* id : ids) {
    if (*id == '-') {
      menu.addSeparator();
      continue;
    }
    const Command* command = commands().find(id);
    if (!command) continue;
    QAction* action = menu.addAction(QString::fromStdString(command->title));
    action->setEnabled(commands().enabled(*command));
    QObject::connect(action, &QAction::triggered, this, [this, id] { commands().run(id); });
  }
  menu.exec(global);
}

const ViewEntry* find_view(std::string_view id) {
  for (const ViewEntry& entry : views())
    if (id == entry.id) return &entry;
  return nullptr;
}

std::string csv_text(const std::string& text) {
  return csv_value(FieldValue(text));
}

} // namespace foretrain::gui
