#include "planner/validate/targets.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

namespace foretrain::validation {
namespace {

using Chosen = std::function<bool(const ValidatedRow&)>;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Chosen of_sources(std::vector<std::string> parts) {
  return [parts = std::move(parts)](const ValidatedRow& row) {
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) { return has(row.source, part); });
  };
}

Rows choose(const std::vector<ValidatedRow>& rows, const Chosen& chosen, bool held_out) {
  Rows list;
  for (const ValidatedRow& row : rows)
    if (chosen(row) && (row.held_out || !held_out)) list.push_back(&row);
  return list;
}

std::string percent(int count, double value) {
  return count == 0 ? "-" : fmt::format("{:.1f} %", value);
}

/// Mean absolute error of the step time, at most `most`.
TargetLine time_at_most(const std::string& what, double most, const std::vector<ValidatedRow>& rows,
                        const Chosen& chosen) {
  const ErrorSummary all = summarise_rows(choose(rows, chosen, false)).time;
  const ErrorSummary held = summarise_rows(choose(rows, chosen, true)).time;
  return {what + ": time",
          fmt::format("≤ {:g} %", most),
          all.count,
          percent(all.count, all.mean_absolute),
          percent(held.count, held.mean_absolute),
          all.count > 0 && all.mean_absolute <= most};
}

TargetLine memory_at_most(const std::string& what, double most, const std::vector<ValidatedRow>& rows,
                          const Chosen& chosen) {
  const ErrorSummary all = summarise_rows(choose(rows, chosen, false)).memory;
  const ErrorSummary held = summarise_rows(choose(rows, chosen, true)).memory;
  return {what + ": memory",
          fmt::format("≤ {:g} %", most),
          all.count,
          percent(all.count, all.mean_absolute),
          percent(held.count, held.mean_absolute),
          all.count > 0 && all.mean_absolute <= most};
}

void add_overall(std::vector<TargetLine>& lines, const Accuracy& a) {
  const ErrorSummary& all = a.all.summary.time;
  const ErrorSummary& held = a.held_out.summary.time;
  const auto line = [&](const char* what, const char* target, double reached, double of_held, double most) {
    lines.push_back({what, target, all.count, percent(all.count, reached), percent(held.count, of_held),
                     std::abs(reached) <= most});
  };
  line("all rows: mean absolute error of time", "≤ 8 %", all.mean_absolute, held.mean_absolute, 8);
  line("all rows: signed mean", "within 2 %", all.mean_signed, held.mean_signed, 2);
  line("all rows: p90", "≤ 16 %", all.p90_absolute, held.p90_absolute, 16);
  line("mean over sources", "≤ 8 %", a.all.sources.mean_absolute, a.held_out.sources.mean_absolute, 8);
  const int eligible = a.all.summary.eligible;
  const double share = eligible > 0 ? 100.0 * a.all.summary.predicted / eligible : 0;
  const auto short_sources = std::count_if(a.by_source.begin(), a.by_source.end(), [](const auto& source) {
    return source.second.eligible > 0 && source.second.predicted < 0.95 * source.second.eligible;
  });
  lines.push_back({"eligible rows that are predicted", "≥ 95 % of each source", eligible,
                   fmt::format("{:.1f} %; {} sources below", share, short_sources), "", short_sources == 0});
}

