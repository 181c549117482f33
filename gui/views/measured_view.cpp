// SPDX-License-Identifier: GPL-3.0-or-later
#include <cmath>

#include <QHeaderView>
#include <QSplitter>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/model/runs.h"
#include "gui/plot/agreement.h"
#include "gui/views/all.h"

namespace foretrain::gui {
namespace {

/// The runs of the session file against their predictions.
class MeasuredView final : public View {
public:
  explicit MeasuredView(ViewContext context) : View(context), chart_(new AgreementChart(this)), list_(new QTreeWidget(this)) {
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(4, 4, 4, 4);
    auto* splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(chart_);
    splitter->addWidget(list_);
    layout->addWidget(splitter);
    setFocusProxy(chart_);
    chart_->setAccessibleName(QStringLiteral("Predicted against measured step times"));
    list_->setAccessibleName(QStringLiteral("Runs"));
    list_->setRootIsDecorated(false);
    list_->setHeaderLabels({QStringLiteral("Run"), QStringLiteral("Status"), QStringLiteral("Step"), QStringLiteral("Predicted"), QStringLiteral("Error"),
                            QStringLiteral("Memory"), QStringLiteral("Predicted"), QStringLiteral("Error")});
  }

  void set_theme(const Theme& theme) override {
    chart_->set_theme(theme);
    View::set_theme(theme);
  }
  void fit() override { chart_->fit(); }
  void paint_to(QPaintDevice& device, QSize size) override {
    resize(size);
    flush();
    chart_->paint_to(device, size);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "run,created_at,status,measured_step_s,predicted_step_s,measured_bytes,predicted_bytes\n";
    const auto number = [](const std::optional<double>& value) { return value ? csv_value(*value) : std::string(); };
    for (const MeasuredRun& run : runs_)
      text += csv_text(run.title) + "," + run.created_at + "," + run.status + "," + number(run.measured_seconds) + "," + number(run.predicted_seconds) + "," +
              number(run.measured_bytes) + "," + number(run.predicted_bytes) + "\n";
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & kFileChanged) == 0) return;
    runs_.clear();
    std::error_code failed;
    if (!session().path().empty() && std::filesystem::exists(session().path(), failed))
      if (auto runs = read_runs(session().environment(), session().path())) runs_ = std::move(*runs);
    show_list();
    std::vector<AgreementPoint> points;
    for (const MeasuredRun& run : runs_)
      if (run.measured_seconds && run.predicted_seconds) points.push_back({*run.measured_seconds, *run.predicted_seconds, text_of(run.title), 0});
    chart_->set_points(std::move(points), QStringLiteral("step time"), [](double seconds) { return text_of(short_seconds(seconds)); }, {},
                       QStringLiteral("No runs are in this session file. “foretrain run PLAN --db FILE” adds them."));
  }

private:
  void show_list() {
    list_->clear();
    const auto error = [](const std::optional<double>& predicted, const std::optional<double>& measured) {
      return predicted && measured && *measured > 0 ? text_of(signed_percent((*predicted / *measured - 1) * 100)) : QStringLiteral("–");
    };
    const auto time = [](const std::optional<double>& seconds) { return seconds ? text_of(short_seconds(*seconds)) : QStringLiteral("–"); };
    const auto size = [](const std::optional<double>& bytes) { return bytes ? text_of(short_bytes(*bytes)) : QStringLiteral("–"); };
    for (const MeasuredRun& run : runs_) {
      auto* item = new QTreeWidgetItem(list_, {text_of(run.title), text_of(run.status), time(run.measured_seconds), time(run.predicted_seconds),
                                               error(run.predicted_seconds, run.measured_seconds), size(run.measured_bytes), size(run.predicted_bytes),
                                               error(run.predicted_bytes, run.measured_bytes)});
      item->setToolTip(0, text_of(run.created_at));
      for (int column = 2; column < 8; ++column) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
    }
    for (int column = 1; column < 8; ++column) list_->resizeColumnToContents(column);
  }

  AgreementChart* chart_;
  QTreeWidget* list_;
  std::vector<MeasuredRun> runs_;
};

} // namespace

std::unique_ptr<View> make_measured_view(ViewContext context) {
  return std::make_unique<MeasuredView>(context);
}

} // namespace foretrain::gui
