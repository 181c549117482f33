// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/result.h"
#include "gui/model/environment.h"
#include "gui/model/inbox.h"
#include "gui/model/rows.h"
#include "planner/search.h"

namespace foretrain::gui {

/// A search on a thread of its own. Everything is reported through the inbox; `stop` keeps what was found.
class SearchJob {
public:
  struct Reports {
    std::function<void(const Progress&)> progress;
    std::function<void(std::shared_ptr<const Results>)> found; ///< while it runs: the best so far
    std::function<void(Result<std::shared_ptr<const Results>>)> done;
  };

  SearchJob(const Environment& environment, Inbox& inbox) : environment_(environment), inbox_(inbox) {}
  ~SearchJob() { abandon(); }
  SearchJob(const SearchJob&) = delete;
  SearchJob& operator=(const SearchJob&) = delete;

  void start(const Study& study, Extent extent, Reports reports);
  void stop() { stop_ = true; }
  /// Stops, waits, and delivers nothing more.
  void abandon();
  [[nodiscard]] bool running() const { return running_; }

private:
  const Environment& environment_;
  Inbox& inbox_;
  std::atomic<bool> stop_{false};
  bool running_ = false; ///< of the owning thread
  std::uint64_t generation_ = 0;
  std::jthread thread_;
};

} // namespace foretrain::gui
