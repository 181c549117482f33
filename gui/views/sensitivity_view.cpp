// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <numeric>

#include <QGridLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QSlider>
#include <QTableWidget>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/model/sensitivity.h"
#include "gui/views/all.h"
#include "planner/explain.h"

namespace foretrain::gui {
namespace {

constexpr int kLayouts = 12;
constexpr int kSteps = 40; ///< of a slider to each side: a factor of four

/// What if the links were twice as fast? Sliders scale the cluster; the best layouts are timed anew at once.
class SensitivityView final : public View {
public:
  explicit SensitivityView(ViewContext context)
      : View(context), sliders_(new QWidget(this)), grid_(new QGridLayout(sliders_)), table_(new QTableWidget(this)),
        note_(new QLabel(this)) {
    QVBoxLayout* layout = add_column();
    layout->addWidget(sliders_);
    layout->addWidget(table_, 1);
    layout->addWidget(note_);
    note_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    note_->setText(QStringLiteral("By the engine of the search, which is coarser than the table’s; a new search would "
                                  "also look at other layouts."));
    table_->setAccessibleName(QStringLiteral("The best layouts on the changed cluster"));
    table_->setEditTriggers(QAbstractItemView::NoEditTriggers);
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setShowGrid(false);
    table_->setAlternatingRowColors(true);
    table_->setColumnCount(6);
    table_->setHorizontalHeaderLabels({QStringLiteral("Layout"), QStringLiteral("Rank"), QStringLiteral("was"),
                                       QStringLiteral("Step"), QStringLiteral("Change"), QStringLiteral("Memory")});
    table_->horizontalHeader()->setSectionResizeMode(0, QHeaderView::Stretch); // figures stay in sight
    table_->verticalHeader()->hide();
    table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 8);
    setFocusProxy(table_);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "layout,rank,rank_before,step_s,step_before_s,device_bytes,fits\n";
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const std::size_t at = order_[i];
      text += csv_text(describe(session().rows()[at].layout)) + "," + std::to_string(i + 1) + "," +
              std::to_string(at + 1) + "," + csv_value(now_[at].step_seconds) + "," +
              csv_value(before_[at].step_seconds) + "," + csv_value(now_[at].device_bytes) + "," +
              (now_[at].fits ? "true" : "false") + "\n";
    }
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & kRowsChanged) == 0) return;
    layouts_.clear();
    before_.clear();
    order_.clear();
    for (std::size_t i = 0; i < session().rows().size() && i < kLayouts; ++i)
      layouts_.push_back(session().rows()[i].layout);
    if (!layouts_.empty()) {
      auto factors = factors_of(session().results().study);
      if (factors.size() != factors_.size()) factors_ = std::move(factors);
      for (Factor& factor : factors_) factor.value = 1;
      build_sliders();
      if (auto found = rescaled(session().environment(), session().results().study, factors_, layouts_))
        before_ = std::move(*found);
    }
    compute();
  }

private:
  void build_sliders() {
    while (QLayoutItem* item = grid_->takeAt(0)) {
      if (item->widget()) item->widget()->hide();
      if (item->widget()) item->widget()->deleteLater();
      delete item;
    }
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      auto* slider = new QSlider(Qt::Horizontal, sliders_);
      auto* value = new QLabel(QStringLiteral("× 1"), sliders_);
      auto* name = new QLabel(QString::fromStdString(factors_[i].name), sliders_);
      name->setToolTip(QString::fromStdString(factors_[i].help));
      name->setBuddy(slider);
      slider->setRange(-kSteps, kSteps);
      slider->setAccessibleName(QString::fromStdString(factors_[i].name));
      value->setMinimumWidth(fontMetrics().horizontalAdvance(QStringLiteral("× 0.250 ")));
      connect(slider, &QSlider::valueChanged, this, [this, i, value](int steps) {
        factors_[i].value = std::pow(4.0, double(steps) / kSteps);
        value->setText(QStringLiteral("× ") + QString::fromStdString(short_number(factors_[i].value)));
        compute();
      });
      const int line = static_cast<int>(i) / 2;
      const int column = static_cast<int>(i) % 2 * 3;
      grid_->addWidget(name, line, column);
      grid_->addWidget(slider, line, column + 1);
      grid_->addWidget(value, line, column + 2);
    }
  }

  void compute() {
    order_.clear();
    now_.clear();
    if (before_.size() == layouts_.size() && !layouts_.empty()) {
      if (auto found = rescaled(session().environment(), session().results().study, factors_, layouts_))
        now_ = std::move(*found);
    }
    order_.resize(now_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
      if (now_[a].fits != now_[b].fits) return now_[a].fits;
      return now_[a].step_seconds < now_[b].step_seconds;
    });
    show_table();
  }

  void show_table() {
    table_->setRowCount(static_cast<int>(order_.size()));
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const std::size_t at = order_[i];
      const double change =
          before_[at].step_seconds > 0 ? (now_[at].step_seconds / before_[at].step_seconds - 1) * 100 : 0;
      const QStringList cells = {QString::fromStdString(describe(layouts_[at])),
                                 now_[at].fits    ? QString::number(i + 1)
                                 : now_[at].legal ? QStringLiteral("does not fit")
                                                  : QStringLiteral("cannot run"),
                                 QString::number(at + 1),
                                 QString::fromStdString(short_seconds(now_[at].step_seconds)),
                                 QString::fromStdString(signed_percent(change)),
                                 QString::fromStdString(short_bytes(now_[at].device_bytes))};
      for (int column = 0; column < cells.size(); ++column) {
        auto* item = new QTableWidgetItem(cells[column]);
        if (column == 0) item->setToolTip(cells[column]);
        if (column > 0) item->setTextAlignment(Qt::AlignRight | Qt::AlignVCenter);
        if (!now_[at].fits) item->setForeground(theme().bad);
        table_->setItem(static_cast<int>(i), column, item);
      }
    }
    for (int column = 1; column < table_->columnCount(); ++column) table_->resizeColumnToContents(column);
  }

  QWidget* sliders_;
  QGridLayout* grid_;
  QTableWidget* table_;
  QLabel* note_;
  std::vector<Factor> factors_;
  std::vector<Layout> layouts_;
  std::vector<Rescaled> before_;
  std::vector<Rescaled> now_;
  std::vector<std::size_t> order_;
};

} // namespace

std::unique_ptr<View> make_sensitivity_view(ViewContext context) {
  return std::make_unique<SensitivityView>(context);
}

} // namespace foretrain::gui
