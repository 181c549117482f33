#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/spec/measurement.h"
#include "core/spec/prediction.h"
#include "planner/cli/context.h"

/// Published runs against predictions of the same plans.
namespace foretrain::cli {

struct ValidatedRow {
  std::string file;
  std::string source;
  std::string row_id;
  std::optional<std::string> skipped; ///< why it is not compared: a skip reason, then the detail
  std::string skip_reason;            ///< the reason alone, to be counted
  Verdict verdict = Verdict::fits;
  std::string outcome;        ///< measured: "ok", or what stopped the run
  bool out_of_memory = false; ///< measured
  std::optional<double> predicted_seconds;
  std::optional<double> measured_seconds;
  std::optional<double> predicted_bytes; ///< of the kind and rank that was measured
  std::optional<double> measured_bytes;
  std::string predicted_kind; ///< "allocated", "reserved"
  std::string measured_kind;  ///< the same, or "unstated"
  std::vector<std::string> notes;
};

[[nodiscard]] std::optional<double> time_error_percent(const ValidatedRow& row);
[[nodiscard]] std::optional<double> memory_error_percent(const ValidatedRow& row);

/// Of signed errors in percent: (predicted - measured) / measured.
struct ErrorSummary {
  int count = 0;
  double mean_absolute = 0;
  double mean_signed = 0;
  double p90_absolute = 0; ///< nine in ten are at most this far off
};
[[nodiscard]] ErrorSummary summarise_errors(std::vector<double> errors);

struct ValidationSummary {
  int rows = 0;
  int compared = 0;
  ErrorSummary time;
  ErrorSummary memory;
  int ran_out_of_memory = 0;     ///< measured
  int foreseen = 0;              ///< of these, predicted so
  int wrongly_out_of_memory = 0; ///< ran, predicted not to fit
  int called_illegal = 0;        ///< ran, refused by a rule
  std::map<std::string, int> skipped;
};
[[nodiscard]] ValidationSummary summarise_rows(const std::vector<const ValidatedRow*>& rows);

/// Predicts every row that says enough. Errors: the data folder does not read. Stops early when `context.stop` is set:
/// rows that were not reached are left out.
[[nodiscard]] Result<std::vector<ValidatedRow>> validate_rows(const Context& context, const std::string& file,
                                                              const std::vector<Measurement>& rows, Engine engine,
                                                              int jobs);

} // namespace foretrain::cli
