// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "planner/evaluate.h"
#include "planner/filter/field.h"
#include "planner/filter/filter.h"

namespace foretrain {
struct SearchResult;
struct Candidate;
} // namespace foretrain

namespace foretrain::gui {

/// A candidate as the views show it: a few hundred bytes, the full prediction only where there is one.
struct Row {
  Layout layout;
  Evaluation slots;
  std::shared_ptr<const Prediction> prediction;
  bool pareto = false;
};

struct Miss {
  Layout layout;
  Rejection rejection;
};

/// What a search left, ranked by its objective.
struct Results {
  Study study;
  std::vector<Row> rows;
  std::int64_t enumerated = 0;
  std::int64_t legal = 0;
  std::int64_t evaluated = 0;
  std::int64_t fits = 0;
  std::map<std::string, std::int64_t> rejected;
  std::map<std::string, std::int64_t> pruned;
  std::vector<Miss> near_misses;
  int tied_with_best = 0;
  int preferred = -1; ///< row to take among those that tie; −1: none
  bool complete = true;
  double elapsed_s = 0;
};

[[nodiscard]] Row row_of(const Candidate& candidate);
/// Takes over what a search found; candidates on the step time / memory front are marked.
[[nodiscard]] std::shared_ptr<const Results> results_of(const Study& study, const SearchResult& found);
/// Why the preferred row is; empty where nothing ties with the best.
[[nodiscard]] std::string preferred_reason(const Results& results);
/// Marks the rows that no other row beats in both step time and memory.
void mark_front(std::vector<Row>& rows);

[[nodiscard]] FieldRow field_row(const Study& study, const Row& row);
[[nodiscard]] FieldValue value_of(const Field& field, const Study& study, const Row& row);
/// The number of a field, NaN when it is unknown; flags are 0 and 1, texts their place among the field's values.
[[nodiscard]] double number_of(const Field& field, const Study& study, const Row& row);
[[nodiscard]] double step_seconds(const Row& row);
[[nodiscard]] double memory_bytes(const Row& row);

struct SortKey {
  std::string field;
  bool descending = false;
  bool operator==(const SortKey&) const = default;
};

/// Rows that every filter admits, in the order of the keys; unknown values last in both directions, equal rows by rank.
[[nodiscard]] std::vector<int> shown_rows(const Results& results, const std::vector<Filter>& filters,
                                          const std::vector<SortKey>& keys);

} // namespace foretrain::gui
