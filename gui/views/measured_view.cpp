// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include <QCheckBox>
#include <QFile>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSplitter>
#include <QTabWidget>
#include <QTemporaryDir>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "core/base/json.h"
#include "gui/model/commands.h"
#include "gui/model/numbers.h"
#include "gui/model/run_timeline.h"
#include "gui/model/runs.h"
#include "gui/plot/agreement.h"
#include "gui/views/all.h"
#include "gui/views/measured_panels.h"
#include "gui/views/program.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kRanked = 12;   ///< layouts whose rank is worked out anew for a calibration
constexpr int kExportWaits = 120'000; ///< milliseconds

/// The runs of the session file against their predictions: steps, memory, each term, each op's place in time; and what
/// a calibration from them would change.
class MeasuredView final : public View {
public:
  explicit MeasuredView(ViewContext context)
      : View(context), chart_(new AgreementChart(this)), list_(new QTreeWidget(this)), terms_(new QTreeWidget(this)),
        ops_(new QCheckBox(QStringLiteral("also each kind of op"), this)), timelines_(new RunTimelines),
        calibrate_(new QPushButton(QStringLiteral("Calibrate from these runs"), this)), note_(new QLabel(this)),
        panel_(new CalibrationPanel(this)), compare_(new Program(this)), learn_(new Program(this)) {
    build();
    connect(list_, &QTreeWidget::currentItemChanged, this, [this] { compare(); });
    connect(ops_, &QCheckBox::toggled, this, [this] { show_terms(); });
    connect(calibrate_, &QPushButton::clicked, this,
            [this] { act(learn_->running() ? "stop-calibrating" : "calibrate"); });
    panel_->accepted = [this] { accept(); };
    panel_->discarded = [this] { panel_->hide(); };
  }

  void set_theme(const Theme& theme) override {
    chart_->set_theme(theme);
    timelines_->set_theme(theme);
    View::set_theme(theme);
  }
  void fit() override { chart_->fit(); }
  void act(std::string_view what) override {
    if (what == "calibrate") calibrate();
    if (what == "stop-calibrating") learn_->cancel();
  }
  [[nodiscard]] bool busy() const override { return reading_ || learn_->running() || compare_->running(); }
  void paint_to(QPaintDevice& device, QSize size) override {
    resize(size);
    flush();
    if (runs_.empty()) return chart_->paint_to(device, size);
    while (session().waiting() && compare_->running()) compare_->wait(kExportWaits);
    shown_already_ = session().waiting(); // what has been asked for is there: painting does not ask again
    View::paint_to(device, size);
    shown_already_ = false;
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "run,title,created_at,status,measured_step_s,predicted_step_s,measured_bytes,predicted_bytes\n";
    const auto number = [](const std::optional<double>& value) { return value ? csv_value(*value) : std::string(); };
    for (const MeasuredRun& run : runs_)
      text += std::to_string(run.id) + "," + csv_text(run.title) + "," + run.created_at + "," + run.status + "," +
              number(run.measured_seconds) + "," + number(run.predicted_seconds) + "," + number(run.measured_bytes) +
              "," + number(run.predicted_bytes) + "\n";
    return text;
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & kFileChanged) == 0 || shown_already_) return;
    if (changes == kEverything) show_list();
    if (session().waiting()) return take_runs(runs_of(session().environment(), session().path()));
    if (std::exchange(reading_, true)) {
      read_again_ = true;
      return;
    }
    reader_ = std::jthread([this, environment = &session().environment(), path = session().path()] {
      auto runs = runs_of(*environment, path);
      QMetaObject::invokeMethod(
          this, [this, path, runs = std::move(runs)]() mutable { read(path, std::move(runs)); }, Qt::QueuedConnection);
    });
  }

