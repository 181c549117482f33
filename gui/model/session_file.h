// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/json.h"
#include "core/base/result.h"
#include "gui/model/environment.h"
#include "gui/model/inbox.h"
#include "gui/model/rows.h"

namespace foretrain::gui {

/// What a session file holds beside its rows.
struct SavedSession {
  Json view_state;                    ///< null when this program has not written one
  std::optional<std::string> written; ///< the same, as it stands in the file
  Json selected;                      ///< the layout that was looked at last; null: none
  Json study;                         ///< of the newest search; null when there is none
  std::int64_t study_id = 0;
  std::int64_t candidates = 0;
};

/// Reads and writes session files (the store) on threads of its own.
class SessionFile {
public:
  SessionFile(const Environment& environment, Inbox& inbox) : environment_(environment), inbox_(inbox) {}
  ~SessionFile() { wait(); }
  SessionFile(const SessionFile&) = delete;
  SessionFile& operator=(const SessionFile&) = delete;

  /// What is quick to read. Errors: those of the store.
  [[nodiscard]] Result<SavedSession> open(const std::filesystem::path& path) const;
  /// The rows of a study, first a page, then all of them.
  void read_rows(const std::filesystem::path& path, std::int64_t study,
                 std::function<void(Result<std::shared_ptr<const Results>>)> arrived);
  /// Keeps what a search found.
  void write(const std::filesystem::path& path, std::shared_ptr<const Results> results,
             std::function<void(Result<void>)> done);
  /// Takes runs out of the file.
  void remove_runs(const std::filesystem::path& path, std::vector<std::int64_t> runs,
                   std::function<void(Result<void>)> done);
  /// Writes it if the file still holds what `before` says, else returns false: another window has changed it.
  [[nodiscard]] Result<bool> write_view_state(const std::filesystem::path& path,
                                              const std::optional<std::string>& before, const std::string& state) const;
  [[nodiscard]] Result<std::optional<std::string>> view_state(const std::filesystem::path& path) const;
  /// Keeps which layout was looked at: the last window to close decides.
  [[nodiscard]] Result<void> write_selected(const std::filesystem::path& path, const Json& layout) const;
  /// A whole copy, what other windows have just written included.
  void copy(const std::filesystem::path& from, const std::filesystem::path& to, std::function<void(Result<void>)> done);
  /// Nothing more arrives from a reading that is under way.
  void stop_reading();
  /// Stops reading, finishes writing.
  void wait();
  [[nodiscard]] bool reading() const { return reading_; }
  [[nodiscard]] bool writing() const { return writing_ > 0; }

private:
  /// Writes on a thread of its own, one thing after the other, and reports the outcome.
  void start_writing(std::function<Result<void>()> write, std::function<void(Result<void>)> done);

  const Environment& environment_;
  Inbox& inbox_;
  bool reading_ = false;
  int writing_ = 0; ///< what is not written yet
  std::uint64_t readings_ = 0;
  std::uint64_t generation_ = 0; ///< of writings
  std::jthread reader_;
  std::jthread writer_;
};

} // namespace foretrain::gui
