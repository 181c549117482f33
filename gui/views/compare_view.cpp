// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>

#include <QCheckBox>
#include <QHeaderView>
#include <QPainter>
#include <QTableWidget>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/views/all.h"
#include "gui/views/timeline_data.h"
#include "gui/views/timeline_paint.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kMostColumns = 8;

/// Small timelines of several layouts under each other, on one scale.
class SmallTimelines final : public QWidget {
public:
  struct Entry {
    QString title;
    Timeline timeline;
  };
  using QWidget::QWidget;
  const Theme* theme = &light_theme();
  std::vector<Entry> entries;

  [[nodiscard]] QSize sizeHint() const override {
    return {400, static_cast<int>(entries.size()) * (fontMetrics().height() + 44) + 8};
  }

protected:
  void paintEvent(QPaintEvent* /*event*/) override {
    QPainter painter(this);
    double longest = 0;
    for (const Entry& entry : entries) longest = std::max(longest, entry.timeline.end);
    if (longest <= 0) return;
    const double scale = (width() - 16) / longest;
    double y = 4;
    const double room = (height() - 8.0) / double(entries.size());
    for (const Entry& entry : entries) {
      painter.setPen(theme->text);
      painter.drawText(QPointF(8, y + fontMetrics().ascent()), entry.title);
      const double top = y + fontMetrics().height() + 2;
      const double height =
          (room - fontMetrics().height() - 8) / double(std::max<std::size_t>(1, entry.timeline.stages.size()));
      for (std::size_t s = 0; s < entry.timeline.stages.size(); ++s)
        for (const Box& box : visible_boxes(entry.timeline.stages[s].passes, 0, entry.timeline.end, 1 / scale))
          fill_box(painter, *theme, box,
                   QRectF(8 + box.start * scale, top + height * double(s), std::max(1.0, (box.end - box.start) * scale),
                          std::max(1.0, height - 1)));
      painter.setPen(QPen(theme->line, 0));
      if (!entry.timeline.apart())
        painter.drawRect(QRectF(8, top, entry.timeline.end * scale, height * double(entry.timeline.stages.size())));
      else
        for (std::size_t s = 0; s < entry.timeline.stages.size(); ++s) // each has a step of its own
          painter.drawRect(QRectF(8 + entry.timeline.stages[s].begin * scale, top + height * double(s),
                                  entry.timeline.step * scale, height));
      y += room;
    }
  }
};

/// The pinned layouts side by side: rows that differ, and their schedules on one scale.
class CompareView final : public View {
public:
  explicit CompareView(ViewContext context)
      : View(context), all_(new QCheckBox(QStringLiteral("also what is the same"), this)),
        table_(new QTableWidget(this)), timelines_(new SmallTimelines(this)) {
    QVBoxLayout* layout = add_column();
    layout->addWidget(all_);
    layout->addWidget(table_, 3);
    layout->addWidget(timelines_, 2);
    setFocusProxy(table_);
    table_->setAccessibleName(QStringLiteral("Pinned layouts side by side"));
    table_->setEditTriggers(QAbstractItemView::NoEditTriggers);
    table_->setShowGrid(false);
    table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 6);
    table_->setAlternatingRowColors(true);
    timelines_->setAccessibleName(QStringLiteral("Schedules on one scale"));
    connect(all_, &QCheckBox::toggled, this, [this] { rebuild(); });
    connect(table_->horizontalHeader(), &QHeaderView::sectionClicked, this, [this](int column) {
      if (column < static_cast<int>(rows_.size())) session().select({rows_[static_cast<std::size_t>(column)]});
    });
  }

  void set_theme(const Theme& theme) override {
    timelines_->theme = &theme;
    View::set_theme(theme);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "field";
    for (const int row : rows_) text += ",#" + std::to_string(row + 1);
    text += "\n";
    for (const Field& field : fields()) {
      text += std::string(field.id);
      for (const int row : rows_) text += "," + csv_value(value(field, row));
      text += "\n";
    }
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kPinsChanged | kRowsChanged | kDetailChanged | kSelectionChanged)) != 0) rebuild();
  }

