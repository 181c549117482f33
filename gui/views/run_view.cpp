// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <filesystem>

#include <QComboBox>
#include <QFontDatabase>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QSpinBox>
#include <QSplitter>
#include <QTemporaryDir>
#include <QTimer>
#include <QVBoxLayout>

#include "core/base/json.h"
#include "gui/model/numbers.h"
#include "gui/model/plan_text.h"
#include "gui/model/run_plan.h"
#include "gui/plot/chart.h"
#include "gui/views/all.h"
#include "gui/views/program.h"
#include "gui/views/run_form.h"

namespace foretrain::gui {
namespace {

constexpr int kLogLines = 5000;
constexpr int kLookEvery = 400; ///< milliseconds between looks at what the ranks have written

/// Runs the selected layout, here or on a cluster: what is asked for, how far it is, what the ranks say.
class RunView final : public View {
public:
  explicit RunView(ViewContext context)
      : View(context), launcher_(new QComboBox(this)), steps_(new QSpinBox(this)), warmup_(new QSpinBox(this)),
        slurm_(new QWidget(this)), time_(new QLineEdit(slurm_)), partition_(new QLineEdit(slurm_)),
        options_(new QLineEdit(slurm_)), more_(new QPushButton(QStringLiteral("Checkpoints and data"), this)),
        form_(new RunForm(this)), start_(new QPushButton(this)), what_(new QLabel(this)),
        progress_(new QProgressBar(this)), chart_(new Chart(this)), log_(new QPlainTextEdit(this)),
        program_(new Program(this)), look_(new QTimer(this)) {
    build();
    connect(start_, &QPushButton::clicked, this, [this] { act(program_->running() ? "cancel" : "start"); });
    connect(launcher_, &QComboBox::currentIndexChanged, this, [this] { show_request(); });
    connect(look_, &QTimer::timeout, this, [this] { look(); });
    program_->said = [this](const QString& line) { log_->appendPlainText(line); };
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_steps(p, f); };
  }

  void set_theme(const Theme& theme) override {
    chart_->set_theme(theme);
    View::set_theme(theme);
    show_checked(*more_, theme);
  }
  void fit() override { chart_->fit(); }

  void act(std::string_view what) override {
    if (what == "start") start();
    if (what == "options") more_->toggle();
    if (what == "export") export_weights();
    if (what == "cancel" && program_->running()) {
      program_->cancel();
      say(QStringLiteral("ending …"));
    }
  }
  [[nodiscard]] bool busy() const override { return program_->running(); }

  [[nodiscard]] std::string csv() override {
    std::string text = "step,measured_s,loss,warm_up\n";
    for (std::size_t i = 0; i < state_.step_seconds.size(); ++i)
      text += std::to_string(i) + "," + csv_value(state_.step_seconds[i]) + "," +
              (i < state_.loss.size() ? csv_value(state_.loss[i]) : std::string()) + "," +
              (static_cast<int>(i) < state_.warmup ? "true" : "false") + "\n";
    return text;
  }
  [[nodiscard]] QVariantMap state() const override {
    return {{"launcher", launcher_->currentIndex()},
            {"steps", steps_->value()},
            {"warmup", warmup_->value()},
            {"time", time_->text()},
            {"partition", partition_->text()},
            {"options", options_->text()},
            {"form", form_->state()},
            {"more", more_->isChecked()}};
  }
  void restore(const QVariantMap& state) override {
    if (!state.contains("steps")) return;
    launcher_->setCurrentIndex(std::clamp(state["launcher"].toInt(), 0, 1));
    steps_->setValue(state["steps"].toInt());
    warmup_->setValue(state["warmup"].toInt());
    time_->setText(state["time"].toString());
    partition_->setText(state["partition"].toString());
    options_->setText(state["options"].toString());
    form_->restore(state["form"].toMap());
    more_->setChecked(state["more"].toBool() || form_->used());
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged | kFileChanged)) == 0) return;
    show_request();
    show_steps();
  }

