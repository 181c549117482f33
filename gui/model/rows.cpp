// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "planner/search.h"
#include "planner/ties.h"

namespace foretrain::gui {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// A column made ready for comparisons: numbers, or places in the sorted list of texts.
std::vector<double> sort_column(const Results& results, const Field& field) {
  std::vector<double> column(results.rows.size(), kUnknown);
  if (field.kind != FieldKind::text) {
    for (std::size_t i = 0; i < column.size(); ++i) column[i] = number_of(field, results.study, results.rows[i]);
    return column;
  }
  std::map<std::string, double> places;
  std::vector<const std::string*> texts(column.size());
  for (std::size_t i = 0; i < column.size(); ++i) {
    const FieldValue value = value_of(field, results.study, results.rows[i]);
    if (const auto* text = std::get_if<std::string>(&value)) texts[i] = &places.try_emplace(*text, 0).first->first;
  }
  double place = 0;
  for (auto& [text, at] : places) at = place++;
  for (std::size_t i = 0; i < column.size(); ++i)
    if (texts[i]) column[i] = places.find(*texts[i])->second;
  return column;
}

/// < 0, 0 or > 0 as a row stands before, beside or behind another; unknown values stand behind.
int compare(double a, double b, bool descending) {
  const bool a_known = !std::isnan(a);
  const bool b_known = !std::isnan(b);
  if (!a_known || !b_known) return int(b_known) - int(a_known);
  if (a == b) return 0;
  return (a < b) != descending ? -1 : 1;
}

bool admitted(const Results& results, const std::vector<Filter>& filters, const Row& row) {
  const FieldRow view = field_row(results.study, row);
  return std::all_of(filters.begin(), filters.end(), [&](const Filter& filter) { return filter.admits(view); });
}

/// Filters are tested by several threads when there is enough to do.
std::vector<int> admitted_rows(const Results& results, const std::vector<Filter>& filters) {
  constexpr std::size_t kSmall = 20'000;
  const std::size_t count = results.rows.size();
  std::vector<char> yes(count, 1);
  const auto test = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) yes[i] = admitted(results, filters, results.rows[i]) ? 1 : 0;
  };
  if (!filters.empty()) {
    const std::size_t parts = count < kSmall ? 1 : std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 4);
    std::vector<std::jthread> threads;
    for (std::size_t p = 1; p < parts; ++p)
      threads.emplace_back([&, p] { test(count * p / parts, count * (p + 1) / parts); });
    test(0, count / parts);
  }
  std::vector<int> shown;
  for (std::size_t i = 0; i < count; ++i)
    if (yes[i] != 0) shown.push_back(static_cast<int>(i));
  return shown;
}

} // namespace

Row row_of(const Candidate& candidate) {
  Row row{candidate.layout, candidate.slots, nullptr, false};
  if (candidate.prediction.step_time.value > 0)
    row.prediction = std::make_shared<const Prediction>(candidate.prediction);
  return row;
}

std::shared_ptr<const Results> results_of(const Study& study, const SearchResult& found) {
  auto results = std::make_shared<Results>();
  results->study = study;
  results->enumerated = found.enumerated;
  results->legal = found.legal;
  results->evaluated = found.evaluated;
  results->fits = found.fits;
  results->rejected = found.rejected;
  results->pruned = found.pruned;
  results->tied_with_best = found.tied_with_best;
  results->preferred = found.preferred; // ranked candidates are the first rows
  results->complete = found.complete;
  results->elapsed_s = found.elapsed_s;
  for (const NearMiss& miss : found.near_misses) results->near_misses.push_back({miss.layout, miss.rejection});
  results->rows.reserve(found.kept.size() + found.ranked.size());
  for (const Candidate& candidate : found.ranked) results->rows.push_back(row_of(candidate));
  const std::size_t refined = results->rows.size();
  for (const Candidate& candidate : found.kept) {
    const bool ranked = std::any_of(results->rows.begin(), results->rows.begin() + static_cast<std::ptrdiff_t>(refined),
                                    [&](const Row& row) { return row.layout == candidate.layout; });
    if (!ranked) results->rows.push_back(row_of(candidate));
  }
  mark_front(results->rows);
  return results;
}

std::string preferred_reason(const Results& results) {
  if (results.tied_with_best < 2 || results.preferred < 0) return "";
  const Row& best = results.rows.front();
  const Row& row = results.rows[static_cast<std::size_t>(results.preferred)];
  const auto figures = [](const Row& of) {
    const int parts = moving_parts(of.layout);
    return fmt::format("{} moving {} and {:.1f} GiB", parts, parts == 1 ? "part" : "parts",
                       memory_bytes(of) / double(kGiB));
  };
  const std::string why =
      results.preferred == 0 ? figures(row) : fmt::format("{}, where the best has {}", figures(row), figures(best));
  return fmt::format("preferred among the {} plans that tie with the best: {}", results.tied_with_best, why);
}

void mark_front(std::vector<Row>& rows) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double ta = step_seconds(rows[a]);
    const double tb = step_seconds(rows[b]);
    return ta != tb ? ta < tb : memory_bytes(rows[a]) < memory_bytes(rows[b]);
  });
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t i : order) {
    const double bytes = memory_bytes(rows[i]);
    rows[i].pareto = bytes < least;
    least = std::min(least, bytes);
  }
}

FieldRow field_row(const Study& study, const Row& row) {
  return {study.job, study.cluster, row.layout, &row.slots, row.prediction.get()};
}

FieldValue value_of(const Field& field, const Study& study, const Row& row) {
  return field.get(field_row(study, row));
}

double number_of(const Field& field, const Study& study, const Row& row) {
  const FieldValue value = value_of(field, study, row);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* text = std::get_if<std::string>(&value)) {
    const auto found = std::find(field.values.begin(), field.values.end(), *text);
    if (found != field.values.end()) return static_cast<double>(found - field.values.begin());
  }
  return kUnknown;
}

double step_seconds(const Row& row) {
  return row.prediction ? row.prediction->step_time.value : row.slots.step_seconds;
}

double memory_bytes(const Row& row) {
  if (!row.prediction || row.prediction->memory.empty()) return static_cast<double>(row.slots.device_bytes);
  std::int64_t highest = 0;
  for (const StageMemory& stage : row.prediction->memory) highest = std::max(highest, stage.device.value);
  return static_cast<double>(highest);
}

std::vector<int> shown_rows(const Results& results, const std::vector<Filter>& filters,
                            const std::vector<SortKey>& keys) {
  std::vector<int> shown = admitted_rows(results, filters);
  std::vector<std::pair<std::vector<double>, bool>> columns;
  for (const SortKey& key : keys)
    if (const Field* field = find_field(key.field)) columns.emplace_back(sort_column(results, *field), key.descending);
  if (columns.empty()) return shown;
  std::stable_sort(shown.begin(), shown.end(), [&](int a, int b) {
    for (const auto& [column, descending] : columns) {
      const int order = compare(column[static_cast<std::size_t>(a)], column[static_cast<std::size_t>(b)], descending);
      if (order != 0) return order < 0;
    }
    return false;
  });
  return shown;
}

} // namespace foretrain::gui
