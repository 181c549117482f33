#include "planner/validate/errors.h"

#include <algorithm>
#include <cmath>

namespace foretrain::validation {
namespace {

std::optional<double> error_percent(const std::optional<double>& predicted, const std::optional<double>& measured) {
  if (!predicted || !measured || *measured <= 0) return std::nullopt;
  return (*predicted - *measured) / *measured * 100;
}

} // namespace

std::optional<double> time_error_percent(const ValidatedRow& row) {
  return error_percent(row.predicted_seconds, row.measured_seconds);
}

std::optional<double> memory_error_percent(const ValidatedRow& row) {
  return error_percent(row.predicted_bytes, row.measured_bytes);
}

ErrorSummary summarise_errors(std::vector<double> errors) {
  ErrorSummary summary;
  summary.count = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  for (double& error : errors) {
    summary.mean_signed += error / summary.count;
    error = std::abs(error);
    summary.mean_absolute += error / summary.count;
  }
  std::sort(errors.begin(), errors.end());
  const auto rank = static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(errors.size())));
  summary.p90_absolute = errors[std::max<std::size_t>(rank, 1) - 1];
  return summary;
}

namespace {

void count_eligible(ValidationSummary& summary, const ValidatedRow& row) {
  if (!row.eligible) return;
  ++summary.eligible;
  if (row.skipped)
    ++summary.unpredicted[*row.skipped];
  else if (row.verdict == Verdict::illegal)
    ++summary.unpredicted["rule " + row.rule];
  else
    ++summary.predicted;
}

} // namespace

ValidationSummary summarise_rows(const Rows& rows) {
  ValidationSummary summary;
  std::vector<double> time;
  std::vector<double> memory;
  std::map<std::string, std::vector<double>> by_kind;
  for (const ValidatedRow* row : rows) {
    ++summary.rows;
    count_eligible(summary, *row);
    if (row->skipped) {
      ++summary.skipped[row->skip_reason];
      continue;
    }
    ++summary.compared;
    if (row->unsteady) ++summary.unsteady;
    if (row->out_of_memory) {
      ++summary.ran_out_of_memory;
      if (row->verdict == Verdict::oom) ++summary.foreseen;
      continue;
    }
    ++summary.ran;
    if (row->verdict == Verdict::oom)
      ++(row->memory_open.empty() ? summary.wrongly_out_of_memory : summary.open_out_of_memory);
    if (row->verdict == Verdict::illegal) {
      ++summary.called_illegal;
      ++summary.refused[row->rule];
    }
    if (const auto error = time_error_percent(*row)) time.push_back(*error);
    if (const auto error = memory_error_percent(*row)) {
      memory.push_back(*error);
      by_kind[row->measured_kind].push_back(*error);
    }
  }
  summary.time = summarise_errors(std::move(time));
  summary.memory = summarise_errors(std::move(memory));
  for (auto& [kind, errors] : by_kind) summary.memory_by_kind[kind] = summarise_errors(std::move(errors));
  return summary;
}

SourceMeans over_sources(const Rows& rows) {
  SourceMeans means;
  for (const auto& [source, own] : by_source(rows)) {
    const ErrorSummary time = summarise_rows(own).time;
    if (time.count == 0) continue;
    ++means.sources;
    means.mean_absolute += time.mean_absolute;
    means.mean_signed += time.mean_signed;
  }
  if (means.sources == 0) return means;
  means.mean_absolute /= means.sources;
  means.mean_signed /= means.sources;
  return means;
}

Rows all_of(const std::vector<ValidatedRow>& rows) {
  Rows list;
  for (const ValidatedRow& row : rows) list.push_back(&row);
  return list;
}

Rows held_out_of(const std::vector<ValidatedRow>& rows) {
  Rows list;
  for (const ValidatedRow& row : rows)
    if (row.held_out) list.push_back(&row);
  return list;
}

std::map<std::string, Rows> by_source(const Rows& rows) {
  std::map<std::string, Rows> groups;
  for (const ValidatedRow* row : rows) groups[row->source].push_back(row);
  return groups;
}

} // namespace foretrain::validation
