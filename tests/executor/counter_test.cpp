#include "executor/counter.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "executor/slices.h"

namespace foretrain {
namespace {

TEST(Counter, Splitmix64GivesTheReferenceSequence) {
  // First outputs for seed 1234567 (Sebastiano Vigna's splitmix64.c, as listed by Rosetta Code).
  constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15U;
  EXPECT_EQ(counter::splitmix64(1234567), 6457827717110365317U);
  EXPECT_EQ(counter::splitmix64(1234567 + kGamma), 3203168211198807973U);
  EXPECT_EQ(counter::splitmix64(1234567 + 2 * kGamma), 9817491932198370423U);
}

TEST(Counter, UniformHasMeanZeroAndVarianceOneThird) {
  constexpr int kCount = 100'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = counter::uniform(1, counter::hash("x"), i);
    ASSERT_GE(value, -1);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(3.0 * kCount));             // five standard deviations of the mean
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * 0.298 / std::sqrt(kCount)); // deviation of u² is √(4/45)
}

TEST(Counter, TokensKeepTheirStrideAndStayInTheVocabulary) {
  std::set<std::int64_t> strides;
  for (std::int64_t sequence = 0; sequence < 32; ++sequence) {
    const std::vector<std::int64_t> tokens = counter::tokens(1, sequence, 16, 11);
    ASSERT_EQ(tokens.size(), 17U);
    const std::int64_t stride = (tokens[1] - tokens[0] + 11) % 11;
    strides.insert(stride);
    for (std::size_t i = 1; i < tokens.size(); ++i) EXPECT_EQ((tokens[i] - tokens[i - 1] + 11) % 11, stride);
  }
  EXPECT_EQ(strides.size(), 4U);
}

ModelSpec tiny() {
  ModelSpec m;
  m.hidden = 8;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 2;
  m.ffn = 6;
  m.vocab = 5;
  return m;
}

TEST(Slices, QueriesKeysAndValuesAreSplitByTheirHeads) {
  const Parameter qkv{"qkv", {16, 8}, {8, 8}, false, false};
  const Slice slice = slice_of(qkv, tiny(), {2, 1});
  const std::vector<Slice::Rows> expected = {{4, 4}, {10, 2}, {14, 2}};
  EXPECT_EQ(slice.rows, expected);
  EXPECT_EQ(slice.columns, 8);
}

TEST(Slices, BothHalvesOfAGatedProjectionAreSplit) {
  const Parameter up{"3/ffn_up", {12, 8}, {6, 8}, false, false};
  const std::vector<Slice::Rows> expected = {{3, 3}, {9, 3}};
  EXPECT_EQ(slice_of(up, tiny(), {2, 1}).rows, expected);
}

TEST(Slices, RowSplitWeightsAreCutByColumns) {
  const Parameter down{"ffn_down", {8, 6}, {8, 3}, false, false};
  const Slice slice = slice_of(down, tiny(), {2, 1});
  EXPECT_EQ(slice.rows, (std::vector<Slice::Rows>{{0, 8}}));
  EXPECT_EQ(slice.first_column, 3);
  EXPECT_EQ(slice.columns, 3);
  EXPECT_EQ(slice.whole_columns, 6);
}

TEST(Slices, ExpertsAreSplitOverRanksAndEachOfThemLikeAFeedForward) {
  const Parameter up{"expert_up", {4, 12, 8}, {2, 6, 8}, true, false}; // four gated experts over ep 2 and etp 2
  SlicePlace place;
  place.ep = place.etp = 2;
  place.ep_index = 1;
  place.etp_index = 1;
  const std::vector<Slice::Rows> expected = {{27, 3}, {33, 3}, {39, 3}, {45, 3}};
  EXPECT_EQ(slice_of(up, tiny(), place).rows, expected);
  const Parameter down{"expert_down", {4, 8, 6}, {2, 8, 3}, true, false};
  const Slice slice = slice_of(down, tiny(), place);
  EXPECT_EQ(slice.rows, (std::vector<Slice::Rows>{{16, 8}, {24, 8}}));
  EXPECT_EQ(slice.first_column, 3);
}

TEST(Slices, NamesCountLayersOfTheWholeModel) {
  EXPECT_EQ(global_name({"qkv", {}, {}, false, false}, 3, false), "layers.3.qkv");
  EXPECT_EQ(global_name({"1/qkv", {}, {}, false, false}, 3, false), "layers.4.qkv");
  EXPECT_EQ(global_name({"head", {}, {}, false, false}, -1, false), "head");
  EXPECT_EQ(global_name({"head", {}, {}, false, false}, -1, true), "embedding");
}

TEST(Slices, InitialValuesAreThoseOfTheWholeTensorAndZeroInPadding) {
  const ModelSpec model = tiny();
  const Parameter whole{"embedding", {6, 8}, {6, 8}, false, false};
  const Parameter half{"embedding", {6, 8}, {3, 8}, false, false};
  const std::vector<double> all = initial_values("embedding", whole, slice_of(whole, model, {1, 0}), model, 9);
  std::vector<double> joined;
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<double> part = initial_values("embedding", half, slice_of(half, model, {2, rank}), model, 9);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(joined, all);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_NE(all[i], 0);
  for (std::size_t i = 40; i < 48; ++i) EXPECT_EQ(all[i], 0) << "row 5 is padding";
}

} // namespace
} // namespace foretrain
