#include "planner/cli/validation.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "core/program/flops.h"
#include "core/spec/calibration.h"
#include "core/spec/names.h"
#include "planner/search.h"
#include "planner/validate/split.h"

namespace foretrain::cli {

using validation::ValidatedRow;

namespace {

/// Memory of the kind and rank that was measured. A source that names no kind reads the allocator's reserved bytes or
/// the driver's, never the allocated ones.
double memory_of(const Prediction& prediction, const MeasuredPlan& measured) {
  const auto of = [&](const StageMemory& stage) {
    switch (measured.memory_kind) {
    case MemoryKind::allocated:
      return static_cast<double>(stage.allocated.value);
    case MemoryKind::device:
      return static_cast<double>(stage.device.value);
    case MemoryKind::reserved:
    case MemoryKind::unstated:
      break;
    }
    return static_cast<double>(stage.reserved.value);
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

validation::RowFeatures features_of(const Measurement& row, const Plan& plan) {
  validation::RowFeatures f;
  f.model = row.model;
  f.device = plan.cluster.device.name;
  f.framework = row.framework;
  f.precision = std::string(id_of(plan.job.precision));
  f.kernels = row.kernels;
  f.recompute = std::string(id_of(plan.layout.recompute.kind));
  f.devices = device_count(plan.cluster);
  f.hidden = plan.model.hidden;
  f.sequence_length = plan.job.sequence_length;
  f.global_batch = plan.job.global_batch;
  f.micro_batch = plan.layout.micro_batch;
  f.tp = plan.layout.tp;
  f.pp = plan.layout.pp;
  f.cp = plan.layout.cp;
  f.ep = plan.layout.ep;
  f.dp = plan.layout.dp();
  const FlopShape shape{plan.job.sequence_length, plan.job.packed, 0, plan.job.lora};
  const auto flop = flop_per_token(plan.model, FlopConvention::megatron, shape);
  const auto peak = dense_peak(plan.cluster.device, plan.job.precision);
  if (flop && peak) {
    f.flop = *flop * static_cast<double>(plan.job.global_batch) * plan.job.sequence_length / f.devices;
    f.peak = peak->value;
  }
  return f;
}

/// Model FLOP of the measured step over what the device's peak could have done; 0 without a time.
double utilisation(const validation::RowFeatures& features, const MeasuredPlan& measured) {
  if (!measured.step_time || !(features.peak > 0)) return 0;
  return features.flop / (features.peak * measured.step_time->value);
}

void compare(ValidatedRow& row, const MeasuredPlan& measured, const Prediction& prediction) {
  row.verdict = prediction.verdict;
  row.out_of_memory = measured.out_of_memory;
  row.unsteady = measured.unsteady;
  row.notes = measured.notes;
  row.memory_open = measured.memory_open;
  if (measured.step_time) row.measured_seconds = measured.step_time->value;
  if (measured.memory) row.measured_bytes = static_cast<double>(measured.memory->value);
  row.measured_kind = std::string(id_of(measured.memory_kind));
  if (prediction.verdict == Verdict::illegal) {
    row.rule = prediction.rejections.front().rule;
    row.notes.push_back(prediction.rejections.front().reason);
    return;
  }
  row.predicted_seconds = prediction.step_time.value;
  row.evidence = prediction.evidence;
  row.time = prediction.time;
  if (!prediction.memory.empty()) {
    Bytes device;
    for (const StageMemory& stage : prediction.memory) device = std::max(device, stage.device);
    for (std::size_t i = 0; i < 2; ++i)
      row.memory_interval[i] =
          static_cast<double>(prediction.memory_interval[i].value) / static_cast<double>(device.value);
  }
  row.time_interval = {prediction.step_time_interval[0].value, prediction.step_time_interval[1].value};
  row.predicted_bytes = memory_of(prediction, measured);
  row.predicted_kind =
      std::string(id_of(measured.memory_kind == MemoryKind::unstated ? MemoryKind::reserved : measured.memory_kind));
}

/// Errors: the data folder. What is wrong with the row alone makes it skipped.
Result<ValidatedRow> validate_row(const Context& context, const MeasuredNames& names, const std::string& file,
                                  const Measurement& measurement, Engine engine) {
  ValidatedRow row;
  row.file = file;
  row.source = measurement.source;
  row.row_id = measurement.row_id;
  row.outcome = measurement.outcome;
  row.eligible = measurement.eligible;
  FORETRAIN_TRY(const auto measured, plan_of(measurement, names, context.data));
  if (!measured) {
    skip(row, std::string(id_of(measured.error().reason)), to_string(measured.error()));
    return row;
  }
  const Plan& plan = measured->plan;
  row.features = features_of(measurement, plan);
  row.held_out = validation::is_held_out(row.features);
  if (const double used = utilisation(row.features, *measured); used > 1) {
    row.eligible = false;
    skip(row, std::string(id_of(SkipReason::inconsistent)),
         fmt::format("{}: the time needs {:.1f} times the device's dense peak", id_of(SkipReason::inconsistent), used));
    return row;
  }
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
