#include "planner/cli/validation.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

#include "core/spec/calibration.h"
#include "planner/search.h"

namespace foretrain::cli {
namespace {

std::optional<double> error_percent(const std::optional<double>& predicted, const std::optional<double>& measured) {
  if (!predicted || !measured || *measured <= 0) return std::nullopt;
  return (*predicted - *measured) / *measured * 100;
}

/// Memory of the kind and rank that was measured. A source that names no kind reads the allocator's reserved bytes or
/// the driver's, never the allocated ones.
double memory_of(const Prediction& prediction, const MeasuredPlan& measured) {
  const auto of = [&](const StageMemory& stage) {
    return static_cast<double>(measured.memory_kind == MemoryKind::allocated ? stage.allocated.value
                                                                             : stage.reserved.value);
  };
  if (measured.memory_rank == MemoryRank::last) return of(prediction.memory.back());
  double highest = 0;
  for (const StageMemory& stage : prediction.memory) highest = std::max(highest, of(stage));
  return highest;
}

void skip(ValidatedRow& row, const std::string& reason, const std::string& text) {
  row.skip_reason = reason;
  row.skipped = text;
}

void compare(ValidatedRow& row, const MeasuredPlan& measured, const Prediction& prediction) {
  row.verdict = prediction.verdict;
  row.out_of_memory = measured.out_of_memory;
  row.notes = measured.notes;
  if (measured.step_time) row.measured_seconds = measured.step_time->value;
  if (measured.memory) row.measured_bytes = static_cast<double>(measured.memory->value);
  row.measured_kind = std::string(id_of(measured.memory_kind));
  if (prediction.verdict == Verdict::illegal) {
    row.notes.push_back(prediction.rejections.front().reason);
    return;
  }
  row.predicted_seconds = prediction.step_time.value;
  row.predicted_bytes = memory_of(prediction, measured);
  row.predicted_kind = measured.memory_kind == MemoryKind::allocated ? "allocated" : "reserved";
}

/// Errors: the data folder. What is wrong with the row alone makes it skipped.
Result<ValidatedRow> validate_row(const Context& context, const MeasuredNames& names, const std::string& file,
                                  const Measurement& measurement, Engine engine) {
  ValidatedRow row;
  row.file = file;
  row.source = measurement.source;
  row.row_id = measurement.row_id;
  row.outcome = measurement.outcome;
  FORETRAIN_TRY(const auto measured, plan_of(measurement, names, context.data));
  if (!measured) {
    skip(row, std::string(id_of(measured.error().reason)), to_string(measured.error()));
    return row;
  }
  const Plan& plan = measured->plan;
  FORETRAIN_TRY(const Semantics semantics, context.data.semantics(plan.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, load_calibration(context.data.root, plan.cluster.device));
  const auto prediction =
      predict(plan, semantics, calibration, engine, context.worker.string(), context.data.root.string());
  if (!prediction)
    skip(row, "not-predicted", to_string(prediction.error()));
  else
    compare(row, *measured, *prediction);
  return row;
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

ValidationSummary summarise_rows(const std::vector<const ValidatedRow*>& rows) {
  ValidationSummary summary;
  std::vector<double> time;
  std::vector<double> memory;
  for (const ValidatedRow* row : rows) {
    ++summary.rows;
    if (row->skipped) {
      ++summary.skipped[row->skip_reason];
      continue;
    }
    ++summary.compared;
    if (row->out_of_memory) {
      ++summary.ran_out_of_memory;
      if (row->verdict == Verdict::oom) ++summary.foreseen;
      continue;
    }
    if (row->verdict == Verdict::oom) ++summary.wrongly_out_of_memory;
    if (row->verdict == Verdict::illegal) ++summary.called_illegal;
    if (const auto error = time_error_percent(*row)) time.push_back(*error);
    if (const auto error = memory_error_percent(*row)) memory.push_back(*error);
  }
  summary.time = summarise_errors(std::move(time));
  summary.memory = summarise_errors(std::move(memory));
  return summary;
}

Result<std::vector<ValidatedRow>> validate_rows(const Context& context, const std::string& file,
                                                const std::vector<Measurement>& rows, Engine engine, int jobs) {
  FORETRAIN_TRY(const MeasuredNames names, read_measured_names(context.data));
  std::vector<std::optional<Result<ValidatedRow>>> results(rows.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    while (!context.stop || !context.stop->load()) {
      const std::size_t i = next++;
      if (i >= rows.size()) return;
      results[i] = validate_row(context, names, file, rows[i], engine);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::vector<ValidatedRow> done;
  for (auto& result : results) {
    if (!result) continue;
    if (!*result) return tl::unexpected<Error>(std::move(*result).error());
    done.push_back(std::move(**result));
  }
  return done;
}

} // namespace foretrain::cli