private:
  /// None when the file cannot be read: opening it has said why.
  static std::vector<MeasuredRun> runs_of(const Environment& environment, const std::filesystem::path& path) {
    std::error_code failed;
    if (path.empty() || !std::filesystem::exists(path, failed)) return {};
    return read_runs(environment, path).value_or(std::vector<MeasuredRun>());
  }

  void read(const std::filesystem::path& path, std::vector<MeasuredRun> runs) {
    reading_ = false;
    if (path == session().path()) take_runs(std::move(runs));
    if (std::exchange(read_again_, false)) refresh(kFileChanged);
  }

  void take_runs(std::vector<MeasuredRun> runs) {
    const bool same = runs.size() == runs_.size() &&
                      std::equal(runs.begin(), runs.end(), runs_.begin(), [](const auto& a, const auto& b) {
                        return a.id == b.id && a.status == b.status && a.title == b.title;
                      });
    runs_ = std::move(runs);
    if (!same) show_list();
    show_agreement();
    calibrate_->setEnabled(can_learn());
  }

  void build() {
    QVBoxLayout* layout = add_column();
    auto* bar = new QHBoxLayout;
    auto* import = new QPushButton(QStringLiteral("Import runs…"), this);
    connect(import, &QPushButton::clicked, this, [this] { commands().run("runs.import"); });
    bar->addWidget(import);
    bar->addWidget(calibrate_);
    note_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    note_->setWordWrap(true);
    bar->addWidget(note_, 1);
    layout->addLayout(bar);
    auto* splitter = new QSplitter(Qt::Horizontal, this);
    splitter->addWidget(chart_);
    auto* right = new QSplitter(Qt::Vertical, splitter);
    right->addWidget(list_);
    pages_ = new QTabWidget(right);
    pages_->setDocumentMode(true);
    auto* terms = new QWidget(pages_);
    auto* column = new QVBoxLayout(terms);
    column->setContentsMargins(0, 0, 0, 0);
    column->addWidget(terms_);
    column->addWidget(ops_);
    auto* scroll = new QScrollArea(pages_);
    scroll->setWidget(timelines_);
    scroll->setWidgetResizable(true);
    scroll->setFrameShape(QFrame::NoFrame);
    pages_->addTab(terms, QStringLiteral("Error per term"));
    pages_->addTab(scroll, QStringLiteral("Step, side by side"));
    right->addWidget(pages_);
    right->setSizes({120, 260});
    splitter->setSizes({360, 540});
    layout->addWidget(splitter, 1);
    layout->addWidget(panel_, 1);
    panel_->hide();
    setFocusProxy(list_);
    chart_->setAccessibleName(QStringLiteral("Predicted against measured step times"));
    list_->setAccessibleName(QStringLiteral("Runs"));
    terms_->setAccessibleName(QStringLiteral("Terms of the selected run"));
    for (QTreeWidget* list : {list_, terms_}) {
      list->setRootIsDecorated(false);
      list->setAlternatingRowColors(true);
    }
    list_->setHeaderLabels({QStringLiteral("Run"), QStringLiteral("Status"), QStringLiteral("Step"),
                            QStringLiteral("Predicted"), QStringLiteral("Error"), QStringLiteral("Memory"),
                            QStringLiteral("Predicted"), QStringLiteral("Error")});
    terms_->setHeaderLabels({QStringLiteral("Term"), QStringLiteral("Rank"), QStringLiteral("Measured"),
                             QStringLiteral("Predicted"), QStringLiteral("Error")});
  }

  static QString shown_error(double predicted, double measured) {
    return measured > 0 ? text_of(signed_percent((predicted / measured - 1) * 100)) : QStringLiteral("–");
  }

  void show_list() {
    const MeasuredRun* before = current();
    const std::int64_t chosen = before ? before->id : -1;
    const QSignalBlocker quiet(list_);
    list_->clear();
    const auto error = [](const std::optional<double>& predicted, const std::optional<double>& measured) {
      return predicted && measured ? shown_error(*predicted, *measured) : QStringLiteral("–");
    };
    const auto time = [](const std::optional<double>& seconds) {
      return seconds ? text_of(short_seconds(*seconds)) : QStringLiteral("–");
    };
    const auto size = [](const std::optional<double>& bytes) {
      return bytes ? text_of(short_bytes(*bytes)) : QStringLiteral("–");
    };
    for (const MeasuredRun& run : runs_) {
      auto* item =
          new QTreeWidgetItem(list_, {QString::number(run.id) + QStringLiteral("  ") + text_of(run.title),
                                      text_of(run.status), time(run.measured_seconds), time(run.predicted_seconds),
                                      error(run.predicted_seconds, run.measured_seconds), size(run.measured_bytes),
                                      size(run.predicted_bytes), error(run.predicted_bytes, run.measured_bytes)});
      item->setToolTip(0, text_of(run.created_at) +
                              (run.message.empty() ? QString() : QStringLiteral("\n") + text_of(run.message)));
      item->setToolTip(1, text_of(run.message));
      for (int column = 2; column < 8; ++column) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
      if (run.id == chosen) list_->setCurrentItem(item);
    }
    for (int column = 1; column < 8; ++column) list_->resizeColumnToContents(column);
    list_->resizeColumnToContents(0);
    list_->setColumnWidth(0, std::min(fontMetrics().averageCharWidth() * 44, list_->columnWidth(0)));
    if (!list_->currentItem() && list_->topLevelItemCount() > 0) list_->setCurrentItem(list_->topLevelItem(0));
    compare();
  }

  void show_agreement() {
    std::vector<AgreementPoint> points;
    for (const MeasuredRun& run : runs_)
      if (run.measured_seconds && run.predicted_seconds)
        points.push_back({*run.measured_seconds, *run.predicted_seconds, text_of(run.title), 0});
    chart_->set_points(
        std::move(points), QStringLiteral("step time"), [](double seconds) { return text_of(short_seconds(seconds)); },
        {},
        QStringLiteral(
            "No runs are in this session file yet.\n“Run” makes one, “Import runs” takes those made elsewhere."));
  }

  [[nodiscard]] const MeasuredRun* current() const {
    const int at = list_->currentItem() ? list_->indexOfTopLevelItem(list_->currentItem()) : -1;
    return at >= 0 && at < static_cast<int>(runs_.size()) ? &runs_[static_cast<std::size_t>(at)] : nullptr;
  }

  /// Asks the command line for the run's terms and timelines: what it prints is what is shown.
  void compare() {
    const MeasuredRun* run = current();
    terms_data_.clear();
    timelines_->set_timeline({});
    show_terms();
    const Environment& environment = session().environment();
    if (!run || environment.command.empty()) return;
    if (compare_->running()) return; // its end asks for the run that is then chosen
    const std::int64_t id = run->id;
    const QString trace = files_.filePath(QStringLiteral("trace.json"));
    const QStringList base = {QStringLiteral("compare"), QString::number(id), QStringLiteral("--db"),
                              QString::fromStdString(session().path().string()), QStringLiteral("--json")};
    const auto take = [this, id, trace](const Program::Outcome& outcome) {
      const MeasuredRun* now = current();
      if (!now || now->id != id) return compare();
      note_->setText(outcome.code == 0 ? QString() : outcome.last_words);
      if (const auto document = parse_json(outcome.document, "foretrain compare"))
        if (auto terms = run_terms(*document)) terms_data_ = std::move(*terms);
      if (const auto read = read_json_file(trace.toStdString()))
        if (auto timeline = run_timeline(*read, now->stage_of_rank)) timelines_->set_timeline(std::move(*timeline));
      show_terms();
    };
    QFile::remove(trace);
    compare_->start(environment.command.string(), base + QStringList{QStringLiteral("--trace"), trace},
                    [this, base, take, program = environment.command.string()](const Program::Outcome& outcome) {
                      if (outcome.code == 0) return take(outcome);
                      compare_->start(program, base, take); // a run without its files still has its figures
                    });
  }

  void show_terms() {
    terms_->clear();
    for (const RunTerm& term : terms_data_) {
      const bool op = term.item.starts_with("op/");
      if (op && !ops_->isChecked()) continue;
      const auto figure = [&](double value) {
        return text_of(term.unit == "B" ? short_bytes(value) : short_seconds(value));
      };
      auto* item = new QTreeWidgetItem(terms_, {text_of(op ? term.item.substr(3) : term.item),
                                                term.rank < 0 ? QStringLiteral("all") : QString::number(term.rank),
                                                figure(term.measured), figure(term.predicted),
                                                shown_error(term.predicted, term.measured)});
      for (int column = 1; column < 5; ++column) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
    }
    for (int column = 0; column < 5; ++column) terms_->resizeColumnToContents(column);
  }

  [[nodiscard]] bool can_learn() const {
    return !session().environment().command.empty() &&
           std::any_of(runs_.begin(), runs_.end(),
                       [](const MeasuredRun& run) { return run.status == "done" && run.measured_seconds; });
  }

  void calibrate() {
    if (learn_->running() || !can_learn()) return;
    panel_->hide();
    calibrate_->setText(QStringLiteral("Stop calibrating"));
    note_->setText(QStringLiteral("Fitting the runs’ ops …"));
    const QString out = files_.filePath(QStringLiteral("calibration.json"));
    learn_->start(session().environment().command.string(),
                  {QStringLiteral("calibrate"), QStringLiteral("--runs"),
                   QString::fromStdString(session().path().string()), QStringLiteral("--out"), out,
                   QStringLiteral("--json")},
                  [this](const Program::Outcome& outcome) { take_calibration(outcome); });
  }

  void take_calibration(const Program::Outcome& outcome) {
    calibrate_->setText(QStringLiteral("Calibrate from these runs"));
    const auto document = parse_json(outcome.document, "foretrain calibrate");
    if (outcome.code != 0 || !document || !document->is_object())
      return note_->setText(outcome.last_words.isEmpty() ? QStringLiteral("The calibration was ended.")
                                                         : outcome.last_words);
    auto calibration = calibration_from((*document)["calibration"], "foretrain calibrate");
    if (!calibration) return note_->setText(text_of(to_string(calibration.error())));
    note_->clear();
    learnt_ = std::move(*calibration);
    std::vector<CalibrationPanel::Fit> fits;
    for (const Json& run : (*document)["runs"])
      fits.push_back({run.value("run", std::int64_t{0}), run.value("measured_step_time_s", 0.0),
                      run.value("before_s", 0.0), run.value("after_s", 0.0)});
    if (session().rows().empty() || session().results().study.cluster.device.name != learnt_.name)
      return show_panel(fits, Result<std::vector<RankChange>>(std::vector<RankChange>()),
                        QStringLiteral("The ranking that is shown is of another device and stays as it is."));
    note_->setText(QStringLiteral("Ranking anew …"));
    auto best = std::make_shared<Results>();
    best->study = session().results().study;
    best->rows.assign(session().rows().begin(), session().rows().begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                               kRanked, session().rows().size())));
    ranking_ = std::jthread([this, fits, best, calibration = learnt_] {
      auto changes = rank_changes(session().environment(), *best, calibration, kRanked);
      QMetaObject::invokeMethod(
          this, [this, fits, changes = std::move(changes)] { show_panel(fits, changes, {}); }, Qt::QueuedConnection);
    });
  }

  void show_panel(const std::vector<CalibrationPanel::Fit>& fits, const Result<std::vector<RankChange>>& changes,
                  QString note) {
    note_->clear();
    std::vector<QString> layouts;
    if (changes)
      for (const RankChange& change : *changes) layouts.push_back(row_title(change.row));
    else
      note = text_of(to_string(changes.error()));
    panel_->show_change(text_of(learnt_.name), fits, changes ? *changes : std::vector<RankChange>(), layouts, note);
    panel_->show();
  }

  void accept() {
    panel_->hide();
    if (const auto used = session().use_calibration(learnt_); !used)
      return session().report({used.error().where, used.error().message, used.error().hint});
    note_->setText(QStringLiteral("Later predictions for “%1” rest on these runs.").arg(text_of(learnt_.name)));
  }

  AgreementChart* chart_;
  QTreeWidget* list_;
  QTreeWidget* terms_;
  QCheckBox* ops_;
  RunTimelines* timelines_;
  QTabWidget* pages_ = nullptr;
  QPushButton* calibrate_;
  QLabel* note_;
  CalibrationPanel* panel_;
  Program* compare_;
  Program* learn_;
  QTemporaryDir files_;
  std::vector<MeasuredRun> runs_;
  bool reading_ = false;
  bool read_again_ = false;
  bool shown_already_ = false;
  std::vector<RunTerm> terms_data_;
  Calibration learnt_;
  std::jthread reader_;
  std::jthread ranking_; ///< last: it is waited for first
};

} // namespace

std::unique_ptr<View> make_measured_view(ViewContext context) {
  return std::make_unique<MeasuredView>(context);
}

} // namespace foretrain::gui
