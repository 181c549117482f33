#include <gtest/gtest.h>

#include "core/program/lower.h"
#include "core/program/memory.h"
#include "core/spec/measurement.h"
#include "core/spec/presets.h"
#include "tests/support/places.h"

/// Peak allocated memory of Megatron-LM's functional tests (NVIDIA/Megatron-LM@d98e8a64d tests/functional_tests): the
/// last rank, so the last stage; dropout, layer norms, biases, learned positions. Rows of full width on a known number
/// of devices; the narrow ones test launch overheads and workspaces.
namespace foretrain {
namespace {

struct Compared {
  Measurement row;
  double error = 0; ///< predicted / measured - 1
};

std::vector<Compared> compare(const std::string& file) {
  const DataFolder data{test::source_folder() / "data"};
  const auto assumptions = read_assumptions(data, file).value();
  const MeasurementFile read = read_measurements(data.root / "measured" / (file + ".csv"), assumptions).value();
  const MeasuredNames names = read_measured_names(data).value();
  std::vector<Compared> compared;
  for (const Measurement& row : read.rows) {
    constexpr int kFullWidth = 2048;
    if (row.hidden.value_or(0) < kFullWidth || !row.devices || !row.peak_memory) continue;
    const auto plan = plan_of(row, names, data).value();
    if (!plan || !plan->memory || plan->memory_rank != MemoryRank::last || plan->memory_kind != MemoryKind::allocated)
      continue;
    const Program program = lower(plan->plan, data.semantics(plan->plan.job.semantics).value());
    const StageMemory memory = stage_memory(program, program.roles.back());
    compared.push_back(
        {row, static_cast<double>(memory.allocated.value) / static_cast<double>(plan->memory->value) - 1});
  }
  return compared;
}

TEST(PublishedMemory, MegatronFunctionalTestsOfFullWidth) {
  int rows = 0;
  for (const char* file : {"megatron_ci", "megatron_ci_history"})
    for (const Compared& c : compare(file)) {
      constexpr double kBand = 0.015;
      EXPECT_NEAR(c.error, 0, kBand) << c.row.row_id;
      ++rows;
    }
  EXPECT_GE(rows, 15);
}

} // namespace
} // namespace foretrain
