// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/details.h"
#include "gui/model/edits.h"
#include "gui/model/environment.h"
#include "gui/model/inbox.h"
#include "gui/model/rows.h"
#include "gui/model/search_job.h"
#include "gui/model/session_file.h"

namespace foretrain::gui {

/// What a change touched; views look at their own.
enum Change : unsigned {
  kStudyChanged = 1U << 0,
  kRowsChanged = 1U << 1,
  kShownChanged = 1U << 2, ///< filters or order
  kSelectionChanged = 1U << 3,
  kHoverChanged = 1U << 4,
  kPinsChanged = 1U << 5, ///< pins, notes, baseline
  kProgressChanged = 1U << 6,
  kDetailChanged = 1U << 7, ///< a replay that was asked for has arrived
  kColumnsChanged = 1U << 8,
  kFileChanged = 1U << 9,
  kMomentChanged = 1U << 10, ///< while a step plays
  kEverything = ~0U,
};
using Changes = unsigned;

/// Something the user should know, with where it is.
struct Problem {
  std::string where;
  std::string message;
  std::string hint;
  bool operator==(const Problem&) const = default;
};

/// The one thing all views look at: a study, what its search found, one filter, one selection, one hover. Lives on one
/// thread; the threads it starts report through `poll`.
class Session {
public:
  explicit Session(Environment environment);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const Environment& environment() const { return environment_; }

  // Observers
  using Observer = std::function<void(Changes)>;
  int observe(Observer observer);
  void forget(int observer);
  /// Takes what the threads have delivered.
  void poll();
  /// Called from any thread when there is something to poll.
  void set_wake(std::function<void()> wake) { inbox_.wake = std::move(wake); }

  // Edits. `edited` sees each one, for undo.
  [[nodiscard]] const Edits& edits() const { return edits_; }
  void edit(const std::string& title, const std::function<void(Edits&)>& change);
  void apply(const Edits& edits);
  std::function<void(const std::string& title, const Edits& before, const Edits& after)> edited;
  /// The same of what was done to files: how to take it back, and to do it again.
  using Act = std::function<void()>;
  std::function<void(const std::string& title, Act undo, Act redo)> acted;

  // Study
  /// Absent when there is none, or while it has a problem.
  [[nodiscard]] const std::optional<Study>& study() const { return study_; }
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }
  void report(Problem problem);
  /// A study of a file or an example; results of another are dropped.
  void open_study(const Json& document, const std::string& title);
  /// The study was edited after the search: what is shown belongs to the one before.
  [[nodiscard]] bool stale() const;

  // Search
  void start_search(Extent extent = Extent::automatic);
  void stop_search();
  [[nodiscard]] bool searching() const { return search_.running(); }
  [[nodiscard]] const Progress& progress() const { return progress_; }
  /// Seconds that the search will still take; nothing before there is a rate.
  [[nodiscard]] std::optional<double> remaining_s() const;

  // Results
  [[nodiscard]] const Results& results() const { return *results_; }
  /// The same for other threads: they never change.
  [[nodiscard]] std::shared_ptr<const Results> shared_results() const { return results_; }
  [[nodiscard]] const std::vector<Row>& rows() const { return results_->rows; }
  void set_results(std::shared_ptr<const Results> results);
  /// Indices of rows, filtered and sorted.
  [[nodiscard]] const std::vector<int>& shown() const { return shown_; }
  [[nodiscard]] int hidden_by(const Chip& chip) const; ///< rows that this chip alone keeps away
  /// Puts a chip in, in place of one for the same field; empty text takes it out. Error: it does not read.
  [[nodiscard]] Result<void> set_chip(const Chip& chip);
  void remove_chip(std::size_t index);
  [[nodiscard]] std::string chip_text(Chip::Kind kind, const std::string& field) const;

  // Selection: rows by index, the current one first.
  [[nodiscard]] const std::vector<int>& selection() const { return selection_; }
  [[nodiscard]] int current() const { return selection_.empty() ? -1 : selection_.front(); }
  void select(std::vector<int> rows);
  void select_when_read(int row) { wanted_ = row; } ///< of a file that is being opened
  void step_selection(int by);                      ///< along `shown`
  [[nodiscard]] int hover() const { return hover_; }
  void set_hover(int row);

  // The step of the current layout, while it plays: seconds since it began; negative: it does not.
  [[nodiscard]] double moment() const { return moment_; }
  void set_moment(double seconds) {
    if (seconds == moment_) return;
    moment_ = seconds;
    changed(kMomentChanged);
  }

