#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/spec/measurement.h"
#include "core/spec/prediction.h"

/// Published runs against predictions of the same plans: what `foretrain validate` counts (docs/accuracy.md).
namespace foretrain::validation {

/// What tells groups of runs apart and what the baselines need. Texts are those of the source.
struct RowFeatures {
  std::string model;
  std::string device; ///< id
  std::string framework;
  std::string precision;
  std::string kernels;
  std::string recompute;
  int devices = 0;
  int hidden = 0;
  int sequence_length = 0;
  std::int64_t global_batch = 0;
  int micro_batch = 0;
  int tp = 1, pp = 1, cp = 1, ep = 1, dp = 1;
  double flop = 0; ///< of the step on one device, model FLOP (megatron convention)
  double peak = 0; ///< dense FLOP/s of the products' type
};

struct ValidatedRow {
  std::string file;
  std::string source;
  std::string row_id;
  std::optional<std::string> skipped; ///< why it is not compared: a skip reason, then the detail
  std::string skip_reason;            ///< the reason alone, to be counted
  Verdict verdict = Verdict::fits;
  std::string rule;           ///< that refuses it
  std::string outcome;        ///< measured: "ok", or what stopped the run
  bool out_of_memory = false; ///< measured
  bool unsteady = false;      ///< its steps differ much: judged like the rest, and counted
  bool held_out = false;      ///< of a group that no constant was fitted to
  bool eligible = false;      ///< by the protocol: stated, not doubtful, something measured, and physically possible
  std::vector<std::string> memory_open; ///< what memory hangs on and the source does not say (recompute, offload)
  std::optional<double> predicted_seconds;
  std::optional<double> measured_seconds;
  std::optional<double> predicted_bytes; ///< of the kind and rank that was measured
  std::optional<double> measured_bytes;
  std::string predicted_kind; ///< "allocated", "reserved"
  std::string measured_kind;  ///< the same, or "unstated"
  Evidence evidence = Evidence::datasheet;
  std::array<double, 2> time_interval{};   ///< 80 %, seconds
  std::array<double, 2> memory_interval{}; ///< 80 %, relative to the prediction
  TimeParts time{};
  RowFeatures features;
  std::vector<std::string> notes;
};

[[nodiscard]] std::optional<double> time_error_percent(const ValidatedRow& row);
[[nodiscard]] std::optional<double> memory_error_percent(const ValidatedRow& row);

using Rows = std::vector<const ValidatedRow*>;

} // namespace foretrain::validation
