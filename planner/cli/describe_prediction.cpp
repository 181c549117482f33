#include "planner/cli/describe_prediction.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "planner/cli/progress.h"
#include "planner/cli/table.h"

namespace foretrain::cli {
namespace {

std::string gib(Bytes bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes.value) / static_cast<double>(kGiB));
}

bool same_figures(const StageMemory& a, const StageMemory& b) {
  return a.allocated == b.allocated && a.reserved == b.reserved && a.device == b.device && a.parts == b.parts;
}

/// Stages i … end - 1 have the figures of stage i.
std::size_t end_of_run(const std::vector<StageMemory>& memory, std::size_t i) {
  std::size_t end = i + 1;
  while (end < memory.size() && same_figures(memory[end], memory[i])) ++end;
  return end;
}

/// Parts that someone has, those that take most first.
std::vector<MemoryPart> parts_by_size(const Prediction& prediction) {
  std::vector<std::pair<Bytes, MemoryPart>> sizes;
  for (int p = 0; p < kMemoryParts; ++p) {
    Bytes highest;
    for (const StageMemory& stage : prediction.memory)
      highest = std::max(highest, stage.parts[static_cast<std::size_t>(p)]);
    if (highest.value > 0) sizes.emplace_back(highest, static_cast<MemoryPart>(p));
  }
  std::stable_sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<MemoryPart> parts;
  for (const auto& [size, part] : sizes) parts.push_back(part);
  return parts;
}

/// `narrow`: without what is reserved and allocated.
std::string memory_table_with(const Prediction& prediction, const std::vector<MemoryPart>& parts, bool rest,
                              bool narrow) {
  std::vector<std::vector<std::string>> rows = {{"stage", "device"}};
  if (!narrow) rows.front().insert(rows.front().end(), {"reserved", "allocated"});
  for (const MemoryPart part : parts) rows.front().emplace_back(id_of(part));
  if (rest) rows.front().emplace_back("rest");
  for (std::size_t i = 0; i < prediction.memory.size();) {
    const std::size_t end = end_of_run(prediction.memory, i);
    const StageMemory& stage = prediction.memory[i];
    const std::string name = end == i + 1 ? std::to_string(i) : fmt::format("{}-{}", i, end - 1);
    std::vector<std::string> row = {name, gib(stage.device)};
    if (!narrow) row.insert(row.end(), {gib(stage.reserved), gib(stage.allocated)});
    Bytes left = stage.device;
    for (const MemoryPart part : parts) {
      row.push_back(gib(stage.parts[static_cast<std::size_t>(part)]));
      left -= stage.parts[static_cast<std::size_t>(part)];
    }
    if (rest) row.push_back(gib(left));
    rows.push_back(std::move(row));
    i = end;
  }
  return text_table(rows, 2);
}

} // namespace

std::string job_line(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job) {
  return fmt::format("{} on {} × {} ({}) · {} tokens · batch {} · {} · {}", model.name,
                     with_commas(device_count(cluster)), cluster.device.name, cluster.name,
                     with_commas(job.sequence_length), with_commas(job.global_batch), id_of(job.precision),
                     job.semantics);
}

std::string model_lines(const ModelSpec& model, int width) {
  const ParameterCount count = count_parameters(model);
  std::string text = fmt::format("{} parameters", with_commas(count.total));
  if (count.active != count.total) text += fmt::format(", {} of them active", with_commas(count.active));
  text = wrapped(text, width);
  for (const std::string& note : model.notes) text += wrapped("note: " + note, width);
  return text;
}

Json model_document(const ModelSpec& model) {
  const ParameterCount count = count_parameters(model);
  return {{"parameters", count.total}, {"active_parameters", count.active}, {"notes", model.notes}};
}

std::string memory_table(const Prediction& prediction, int width) {
  constexpr int kNarrow = 48;
  std::vector<MemoryPart> parts = parts_by_size(prediction);
  bool rest = false;
  while (true) {
    std::string text = memory_table_with(prediction, parts, rest, width < kNarrow);
    const std::size_t line_end = text.find('\n');
    int widest = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      widest = std::max(widest, columns_of(std::string_view(text).substr(at, end - at)));
      at = end + 1;
    }
    if (widest <= width || parts.empty() || line_end == std::string::npos) return text;
    parts.pop_back();
    rest = true;
  }
}

std::string time_table(const Prediction& prediction, int width) {
  const double step = prediction.step_time.value;
  std::vector<int> order(kTimeParts);
  std::iota(order.begin(), order.end(), 0);
  const auto seconds = [&](int part) { return prediction.time[static_cast<std::size_t>(part)].value; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return seconds(a) > seconds(b); });
  constexpr int kFigures = 32; // columns before the bar
  const double bar_width = std::clamp(width - kFigures, 0, 30);
  std::string text;
  for (const int part : order) {
    constexpr double kNothing = 1e-9; // seconds: what is left of sums
    if (seconds(part) < kNothing || step <= 0) continue;
    std::string bar;
    for (int i = 0; i < static_cast<int>(bar_width * seconds(part) / step + 0.5); ++i) bar += "▇";
    std::string line = fmt::format("  {:<10} {:>9} {:>5.1f} %  {}", id_of(static_cast<TimePart>(part)),
                                   pretty(Seconds(seconds(part))), 100 * seconds(part) / step, bar);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string rejection_line(const Rejection& rejection) {
  std::string text = fmt::format("  {}: {}", rejection.rule, rejection.reason);
  if (!rejection.nearest.empty()) text += fmt::format(" (nearest: {})", join(rejection.nearest, "; "));
  return text;
}

std::string summary_lines(const Prediction& prediction, int width) {
  std::string text;
  switch (prediction.verdict) {
  case Verdict::fits:
    text = "fits";
    break;
  case Verdict::oom:
    text = "does not fit in memory";
    break;
  case Verdict::illegal:
    text = "cannot run";
    break;
  }
  text += prediction.rejections.empty() ? "\n" : ":\n";
  for (const Rejection& rejection : prediction.rejections) text += wrapped(rejection_line(rejection), width);
  if (prediction.step_time.value > 0) {
    const auto& interval = prediction.step_time_interval;
    std::string line =
        fmt::format("step {} ({} to {}, 80 %; {}, {})", pretty(prediction.step_time), pretty(interval[0]),
                    pretty(interval[1]), id_of(prediction.engine), id_of(prediction.evidence));
    line += fmt::format(", {} tokens/s/GPU",
                        with_commas(static_cast<std::int64_t>(prediction.tokens_per_s_per_device + 0.5)));
    if (prediction.model_tflops_per_device > 0)
      line += fmt::format(", {:.0f} TFLOP/s/GPU, {:.1f} % MFU ({})", prediction.model_tflops_per_device,
                          prediction.mfu_percent, prediction.flop_convention);
    text += wrapped(line, width);
  }
  for (const std::string& note : prediction.notes) text += wrapped("note: " + note, width);
  return text;
}

} // namespace foretrain::cli
