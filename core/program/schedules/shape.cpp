#include "core/program/schedules/shape.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace foretrain {

std::vector<std::vector<ScheduleSlot>> Schedule::orders(const ScheduleShape& shape) const {
  std::vector<std::vector<ScheduleSlot>> list;
  for (int stage = 0; stage < shape.stages; ++stage) list.push_back(order(shape, stage));
  return list;
}

std::optional<Rejection> check_shape(const Schedule& schedule, const ScheduleShape& shape) {
  const auto positive = [](const char* name, int value) -> std::optional<Rejection> {
    if (value >= 1) return std::nullopt;
    return Rejection{.rule = "schedule-shape",
                     .reason = fmt::format("{} is {}, at least 1 is needed", name, value),
                     .needed = 1,
                     .available = static_cast<double>(value),
                     .nearest = {fmt::format("{} 1", name)}};
  };
  if (auto rejection = positive("pp", shape.stages)) return rejection;
  if (auto rejection = positive("chunks", shape.chunks)) return rejection;
  if (auto rejection = positive("micro-batches", shape.micro_batches)) return rejection;
  if (!schedule.takes_chunks() && shape.chunks > 1)
    return Rejection{
        .rule = "schedule-chunks",
        .reason = fmt::format("schedule {} runs 1 chunk per stage, the layout has {}", schedule.id(), shape.chunks),
        .needed = 1,
        .available = static_cast<double>(shape.chunks),
        .nearest = {"chunks 1", "schedule interleaved"}};
  if (!schedule.takes_chunks() && shape.group != 0)
    return Rejection{.rule = "schedule-group",
                     .reason = fmt::format("schedule {} has no micro-batch groups, a group of {} is asked for",
                                           schedule.id(), shape.group),
                     .needed = 0,
                     .available = static_cast<double>(shape.group),
                     .nearest = {"schedule interleaved"}};
  // In doubles: three ints can overflow 64 bits.
  const double size = 1.0 * shape.stages * shape.chunks * shape.micro_batches;
  if (size > static_cast<double>(kScheduleLimit)) {
    Rejection rejection{.rule = "schedule-size",
                        .reason =
                            fmt::format("{} stages x {} chunks x {} micro-batches make {:.0f} forward slots, at most "
                                        "{} are supported",
                                        shape.stages, shape.chunks, shape.micro_batches, size, kScheduleLimit),
                        .needed = size,
                        .available = static_cast<double>(kScheduleLimit),
                        .nearest = {}};
    // With chunks, groups of as many micro-batches as stages.
    const auto group = static_cast<double>(schedule.takes_chunks() ? shape.stages : 1);
    const double most =
        std::floor(static_cast<double>(kScheduleLimit) / (1.0 * shape.stages * shape.chunks) / group) * group;
    const long long unchunked =
        std::clamp(kScheduleLimit / shape.stages, 1LL, static_cast<long long>(shape.micro_batches));
    rejection.nearest.push_back(most >= 1 ? fmt::format("micro-batches {:.0f}", most)
                                          : fmt::format("schedule 1f1b, chunks 1, micro-batches {}", unchunked));
    return rejection;
  }
  return std::nullopt;
}

std::string underfilled(const ScheduleShape& shape, int needed) {
  if (shape.micro_batches >= needed) return {};
  return fmt::format("{} micro-batches leave {} stages idle most of the step; {} fill the pipeline",
                     shape.micro_batches, shape.stages, needed);
}

} // namespace foretrain
