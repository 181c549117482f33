#pragma once

#include <memory>

#include "executor/communicators/device_link.h"

/// Devices that are not there: the order in which devices carry operations out, without one. Each channel of each rank
/// is a queue that a thread works off; an operation starts when those before it are done and ends when the peers' come,
/// as in a stream. So an order that would hold real devices up holds these up, and the wait says so.
namespace foretrain::executor_fixtures {

/// What the ranks of one run share; outlives their links.
class QueueFabric {
public:
  QueueFabric();
  ~QueueFabric();
  QueueFabric(const QueueFabric&) = delete;
  QueueFabric& operator=(const QueueFabric&) = delete;
  [[nodiscard]] std::unique_ptr<DeviceLink> link();

private:
  struct State;
  std::shared_ptr<State> state_;
  friend class QueueLink;
};

} // namespace foretrain::executor_fixtures
