#include "planner/measured_run.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "core/base/json_number.h"
#include "planner/compare.h"

namespace foretrain {
namespace {

constexpr std::size_t kMostRanks = 1'000'000;

double median_after(const std::vector<double>& values, int warmup) {
  const auto skipped = std::min(values.size(), static_cast<std::size_t>(std::max(0, warmup)));
  return median_of({values.begin() + static_cast<std::ptrdiff_t>(skipped), values.end()});
}

void read_header(const Json& line, MeasuredRun& run) {
  if (run.restarts > 0) return; // the first one stands
  run.warmup = line.value("warmup", 0);
  run.first_step = line.value("first_step", 0);
  run.environment = Json::object();
  for (const auto& [key, value] : line.items())
    if (key != "plan" && key != "steps") run.environment[key] = value;
}

void read_times(const Json& times, MeasuredRank& rank) {
  const auto medians = times.at("median_s").get<std::vector<double>>();
  const auto low = times.at("p10_s").get<std::vector<double>>();
  const auto high = times.at("p90_s").get<std::vector<double>>();
  std::vector<double> means(medians.size());
  if (times.contains("mean_s")) means = times.at("mean_s").get<std::vector<double>>();
  const int samples = times.at("samples").get<int>();
  rank.ops.clear();
  for (std::size_t i = 0; i < medians.size(); ++i)
    rank.ops.push_back({samples, medians[i], low.at(i), high.at(i), means.at(i)});
}

/// What was done after the checkpoint that a restart goes on from is done again.
void go_back(const Json& restart, MeasuredRun& run) {
  ++run.restarts;
  run.failure.clear();
  const auto kept = static_cast<std::size_t>(std::max(0, restart.at("step").get<int>() - run.first_step));
  if (run.loss.size() > kept) run.loss.resize(kept);
  for (MeasuredRank& rank : run.ranks) {
    if (rank.step_seconds.size() > kept) rank.step_seconds.resize(kept);
    rank.error.clear();
  }
}

void read_checkpoint(const Json& line, MeasuredRank& rank, std::vector<MeasuredCheckpoint>& checkpoints) {
  const int steps = line.at("steps").get<int>();
  if (checkpoints.empty() || checkpoints.back().steps != steps) checkpoints.push_back({steps, 0, 0, 0, false});
  MeasuredCheckpoint& checkpoint = checkpoints.back();
  checkpoint.bytes += line.at("bytes").get<std::int64_t>();
  checkpoint.stall_seconds = std::max(checkpoint.stall_seconds, line.at("stall_s").get<double>());
  checkpoint.write_seconds = std::max(checkpoint.write_seconds, line.at("write_s").get<double>());
  checkpoint.background = line.value("background", false);
  if (checkpoint.background) rank.copied_bytes = std::max(rank.copied_bytes, line["bytes"].get<std::int64_t>());
}

void read_step(const Json& line, int first, MeasuredRank& rank, std::vector<double>& losses) {
  if (line.at("step").get<int>() < first) return;
  const auto step = static_cast<std::size_t>(line["step"].get<int>() - first);
  if (rank.step_seconds.size() <= step) rank.step_seconds.resize(step + 1);
  rank.step_seconds[step] = line.at("step_time_s").get<double>();
  rank.peak_bytes = std::max(rank.peak_bytes, line.value("peak_allocated_bytes", std::int64_t{-1}));
  rank.host_peak_bytes = std::max(rank.host_peak_bytes, line.value("peak_host_bytes", std::int64_t{-1}));
  if (losses.size() <= step) losses.resize(step + 1);
  losses[step] += number_or_nan(line.at("loss")); // of a run that diverged
  if (!rank.trace.empty() || !line.contains("ops")) return;
  rank.trace_began = line.value("began_s", 0.0);
  rank.peaks = line.value("peaks", std::vector<std::int64_t>{});
  for (const Json& op : line["ops"])
    rank.trace.push_back({op.at("start_s").get<double>(), op.at("end_s").get<double>()});
}

void read_line(const Json& line, MeasuredRun& run) {
  if (line.contains("format")) return read_header(line, run);
  if (line.contains("probe")) {
    run.probes.push_back({line["probe"].get<std::string>(), line.at("ranks").get<int>(), line.at("bytes").get<double>(),
                          line.at("seconds").get<double>()});
    return;
  }
  if (line.contains("summary")) {
    run.failure = line["summary"].value("failure", std::string());
    return;
  }
  if (line.contains("restart")) return go_back(line["restart"], run);
  const auto number = line.at("rank").get<std::size_t>();
  if (number >= kMostRanks) return;
  if (run.ranks.size() <= number) run.ranks.resize(number + 1);
  MeasuredRank& rank = run.ranks[number];
  if (line.contains("op_times")) return read_times(line["op_times"], rank);
  if (line.contains("checkpoint")) return read_checkpoint(line["checkpoint"], rank, run.checkpoints);
  if (line.contains("error")) {
    rank.error = line["error"].get<std::string>();
    if (run.failure.empty()) run.failure = rank.error; // until the launcher knows better
    return;
  }
  read_step(line, run.first_step, rank, run.loss);
}

/// The steps that every rank has finished.
void add_up(MeasuredRun& run) {
  std::size_t steps = run.ranks.empty() ? 0 : std::numeric_limits<std::size_t>::max();
  for (const MeasuredRank& rank : run.ranks) steps = std::min(steps, rank.step_seconds.size());
  run.loss.resize(steps);
  run.step_seconds.assign(steps, 0);
  for (std::size_t step = 0; step < steps; ++step)
    for (const MeasuredRank& rank : run.ranks)
      run.step_seconds[step] = std::max(run.step_seconds[step], rank.step_seconds[step]);
}

} // namespace

double MeasuredRun::step_time() const {
  return median_after(step_seconds, warmup);
}

double MeasuredRun::step_time(int rank) const {
  return median_after(ranks.at(static_cast<std::size_t>(rank)).step_seconds, warmup);
}

Result<MeasuredRun> read_run(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail_environment(file.string(), "cannot be read", "the run has not written anything");
  MeasuredRun run;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (in.eof()) break; // no newline: cut off
    const std::string where = file.string() + ":" + std::to_string(number);
    FORETRAIN_TRY(const Json json, parse_json(line, where));
    try {
      read_line(json, run);
    } catch (const std::exception& error) { // of the JSON library: a member is missing or of another type
      return fail(where, std::string("is not a line of foretrain-run: ") + error.what());
    }
  }
  add_up(run);
  return run;
}

} // namespace foretrain
