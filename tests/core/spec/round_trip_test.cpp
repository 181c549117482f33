#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/core/spec/random_specs.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

constexpr int kRounds = 300; ///< random specs of each kind; the seeds are fixed

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

/// What is written as text and read back is equal.
template <class T, class Read> void expect_round_trip(const T& value, const Read& read, int seed) {
  const std::string text = to_json(value).dump(2);
  const Result<Json> parsed = parse_json(text, "spec.json");
  ASSERT_TRUE(parsed) << to_string(parsed.error()) << "\n" << text;
  const Result<T> again = read(*parsed);
  ASSERT_TRUE(again) << "seed " << seed << ": " << to_string(again.error()) << "\n" << text;
  ASSERT_EQ(*again, value) << "seed " << seed << "\n" << text << "\n" << to_json(*again).dump(2);
}

TEST(RoundTrip, ModelsAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_model(random), [](const Json& json) { return model_from(json, "spec.json"); }, seed);
  }
}

TEST(RoundTrip, DevicesAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_device(random), [](const Json& json) { return device_from(json, "spec.json"); }, seed);
  }
}

TEST(RoundTrip, ClustersAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_cluster(random), [](const Json& json) { return cluster_from(json, "spec.json", data()); }, seed);
  }
}

TEST(RoundTrip, JobsAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_job(random), [](const Json& json) { return job_from(json, "spec.json"); }, seed);
  }
}

TEST(RoundTrip, LayoutsAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_layout(random), [](const Json& json) { return layout_from(json, "spec.json"); }, seed);
  }
}

TEST(RoundTrip, SemanticsAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    expect_round_trip(
        random_semantics(random), [](const Json& json) { return semantics_from(json, "spec.json"); }, seed);
  }
}

TEST(RoundTrip, PlansAreReadBackEqual) {
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const Plan plan{random_model(random), random_cluster(random), random_job(random), random_layout(random)};
    expect_round_trip(
        plan, [](const Json& json) { return plan_from(json, "spec.json", data()); }, seed);
  }
}

TEST(RoundTrip, StudiesAreReadBackEqual) {
  constexpr std::array kObjectives = {Objective::step_time, Objective::throughput, Objective::memory_headroom,
                                      Objective::cost};
  for (int seed = 0; seed < kRounds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const Study study{random_model(random),
                      random_cluster(random),
                      random_job(random),
                      random_space(random),
                      kObjectives[static_cast<std::size_t>(seed) % kObjectives.size()],
                      seed % 2 ? "tp <= 8" : ""};
    expect_round_trip(
        study, [](const Json& json) { return study_from(json, "spec.json", data()); }, seed);
  }
}

} // namespace
} // namespace foretrain
