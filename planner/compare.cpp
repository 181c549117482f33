#include "planner/compare.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/spec/names.h"

namespace foretrain {
namespace {

/// Parts of the step that can be told apart on both sides. A rank that waits for another stage cannot say whether for
/// the transfer or for the work before it, so the two are one row; what is in no op is the rest.
struct Row {
  const char* item;
  std::vector<TimePart> parts;
};
const std::array<Row, 8>& rows() {
  static const std::array<Row, 8> list = {{{"time/compute", {TimePart::compute}},
                                           {"time/tp", {TimePart::tp}},
                                           {"time/cp", {TimePart::cp}},
                                           {"time/ep", {TimePart::ep}},
                                           {"time/pipeline", {TimePart::pp, TimePart::bubble}},
                                           {"time/dp", {TimePart::dp}},
                                           {"time/optimizer", {TimePart::optimizer}},
                                           {"time/other", {TimePart::host, TimePart::other}}}};
  return list;
}

void add_memory(const RunFacts& run, const Prediction& prediction, std::vector<Comparison>& out) {
  for (std::size_t rank = 0; rank < run.peak_bytes.size(); ++rank) {
    const auto stage = static_cast<std::size_t>(run.stage[rank]);
    if (!run.peak_bytes[rank] || stage >= prediction.memory.size()) continue;
    out.push_back({"peak_allocated", static_cast<int>(rank), "B",
                   static_cast<double>(prediction.memory[stage].allocated.value),
                   static_cast<double>(*run.peak_bytes[rank])});
  }
}

void add_peaks(const RunFacts& run, std::vector<Comparison>& out) {
  for (const ComparedPeak& peak : run.peaks)
    out.push_back(
        {"peak/" + peak.name, peak.rank, "B", static_cast<double>(peak.predicted), static_cast<double>(peak.measured)});
}

void add_parts(const RunFacts& run, const Simulation& simulation, std::vector<Comparison>& out) {
  std::map<std::pair<int, std::string>, double> measured; // rank, part
  std::map<int, double> in_ops;
  for (const ComparedOp& op : run.ops) {
    measured[{op.rank, op.part}] += op.measured;
    in_ops[op.rank] += op.measured;
  }
  for (const auto& [rank, seconds] : in_ops) {
    const auto at = static_cast<std::size_t>(rank);
    const TimeParts& planned = simulation.stages[static_cast<std::size_t>(run.stage[at])].parts;
    for (const Row& row : rows()) {
      Comparison entry{row.item, rank, "s", 0, 0};
      for (const TimePart part : row.parts) {
        entry.predicted += planned[static_cast<std::size_t>(part)].value;
        const auto found = measured.find({rank, std::string(id_of(part))});
        if (found != measured.end()) entry.measured += found->second;
        if (part == TimePart::other) entry.measured += std::max(0.0, median_of(run.rank_seconds[at]) - seconds);
      }
      if (entry.predicted > 0 || entry.measured > 0) out.push_back(std::move(entry));
    }
  }
}

void add_ops(const RunFacts& run, std::vector<Comparison>& out) {
  std::map<int, std::map<std::string, Comparison>> by_rank;
  for (const ComparedOp& op : run.ops) {
    Comparison& entry = by_rank[op.rank][op.kind];
    entry.predicted += op.predicted;
    entry.measured += op.measured;
  }
  for (auto& [rank, kinds] : by_rank)
    for (auto& [kind, entry] : kinds) out.push_back({"op/" + kind, rank, "s", entry.predicted, entry.measured});
}

} // namespace

std::optional<double> Comparison::error_percent() const {
  if (measured == 0) return std::nullopt;
  return (predicted - measured) / measured * 100;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<Comparison> compare(const RunFacts& run, const Prediction& prediction, const Simulation* simulation) {
  std::vector<Comparison> out;
  if (!run.step_seconds.empty())
    out.push_back({"step_time", std::nullopt, "s", prediction.step_time.value, median_of(run.step_seconds)});
  add_memory(run, prediction, out);
  out.insert(out.end(), run.host.begin(), run.host.end());
  if (simulation) add_parts(run, *simulation, out);
  add_peaks(run, out);
  add_ops(run, out);
  return out;
}

} // namespace foretrain
