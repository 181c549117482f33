#include <algorithm>

#include <gtest/gtest.h>

#include "core/program/axes/data_detail.h"
#include "core/program/blocks.h"
#include "tests/core/program/fixtures.h"

/// What frameworks of eager operators keep: torchtitan (activation_checkpoint.py), Aleph-Alpha/scaling (norm, loss),
/// and deterministic attention on Blackwell.
namespace foretrain {
namespace {

using namespace fixtures;

Semantics torchtitan() {
  Semantics s;
  s.name = "torchtitan";
  s.family = SemanticsFamily::fsdp;
  s.eager_gate_copy = true;
  s.operators_kept = {KeptOutput::query, KeptOutput::value, KeptOutput::attention, KeptOutput::gate, KeptOutput::down};
  s.compiled_drops = {KeptOutput::down};
  return s;
}

Block layer_of(const Plan& p, const Semantics& s) {
  return make_layer(make_context(p.model, p.job, s, p.layout, p.cluster.device, false), layer_shapes(p.model).front(),
                    false);
}

double flop_of(const std::vector<Op>& ops, Pass pass) {
  double flop = 0;
  for (const Op& op : ops)
    for (const Kernel& kernel : op.kernels)
      if (op.pass == pass) flop += kernel.flop;
  return flop;
}

constexpr std::int64_t kTokens = 8192;

// The first, third, fifth and seventh product of a block (wq, wv, w1, w2), attention's output with its log-sum-exp, and
// the block's input stay; wk, wo and w3 run again.
TEST(OperatorRecomputation, KeepsEverySecondProduct) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  p.layout.recompute.kind = RecomputeKind::operators;
  const Block block = layer_of(p, torchtitan());
  const std::int64_t outputs = 4096 + 1024 + 4096 + 14336 + 4096; // the input is the block before's
  EXPECT_EQ(block.forward_memory.net.value - 2 * kTokens * 4096, kTokens * (2 * outputs + 4 * 32));
  EXPECT_DOUBLE_EQ(flop_of(block.backward, Pass::recompute), 2.0 * kTokens * 4096 * (1024 + 4096 + 14336));
}

TEST(OperatorRecomputation, CompiledCodeDropsWhatTheBackwardDoesNotRead) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  p.layout.recompute.kind = RecomputeKind::operators;
  const std::int64_t eager = layer_of(p, torchtitan()).forward_memory.net.value;
  p.job.compiled = true;
  EXPECT_EQ(eager - layer_of(p, torchtitan()).forward_memory.net.value, 2 * kTokens * 4096);
}

TEST(EagerOperators, KeepTheActivatedGate) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  const std::int64_t eager = layer_of(p, torchtitan()).forward_memory.net.value;
  p.job.compiled = true;
  EXPECT_EQ(eager - layer_of(p, torchtitan()).forward_memory.net.value, 2 * kTokens * 14336);
}

// facebookresearch/llama llama/model.py RMSNorm: x.float() times its inverse root mean square, back to the type of x,
// times the weight.
TEST(EagerOperators, UnfusedNormsKeepTheirInputInFp32AndTheNormalisedValue) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  const std::int64_t fused = layer_of(p, megatron()).forward_memory.net.value;
  p.job.norm = NormKernel::unfused;
  EXPECT_EQ(layer_of(p, megatron()).forward_memory.net.value - fused, 2 * (4 + 2) * kTokens * 4096);
}

double traffic_of(const std::vector<Op>& ops, Segment segment) {
  double bytes = 0;
  for (const Op& op : ops)
    for (const Kernel& kernel : op.kernels)
      if (op.segment == segment && kernel.kind == KernelKind::memory) bytes += kernel.bytes;
  return bytes;
}

// Aleph-Alpha/scaling@78489292b core/nn/norm/rms_norm.py: six operators forward, which move 36 bytes per value of 16
// bits, and their gradients, which move 92 and 6 for the sum with the residual's gradient.
TEST(EagerOperators, UnfusedNormsMoveWhatTheirOperatorsMove) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  p.job.norm = NormKernel::unfused;
  const Block block = layer_of(p, megatron());
  EXPECT_DOUBLE_EQ(traffic_of(block.forward, Segment::norm), 2.0 * 36 * kTokens * 4096);
  EXPECT_DOUBLE_EQ(traffic_of(block.backward, Segment::norm), 2.0 * (92 + 6) * kTokens * 4096);
}

