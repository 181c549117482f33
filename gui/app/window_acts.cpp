// SPDX-License-Identifier: GPL-3.0-or-later
#include <QTimer>
#include <QUndoStack>

#include "core/base/json.h"
#include "gui/app/main_window.h"
#include "gui/model/traffic.h"
#include "gui/views/program.h"

/// What the window does that takes time or can be taken back.
namespace foretrain::gui {
namespace {

constexpr int kStepPlays = 12'000; ///< milliseconds that a step plays, however long it is

/// One edit, undone by putting the state before it back.
class EditCommand final : public QUndoCommand {
public:
  EditCommand(Session& session, const std::string& title, Edits before, Edits after)
      : QUndoCommand(QString::fromStdString(title)), session_(session), before_(std::move(before)),
        after_(std::move(after)) {}
  void undo() override { session_.apply(before_); }
  void redo() override {
    if (std::exchange(done_, true)) session_.apply(after_); // the first time it has been done already
  }

private:
  Session& session_;
  Edits before_;
  Edits after_;
  bool done_ = false;
};

/// Something that was done to files.
class ActCommand final : public QUndoCommand {
public:
  ActCommand(const std::string& title, Session::Act undo, Session::Act redo)
      : QUndoCommand(QString::fromStdString(title)), undo_(std::move(undo)), redo_(std::move(redo)) {}
  void undo() override { undo_(); }
  void redo() override {
    if (std::exchange(done_, true)) redo_();
  }

private:
  Session::Act undo_;
  Session::Act redo_;
  bool done_ = false;
};

} // namespace

void MainWindow::remember_acts() {
  session_.edited = [this](const std::string& title, const Edits& before, const Edits& after) {
    undo_->push(new EditCommand(session_, title, before, after));
    autosave_->start();
  };
  session_.acted = [this](const std::string& title, Session::Act undo, Session::Act redo) {
    undo_->push(new ActCommand(title, std::move(undo), std::move(redo)));
  };
}

void MainWindow::play() {
  if (player_->isActive()) return player_->stop();
  player_->start();
  play_on();
}

void MainWindow::play_on() {
  const auto detail = session_.detail(session_.current());
  if (!detail) return; // it is being replayed
  const double end = detail->simulation ? end_of(*detail->simulation) : 0;
  if (!(end > 0)) return player_->stop();
  const double next = std::max(0.0, session_.moment()) + end * kFrameMilliseconds / kStepPlays;
  session_.set_moment(next > end ? 0 : next);
}

void MainWindow::import_runs(const QStringList& files, const std::shared_ptr<std::vector<std::int64_t>>& again) {
  const auto complain = [this](const QString& text) {
    session_.report({"import", text.toStdString(), ""});
    say(text);
  };
  const Environment& environment = session_.environment();
  if (environment.command.empty()) return complain(QStringLiteral("the program “foretrain” is not beside this one"));
  if (session_.path().empty())
    return complain(QStringLiteral("runs are kept in the session file: save the session first"));
  if (importer_->running()) return complain(QStringLiteral("other runs are being imported: try again"));
  say(QStringLiteral("Importing …"));
  const QStringList words =
      QStringList{QStringLiteral("db"), QStringLiteral("import"), QString::fromStdString(session_.path().string())} +
      files + QStringList{QStringLiteral("--json")};
  importer_->start(environment.command.string(), words, [=, this](const Program::Outcome& outcome) {
    if (outcome.code != 0) return complain(outcome.last_words);
    const auto taken = again ? again : std::make_shared<std::vector<std::int64_t>>();
    int known = 0;
    if (const auto document = parse_json(outcome.document, "foretrain db import");
        document && document->contains("runs"))
      for (const Json& run : (*document)["runs"]) {
        if (run["run"].is_number_integer())
          taken->push_back(run["run"].get<std::int64_t>());
        else
          ++known;
      }
    const auto count = static_cast<int>(taken->size());
    say(QStringLiteral("%1 %2 imported").arg(count).arg(count == 1 ? QStringLiteral("run") : QStringLiteral("runs")) +
        (known > 0 ? QStringLiteral(", %1 already there").arg(known) : QString()));
    if (!again && !taken->empty())
      session_.acted(
          "import of runs", [this, taken] { session_.take_out_runs(std::exchange(*taken, {}), [] {}); },
          [this, files, taken] { import_runs(files, taken); });
    session_.file_changed();
    show_view("measured");
  });
}

} // namespace foretrain::gui
