#include <algorithm>

#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "core/program/context.h"
#include "core/spec/presets.h"
#include "tests/support/places.h"

/// Layers other than norm, half and sum in turn. The sums are worked by hand from what the layers of the
/// implementations named in docs/formulas.md save.
namespace foretrain {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kFfn = 128;
constexpr std::int64_t kVocab = 256;

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

ModelSpec plain() {
  ModelSpec m;
  m.name = "small";
  m.layers = 1;
  m.hidden = kHidden;
  m.heads = m.kv_heads = kHeads;
  m.head_dim = kHidden / kHeads;
  m.ffn = kFfn;
  m.gated = false;
  m.vocab = kVocab;
  return m;
}

struct Setting {
  ModelSpec model = plain();
  std::string framework = "megatron-core";
  int tp = 1;
  bool sp = false;
  double dropout = 0;
  AttentionKernel attention = AttentionKernel::flash;
};

/// Calls `use` with the context of the setting.
template <class Use> auto with(const Setting& s, Use&& use) {
  JobSpec job;
  job.sequence_length = kTokens;
  job.global_batch = 1;
  job.dropout = s.dropout;
  job.attention = s.attention;
  Layout layout;
  layout.tp = s.tp;
  layout.sequence_parallel = s.sp;
  const Semantics semantics = data().semantics(s.framework).value();
  const LayerContext context =
      make_context(s.model, job, semantics, layout, data().device("h100-sxm-80gb").value(), false);
  return use(context);
}

Block layer(const Setting& s) {
  return with(s, [&](const LayerContext& c) { return make_layer(c, layer_shapes(s.model).front(), false); });
}

int count(const std::vector<Op>& ops, Collective kind) {
  return static_cast<int>(std::count_if(
      ops.begin(), ops.end(), [kind](const Op& op) { return op.kind == OpKind::collective && op.collective == kind; }));
}

double products(const Block& block) {
  double flop = 0;
  for (const auto* ops : {&block.forward, &block.backward})
    for (const Op& op : *ops)
      for (const Kernel& kernel : op.kernels) flop += kernel.flop;
  return flop;
}

/// 2 B activations: queries, keys, values and the attention's output t·h each, log-sum-exp 4 B per token and head, both
/// sides of the activation t·f each, and the layer's output t·h.
constexpr std::int64_t kHalves =
    2 * 4 * kTokens * kHidden + 4 * kTokens * kHeads + 2 * 2 * kTokens * kFfn + 2 * kTokens * kHidden;
constexpr std::int64_t kNormed = 2 * kTokens * kHidden; ///< output of a norm, or its input
constexpr std::int64_t kStatistics = 4 * kTokens;       ///< RMS: one number per token

// Both norms keep their output for the product after them; the sum between the halves is the second's input.
TEST(LayerKinds, NormBeforeEachHalf) {
  EXPECT_EQ(layer({}).forward_memory.net, Bytes(kHalves + 2 * (kNormed + kStatistics) + kNormed));
}

// GPT-NeoX: no sum between the halves. One norm for both (GPT-J, Falcon-7B): one output the less.
TEST(LayerKinds, ParallelHalvesKeepNoSumBetweenThem) {
  Setting two;
  two.model.parallel_block = true;
  EXPECT_EQ(layer(two).forward_memory.net, Bytes(kHalves + 2 * (kNormed + kStatistics)));
  Setting one = two;
  one.model.norms_per_layer = 1;
  EXPECT_EQ(layer(one).forward_memory.net, Bytes(kHalves + kNormed + kStatistics));
  EXPECT_EQ(products(layer(one)), products(layer({})));
  EXPECT_EQ(products(layer(two)), products(layer({})));
}

// Gemma 2: the norm after a half keeps its input, and nothing reads its output but the sum.
TEST(LayerKinds, NormsAroundKeepTheOutputsOfTheHalvesToo) {
  Setting around;
  around.model.norms_per_layer = 4;
  around.model.norm_placement = NormPlacement::around;
  const Block block = layer(around);
  EXPECT_EQ(block.forward_memory.net, Bytes(kHalves + 4 * (kNormed + kStatistics) + kNormed));
  EXPECT_EQ(std::count_if(block.forward.begin(), block.forward.end(),
                          [](const Op& op) { return op.segment == Segment::norm; }),
            4);
  EXPECT_EQ(std::count_if(block.backward.begin(), block.backward.end(),
                          [](const Op& op) { return op.segment == Segment::norm; }),
            4);
}

// OLMo 2: the products read the residual stream itself, which is there anyway; each norm keeps its half's output
// instead.
TEST(LayerKinds, NormsAfterKeepWhatNormsBeforeDo) {
  Setting after;
  after.model.norm_placement = NormPlacement::after;
  EXPECT_EQ(layer(after).forward_memory.net, layer({}).forward_memory.net);
}

TEST(LayerKinds, WhatIsSavedIsFreedAgain) {
  std::vector<Setting> settings(5);
  settings[0].model.parallel_block = settings[1].model.parallel_block = settings[4].model.parallel_block = true;
  settings[1].model.norms_per_layer = 1;
  settings[2].model.norm_placement = NormPlacement::after;
  settings[3].model.norm_placement = NormPlacement::around;
  settings[3].model.norms_per_layer = 4;
  settings[4].framework = "gpt-neox";
  for (Setting& s : settings)
    for (const double dropout : {0.0, 0.1})
      for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}}) {
        s.dropout = dropout;
        s.tp = tp;
        s.sp = sp;
        const Block block = layer(s);
        // y comes and x goes in the pair of passes; dx comes and dy goes: all the same size.
        EXPECT_EQ(block.forward_memory.net + block.backward_memory.net, Bytes(0));
      }
}

