#include "core/spec/measurement.h"

#include <filesystem>
#include <iostream>
#include <map>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/support/places.h"

/// The published rows of data/measured as plans.
namespace foretrain {
namespace {

namespace fs = std::filesystem;

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

struct Golden {
  int rows = 0;
  int plans = 0;
  int times = 0;
  int memories = 0;
  int out_of_memory = 0;
  bool operator==(const Golden&) const = default;
};
std::ostream& operator<<(std::ostream& stream, const Golden& golden) {
  return stream << golden.rows << ", " << golden.plans << ", " << golden.times << ", " << golden.memories << ", "
                << golden.out_of_memory;
}

/// Rows, and of them those that become a plan, with a time, with a memory, out of memory.
const std::map<std::string, Golden>& goldens() {
  static const std::map<std::string, Golden> table = {
#include "tests/core/spec/measurement_golden.inc"
  };
  return table;
}

TEST(Measurement, EveryPublishedFileReadsAndGivesItsPlans) {
  const MeasuredNames names = read_measured_names(data()).value();
  std::map<std::string, Golden> found;
  for (const auto& entry : fs::directory_iterator(data().root / "measured")) {
    if (entry.path().extension() != ".csv") continue;
    const std::string stem = entry.path().stem().string();
    const auto assumptions = read_assumptions(data(), stem);
    ASSERT_TRUE(assumptions) << to_string(assumptions.error());
    const auto file = read_measurements(entry.path(), *assumptions);
    ASSERT_TRUE(file) << to_string(file.error());
    if (file->skipped) continue;
    Golden golden;
    std::map<std::string, int> reasons;
    for (const Measurement& measured : file->rows) {
      ++golden.rows;
      const auto result = plan_of(measured, names, data());
      ASSERT_TRUE(result) << measured.row_id << ": " << to_string(result.error());
      if (!*result) {
        ++reasons[to_string(result->error())];
        continue;
      }
      const MeasuredPlan& plan = **result;
      ++golden.plans;
      golden.times += plan.step_time ? 1 : 0;
      golden.memories += plan.memory ? 1 : 0;
      golden.out_of_memory += plan.out_of_memory ? 1 : 0;
    }
    found[stem] = golden;
    std::cout << "    {\"" << stem << "\", {" << golden << "}},\n";
    for (const auto& [reason, count] : reasons) std::cout << "      // " << count << " " << reason << "\n";
  }
  EXPECT_EQ(found, goldens());
}

TEST(Measurement, PlansOfPublishedRowsAreReadBackByThePlanReader) {
  const MeasuredNames names = read_measured_names(data()).value();
  int checked = 0;
  for (const char* stem : {"simumax_b200", "megatron_ci", "vtrain", "llm_foundry", "megatron_bridge"}) {
    const auto file = read_measurements(data().root / "measured" / (std::string(stem) + ".csv"),
                                        read_assumptions(data(), stem).value());
    for (std::size_t i = 0; i < file->rows.size(); i += 7) {
      const auto result = plan_of(file->rows[i], names, data()).value();
      if (!result) continue;
      const auto again = plan_from(to_json(result->plan), file->rows[i].row_id, data());
      ASSERT_TRUE(again) << to_string(again.error());
      EXPECT_EQ(*again, result->plan) << file->rows[i].row_id;
      ++checked;
    }
  }
  EXPECT_GT(checked, 50);
}

// llm-foundry prints the parameters of each model ("NumParams=12853954560"): what is assumed of norms, biases and
// positions has to give them to the digit.
TEST(Measurement, PlansOfLlmFoundryHaveThePrintedParameters) {
  const MeasuredNames names = read_measured_names(data()).value();
  const auto file =
      read_measurements(data().root / "measured/llm_foundry.csv", read_assumptions(data(), "llm_foundry").value());
  int checked = 0;
  for (const Measurement& measured : file->rows) {
    const auto at = measured.notes.find("NumParams=");
    if (at == std::string::npos) continue;
    const auto result = plan_of(measured, names, data()).value();
    ASSERT_TRUE(result) << to_string(result.error());
    EXPECT_EQ(count_parameters(result->plan.model).total, std::stoll(measured.notes.substr(at + 10)))
        << measured.row_id;
    ++checked;
  }
  EXPECT_EQ(checked, 163);
}

} // namespace
} // namespace foretrain
