#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "tests/core/program/fixtures.h"

/// What 8- and 4-bit recipes keep and move. Sources: TransformerEngine module/linear.py and layernorm_linear.py,
/// Megatron-LM core/transformer/attention.py; docs/formulas.md, "8 and 4 bits".
namespace foretrain {
namespace {

using namespace fixtures;

Plan with(Precision precision, const char* architecture = "Hopper") {
  Plan p = plan(llama3_70b(2), 8, 4096, 16);
  p.job.precision = precision;
  p.cluster.device.architecture = architecture;
  return p;
}

Semantics transformer_engine() {
  Semantics s = megatron();
  s.quantised_own_copy = true;
  return s;
}

/// Bytes that one layer keeps from its forward to its backward.
double kept_by_layer(const Plan& p, const Semantics& s) {
  const LayerContext c = make_context(p.model, p.job, s, p.layout, p.cluster.device, false);
  return static_cast<double>(make_layer(c, layer_shapes(p.model).front(), false).forward_memory.net.value);
}

Bytes persistent(const Plan& p, const Semantics& s, const std::string& name) {
  const Program program = lower(p, s);
  for (const Persistent& entry : program.roles.front().persistent)
    if (entry.name == name) return entry.bytes;
  return Bytes(0);
}

constexpr double kTokens = 4096;
constexpr double kHidden = 8192;
constexpr double kFfn = 28672;

// Both norm outputs and the activation's output take one byte instead of two. The attention's output stays in 16 bits,
// because attention keeps it itself.
TEST(LowPrecision, KeepsInputsOfLinearLayersInOneByte) {
  const double bf16 = kept_by_layer(with(Precision::bf16), transformer_engine());
  const double saved = kTokens * (2 * kHidden + kFfn);
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::fp8_current), transformer_engine()), bf16 - saved);
}

// One exponent byte per 32 values, one fp32 scale per 128, one byte per 16 four-bit values.
TEST(LowPrecision, CountsTheScales) {
  const double bf16 = kept_by_layer(with(Precision::bf16), transformer_engine());
  const double elements = kTokens * (2 * kHidden + kFfn);
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::mxfp8), transformer_engine()), bf16 - elements * (2 - 33.0 / 32));
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::fp8_blockwise), transformer_engine()),
                   bf16 - elements * (1 - 4.0 / 128));
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::nvfp4), transformer_engine()), bf16 - elements * (2 - 0.5625));
}

// Megatron-LM sets save_original_input on the output projection except under delayed scaling.
TEST(LowPrecision, DelayedScalingKeepsTheProjectionsInputTwice) {
  const double current = kept_by_layer(with(Precision::fp8_current), transformer_engine());
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::fp8_delayed), transformer_engine()), current + kTokens * kHidden);
}

TEST(LowPrecision, FrameworksThatCastAgainInBackwardKeepSixteenBits) {
  Semantics ao = megatron();
  ao.quantised_activations = false;
  EXPECT_DOUBLE_EQ(kept_by_layer(with(Precision::fp8_current), ao), kept_by_layer(with(Precision::bf16), ao));
}

// Per-tensor scales: Hopper's products read only one order, so a weight lies there twice; Blackwell reads both.
TEST(LowPrecision, KeepsQuantisedWeightsBesideTheSixteenBitOnes) {
  const double linear = 2 * (kHidden * 10240 + kHidden * kHidden + 3 * kHidden * kFfn); // two layers
  EXPECT_DOUBLE_EQ(
      static_cast<double>(persistent(with(Precision::fp8_current), transformer_engine(), "quantised weights").value),
      2 * linear);
  EXPECT_DOUBLE_EQ(
      static_cast<double>(
          persistent(with(Precision::fp8_current, "Blackwell"), transformer_engine(), "quantised weights").value),
      linear);
  EXPECT_DOUBLE_EQ(
      static_cast<double>(
          persistent(with(Precision::mxfp8, "Blackwell"), transformer_engine(), "quantised weights").value),
      2 * linear * 33 / 32);
  EXPECT_EQ(persistent(with(Precision::bf16), transformer_engine(), "quantised weights"), Bytes(0));
}

TEST(LowPrecision, QuantisedWeightsTakeThePlaceOfTheSixteenBitOnes) {
  Plan p = with(Precision::fp8_current, "Blackwell");
  const Bytes before = persistent(p, transformer_engine(), "parameters");
  p.job.quantised_weights = true;
  const double linear = 2 * (kHidden * 10240 + kHidden * kHidden + 3 * kHidden * kFfn);
  EXPECT_DOUBLE_EQ(static_cast<double>((before - persistent(p, transformer_engine(), "parameters")).value), linear);
  EXPECT_EQ(persistent(p, transformer_engine(), "quantised weights"), Bytes(0));
}

// Megatron gathers sequence-parallel inputs and output gradients quantised; sums travel in 16 bits.
TEST(LowPrecision, GathersOverTensorParallelRanksInOneByte) {
  Plan p = with(Precision::fp8_current);
  p.layout.tp = 2;
  p.layout.sequence_parallel = true;
  const Semantics semantics = transformer_engine();
  const LayerContext c = make_context(p.model, p.job, semantics, p.layout, p.cluster.device, false);
  const Block block = make_layer(c, layer_shapes(p.model).front(), false);
  int gathers = 0;
  for (const auto* list : {&block.forward, &block.backward})
    for (const Op& op : *list) {
      if (op.kind != OpKind::collective) continue;
      const bool gather = op.collective == Collective::all_gather;
      gathers += gather ? 1 : 0;
      EXPECT_EQ(op.bytes.value, static_cast<std::int64_t>(kTokens * kHidden * (gather ? 1 : 2)));
    }
  EXPECT_EQ(gathers, 6);
}

TEST(LowPrecision, RunsLinearLayersInItsTypeAndTheHeadInSixteenBits) {
  const Plan p = with(Precision::mxfp8);
  const Semantics semantics = transformer_engine();
  const LayerContext c = make_context(p.model, p.job, semantics, p.layout, p.cluster.device, false);
  const auto types = [](const Block& block) {
    std::vector<DType> found;
    for (const auto* list : {&block.forward, &block.backward})
      for (const Op& op : *list)
        for (const Kernel& kernel : op.kernels)
          if (kernel.kind == KernelKind::gemm) found.push_back(kernel.dtype);
    return found;
  };
  EXPECT_EQ(types(make_layer(c, layer_shapes(p.model).front(), false)), std::vector<DType>(12, DType::fp8));
  EXPECT_EQ(types(make_head(c)), std::vector<DType>(3, DType::bf16));
}

} // namespace
} // namespace foretrain
