#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "core/program/check.h"
#include "core/program/lower.h"
#include "core/program/text.h"
#include "core/spec/io.h"
#include "tests/support/places.h"

/// Programs as text, compared with files: FORETRAIN_UPDATE_GOLDEN=1 writes them anew.
namespace foretrain {
namespace {

const std::filesystem::path kSource = test::source_folder();

class GoldenProgram : public testing::TestWithParam<std::string> {};

TEST_P(GoldenProgram, IsWhatTheFileSays) {
  const DataFolder data{kSource / "data"};
  const auto file = kSource / "tests/golden/plans" / (GetParam() + ".json");
  const auto json = read_json_file(file);
  ASSERT_TRUE(json) << to_string(json.error());
  const auto plan = plan_from(*json, file.string(), data);
  ASSERT_TRUE(plan) << to_string(plan.error());
  const auto semantics = data.semantics(plan->job.semantics);
  ASSERT_TRUE(semantics) << to_string(semantics.error());
  const Program program = lower(*plan, *semantics);
  EXPECT_TRUE(check(program).empty());
  const std::string text = to_text(program);
  const auto golden = kSource / "tests/golden" / (GetParam() + ".txt");
  if (std::getenv("FORETRAIN_UPDATE_GOLDEN")) {
    const auto written = write_text_file(golden, text);
    ASSERT_TRUE(written) << to_string(written.error());
  }
  const auto expected = read_text_file(golden);
  ASSERT_TRUE(expected) << to_string(expected.error()) << "; FORETRAIN_UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(text, *expected) << "FORETRAIN_UPDATE_GOLDEN=1 accepts the change";
}

INSTANTIATE_TEST_SUITE_P(Plans, GoldenProgram,
                         testing::Values("dense_tp2_pp2_interleaved", "moe_ep4_dp8", "fsdp_split_backward"),
                         [](const auto& each) { return each.param; });

TEST(ProgramText, ShowsOneRoleAlone) {
  const DataFolder data{kSource / "data"};
  const auto file = kSource / "tests/golden/plans/dense_tp2_pp2_interleaved.json";
  const auto plan = plan_from(*read_json_file(file), file.string(), data);
  ASSERT_TRUE(plan) << to_string(plan.error());
  const Program program = lower(*plan, *data.semantics("megatron-core"));
  const std::string text = to_text(program, 1);
  EXPECT_NE(text.find("\nrole 1"), std::string::npos);
  EXPECT_EQ(text.find("\nrole 0"), std::string::npos);
  EXPECT_EQ(text.find("embedding \"embedding\""), std::string::npos) << "a block that stage 1 does not have";
  const Json json = to_json(program, 1);
  ASSERT_EQ(json["roles"].size(), 1U);
  EXPECT_EQ(json["roles"][0]["stage"], 1);
  EXPECT_EQ(json["roles"][0]["instructions"].size(), program.roles[1].instructions.size());
}

} // namespace
} // namespace foretrain