private:
  [[nodiscard]] FieldValue value(const Field& field, int row) const {
    const Row& entry = session().rows()[static_cast<std::size_t>(row)];
    FieldRow view = field_row(session().results().study, entry);
    const auto detail = session().detail(row);
    if (!view.prediction && detail && detail->prediction.step_time.value > 0) view.prediction = &detail->prediction;
    return field.get(view);
  }

  /// Pinned rows, the baseline first; without pins the current row. At least two where there are two.
  [[nodiscard]] std::vector<int> compared() const {
    std::vector<int> rows = session().pinned_rows();
    if (rows.empty() && session().current() >= 0) rows = {session().current()};
    if (const int baseline = session().baseline(); baseline >= 0) {
      std::erase(rows, baseline);
      rows.insert(rows.begin(), baseline);
    }
    // One alone is compared with what is looked at, or with what that is measured against.
    const auto add = [&rows](int row) {
      if (row >= 0 && std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    };
    if (rows.size() == 1) add(session().current());
    if (rows.size() == 1) add(session().reference_for(rows.front()));
    if (rows.size() > kMostColumns) rows.resize(kMostColumns);
    return rows;
  }

  void rebuild() {
    rows_ = compared();
    table_->clear();
    table_->setColumnCount(static_cast<int>(rows_.size()));
    table_->setRowCount(0);
    QStringList titles;
    for (const int row : rows_)
      titles << QStringLiteral("#%1%2").arg(row + 1).arg(row == session().baseline() ? QStringLiteral(" (baseline)")
                                                                                     : QString());
    table_->setHorizontalHeaderLabels(titles);
    QStringList names;
    for (const Field& field : fields()) {
      if (rows_.empty()) break;
      if (field.id == "recompute") continue; // the next field says it with its method and modules
      const FieldValue first = value(field, rows_.front());
      const bool differs = std::any_of(rows_.begin(), rows_.end(), [&](int row) { return value(field, row) != first; });
      if (!differs && !all_->isChecked()) continue;
      const int line = table_->rowCount();
      table_->insertRow(line);
      names << text_of(title_with_unit(field));
      for (std::size_t c = 0; c < rows_.size(); ++c)
        table_->setItem(line, static_cast<int>(c), cell(field, rows_[c], first));
    }
    table_->setVerticalHeaderLabels(names);
    table_->resizeColumnsToContents();
    show_timelines();
  }

  QTableWidgetItem* cell(const Field& field, int row, const FieldValue& first) const {
    const FieldValue mine = value(field, row);
    QString text = QString::fromStdString(short_value(field, mine));
    const auto* a = std::get_if<double>(&mine);
    const auto* b = std::get_if<double>(&first);
    if (row != rows_.front() && a && b && field.outcome && *b != 0)
      text += QStringLiteral("   ") + QString::fromStdString(signed_percent((*a / *b - 1) * 100));
    auto* item = new QTableWidgetItem(text);
    item->setToolTip(QString::fromStdString(std::string(field.help) + ": " + full_value(field, mine)));
    item->setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
    return item;
  }

  void show_timelines() {
    timelines_->entries.clear();
    for (const int row : rows_) {
      const auto detail = session().detail(row);
      if (!detail || !detail->simulation) continue;
      timelines_->entries.push_back(
          {row_title(row) + QStringLiteral("   ") +
               QString::fromStdString(short_seconds(step_seconds(session().rows()[static_cast<std::size_t>(row)]))),
           timeline_of(*detail->simulation, splits_backward(detail->layout))});
    }
    timelines_->setVisible(!timelines_->entries.empty());
    timelines_->update();
  }

  QCheckBox* all_;
  QTableWidget* table_;
  SmallTimelines* timelines_;
  std::vector<int> rows_;
};

} // namespace

std::unique_ptr<View> make_compare_view(ViewContext context) {
  return std::make_unique<CompareView>(context);
}

} // namespace foretrain::gui
