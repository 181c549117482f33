#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "tests/core/program/fixtures.h"

namespace foretrain {
namespace {

using namespace fixtures;

ModelSpec llama2_70b(int layers) {
  ModelSpec m = llama3_70b(layers);
  m.vocab = 32000;
  return m;
}

Plan adapted(int layers, int tp = 1) {
  Plan p = plan(llama2_70b(layers), 8, 8192, 8);
  p.layout.tp = tp;
  p.layout.dp_shard = 8 / tp;
  p.job.lora = LoraChoice{};
  return p;
}

std::int64_t trained(const Program& program) {
  std::int64_t sum = 0;
  for (const Chunk& chunk : program.roles.front().chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters)
        if (!parameter.frozen) sum += parameter.local_elements();
  return sum;
}

Bytes part(const Program& program, MemoryPart wanted) {
  Bytes sum;
  for (const Persistent& entry : program.roles.front().persistent)
    if (entry.part == wanted) sum += entry.bytes;
  return sum;
}

double products(const std::vector<Op>& ops) {
  double flop = 0;
  for (const Op& op : ops)
    for (const Kernel& kernel : op.kernels)
      if (kernel.kind == KernelKind::gemm) flop += kernel.flop;
  return flop;
}

// MLPerf training llama2_70b_lora: rank 16 on the joint query-key-value and the output projection; its reference prints
// "trainable params: 44,564,480".
TEST(Lora, TrainsAsManyParametersAsTheReferenceOfMlperf) {
  EXPECT_EQ(trained(lower(adapted(80), megatron())), 44'564'480);
  EXPECT_EQ(trained(lower(adapted(80, 8), megatron())), 44'564'480 / 8);
}

TEST(Lora, FrozenWeightsHaveNoGradientAndNoOptimizerState) {
  Plan p = adapted(2);
  p.layout.sharding.kind = ShardingKind::none;
  const Program program = lower(p, megatron());
  const std::int64_t adapters = 2 * 557'056;
  EXPECT_EQ(part(program, MemoryPart::gradients), Bytes(4 * adapters));
  EXPECT_EQ(part(program, MemoryPart::master), Bytes(4 * adapters));
  EXPECT_EQ(part(program, MemoryPart::moments), Bytes(8 * adapters));
  Plan whole = p;
  whole.job.lora.reset();
  EXPECT_EQ(part(program, MemoryPart::parameters),
            part(lower(whole, megatron()), MemoryPart::parameters) + Bytes(2 * adapters));
}

// One copy of a frozen 8-bit weight, transposed for the input gradient (NVIDIA/NeMo:
// disable_parameter_transpose_cache); trained ones lie in both directions on Hopper (TransformerEngine
// is_non_tn_fp8_gemm_supported).
TEST(Lora, FrozenEightBitWeightsLieInOneDirection) {
  Plan p = adapted(2);
  p.job.precision = Precision::fp8_delayed;
  p.job.quantised_weights = true;
  Plan whole = p;
  whole.job.lora.reset();
  const std::int64_t layers =
      2 * (std::int64_t{8192} * (8192 + 2 * 1024) + 8192 * 8192 + std::int64_t{3} * 8192 * 28672);
  EXPECT_EQ(part(lower(whole, megatron()), MemoryPart::parameters) - part(lower(p, megatron()), MemoryPart::parameters),
            Bytes(layers - 2 * 2 * 557'056));
  const auto traffic = [](const Plan& plan) {
    const Semantics semantics = megatron();
    const LayerContext c = make_context(plan.model, plan.job, semantics, plan.layout, plan.cluster.device, false);
    double bytes = 0;
    for (const Op& op : make_layer(c, layer_shapes(plan.model).front(), false).backward)
      for (const Kernel& kernel : op.kernels)
        if (kernel.kind == KernelKind::memory) bytes += kernel.bytes;
    return bytes;
  };
  Plan kept = p;
  kept.job.quantised_weights = false;
  EXPECT_NEAR(traffic(p) - traffic(kept), static_cast<double>(layers), 1e6)
      << "read and written once each, of one layer";
}

// Without weight gradients of the frozen layers the backward's products are those of the forward, and the adapters'.
TEST(Lora, BackwardLeavesTheFrozenWeightGradientsOut) {
  const Plan p = adapted(1);
  Plan whole = p;
  whole.job.lora.reset();
  const auto block = [](const Plan& plan) {
    const Semantics semantics = megatron();
    const LayerContext c = make_context(plan.model, plan.job, semantics, plan.layout, plan.cluster.device, false);
    return make_layer(c, layer_shapes(plan.model).front(), false);
  };
  const double forward = products(block(whole).forward);
  const double adapters = 2.0 * 8192 * 557'056; // of one pass
  EXPECT_DOUBLE_EQ(products(block(p).forward), forward + adapters);
  EXPECT_DOUBLE_EQ(products(block(p).backward), forward + 2 * adapters);
  EXPECT_DOUBLE_EQ(products(block(whole).backward), 2 * forward);
}

// The feed-forward carries no adapter: neither its norm's output nor the activation's is kept.
TEST(Lora, KeepsNoInputsThatOnlyFrozenLayersRead) {
  const Plan p = adapted(1);
  Plan whole = p;
  whole.job.lora.reset();
  const auto kept = [](const Plan& plan) {
    const Semantics semantics = megatron();
    const LayerContext c = make_context(plan.model, plan.job, semantics, plan.layout, plan.cluster.device, false);
    return make_layer(c, layer_shapes(plan.model).front(), false).forward_memory.net.value;
  };
  const std::int64_t tokens = 8192;
  EXPECT_EQ(kept(whole) - kept(p), 2 * tokens * (8192 + 28672) - 2 * tokens * 2 * 16);
}

TEST(Lora, ReducesTheAdaptersGradientsAlone) {
  Plan p = adapted(2);
  p.layout.sharding.kind = ShardingKind::none;
  const Program program = lower(p, megatron());
  Bytes reduced;
  for (const Chunk& chunk : program.roles.front().chunks)
    for (const ChunkOp& op : chunk.between)
      if (op.op.kind == OpKind::collective) reduced += op.op.bytes;
  EXPECT_EQ(reduced, Bytes(4 * 2 * 557'056));
}

} // namespace
} // namespace foretrain
