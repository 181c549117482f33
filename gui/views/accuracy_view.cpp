// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QProcess>
#include <QPushButton>
#include <QVBoxLayout>

#include "core/base/json.h"
#include "gui/model/numbers.h"
#include "gui/plot/agreement.h"
#include "gui/views/all.h"

namespace foretrain::gui {
namespace {

constexpr int kLongest = 600'000; ///< milliseconds that an export waits

/// How far predictions are from published runs: `foretrain validate` over the tables of the data folder.
class AccuracyView final : public View {
public:
  explicit AccuracyView(ViewContext context)
      : View(context), chart_(new AgreementChart(this)), what_(new QComboBox(this)),
        start_(new QPushButton(QStringLiteral("Compare with published runs"), this)), summary_(new QLabel(this)),
        process_(new QProcess(this)) {
    QVBoxLayout* layout = add_column();
    auto* bar = new QHBoxLayout;
    what_->addItem(QStringLiteral("step time"));
    what_->addItem(QStringLiteral("memory"));
    what_->setAccessibleName(QStringLiteral("What to compare"));
    bar->addWidget(start_);
    bar->addWidget(what_);
    summary_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    bar->addWidget(summary_, 1);
    layout->addLayout(bar);
    add_chart(layout, chart_, QStringLiteral("Predicted against published figures"));
    setFocusProxy(start_);
    connect(what_, &QComboBox::currentIndexChanged, this, [this] { show_points(); });
    connect(start_, &QPushButton::clicked, this, [this] {
      if (process_->state() == QProcess::NotRunning)
        start();
      else
        process_->kill();
    });
    connect(process_, &QProcess::finished, this, [this] { take_output(); });
    connect(process_, &QProcess::errorOccurred, this, [this] { show_points(); });
  }
  ~AccuracyView() override {
    process_->disconnect(this);
    process_->kill();
    process_->waitForFinished(2000);
  }

  void paint_to(QPaintDevice& device, QSize size) override {
    wait();
    View::paint_to(device, size);
  }
  [[nodiscard]] std::string csv() override {
    wait();
    std::string text = "source,row,quantity,measured,predicted\n";
    for (const Compared& row : rows_)
      text += csv_text(row.source) + "," + csv_text(row.id) + "," + (row.memory ? "memory_bytes" : "step_time_s") +
              "," + csv_value(row.measured) + "," + csv_value(row.predicted) + "\n";
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if (changes == kEverything) show_points();
  }

private:
  struct Compared {
    std::string source;
    std::string id;
    bool memory = false;
    double measured = 0;
    double predicted = 0;
  };

  void start() {
    const Environment& environment = session().environment();
    if (environment.command.empty()) return show_points();
    QStringList arguments = {QStringLiteral("validate"), QStringLiteral("--json")};
    std::vector<std::string> files;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(environment.data.root / "measured", failed))
      if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) arguments << QString::fromStdString(file);
    process_->start(QString::fromStdString(environment.command.string()), arguments);
    show_points();
  }

  /// For exports: there is nobody to wait for the program.
  void wait() {
    if (!session().waiting() || !rows_.empty()) return;
    if (process_->state() == QProcess::NotRunning) start();
    process_->waitForFinished(kLongest);
  }

  void take_output() {
    rows_.clear();
    const auto document = parse_json(process_->readAllStandardOutput().toStdString(), "foretrain validate");
    if (document && document->is_object() && document->contains("rows"))
      for (const Json& row : (*document)["rows"]) {
        if (!row.contains("measured") || !row.contains("predicted")) continue;
        for (const bool memory : {false, true}) {
          const char* key = memory ? "memory_bytes" : "step_time_s";
          const Json& measured = row["measured"][key];
          const Json& predicted = row["predicted"][key];
          if (measured.is_number() && predicted.is_number())
            rows_.push_back({row.value("source", ""), row.value("row_id", Json("")).dump(), memory,
                             measured.get<double>(), predicted.get<double>()});
        }
      }
    show_points();
  }

  void show_points() {
    const bool memory = what_->currentIndex() == 1;
    const bool running = process_->state() != QProcess::NotRunning;
    start_->setText(running ? QStringLiteral("Stop") : QStringLiteral("Compare with published runs"));
    start_->setEnabled(!session().environment().command.empty());
    QStringList series;
    std::vector<AgreementPoint> points;
    std::vector<double> errors;
    for (const Compared& row : rows_) {
      if (row.memory != memory || !(row.measured > 0)) continue;
      const QString source = QString::fromStdString(row.source);
      if (!series.contains(source)) series << source;
      points.push_back({row.measured, row.predicted, source + QStringLiteral(" ") + QString::fromStdString(row.id),
                        static_cast<int>(series.indexOf(source))});
      errors.push_back((row.predicted / row.measured - 1) * 100);
    }
    double absolute = 0;
    double sum = 0;
    for (const double error : errors) {
      absolute += std::abs(error);
      sum += error;
    }
    const double count = double(std::max<std::size_t>(1, errors.size()));
    summary_->setText(errors.empty() ? QString()
                                     : QStringLiteral("%1 published figures, %2 % off on average (mean %3)")
                                           .arg(errors.size())
                                           .arg(QString::fromStdString(short_number(absolute / count)),
                                                QString::fromStdString(signed_percent(sum / count))));
    chart_->set_points(
        std::move(points), memory ? QStringLiteral("memory") : QStringLiteral("step time"),
        [memory](double value) { return QString::fromStdString(memory ? short_bytes(value) : short_seconds(value)); },
        series,
        running ? QStringLiteral("Predicting the published runs …")
        : session().environment().command.empty()
            ? QStringLiteral("The program “foretrain” is not beside this one")
            : QStringLiteral(
                  "Published runs of other people, predicted without having been fitted to: press “Compare”"));
  }

  AgreementChart* chart_;
  QComboBox* what_;
  QPushButton* start_;
  QLabel* summary_;
  QProcess* process_;
  std::vector<Compared> rows_;
};

} // namespace

std::unique_ptr<View> make_accuracy_view(ViewContext context) {
  return std::make_unique<AccuracyView>(context);
}

} // namespace foretrain::gui
