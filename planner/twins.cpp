#include "planner/twins.h"

#include <algorithm>

#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "core/program/stages.h"

namespace foretrain {

bool repeats_schedule(const Layout& layout, const JobSpec& job, const std::vector<std::string>& listed,
                      const std::function<SlotWeights()>& weights) {
  const Schedule* own = schedules().find(layout.schedule.kind);
  if (!own || layout.pp == 1 || layout.schedule.chunks > 1) return false;
  ScheduleShape shape = schedule_shape(job, layout);
  if (own->legal(shape)) return false;
  // Once warm-up ends before the micro-batches do, schedules differ, but for those that choose one by their costs.
  if (!own->by_cost() && shape.micro_batches > 2 * shape.stages) return false;
  if (own->by_cost()) {
    shape.weights = weights();
    // Twice the stages' micro-batches, a sixteenth of each retained: no weight gradient is put off any further.
    constexpr int kFurthest = 2 * SlotWeights::kWhole + kSettledRounds;
    shape.micro_batches = std::min(shape.micro_batches, kFurthest * shape.stages);
  }
  const std::vector<std::vector<ScheduleSlot>> orders = own->orders(shape);
  for (const std::string& id : listed) {
    if (id == layout.schedule.kind) return false;
    const Schedule* other = schedules().find(id);
    if (!other || other->splits_backward() != own->splits_backward() || other->overlaps_p2p() != own->overlaps_p2p() ||
        other->legal(shape))
      continue;
    if (other->orders(shape) == orders) return true;
  }
  return false;
}

} // namespace foretrain