// Aleph-Alpha/scaling@78489292b core/nn/mlp.py and rotary.py: silu (two passes), a product (three); nine passes
// backward. Queries and keys take ten passes forward and fifteen backward.
TEST(EagerOperators, MoveWhatEachOfThemMoves) {
  const Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  Semantics s = megatron();
  s.eager_gate_copy = true;
  const Block block = layer_of(p, s);
  EXPECT_DOUBLE_EQ(traffic_of(block.forward, Segment::activation), 2.0 * 5 * kTokens * 14336);
  EXPECT_DOUBLE_EQ(traffic_of(block.backward, Segment::activation), 2.0 * 9 * kTokens * 14336);
  EXPECT_DOUBLE_EQ(traffic_of(block.forward, Segment::rope), 2.0 * 10 * kTokens * (4096 + 1024));
  EXPECT_DOUBLE_EQ(traffic_of(block.backward, Segment::rope), 2.0 * 15 * kTokens * (4096 + 1024));
}

// core/nn/mlp.py ParallelSwiGLUMLP: gate and up are column-parallel layers of their own, and each reduces the gradient
// of its input (core/nn/linear/utils.py); under sequence parallelism the gather's gradient is reduced once.
TEST(EagerOperators, ReduceGradientsOfGateAndUpApart) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  p.layout.tp = 4;
  p.layout.sequence_parallel = false;
  Semantics s = megatron();
  const auto reductions = [&] {
    const Block block = layer_of(p, s);
    return std::count_if(block.backward.begin(), block.backward.end(), [](const Op& op) {
      return op.kind == OpKind::collective && op.group == Group::tp && op.collective != Collective::all_gather;
    });
  };
  EXPECT_EQ(reductions(), 2);
  s.eager_gate_copy = true;
  EXPECT_EQ(reductions(), 3);
  p.layout.sequence_parallel = true;
  EXPECT_EQ(reductions(), 2);
}

// F.linear leaves the sum of gradients to autograd: three 16-bit passes over each weight, none where one micro-batch is
// all.
TEST(EagerOperators, AddGradientsInAKernelOfTheirOwn) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 1, 8192, 2);
  p.job.gradient = DType::bf16;
  Semantics s = megatron();
  const auto sums = [&] {
    double bytes = 0;
    for (const Op& op : layer_of(p, s).backward)
      if (!op.weight_gradients.empty() && op.segment != Segment::norm)
        for (const Kernel& kernel : op.kernels) bytes += kernel.kind == KernelKind::memory ? kernel.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(sums(), 0) << "products add to Megatron's buffer";
  s.dummy_weight_gradients = false;
  const double weights = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336;
  EXPECT_DOUBLE_EQ(sums(), 6 * weights);
  p.job.gradient = DType::fp32; // a cast copy, then a sum in fp32 (DeepSpeed runtime/bf16_optimizer.py)
  EXPECT_DOUBLE_EQ(sums(), 18 * weights);
  p.job.gradient = DType::bf16;
  p.job.global_batch = p.layout.micro_batch;
  EXPECT_EQ(sums(), 0) << "the only gradient is kept as it is";
}

// --no-gradient-accumulation-fusion of Megatron-Core: its hook adds a 16-bit gradient to an fp32 buffer (2 + 4 + 4
// bytes a weight), of every micro-batch, of layers, experts and head; TransformerEngine then caches no gradient.
TEST(GradientAccumulationFusion, LeftOutAddsTenBytesPerWeight) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 1, 8192, 2);
  const Semantics s = megatron();
  const auto added = [&](const Block& block) {
    double bytes = 0;
    for (const Op& op : block.backward)
      if (!op.weight_gradients.empty() && !op.kernels.empty() && op.kernels.back().heads == 1)
        bytes += op.kernels.back().bytes;
    return bytes;
  };
  const auto head = [&] { return make_head(make_context(p.model, p.job, s, p.layout, p.cluster.device, false)); };
  const auto cached = [&] {
    const Program program = lower(p, s);
    for (const Persistent& item : program.roles.front().persistent)
      if (item.name == "cached weight gradients") return item.bytes;
    return Bytes(0);
  };
  EXPECT_EQ(added(layer_of(p, s)), 0);
  EXPECT_GT(cached().value, 0);
  p.job.gradient_accumulation_fusion = true;
  EXPECT_EQ(added(layer_of(p, s)), 0);
  p.job.gradient_accumulation_fusion = false;
  const double weights = 4096.0 * (4096 + 2 * 1024) + 4096.0 * 4096 + 3 * 4096.0 * 14336;
  EXPECT_DOUBLE_EQ(added(layer_of(p, s)), 10 * weights);
  EXPECT_DOUBLE_EQ(added(head()), 10.0 * 4096 * static_cast<double>(padded_vocab(p.model, p.job, s, 1)));
  EXPECT_EQ(cached(), Bytes(0));
}