// Standard modules reduce the output of each half; GPT-NeoX adds the partial sums first. Gradients are reduced per
// column-parallel layer in both.
TEST(LayerKinds, JointHalvesReduceOnce) {
  Setting s;
  s.model.parallel_block = true;
  s.tp = 2;
  const Block apart = layer(s);
  EXPECT_EQ(count(apart.forward, Collective::all_reduce), 2);
  EXPECT_EQ(count(apart.backward, Collective::all_reduce), 2);
  s.framework = "gpt-neox";
  const Block joint = layer(s);
  EXPECT_EQ(count(joint.forward, Collective::all_reduce), 1);
  EXPECT_EQ(count(joint.backward, Collective::all_reduce), 2);
  s.sp = true;
  const Block split = layer(s);
  EXPECT_EQ(count(split.forward, Collective::all_gather), 2);
  EXPECT_EQ(count(split.forward, Collective::reduce_scatter), 1);
  EXPECT_EQ(count(split.backward, Collective::reduce_scatter), 2);
  EXPECT_EQ(count(split.backward, Collective::all_gather), 1); // of the sum's gradient; gathered inputs are kept there
  s.framework = "megatron-core";
  const Block apart_split = layer(s);
  EXPECT_EQ(count(apart_split.forward, Collective::reduce_scatter), 2);
  EXPECT_EQ(count(apart_split.backward, Collective::all_gather), 4); // two gradients, two inputs again
  EXPECT_EQ(products(joint), products(apart));
}

// The tanh of capped logits stays from forward to backward.
TEST(LayerKinds, CappedLogitsKeepTheirTanh) {
  const auto head = [](double cap) {
    Setting s;
    s.model.logit_softcap = cap;
    return with(s, [](const LayerContext& c) { return make_head(c); });
  };
  const Block open = head(0);
  const Block capped = head(30);
  const std::int64_t logits = 2 * kTokens * kVocab;
  EXPECT_EQ(capped.forward_memory.net - open.forward_memory.net, Bytes(logits));
  const auto traffic = [](const std::vector<Op>& ops) {
    double bytes = 0;
    for (const Op& op : ops)
      if (op.segment == Segment::loss)
        for (const Kernel& kernel : op.kernels) bytes += kernel.bytes;
    return bytes;
  };
  EXPECT_DOUBLE_EQ(traffic(capped.forward) - traffic(open.forward), 6.0 * static_cast<double>(logits));
  EXPECT_DOUBLE_EQ(traffic(capped.backward) - traffic(open.backward), 7.0 * static_cast<double>(logits));
}

// Unfused attention with capped scores keeps the tanh's output, 2 B per score.
TEST(LayerKinds, CappedScoresKeepTheirTanh) {
  Setting s;
  s.attention = AttentionKernel::unfused;
  const Bytes open = layer(s).forward_memory.net;
  s.model.attention_softcap = 50;
  EXPECT_EQ(layer(s).forward_memory.net - open, Bytes(2 * kHeads * kTokens * kTokens));
  s.attention = AttentionKernel::flash; // inside the kernel
  EXPECT_EQ(layer(s).forward_memory.net, layer({}).forward_memory.net);
}

} // namespace
} // namespace foretrain