  // Pins
  [[nodiscard]] bool pinned(int row) const;
  void toggle_pin(int row);
  void set_baseline(int row); ///< again: none
  [[nodiscard]] std::string note(int row) const;
  void set_note(int row, const std::string& text);         ///< pins the row
  [[nodiscard]] int baseline() const { return baseline_; } ///< row, -1 when there is none here
  [[nodiscard]] std::vector<int> pinned_rows() const;
  /// What to compare a row with: the baseline, else the best other one; -1: nothing.
  [[nodiscard]] int reference_for(int row) const;

  // Details. With `set_waiting`, they are worked out at once (for exports).
  [[nodiscard]] std::shared_ptr<const Detail> detail(int row);
  [[nodiscard]] bool detail_busy() const { return details_.busy(); }
  void set_waiting(bool waiting) { waiting_ = waiting; }
  [[nodiscard]] bool waiting() const { return waiting_; }
  /// Simulates a row's layout on the network, in the background; its detail then says what was found.
  void simulate(int row);
  void stop_simulation() { details_.stop_simulation(); }
  /// The row whose simulation runs; -1: none.
  [[nodiscard]] int simulating() const;

  // File
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// A session file; its newest study is shown. Reading goes on in the background. Errors: those of the store.
  [[nodiscard]] Result<void> open_file(const std::filesystem::path& path);
  /// A new session file, or none.
  void set_path(const std::filesystem::path& path) {
    path_ = path;
    written_.reset();
  }
  /// Keeps what was decided. Error: those of the store; another window has changed the file meanwhile, which is told
  /// once: nothing is overwritten until `keep_mine`.
  [[nodiscard]] Result<void> save_view_state();
  /// The same on a thread of its own; what goes wrong is reported. False: the last time is still under way.
  [[nodiscard]] bool autosave();
  /// Another window has changed what was decided in this file.
  [[nodiscard]] bool conflicted() const { return conflicted_; }
  /// At the end: which layout was looked at.
  void save_selection();
  /// What this window has counts: it takes the place of the other's at the next save.
  [[nodiscard]] Result<void> keep_mine();
  /// Copies the file, with all that is in it, and goes on in the copy, or begins a new one. Copying goes on in the
  /// background; what fails is reported.
  [[nodiscard]] Result<void> save_as(const std::filesystem::path& path);
  /// Another program has written to the file: runs, say.
  void file_changed() { changed(kFileChanged); }
  /// Takes runs out of the file, on a thread; `done` follows unless that fails, which is reported.
  void take_out_runs(std::vector<std::int64_t> runs, std::function<void()> done);
  /// Every later prediction for the device rests on it, this program's and the command line's. Error: it cannot be
  /// written.
  [[nodiscard]] Result<void> use_calibration(const Calibration& calibration);
  [[nodiscard]] bool loading() const { return file_.reading(); }
  [[nodiscard]] bool saving() const { return file_.writing(); }
  /// Waits for threads; afterwards nothing more arrives.
  void close();

private:
  void changed(Changes changes);
  void read_study();
  void filter_rows();
  void find_pins();
  void take_results(std::shared_ptr<const Results> results);
  void write_results(std::shared_ptr<const Results> results);
  struct StateWriting {
    std::string text;
    Result<bool> written = false;
  };
  void settle_state(); ///< waits for `autosave` and takes its outcome
  [[nodiscard]] Result<void> take_written(std::string text, Result<bool> written);
  void rest_on_calibration();
  void calibration_changed();
  void report(const Error& error) { report({error.where, error.message, error.hint}); }
  [[nodiscard]] int row_of(const Layout& layout) const;

  Environment environment_;
  Inbox inbox_;
  std::vector<std::pair<int, Observer>> observers_;
  int next_observer_ = 0;

  Edits edits_;
  std::optional<Study> study_;
  std::vector<Problem> problems_;
  std::shared_ptr<const Results> results_ = std::make_shared<Results>();
  std::vector<Filter> filters_;
  std::vector<int> shown_;
  std::vector<int> selection_;
  std::vector<Layout> chosen_; ///< what was selected, also while it is not among the rows
  int wanted_ = -1;
  int hover_ = -1;
  double moment_ = -1;
  std::vector<int> pins_;
  int baseline_ = -1;
  Progress progress_;
  std::chrono::steady_clock::time_point started_;
  std::filesystem::path path_;
  bool waiting_ = false;
  std::string calibration_;   ///< that the rows rest on
  bool recalibrated_ = false; ///< it is another by now
  bool conflicted_ = false;
  std::optional<std::string> written_; ///< view state in the file, as this window knows it
  Json view_state_;                    ///< as read, so that keys of newer programs are kept

  Details details_;
  SearchJob search_;
  SessionFile file_;
  std::shared_ptr<StateWriting> saving_state_;
  std::jthread state_writer_;
};

} // namespace foretrain::gui
