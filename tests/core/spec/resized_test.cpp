#include <gtest/gtest.h>

#include "core/spec/presets.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

ClusterSpec preset(const char* name) {
  return DataFolder{test::source_folder() / "data"}.cluster(name).value();
}

std::vector<int> fanouts(const Result<ClusterSpec>& cluster) {
  std::vector<int> list;
  if (cluster)
    for (const TierSpec& tier : cluster->tiers) list.push_back(tier.fanout);
  return list;
}
std::string error_of(const Result<ClusterSpec>& cluster) {
  return cluster ? "no error" : to_string(cluster.error());
}

/// node of 8, leaf of 4 nodes, 2 leaves.
ClusterSpec three_tiers() {
  ClusterSpec cluster = preset("dgx-h100");
  cluster.tiers[1].fanout = 4;
  cluster.tiers.push_back(cluster.tiers[1]);
  cluster.tiers[2].fanout = 2;
  return cluster;
}

TEST(Resized, TheOutermostTierIsCutOrGrown) {
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 64)), (std::vector<int>{8, 8}));
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 16384)), (std::vector<int>{8, 2048}));
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 256)), (std::vector<int>{8, 32})) << "as it stands";
}

TEST(Resized, AMillionDevicesAreTheMost) {
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 1000000)), (std::vector<int>{8, 125000}));
  EXPECT_NE(error_of(resized(preset("dgx-h100"), 1000008)).find("1000008 devices are out of range"), std::string::npos);
  EXPECT_NE(error_of(resized(preset("dgx-h100"), 0)).find("0 devices are out of range"), std::string::npos);
  EXPECT_NE(error_of(resized(preset("dgx-h100"), -8)).find("-8 devices are out of range"), std::string::npos);
}

TEST(Resized, LessThanANodeShrinksTheNode) {
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 4)), (std::vector<int>{4}));
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 8)), (std::vector<int>{8}));
  EXPECT_EQ(fanouts(resized(preset("dgx-h100"), 1)), (std::vector<int>{1}));
}

TEST(Resized, AnythingElseMustBeAMultipleOfANode) {
  const std::string error = error_of(resized(preset("dgx-h100"), 12));
  EXPECT_NE(error.find("12 devices"), std::string::npos) << error;
  EXPECT_NE(error.find("the 8 of a node"), std::string::npos) << error;
  EXPECT_NE(error.find("8 or 16"), std::string::npos) << error;
}

TEST(Resized, InnerTiersStayWhole) {
  EXPECT_EQ(fanouts(resized(three_tiers(), 128)), (std::vector<int>{8, 4, 4}));
  EXPECT_EQ(fanouts(resized(three_tiers(), 32)), (std::vector<int>{8, 4}));
  EXPECT_EQ(fanouts(resized(three_tiers(), 24)), (std::vector<int>{8, 3})) << "part of one leaf";
  const std::string error = error_of(resized(three_tiers(), 48));
  EXPECT_NE(error.find("48 devices do not fill tiers"), std::string::npos) << error;
  EXPECT_NE(error.find("of 32 devices"), std::string::npos) << error;
}

TEST(Resized, ARackOfSeveralMachinesIsCutToEqualParts) {
  EXPECT_EQ(fanouts(resized(preset("gb200-nvl72"), 144)), (std::vector<int>{72, 2}));
  EXPECT_EQ(fanouts(resized(preset("gb200-nvl72"), 256)), (std::vector<int>{64, 4})) << "64 of the 72 of each rack";
  EXPECT_EQ(fanouts(resized(preset("gb200-nvl72"), 64)), (std::vector<int>{64}));
  EXPECT_EQ(fanouts(resized(preset("gb200-nvl72"), 2)), (std::vector<int>{2}));
  EXPECT_NE(error_of(resized(preset("gb200-nvl72"), 6)).find("not a multiple of the 4 of a machine"),
            std::string::npos);
  EXPECT_NE(error_of(resized(preset("gb200-nvl72"), 76)).find("76 devices"), std::string::npos);
}

TEST(Resized, ASliceOfATorusHasExtentsWithinIt) {
  const auto slice = resized(preset("tpu-v5e-pod"), 64);
  ASSERT_TRUE(slice) << error_of(slice);
  EXPECT_EQ(slice->tiers[0].shape, (std::vector<int>{8, 8}));
  EXPECT_NE(error_of(resized(preset("tpu-v5e-pod"), 8 * 17)).find("no slice of the torus"), std::string::npos);
  EXPECT_EQ(fanouts(resized(preset("tpu-v5e-pod"), 512)), (std::vector<int>{256, 2}));
  EXPECT_NE(error_of(resized(preset("tpu-v4-pod"), 8192)).find("8192 devices are more than the 4096"),
            std::string::npos);
}

} // namespace
} // namespace foretrain
