#include "planner/compare_trace.h"

#include <algorithm>

#include "core/spec/names.h"
#include "simulator/trace.h"

namespace foretrain {
namespace {

constexpr int kMeasured = 10'000; ///< process numbers of measured ranks start here

/// Rows of a measured rank's process: what it computes, and what it waits or communicates for.
int row_of(TimePart part) {
  return part == TimePart::compute || part == TimePart::optimizer ? 0 : 1;
}

void add_names(int process, std::size_t rank, Json& events) {
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", process},
                    {"args", {{"name", "measured rank " + std::to_string(rank)}}}});
  for (const auto& [row, name] : {std::pair(0, "compute"), std::pair(1, "communication")})
    events.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
}

Json event_of(const TracedOp& traced, const PlannedOp& op, int number, int process, double shift) {
  return {{"name", kind_of(op.place)},
          {"cat", std::string(id_of(op.part))},
          {"ph", "X"},
          {"pid", process},
          {"tid", row_of(op.part)},
          {"ts", (traced.start + shift) * 1e6},
          {"dur", (traced.end - traced.start) * 1e6},
          {"args",
           {{"op", number},
            {"micro_batch", op.place.micro_batch},
            {"layer", op.place.layer},
            {"predicted_us", op.seconds * 1e6}}}};
}

/// The earliest begin of the recorded step: ranks of one machine share a clock, others are as far apart as theirs.
double first_begin(const MeasuredRun& run) {
  double first = 0;
  for (const MeasuredRank& rank : run.ranks)
    if (!rank.trace.empty()) first = first == 0 ? rank.trace_began : std::min(first, rank.trace_began);
  return first;
}

} // namespace

Result<std::string> compared_trace(const Simulation& simulation, const MeasuredRun& run,
                                   const std::vector<std::vector<PlannedOp>>& ops, const std::vector<int>& stage) {
  FORETRAIN_TRY(Json trace, parse_json(chrome_trace(simulation), "timeline"));
  Json& events = trace["traceEvents"];
  for (Json& event : events)
    if (event["name"] == "process_name")
      event["args"]["name"] = "predicted " + event["args"]["name"].get<std::string>();
  const double first = first_begin(run);
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < stage.size(); ++rank) {
    const MeasuredRank& measured = run.ranks[rank];
    const std::vector<PlannedOp>& planned = ops[static_cast<std::size_t>(stage[rank])];
    if (measured.trace.size() != planned.size()) continue; // not recorded, or by another version
    const int process = kMeasured + static_cast<int>(rank);
    add_names(process, rank, events);
    for (std::size_t i = 0; i < planned.size(); ++i)
      events.push_back(
          event_of(measured.trace[i], planned[i], static_cast<int>(i), process, measured.trace_began - first));
  }
  return trace.dump() + "\n";
}

} // namespace foretrain
