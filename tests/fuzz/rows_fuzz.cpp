// A table of measurements: an error, a reason why it is skipped, or rows that are plans or say why not.
#include "core/spec/measurement.h"
#include "tests/fuzz/target.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MeasuredNames names = read_measured_names(fuzz::data()).value();
  const Result<MeasurementFile> file = parse_measurements(fuzz::text_of(bytes, size), "input.csv", {});
  if (!file) return 0;
  for (const Measurement& row : file->rows) {
    const auto plan = plan_of(row, names, fuzz::data());
    if (plan && !*plan) fuzz::require(!to_string(plan->error()).empty(), "a skipped row says why");
  }
  return 0;
}
