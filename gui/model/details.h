// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
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
#include "planner/search.h"
#include "simulator/simulation.h"

namespace foretrain::gui {

/// What is worked out about one layout once a view asks for it.
struct Detail {
  Layout layout;
  Prediction prediction;                        ///< op by op
  std::shared_ptr<const Simulation> simulation; ///< with its timeline; null when the layout cannot run
  std::string problem;                          ///< why there is nothing
  std::shared_ptr<const Simulated> network;     ///< simulated on the network, once that was asked for
  std::string network_problem;                  ///< why it could not be
};

/// Replays layouts op by op on a thread of its own, the newest wish first, and remembers the last few. Simulations on
/// the network are asked for one by one.
class Details {
public:
  Details(const Environment& environment, Inbox& inbox) : environment_(environment), inbox_(inbox) {}
  ~Details();
  Details(const Details&) = delete;
  Details& operator=(const Details&) = delete;

  /// What is known of the layout; null while it is being worked out, `arrived` follows on the owning thread.
  [[nodiscard]] std::shared_ptr<const Detail> of(const Study& study, const Layout& layout);
  /// The same, waiting for it.
  [[nodiscard]] std::shared_ptr<const Detail> now(const Study& study, const Layout& layout);
  /// Simulates the layout on the network; `arrived` follows.
  void simulate(const Study& study, const Layout& layout);
  [[nodiscard]] const std::optional<Layout>& simulating() const { return simulating_; }
  void stop_simulation() { stop_simulation_->store(true); }
  /// Of another study: drops everything. Waits for nothing: a replay that is under way ends by itself.
  void forget();
  [[nodiscard]] bool busy() const { return queue_ && queue_->working.load() > 0; }

  std::function<void()> arrived;

private:
  /// What one thread and its owner share.
  struct Queue {
    std::mutex mutex;
    std::condition_variable_any wish_made;
    std::vector<Layout> wishes; ///< newest last
    std::optional<Layout> current;
    std::atomic<int> working{0};
    std::atomic<bool> finished{false};
  };
  struct Worker {
    std::shared_ptr<Queue> queue;
    std::jthread thread;
  };

  struct OnNetwork {
    Layout layout;
    std::shared_ptr<const Simulated> result;
    std::string problem;
  };

  void work(const std::stop_token& stop, const std::shared_ptr<Queue>& queue, const Study& study,
            std::uint64_t generation);
  void remember(std::shared_ptr<const Detail> detail);
  [[nodiscard]] std::shared_ptr<const Detail> known(const Layout& layout);
  void take_simulated(const Layout& layout, Result<Simulated> simulated);

  const Environment& environment_;
  Inbox& inbox_;
  std::list<std::shared_ptr<const Detail>> recent_; ///< newest first
  std::uint64_t generation_ = 0;
  std::shared_ptr<Queue> queue_;
  std::jthread thread_;
  std::vector<Worker> retired_; ///< of studies before, at their last replay
  std::vector<OnNetwork> simulated_;
  std::optional<Layout> simulating_;
  std::shared_ptr<std::atomic<bool>> stop_simulation_ = std::make_shared<std::atomic<bool>>(false);
  std::jthread simulator_;
};

/// Replays one layout. Never fails: what goes wrong stands in `problem`.
[[nodiscard]] Detail detail_of(const Environment& environment, const Study& study, const Layout& layout);

} // namespace foretrain::gui