void add_sweeps(std::vector<TargetLine>& lines, const std::vector<ValidatedRow>& rows, const Accuracy& a) {
  const Chosen sweeps = of_sources({"Hagemann2023"});
  lines.push_back(time_at_most("A100 layout sweeps", 6, rows, sweeps));
  std::vector<RankedGroup> groups;
  for (const RankedGroup& group : a.groups)
    if (has(group.name, "Hagemann2023")) groups.push_back(group);
  const RankingSummary s = summarise_groups(groups);
  const auto count = static_cast<int>(groups.size());
  lines.push_back({"A100 layout sweeps: Spearman, mean of groups", "≥ 0.95", count,
                   fmt::format("{:.2f}", s.mean_spearman), "", s.mean_spearman >= 0.95});
  lines.push_back({"A100 layout sweeps: regret", "mean ≤ 2 %, worst ≤ 6 %", count,
                   fmt::format("{:.1f} %, {:.1f} %", s.mean_regret, s.worst_regret), "",
                   s.mean_regret <= 2 && s.worst_regret <= 6});
  const ValidationSummary fit = summarise_rows(choose(rows, sweeps, false));
  const int judged = fit.ran_out_of_memory + fit.ran - fit.open_out_of_memory;
  const int right = judged - (fit.ran_out_of_memory - fit.foreseen) - fit.wrongly_out_of_memory - fit.called_illegal;
  const double share = judged > 0 ? 100.0 * right / judged : 0;
  lines.push_back({"A100 layout sweeps: fits or not", "≥ 97 % right", judged, percent(judged, share), "", share >= 97});
  lines.push_back({"A100 layout sweeps: false fits among the ten fastest", "none", count,
                   std::to_string(s.false_fits_on_top), "", s.false_fits_on_top == 0});
}

/// Pairs of schedules of one job that measured more than 2 % apart, and how many of them are predicted in that order.
void add_schedules(std::vector<TargetLine>& lines, const std::vector<ValidatedRow>& rows) {
  const Chosen table = of_sources({"Zero Bubble"});
  std::map<std::string, Rows> jobs;
  for (const ValidatedRow* row : choose(rows, table, false))
    if (time_error_percent(*row))
      jobs[fmt::format("{}|{}|{}", row->features.model, row->features.devices, row->features.global_batch)].push_back(
          row);
  int pairs = 0;
  int in_order = 0;
  for (const auto& [job, own] : jobs)
    for (std::size_t i = 0; i < own.size(); ++i)
      for (std::size_t j = 0; j < own.size(); ++j) {
        if (*own[j]->measured_seconds <= 1.02 * *own[i]->measured_seconds) continue;
        ++pairs;
        in_order += *own[j]->predicted_seconds > *own[i]->predicted_seconds ? 1 : 0;
      }
  lines.push_back({"pipeline schedules: pairs more than 2 % apart in order", "all", pairs,
                   fmt::format("{} of {}", in_order, pairs), "", in_order == pairs});
  lines.push_back(time_at_most("pipeline schedules", 4, rows, table));
  lines.push_back(memory_at_most("pipeline schedules", 4, rows, table));
}

void add_memory(std::vector<TargetLine>& lines, const std::vector<ValidatedRow>& rows) {
  constexpr int kFullWidth = 2048;
  constexpr double kMiB = 1024.0 * 1024.0;
  const Chosen ci = of_sources({"functional-test"});
  const Chosen full = [ci](const ValidatedRow& row) { return ci(row) && row.features.hidden >= kFullWidth; };
  lines.push_back(time_at_most("Megatron functional tests of full width", 8, rows, full));
  lines.push_back(memory_at_most("Megatron functional tests of full width", 1.5, rows, full));
  int measured = 0;
  int near = 0;
  for (const ValidatedRow* row : choose(rows, ci, false))
    if (const auto error = memory_error_percent(*row); error && !row->out_of_memory) {
      ++measured;
      near += std::abs(*error) <= 3 || std::abs(*row->predicted_bytes - *row->measured_bytes) <= 60 * kMiB ? 1 : 0;
    }
  lines.push_back({"Megatron functional tests: memory within 3 % or 60 MiB", "all", measured,
                   fmt::format("{} of {}", near, measured), "", near == measured});
  const auto of_kind = [](std::vector<std::string> kinds) -> Chosen {
    return [kinds = std::move(kinds)](const ValidatedRow& row) {
      return std::find(kinds.begin(), kinds.end(), row.measured_kind) != kinds.end() &&
             !has(row.source, "functional-test");
    };
  };
  const Chosen allocated = of_kind({"allocated"});
  lines.push_back(memory_at_most("allocated peaks", 1.5, rows, allocated));
  double lowest = 0;
  for (const ValidatedRow* row : choose(rows, allocated, false))
    if (const auto error = memory_error_percent(*row); error && !row->out_of_memory) lowest = std::min(lowest, *error);
  lines.push_back({"allocated peaks: furthest too low", "≥ -4 %", lines.back().rows, fmt::format("{:.1f} %", lowest),
                   "", lowest >= -4});
  lines.push_back(
      memory_at_most("reserved or device, other frameworks", 5, rows, of_kind({"reserved", "device", "unstated"})));
}

