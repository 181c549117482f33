#include "db/layout_code.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

/// Every member away from its default.
Layout unusual_layout() {
  Layout l;
  l.tp = 8;
  l.pp = 300; // two bytes of the code
  l.cp = 2;
  l.ep = 4;
  l.etp = 2;
  l.dp_shard = 16;
  l.dp_replicate = 3;
  l.placement = {Axis::pp, Axis::dp, Axis::tp, Axis::cp};
  l.micro_batch = 5;
  l.sequence_parallel = true;
  l.schedule = {"zb-h2", 1};
  l.layers_per_stage = {3, 5, 5, 200};
  l.sharding = {ShardingKind::parameters, false};
  l.context_parallel = {ContextKind::ulysses_ring, 2};
  l.expert_dispatch = {DispatchKind::deduplicated};
  l.recompute = {
      RecomputeKind::selective, RecomputeMethod::block, 0, {RecomputeModule::layernorm, RecomputeModule::moe}};
  l.offload = {true};
  l.overlap = {true, false, false, false, true};
  return l;
}

TEST(LayoutCode, GivesTheLayoutBack) {
  for (const Layout& layout : {Layout(), unusual_layout()}) {
    const std::string code = layout_code(layout);
    ASSERT_FALSE(code.empty());
    EXPECT_LT(code.size(), 50U);
    const auto read = layout_from_code(code);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, layout);
  }
}

TEST(LayoutCode, HoldsTheSizeOfGroups) {
  Layout layout = unusual_layout();
  layout.schedule = {"interleaved", 3, 300};
  const std::string code = layout_code(layout);
  EXPECT_EQ(layout_from_code(code), layout);
  layout.schedule.group = 0;
  EXPECT_EQ(layout_from_code(layout_code(layout)), layout);
  EXPECT_LT(layout_code(layout).size(), code.size()) << "as before there were groups";
}

TEST(LayoutCode, IsEmptyForWhatItHasNoPlaceFor) {
  Layout layout;
  layout.schedule.kind = "a-schedule-of-tomorrow";
  EXPECT_TRUE(layout_code(layout).empty());
}

TEST(LayoutCode, RefusesWhatIsCutOffOrOfAnotherVersion) {
  const std::string code = layout_code(unusual_layout());
  for (std::size_t length = 0; length < code.size(); ++length)
    EXPECT_FALSE(layout_from_code(std::string_view(code).substr(0, length))) << length;
  EXPECT_FALSE(layout_from_code(code + '\0'));
  std::string other = code;
  other.front() = 2;
  EXPECT_FALSE(layout_from_code(other));
}

TEST(LayoutCode, NeverReadsAnythingButALayoutFromDamage) {
  const std::string code = layout_code(unusual_layout());
  for (std::size_t at = 0; at < code.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = code;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto read = layout_from_code(damaged);
      if (!read) continue;
      EXPECT_GE(read->tp, 1);
      EXPECT_GE(read->micro_batch, 1);
      EXPECT_FALSE(layout_code(*read).empty()) << "byte " << at << ", bit " << bit;
    }
}

} // namespace
} // namespace foretrain
