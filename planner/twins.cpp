#include "planner/twins.h"

#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "core/program/stages.h"

namespace foretrain {

bool repeats_schedule(const Layout& layout, const JobSpec& job, const std::vector<std::string>& listed) {
  const Schedule* own = schedules().find(layout.schedule.kind);
  if (!own || layout.pp == 1 || layout.schedule.chunks > 1) return false;
  const ScheduleShape shape{layout.pp, 1, micro_batches_of(job, layout)};
  // Once warm-up ends before the micro-batches do, schedules differ.
  if (shape.micro_batches > 2 * shape.stages || own->legal(shape)) return false;
  for (const std::string& id : listed) {
    if (id == layout.schedule.kind) return false;
    const Schedule* other = schedules().find(id);
    if (!other || other->splits_backward() != own->splits_backward() || other->overlaps_p2p() != own->overlaps_p2p() ||
        other->legal(shape))
      continue;
    bool same = true;
    for (int stage = 0; same && stage < shape.stages; ++stage)
      same = own->order(shape, stage) == other->order(shape, stage);
    if (same) return true;
  }
  return false;
}

} // namespace foretrain