void add_intervals(std::vector<TargetLine>& lines, const Accuracy& a) {
  for (const auto& [level, all] : a.all.time_coverage) {
    const auto held = a.held_out.time_coverage.find(level);
    const bool known = held != a.held_out.time_coverage.end();
    const double covered = 100 * (known ? held->second.covered : all.covered);
    lines.push_back({"80 % intervals of time, " + level + ": coverage", "70 to 90 %", all.rows,
                     fmt::format("{:.0f} %", 100 * all.covered), known ? fmt::format("{:.0f} %", covered) : "",
                     covered >= 70 && covered <= 90});
    const double most = level == "datasheet" ? 50 : 30;
    if (level == "all") continue;
    lines.push_back({"80 % intervals of time, " + level + ": mean width", fmt::format("≤ {:g} %", most), all.rows,
                     fmt::format("{:.0f} %", 100 * all.mean_width),
                     known ? fmt::format("{:.0f} %", 100 * held->second.mean_width) : "",
                     100 * all.mean_width <= most});
  }
}

void add_collectives(std::vector<TargetLine>& lines, const Accuracy& a) {
  std::vector<double> sizes;
  std::vector<double> counts;
  for (const CollectiveErrors& errors : a.collectives) {
    sizes.insert(sizes.end(), errors.sizes.begin(), errors.sizes.end());
    counts.insert(counts.end(), errors.counts.begin(), errors.counts.end());
  }
  const auto line = [&](const char* what, const std::vector<double>& errors) {
    const double median = nearest_rank(errors, 0.5);
    const double p90 = nearest_rank(errors, 0.9);
    lines.push_back({what, "median ≤ 10 %, p90 ≤ 20 %", static_cast<int>(errors.size()),
                     fmt::format("{:.1f} %, {:.1f} %", median, p90), "", median <= 10 && p90 <= 20});
  };
  if (sizes.empty()) return;
  line("collectives, every second size left out", sizes);
  line("collectives, one number of devices left out", counts);
}

} // namespace

std::vector<TargetLine> target_lines(const std::vector<ValidatedRow>& rows, const Accuracy& a) {
  std::vector<TargetLine> lines;
  add_overall(lines, a);
  add_sweeps(lines, rows, a);
  const auto vtrain = [](bool several) {
    return [several](const ValidatedRow& row) {
      return has(row.source, "vTrain") && (row.features.devices > 8) == several;
    };
  };
  lines.push_back(time_at_most("vTrain, several nodes", 8, rows, vtrain(true)));
  lines.push_back(time_at_most("vTrain, one node", 12, rows, vtrain(false)));
  const Chosen lora = [](const ValidatedRow& row) {
    return has(row.source, "LoRA") || has(row.features.model, "LoRA");
  };
  const Chosen families = of_sources({"Megatron-Bridge performance", "NeMo performance", "dgxc-benchmarking",
                                      "MLPerf Training", "ModelZoo", "OCI GB300"});
  lines.push_back(time_at_most("Megatron-Core, NeMo and MLPerf", 8, rows,
                               [=](const ValidatedRow& row) { return families(row) && !lora(row); }));
  lines.push_back(time_at_most("FSDP (Composer, torchtitan)", 7, rows, of_sources({"llm-foundry", "torchtitan"})));
  lines.push_back(time_at_most("one-node B200", 3, rows, of_sources({"SimuMax"})));
  lines.push_back(time_at_most("adapters (LoRA)", 12, rows, lora));
  const auto on = [](const char* prefix) {
    return [prefix](const ValidatedRow& row) { return row.features.device.rfind(prefix, 0) == 0; };
  };
  lines.push_back(time_at_most("AMD", 12, rows, on("mi")));
  lines.push_back(time_at_most("TPU", 15, rows, on("tpu")));
  add_memory(lines, rows);
  add_schedules(lines, rows);
  add_collectives(lines, a);
  add_intervals(lines, a);
  return lines;
}

} // namespace foretrain::validation
