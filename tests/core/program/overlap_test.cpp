#include <algorithm>

#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "core/program/check.h"
#include "core/program/lower.h"
#include "tests/core/program/fixtures.h"

/// Tensor-parallel collectives in pieces beside their products (`overlap.tp`): the same work, the same bytes, in
/// another order.
namespace foretrain {
namespace {

using namespace fixtures;

constexpr int kTp = 4;

Plan job(bool pieces) {
  Plan p = plan(llama3_70b(2), 8, 8192, 16);
  p.layout.tp = kTp;
  p.layout.sequence_parallel = true;
  p.layout.overlap.tp = pieces;
  return p;
}

Block layer_of(const Plan& p) {
  const Semantics semantics = megatron();
  return make_layer(make_context(p.model, p.job, semantics, p.layout, p.cluster.device, false),
                    layer_shapes(p.model).front(), false);
}

double flop_of(const std::vector<Op>& ops) {
  double flop = 0;
  for (const Op& op : ops)
    for (const Kernel& kernel : op.kernels) flop += kernel.flop;
  return flop;
}

/// Bytes that one rank sends over tp (nccl-tests doc/PERFORMANCE.md: (n - 1)/n of the tensor).
double sent(const std::vector<Op>& ops) {
  double bytes = 0;
  for (const Op& op : ops) {
    if (op.kind != OpKind::collective || op.group != Group::tp) continue;
    const bool ring = op.collective == Collective::ring_exchange;
    bytes += static_cast<double>(op.bytes.value) * (ring ? 1 : (kTp - 1.0) / kTp);
  }
  return bytes;
}

int count(const std::vector<Op>& ops, Collective kind) {
  int found = 0;
  for (const Op& op : ops) found += op.kind == OpKind::collective && op.collective == kind ? 1 : 0;
  return found;
}

TEST(TensorOverlap, MovesAndComputesTheSame) {
  const Block plain = layer_of(job(false));
  const Block pieces = layer_of(job(true));
  EXPECT_DOUBLE_EQ(sent(pieces.forward), sent(plain.forward));
  EXPECT_DOUBLE_EQ(sent(pieces.backward), sent(plain.backward));
  EXPECT_DOUBLE_EQ(flop_of(pieces.forward), flop_of(plain.forward));
  EXPECT_DOUBLE_EQ(flop_of(pieces.backward), flop_of(plain.backward));
  EXPECT_EQ(pieces.forward_memory.net, plain.forward_memory.net);
}

// TransformerEngine module/base.py initialize_ub: gathers before QKV and FC1 (forward) and before the input gradients
// of the projection and FC2 as rings; reductions after projection and FC2 in four pieces; the gathers for weight
// gradients and the reductions of input gradients run whole, beside the product that does not need them ("bulk").
TEST(TensorOverlap, SplitsWhatUserbuffersSplits) {
  const Block block = layer_of(job(true));
  EXPECT_EQ(count(block.forward, Collective::ring_exchange), 2 * (kTp - 1));
  EXPECT_EQ(count(block.forward, Collective::reduce_scatter), 2 * 4);
  EXPECT_EQ(count(block.forward, Collective::all_gather), 0);
  EXPECT_EQ(count(block.backward, Collective::ring_exchange), 2 * (kTp - 1));
  EXPECT_EQ(count(block.backward, Collective::all_gather), 2);
  EXPECT_EQ(count(block.backward, Collective::reduce_scatter), 2);
}

// This rank's own tokens need no transfer: the first piece of a product waits for none.
TEST(TensorOverlap, StartsWithTheTokensThatAreHere) {
  for (const Op& op : layer_of(job(true)).forward)
    if (op.segment == Segment::qkv && op.kind == OpKind::compute) {
      EXPECT_TRUE(op.waits.empty());
      return;
    }
  FAIL() << "no QKV product";
}

TEST(TensorOverlap, MakesLegalPrograms) {
  for (const int pp : {1, 2}) {
    Plan p = job(true);
    p.layout.pp = pp;
    p.layout.dp_shard = 8 / kTp / pp;
    const Program program = lower(p, megatron());
    const auto wrong = check(program);
    EXPECT_TRUE(wrong.empty()) << (wrong.empty() ? "" : wrong.front().text);
  }
}

/// Whether the last reduction over tp waits for the weight gradients that were issued before it.
bool waits_for_weights(const Block& block) {
  const auto& ops = block.backward;
  for (std::size_t i = ops.size(); i-- > 0;) {
    if (ops[i].kind != OpKind::collective || ops[i].collective != Collective::reduce_scatter) continue;
    for (std::size_t j = 0; j < i; ++j)
      if (ops[j].pass == Pass::weight)
        for (const int written : ops[j].writes)
          if (std::find(ops[i].waits.begin(), ops[i].waits.end(), written) != ops[i].waits.end()) return true;
    return false;
  }
  ADD_FAILURE() << "no reduction";
  return false;
}

// Autograd of a linear layer makes both gradients before the reduction of the input's begins, where the framework has
// no function of its own for it; the order takes neither memory nor work.
TEST(TensorOverlap, ReducesInputGradientsAfterTheWeightsWhereTheFrameworkDoes) {
  const Plan p = job(false);
  Semantics in_turn = megatron();
  in_turn.dgrad_reduce_overlap = false;
  const auto layer = [&](const Semantics& semantics) {
    return make_layer(make_context(p.model, p.job, semantics, p.layout, p.cluster.device, false),
                      layer_shapes(p.model).front(), false);
  };
  const Block beside = layer(megatron());
  const Block after = layer(in_turn);
  EXPECT_FALSE(waits_for_weights(beside));
  EXPECT_TRUE(waits_for_weights(after));
  EXPECT_EQ(after.backward.size(), beside.backward.size());
  EXPECT_DOUBLE_EQ(flop_of(after.backward), flop_of(beside.backward));
  EXPECT_EQ(after.backward_memory.net, beside.backward_memory.net);
  const auto wrong = check(lower(p, in_turn));
  EXPECT_TRUE(wrong.empty()) << (wrong.empty() ? "" : wrong.front().text);
}

} // namespace
} // namespace foretrain