private:
  void build() {
    QVBoxLayout* layout = add_column();
    auto* bar = new QHBoxLayout;
    const auto labelled = [&](QHBoxLayout* into, const QString& text, QWidget* field) {
      auto* label = new QLabel(text, field->parentWidget());
      label->setBuddy(field);
      field->setAccessibleName(text);
      into->addWidget(label);
      into->addWidget(field);
    };
    launcher_->addItem(QStringLiteral("on this machine"), QStringLiteral("local"));
    launcher_->addItem(QStringLiteral("as a Slurm job"), QStringLiteral("slurm"));
    steps_->setRange(1, 100'000);
    steps_->setValue(RunRequest().steps);
    warmup_->setRange(0, 1000);
    warmup_->setValue(RunRequest().warmup);
    warmup_->setToolTip(QStringLiteral("The first of the steps, which are not measured"));
    labelled(bar, QStringLiteral("Run"), launcher_);
    labelled(bar, QStringLiteral("steps"), steps_);
    labelled(bar, QStringLiteral("warm-up"), warmup_);
    auto* cluster = new QHBoxLayout(slurm_);
    cluster->setContentsMargins(0, 0, 0, 0);
    time_->setPlaceholderText(QStringLiteral("00:30:00"));
    partition_->setPlaceholderText(QStringLiteral("default"));
    options_->setPlaceholderText(QStringLiteral("--account=team"));
    labelled(cluster, QStringLiteral("time limit"), time_);
    labelled(cluster, QStringLiteral("partition"), partition_);
    labelled(cluster, QStringLiteral("sbatch options"), options_);
    bar->addWidget(slurm_, 1);
    bar->addStretch(1);
    more_->setCheckable(true);
    bar->addWidget(start_);
    slurm_->hide();
    layout->addLayout(bar);
    form_->hide();
    layout->addWidget(form_);
    connect(more_, &QPushButton::toggled, form_, &QWidget::setVisible);
    connect(more_, &QPushButton::toggled, this, [this] { show_checked(*more_, theme()); });
    form_->changed = [this] { show_request(); };
    auto* second = new QHBoxLayout;
    what_->setWordWrap(true);
    what_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    what_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    progress_->setMaximumWidth(fontMetrics().averageCharWidth() * 30);
    progress_->setAccessibleName(QStringLiteral("Steps done"));
    progress_->hide();
    second->addWidget(what_, 1);
    second->addWidget(progress_);
    second->addWidget(more_);
    layout->addLayout(second);
    auto* splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(chart_);
    splitter->addWidget(log_);
    splitter->setSizes({500, 500});
    layout->addWidget(splitter, 1);
    chart_->setAccessibleName(QStringLiteral("Time of each step"));
    log_->setAccessibleName(QStringLiteral("Log of the run"));
    log_->setReadOnly(true);
    log_->setMaximumBlockCount(kLogLines);
    log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
    log_->setPlaceholderText(QStringLiteral("What the ranks say appears here."));
    look_->setInterval(kLookEvery);
    start_->setAccessibleName(QStringLiteral("Start or cancel the run"));
    setFocusProxy(start_);
  }

  [[nodiscard]] bool here() const { return launcher_->currentIndex() == 0; }

  [[nodiscard]] RunRequest asked() const {
    RunRequest request;
    request.launcher = launcher_->currentData().toString().toStdString();
    request.steps = steps_->value();
    request.warmup = std::min(warmup_->value(), steps_->value() - 1);
    request.time = time_->text().trimmed().toStdString();
    request.partition = partition_->text().trimmed().toStdString();
    for (const QString& option : options_->text().split(QLatin1Char(' '), Qt::SkipEmptyParts))
      request.sbatch.push_back(option.toStdString());
    form_->fill(request);
    return request;
  }

  /// Of the checkpoint that the form names, in a folder of its own; nothing is run.
  void export_weights() {
    if (program_->running()) return;
    const std::string executor = session().environment().executor.string();
    if (executor.empty()) return say(QStringLiteral("This build has no executor."));
    const RunRequest request = asked();
    const std::string folder = form_->export_folder();
    if (const auto problem = export_problem_of(request, folder)) {
      more_->setChecked(true);
      return say(QString::fromStdString(*problem));
    }
    say(QStringLiteral("Exporting weights …"));
    program_->start(executor, words_of(export_arguments(request, folder)),
                    [this, folder](const Program::Outcome& outcome) {
                      say(outcome.code == 0 ? QStringLiteral("The weights are in ") + QString::fromStdString(folder)
                                            : outcome.last_words);
                      show_request();
                    });
    show_request();
  }

  /// The best prediction there is of the row, for what it needs.
  [[nodiscard]] std::shared_ptr<const Prediction> prediction_of(int row) const {
    const Row& entry = session().rows()[static_cast<std::size_t>(row)];
    if (entry.prediction) return entry.prediction;
    const auto detail = session().detail(row);
    if (!detail || detail->prediction.memory.empty()) return nullptr;
    return std::make_shared<const Prediction>(detail->prediction);
  }

  /// Why nothing can be started; empty when it can.
  [[nodiscard]] QString obstacle() const {
    const Environment& environment = session().environment();
    if (session().current() < 0) return QStringLiteral("Select a layout to run it.");
    if (environment.command.empty()) return QStringLiteral("The program “foretrain” is not beside this one.");
    if (environment.executor.empty())
      return QStringLiteral("The program “foretrain-run” is not beside this one: this build has no executor.");
    if (session().path().empty()) return QStringLiteral("Runs are kept in the session file: save the session first.");
    if (const auto problem = problem_of(asked())) return QString::fromStdString(*problem);
    if (!here()) return {};
    const int row = session().current();
    const auto prediction = prediction_of(row);
    const auto reason = reason_against_local(session().rows()[static_cast<std::size_t>(row)].layout, prediction.get(),
                                             machine_memory());
    return reason ? QStringLiteral("Not on this machine: ") + QString::fromStdString(*reason) + QStringLiteral(".")
                  : QString();
  }

  void show_request() {
    const bool running = program_->running();
    slurm_->setVisible(!here());
    for (QWidget* field : {static_cast<QWidget*>(launcher_), static_cast<QWidget*>(steps_),
                           static_cast<QWidget*>(warmup_), slurm_, static_cast<QWidget*>(form_)})
      field->setEnabled(!running);
    start_->setText(running ? QStringLiteral("Cancel the run") : QStringLiteral("Run"));
    const QString why_not = obstacle();
    start_->setEnabled(running || why_not.isEmpty());
    if (running || (why_not.isEmpty() && !said_.isEmpty() && session().current() == ran_)) return;
    const int row = session().current();
    what_->setText(!why_not.isEmpty()
                       ? why_not
                       : row_title(row) +
                             QStringLiteral(" under the executor’s own semantics: a run proves layout, schedule and "
                                            "communication; it is no forecast of another framework’s speed."));
  }

  void say(const QString& text) {
    said_ = text;
    what_->setText(text);
  }

  void start() {
    if (program_->running() || !obstacle().isEmpty()) return;
    ran_ = session().current();
    const std::filesystem::path folder = new_run_folder(session().path());
    const std::string plan = QString(files_.filePath(QStringLiteral("plan.json"))).toStdString();
    if (const auto written = write_text_file(plan, plan_json(session(), ran_) + "\n"); !written)
      return say(QString::fromStdString(to_string(written.error())));
    const RunRequest request = asked();
    const QStringList words = words_of(run_arguments(request, plan, session().path().string(), folder.string()));
    folder_ = folder;
    state_ = {};
    predicted_ = 0;
    log_->clear();
    progress_->setRange(0, request.steps);
    progress_->setValue(0);
    progress_->show();
    say(QStringLiteral("Running ") + row_title(ran_) + QStringLiteral(", files in ") +
        QString::fromStdString(folder.string()));
    program_->start(session().environment().command.string(), words,
                    [this](const Program::Outcome& outcome) { finished(outcome); });
    look_->start();
    show_request();
    show_steps();
  }

  void look() {
    auto state = run_state(folder_);
    if (!state) return; // half a line; the next look sees it whole
    if (state->step_seconds.size() == state_.step_seconds.size()) return;
    state_ = std::move(*state);
    progress_->setValue(static_cast<int>(state_.step_seconds.size()));
    show_steps();
  }

  void finished(const Program::Outcome& outcome) {
    look_->stop();
    look();
    progress_->hide();
    const auto document = parse_json(outcome.document, "foretrain run");
    const bool told = document && document->is_object() && document->contains("status");
    if (told && (*document)["step_time_s"].is_number()) {
      const double measured = (*document)["step_time_s"].get<double>();
      predicted_ = document->value("predicted_step_time_s", 0.0);
      say(QStringLiteral("Run %1 %2: %3 a step measured, %4 predicted (%5). “Measured” compares them term by term.")
              .arg(document->value("run", 0))
              .arg(QString::fromStdString(document->value("status", "")), text_of(short_seconds(measured)),
                   text_of(short_seconds(predicted_)), text_of(signed_percent((predicted_ / measured - 1) * 100))));
    } else if (told) {
      say(QStringLiteral("Run %1 %2: ")
              .arg(document->value("run", 0))
              .arg(QString::fromStdString(document->value("status", ""))) +
          QString::fromStdString(document->value("message", "")));
    } else if (document && document->is_object() && document->contains("rejections")) {
      const Json& reasons = (*document)["rejections"];
      say(QStringLiteral("The executor does not run this layout: ") +
          (reasons.empty() ? QString() : QString::fromStdString(reasons[0].value("reason", ""))));
    } else {
      say(outcome.last_words.isEmpty() ? QStringLiteral("The run was ended.") : outcome.last_words);
    }
    show_request();
    show_steps();
    session().file_changed();
  }

  void show_steps() {
    AxisLook x;
    x.title = QStringLiteral("step");
    AxisLook y;
    y.title = QStringLiteral("time (ms)");
    y.text = [](double value) { return QString::fromStdString(tick_number(value * 1e3)); };
    double highest = predicted_;
    for (const double seconds : state_.step_seconds) highest = std::max(highest, seconds);
    chart_->set_message(!state_.step_seconds.empty() ? QString()
                        : program_->running()        ? QStringLiteral("Waiting for the first step …")
                                              : QStringLiteral("The steps of a run appear here as they are done"));
    if (state_.step_seconds.empty()) {
      chart_->set_legend({});
      return chart_->redraw();
    }
    chart_->set_axes(x, y);
    const double last = std::max<double>(steps_->value(), double(state_.step_seconds.size()));
    chart_->set_extent(-0.5, last - 0.5, 0, highest > 0 ? highest * 1.1 : 1);
    std::vector<LegendEntry> legend;
    if (!state_.step_seconds.empty()) {
      legend.push_back({theme().series[0], QStringLiteral("measured"), LegendEntry::Shape::box});
      if (state_.warmup > 0) legend.push_back({theme().line, QStringLiteral("warm-up"), LegendEntry::Shape::box});
      if (predicted_ > 0) legend.push_back({theme().bad, QStringLiteral("predicted"), LegendEntry::Shape::box});
    }
    chart_->set_legend(std::move(legend));
    chart_->redraw();
  }

  void paint_steps(QPainter& painter, const Frame& frame) const {
    painter.setClipRect(frame.area);
    for (std::size_t i = 0; i < state_.step_seconds.size(); ++i) {
      const double x0 = frame.x(double(i) - 0.4);
      const double x1 = std::max(x0 + 1, frame.x(double(i) + 0.4));
      const double y = frame.y(state_.step_seconds[i]);
      painter.fillRect(QRectF(x0, y, x1 - x0, frame.area.bottom() - y),
                       static_cast<int>(i) < state_.warmup ? theme().line : theme().series[0]);
    }
    if (predicted_ > 0) {
      painter.setPen(QPen(theme().bad, 2));
      painter.drawLine(QPointF(frame.area.left(), frame.y(predicted_)),
                       QPointF(frame.area.right(), frame.y(predicted_)));
    }
    painter.setClipping(false);
  }

  QComboBox* launcher_;
  QSpinBox* steps_;
  QSpinBox* warmup_;
  QWidget* slurm_;
  QLineEdit* time_;
  QLineEdit* partition_;
  QLineEdit* options_;
  QPushButton* more_;
  RunForm* form_;
  QPushButton* start_;
  QLabel* what_;
  QProgressBar* progress_;
  Chart* chart_;
  QPlainTextEdit* log_;
  Program* program_;
  QTimer* look_;
  QTemporaryDir files_;
  std::filesystem::path folder_; ///< of the run
  RunState state_;
  double predicted_ = 0; ///< s, of a run that has ended
  int ran_ = -1;         ///< row
  QString said_;
};

} // namespace

std::unique_ptr<View> make_run_view(ViewContext context) {
  return std::make_unique<RunView>(context);
}

} // namespace foretrain::gui
