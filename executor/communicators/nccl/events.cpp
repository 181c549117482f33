#include <utility>

#include "executor/communicators/nccl/link.h"

/// Events of operations.
namespace foretrain {

NcclLink::Events::~Events() {
  for (const gpu::Event event : free_) gpu::destroy(event);
}

gpu::Event NcclLink::Events::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const gpu::Event event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  return gpu::new_event(timed_);
}

void NcclLink::Events::give_back(gpu::Event event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

NcclLink::Operation::Operation(std::string text, NcclLink& owner)
    : what(std::move(text)), link(owner), needed(owner.plain_.take()), began(owner.timing_.take()),
      done(owner.timing_.take()), reached(owner.plain_.take()) {}

NcclLink::Operation::~Operation() {
  for (const gpu::Event event : {needed, reached}) link.plain_.give_back(event);
  for (const gpu::Event event : {began, done}) link.timing_.give_back(event);
}

} // namespace foretrain
