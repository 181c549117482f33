#include "planner/cli/plan_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/progress.h"
#include "planner/cli/table.h"
#include "planner/explain.h"

namespace foretrain::cli {
namespace {

Plan plan_with(const Study& study, const Layout& layout) {
  return {study.model, study.cluster, study.job, layout};
}

std::vector<FieldRow> rows_of(const Study& study, const SearchResult& result) {
  std::vector<FieldRow> rows;
  for (const Candidate& candidate : result.ranked)
    rows.push_back({study.job, study.cluster, candidate.layout, &candidate.slots, &candidate.prediction});
  return rows;
}

Json counts_json(const std::map<std::string, std::int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [name, count] : counts) json[name] = count;
  return json;
}

double layouts_per_second(const SearchResult& result) {
  return result.search_s > 0 ? static_cast<double>(result.evaluated) / result.search_s : 0;
}

/// "out-of-memory 1,234, heads-divide 12": the largest few, and how many others.
std::string top_counts(const std::map<std::string, std::int64_t>& counts) {
  constexpr std::size_t kShown = 6;
  std::vector<std::pair<std::string, std::int64_t>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, list.size()); ++i)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", list[i].first, with_commas(list[i].second));
  if (list.size() > kShown) text += fmt::format(" and {} more rules", list.size() - kShown);
  return text;
}

/// One near miss per rule: the closest.
std::string near_miss_text(const SearchResult& result, int width, bool color) {
  constexpr int kShown = 4;
  std::string text;
  std::vector<std::string> seen;
  for (const NearMiss& miss : result.near_misses) {
    if (std::find(seen.begin(), seen.end(), miss.rejection.rule) != seen.end()) continue;
    seen.push_back(miss.rejection.rule);
    std::string line = fmt::format("  {}: {}", describe(miss.layout), miss.rejection.reason);
    if (!miss.rejection.nearest.empty()) line += fmt::format(" (nearest: {})", join(miss.rejection.nearest, "; "));
    text += wrapped(line, width);
    if (static_cast<int>(seen.size()) == kShown) break;
  }
  return text.empty() ? "" : "\n" + bold("Near misses", color) + "\n" + text;
}

std::string counts_text(const SearchResult& result, int width) {
  std::string text = wrapped(
      fmt::format("{} layouts, {} legal, {} evaluated, {} fit; search {:.2f} s, {} layouts/s on {} {}, all {:.2f} s",
                  with_commas(result.enumerated), with_commas(result.legal), with_commas(result.evaluated),
                  with_commas(result.fits), result.search_s,
                  with_commas(static_cast<std::int64_t>(layouts_per_second(result))), result.jobs,
                  result.jobs == 1 ? "thread" : "threads", result.elapsed_s),
      width);
  if (!result.rejected.empty()) text += wrapped("rejected: " + top_counts(result.rejected), width);
  if (!result.pruned.empty()) text += wrapped("not evaluated: " + top_counts(result.pruned), width);
  if (const auto bound = result.pruned.find("bound"); bound != result.pruned.end())
    text += wrapped(
        fmt::format("{} of them cannot be among the best that are asked for, by a bound on their time and memory "
                    "(--search exhaustive evaluates these as well)",
                    with_commas(bound->second)),
        width);
  return text;
}

} // namespace

Json plan_document(const Study& study, const SearchResult& result) {
  Json json;
  json["space"] = {
      {"enumerated", result.enumerated},      {"legal", result.legal}, {"evaluated", result.evaluated},
      {"pruned", counts_json(result.pruned)}, {"fits", result.fits},   {"rejected", counts_json(result.rejected)}};
  json["elapsed_s"] = result.elapsed_s;
  json["search_s"] = result.search_s;
  json["layouts_per_second"] = layouts_per_second(result);
  json["jobs"] = result.jobs;
  json["complete"] = result.complete;
  json["exhaustive"] = result.exhaustive;
  json["model"] = model_document(study.model);
  json["objective"] = std::string(id_of(study.objective));
  json["ranked"] = Json::array();
  for (const Candidate& candidate : result.ranked)
    json["ranked"].push_back(
        {{"plan", to_json(plan_with(study, candidate.layout))}, {"prediction", to_json(candidate.prediction)}});
  json["pareto"] = result.pareto;
  json["near_misses"] = Json::array();
  for (const NearMiss& miss : result.near_misses)
    json["near_misses"].push_back(
        {{"plan", to_json(plan_with(study, miss.layout))}, {"rejection", to_json(miss.rejection)}});
  json["tied_with_best"] = result.tied_with_best;
  json["preferred"] = result.preferred < 0 ? Json() : Json(result.preferred);
  return json;
}

namespace {

/// Which of the plans that tie to take, where it is not the first.
std::string preference_text(const SearchResult& result) {
  if (result.preferred <= 0) return "";
  const Layout& layout = result.ranked[static_cast<std::size_t>(result.preferred)].layout;
  return fmt::format("; number {} has the fewest moving parts of those with memory to spare: {}", result.preferred + 1,
                     describe(layout));
}

} // namespace

std::string plan_text(const Study& study, const SearchResult& result, int width, bool color) {
  std::string text = wrapped(job_line(study.model, study.cluster, study.job), width) + model_lines(study.model, width);
  if (!study.where.empty()) text += wrapped("where " + study.where, width);
  text += fmt::format("by {}\n\n", id_of(study.objective));
  if (result.ranked.empty()) {
    text += "Nothing fits.\n\n" + counts_text(result, width) + near_miss_text(result, width, color);
    return text;
  }
  const std::vector<FieldRow> rows = rows_of(study, result);
  const LayoutTable table = layout_table(rows, width);
  text += with_bold_head(table.text, color) + "\n";
  text += layout_table_notes(table, width);
  if (!result.complete) text += "stopped early: the best of what was searched\n";
  text += counts_text(result, width);
  if (result.tied_with_best > 1)
    text += wrapped(fmt::format("{} of these lie within the uncertainty of the best: their order is not settled{}",
                                result.tied_with_best, preference_text(result)),
                    width);
  text += near_miss_text(result, width, color);
  const Candidate& best = result.ranked.front();
  text += wrapped("\nBest: " + describe(best.layout), width) + summary_lines(best.prediction, width);
  text += "\n" + bold("Memory per stage, GiB", color) + "\n" + memory_table(best.prediction, width);
  text += "\n" + bold("Step time", color) + "\n" + time_table(best.prediction, width);
  return text;
}

std::string plan_csv(const Study& study, const SearchResult& result) {
  const std::vector<FieldRow> rows = rows_of(study, result);
  return csv_table(rows);
}

} // namespace foretrain::cli
