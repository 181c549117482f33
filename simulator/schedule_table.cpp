#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "simulator/slot_order.h"

namespace foretrain {

const SlotOrder& ScheduleTable::get(const Schedule& schedule, const ScheduleShape& shape, bool blocking,
                                    bool remembers) {
  const Key key{schedule.id(), shape.stages,  shape.chunks, shape.micro_batches,
                shape.group,   shape.weights, blocking,     remembers};
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = orders_.find(key); found != orders_.end()) return *found->second;
  }
  auto built = std::make_unique<const SlotOrder>(make_slot_order(schedule, shape, blocking, remembers));
  const std::unique_lock lock(mutex_);
  return *orders_.try_emplace(key, std::move(built)).first->second; // a build that lost the race is dropped
}

} // namespace foretrain
