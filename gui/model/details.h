// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "gui/model/environment.h"
#include "gui/model/inbox.h"
#include "simulator/simulation.h"

namespace foretrain::gui {

/// What is worked out about one layout once a view asks for it.
struct Detail {
  Layout layout;
  Prediction prediction;                         ///< op by op
  std::shared_ptr<const Simulation> simulation;  ///< with its timeline; null when the layout cannot run
  std::string problem;                           ///< why there is nothing
};

/// Replays layouts op by op on a thread of its own, the newest wish first, and remembers the last few.
class Details {
public:
  Details(const Environment& environment, Inbox& inbox) : environment_(environment), inbox_(inbox) {}
  ~Details() { forget(); }
  Details(const Details&) = delete;
  Details& operator=(const Details&) = delete;

  /// What is known of the layout; null while it is being worked out, `arrived` follows on the owning thread.
  [[nodiscard]] std::shared_ptr<const Detail> of(const Study& study, const Layout& layout);
  /// The same, waiting for it.
  [[nodiscard]] std::shared_ptr<const Detail> now(const Study& study, const Layout& layout);
  /// Of another study: drops everything, waits for the thread.
  void forget();
  [[nodiscard]] bool busy() const { return working_.load() > 0; }

  std::function<void()> arrived;

private:
  void work(const std::stop_token& stop, const Study& study);
  void remember(std::shared_ptr<const Detail> detail);
  [[nodiscard]] std::shared_ptr<const Detail> known(const Layout& layout);

  const Environment& environment_;
  Inbox& inbox_;
  std::list<std::shared_ptr<const Detail>> recent_; ///< newest first
  std::mutex mutex_;
  std::condition_variable_any wish_made_;
  std::vector<Layout> wishes_; ///< newest last
  std::optional<Layout> current_;
  std::atomic<int> working_{0};
  std::uint64_t generation_ = 0;
  std::jthread thread_;
};

/// Replays one layout. Never fails: what goes wrong stands in `problem`.
[[nodiscard]] Detail detail_of(const Environment& environment, const Study& study, const Layout& layout);

} // namespace foretrain::gui