// Aleph-Alpha/scaling@78489292b core/optimizer/allreduce.py: whole gradients are cast and summed in fp32 after the
// backward, also where the optimizer's state is sharded. Megatron-Core scatters sums of the gradient's own type.
TEST(ReductionAfterTheBackward, SumsWholeGradientsInFp32) {
  Plan p = plan(llama3(4096, 2, 14336, 1), 8, 8192, 8);
  p.layout.dp_shard = 8;
  p.job.gradient = DType::bf16;
  Semantics s = megatron();
  const Mesh mesh(p.layout, {8});
  const auto reduced = [&] {
    const LayerContext context = make_context(p.model, p.job, s, p.layout, p.cluster.device, false);
    return data::detail::reductions(context, mesh, 1000, false);
  };
  ASSERT_EQ(reduced().size(), 1U);
  EXPECT_EQ(reduced().front().collective, Collective::reduce_scatter);
  EXPECT_EQ(reduced().front().bytes, Bytes(2000));
  s.dp_gradient_overlap = false;
  ASSERT_EQ(reduced().size(), 1U);
  EXPECT_EQ(reduced().front().collective, Collective::all_reduce);
  EXPECT_EQ(reduced().front().bytes, Bytes(4000));
}

// Aleph-Alpha/scaling: logits in 16 bits, their log-softmax, and two gradients in fp32, all of the whole vocabulary.
TEST(GatheredLoss, HoldsTheWholeVocabularyOnEveryRank) {
  Plan p = plan(llama3(5120, 40, 13824, 1, 40), 8, 8192, 8);
  p.model.vocab = 128000;
  p.layout.tp = 4;
  p.job.cross_entropy = CrossEntropy::gathered;
  Semantics s;
  s.vocab_multiple = 1;
  const Block head = make_head(make_context(p.model, p.job, s, p.layout, p.cluster.device, false));
  EXPECT_GE(head.forward_memory.net.value + head.backward_memory.peak.value, kTokens * 128000 * 14);
}

TEST(SequenceParallel, KeepsGatheredInputsWhereTheFrameworkGathersBeforeIt) {
  Plan p = plan(llama3(5120, 40, 13824, 1, 40), 8, 8192, 8);
  p.layout.tp = 4;
  p.layout.sequence_parallel = true;
  Semantics s = megatron();
  const std::int64_t shards = layer_of(p, s).forward_memory.net.value;
  s.gathers_before_saving = true;
  EXPECT_EQ(layer_of(p, s).forward_memory.net.value - shards, 2 * 2 * kTokens * 5120 * 3 / 4);
}

// The same functional test of Megatron-LM (7 B, tp 4, two sequences) took 1,073,741,824 bytes more on GB200 than on
// H100: 32 layers, 16384 tokens, 8 heads of 128 in 16 bits.
TEST(DeterministicAttention, KeepsItsOutputInBothOrders) {
  Plan p = plan(llama3(4096, 32, 16384, 1), 8, 8192, 8);
  p.layout.tp = 4;
  p.layout.micro_batch = 2;
  p.job.deterministic = true;
  p.cluster.device.architecture = "Hopper";
  Semantics s = megatron();
  s.batch_first_when_deterministic = {"Blackwell"};
  const std::int64_t hopper = layer_of(p, s).forward_memory.net.value;
  p.cluster.device.architecture = "Blackwell";
  EXPECT_EQ(32 * (layer_of(p, s).forward_memory.net.value - hopper), 1'073'741'824);
  p.layout.micro_batch = 1; // both orders are one
  const std::int64_t one = layer_of(p, s).forward_memory.net.value;
  p.job.deterministic = false;
  EXPECT_EQ(layer_of(p, s).forward_memory.net.value, one);
}

// A joint projection that is split without a copy stays whole with the queries and keys made from it; several sequences
// leave attention's output in two orders (Aleph-Alpha/scaling@78489292b core/nn/attention/attention.py).
TEST(EagerOperators, ViewsAndOrdersKeepMore) {
  Plan p = plan(llama3(5120, 40, 13824, 1, 40), 8, 2048, 64);
  Semantics views = torchtitan();
  views.value_in_mixed = true;
  const auto kept = [&p](const Semantics& s) { return layer_of(p, s).forward_memory.net.value; };
  constexpr std::int64_t kWidth = 2 * 2048 * 5120; // bytes of one tensor
  EXPECT_EQ(kept(views) - kept(torchtitan()), 2 * kWidth);
  p.layout.micro_batch = 2;
  Semantics orders = torchtitan();
  orders.orders_attention_output = true;
  EXPECT_EQ(kept(orders) - kept(torchtitan()), 2 * kWidth); // one tensor of two sequences
  p.job.attention = AttentionKernel::unfused;
  EXPECT_EQ(kept(views), kept(torchtitan()));
}

} // namespace
} // namespace foretrain
