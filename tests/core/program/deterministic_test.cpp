#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "tests/core/program/fixtures.h"

/// Deterministic training: which attention runs, and what its kernels and the filling of new tensors move.
namespace foretrain {
namespace {

using namespace fixtures;

Plan job(const char* architecture, bool deterministic) {
  Plan p = plan(llama3(4096, 32, 14336, 1), 8, 8192, 8);
  p.cluster.device.architecture = architecture;
  p.cluster.device.multiprocessors = 132;
  p.job.deterministic = deterministic;
  return p;
}

Semantics semantics(bool fills) {
  Semantics s = megatron();
  s.batch_first_when_deterministic = {"Ampere", "Blackwell"};
  s.score_gradients_when_deterministic = {"Hopper"};
  s.fills_when_deterministic = fills;
  return s;
}

Block layer_of(const Plan& p, const Semantics& s) {
  return make_layer(make_context(p.model, p.job, s, p.layout, p.cluster.device, false), layer_shapes(p.model).front(),
                    false);
}

double traffic_of(const std::vector<Op>& ops) {
  double bytes = 0;
  for (const Op& op : ops)
    for (const Kernel& kernel : op.kernels)
      if (kernel.kind == KernelKind::memory) bytes += kernel.bytes;
  return bytes;
}

const Op& attention_backward(const Block& block) {
  for (const Op& op : block.backward)
    if (op.segment == Segment::attention) return op;
  return block.backward.front();
}

// NVIDIA/cudnn-frontend pull request 398: deterministic backward on Hopper holds b·h·s·s·2 bytes; here 32 heads of one
// sequence of 8192: 4 GiB, written by one kernel and read by the next.
TEST(DeterministicAttention, HoldsGradientsOfTheScoresOnHopper) {
  const Block usual = layer_of(job("Hopper", false), semantics(false));
  const Block same_bits = layer_of(job("Hopper", true), semantics(false));
  const std::int64_t bytes = std::int64_t{32} * 8192 * 8192 * 2;
  EXPECT_EQ(bytes, 4 * kGiB);
  EXPECT_EQ((attention_backward(same_bits).scratch - attention_backward(usual).scratch).value, bytes);
  EXPECT_DOUBLE_EQ(traffic_of(same_bits.backward) - traffic_of(usual.backward), 2.0 * static_cast<double>(bytes));
  EXPECT_EQ(traffic_of(same_bits.forward), traffic_of(usual.forward));
}

// Dao-AILab/flash-attention csrc/flash_attn/src/flash_bwd_launch_template.h: ceil(processors / (sequences · heads))
// parts; csrc/flash_attn/flash_api.cpp: an fp32 gradient of the queries for each.
TEST(DeterministicAttention, SplitsFlashAttentionIntoAsManyPartsAsProcessors) {
  const Block usual = layer_of(job("Blackwell", false), semantics(false));
  const Block same_bits = layer_of(job("Blackwell", true), semantics(false));
  const Op& op = attention_backward(same_bits);
  EXPECT_EQ(op.kernels.front().parts, 5); // ceil(132 / 32)
  EXPECT_EQ((op.scratch - attention_backward(usual).scratch).value, std::int64_t{4} * 4 * 8192 * 4096);
  EXPECT_EQ(attention_backward(usual).kernels.front().parts, 0);
}

// PyTorch docs, torch.utils.deterministic.fill_uninitialized_memory: tensors made without values are filled. Each op
// that allocates writes what it allocates once more; sums around residuals are PyTorch's own operators and are not
// filled.
TEST(DeterministicAlgorithms, FillWhatEachOpAllocates) {
  const Block bare = layer_of(job("Hopper", true), semantics(false));
  const Block filled = layer_of(job("Hopper", true), semantics(true));
  double expected = 0;
  int tensors = 0;
  for (const Op& op : bare.forward) {
    if (op.kind != OpKind::compute || op.segment == Segment::residual) continue;
    expected += static_cast<double>(op.scratch.value);
    for (const int buffer : op.allocates)
      expected += static_cast<double>(bare.buffers[static_cast<std::size_t>(buffer)].bytes.value);
    tensors += static_cast<int>(op.allocates.size()) + (op.scratch.value > 0 ? 1 : 0);
  }
  EXPECT_GT(expected,
            2.0 * 8192 * (4096 + 6144 + 4096 + 4096 + 3 * 14336)); // norm, QKV, attention, projection, feed-forward
  EXPECT_DOUBLE_EQ(traffic_of(filled.forward) - traffic_of(bare.forward), expected);
  int counted = 0;
  for (const Op& op : filled.forward) counted += op.fills;
  EXPECT_EQ(counted, tensors);
  EXPECT_EQ(filled.forward_memory, bare.forward_memory) << "a fill holds nothing";
  EXPECT_EQ(layer_of(job("Hopper", false), semantics(true)), layer_of(job("Hopper", false), semantics(false)));
}

// Aleph-Alpha/scaling@78489292b core/nn/masked_softmax: scores cast to fp32 (2 + 4), masked in place (4 + 4),
// normalised (4 + 4), cast back (4 + 2); the softmax keeps its fp32 result and the product the cast: 6 bytes of each
// score stay where the fused kernel keeps 2.
TEST(EagerAttention, MovesAndKeepsScoresInFp32) {
  const auto layer = [](AttentionKernel kernel) {
    Plan p = job("Ampere", false);
    p.job.attention = kernel;
    return layer_of(p, semantics(false));
  };
  const Block fused = layer(AttentionKernel::unfused);
  const Block eager = layer(AttentionKernel::eager);
  const std::int64_t scores = std::int64_t{32} * 8192 * 8192;
  EXPECT_EQ((eager.forward_memory.net - fused.forward_memory.net).value, 4 * scores);
  EXPECT_DOUBLE_EQ(traffic_of(eager.forward) - traffic_of(fused.forward), (28.0 - 4) * static_cast<double>(scores));
  EXPECT_DOUBLE_EQ(traffic_of(eager.backward) - traffic_of(fused.backward), (32.0 - 6) * static_cast<double>(scores));
}

// Megatron-LM fused_softmax.py is_kernel_available: attn_batches % 4 == 0. 32 heads on 16 ranks are 2 each.
TEST(UnfusedAttention, RunsInOperatorsWhereTheFusedSoftmaxDoesNot) {
  const auto layer = [](AttentionKernel kernel, int micro_batch) {
    Plan p = job("Ampere", false);
    p.layout.tp = 16;
    p.layout.micro_batch = micro_batch;
    p.job.attention = kernel;
    return layer_of(p, semantics(false));
  };
  EXPECT_EQ(layer(AttentionKernel::unfused, 1), layer(AttentionKernel::eager, 1));
  const std::int64_t scores = std::int64_t{2} * 2 * 8192 * 8192;
  EXPECT_DOUBLE_EQ(traffic_of(layer(AttentionKernel::eager, 2).forward) -
                       traffic_of(layer(AttentionKernel::unfused, 2).forward),
                   (28.0 - 4) * static_cast<double>(scores));
}

} // namespace
} // namespace foretrain
