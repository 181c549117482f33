#include "core/program/flops.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "core/spec/presets.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

ModelSpec preset(const std::string& name) {
  const auto model = DataFolder{test::source_folder() / "data"}.model(name);
  EXPECT_TRUE(model) << (model ? "" : to_string(model.error()));
  return model ? *model : ModelSpec{};
}

double flop(const ModelSpec& model, FlopConvention convention, int sequence, int padded_vocab = 0) {
  const auto value = flop_per_token(model, convention, FlopShape{sequence, {}, padded_vocab});
  EXPECT_TRUE(value) << (value ? "" : to_string(value.error()));
  return value.value_or(0);
}

/// Qwen3-4B (huggingface.co/Qwen/Qwen3-4B config.json): 36 layers, hidden 2560, 32 heads of 128.
ModelSpec qwen3_4b() {
  ModelSpec model;
  model.name = "qwen3-4b";
  model.layers = 36;
  model.hidden = 2560;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 9728;
  model.vocab = 151936;
  model.tied_embeddings = true;
  model.qk_norm = QkNorm::per_head;
  return model;
}

// Training FLOP per token at 8192 tokens (docs/formulas.md, "FLOPs"), vocabulary of 128256 not padded, five digits.
struct Row {
  const char* model;
  double megatron, torchtitan, palm, six_n;
};
constexpr std::array kLlama3 = {Row{"llama3-8b", 5.1470e10, 5.7914e10, 6.1066e10, 4.8182e10},
                                Row{"llama3-70b", 4.4922e11, 4.8144e11, 4.8775e11, 4.2332e11},
                                Row{"llama3-405b", 2.5240e12, 2.6254e12, 2.6381e12, 2.4351e12}};

// Frozen weights: four of six FLOP per element, attention and adapters six. The published LoRA figures of
// NVIDIA-NeMo/Megatron-Bridge imply 0.62 to 0.67 of the whole model's count.
TEST(FlopPerToken, FrozenWeightsLeaveTheirGradientsOut) {
  FlopShape shape{4096, {}, 0};
  const double whole = flop_per_token(preset("llama3-70b"), FlopConvention::megatron, shape).value();
  shape.lora = LoraChoice{16, {AdapterTarget::qkv, AdapterTarget::attention_out}};
  const double adapted = flop_per_token(preset("llama3-70b"), FlopConvention::megatron, shape).value();
  const double attention = 6.0 * 80 * 2 * 64 * 128 * 4096 / 2;
  EXPECT_NEAR(adapted, (whole - attention) * 2 / 3 + attention + 6.0 * 44'564'480, 1);
  EXPECT_NEAR(adapted / whole, 0.67, 0.01);
}

TEST(Flops, AgreeWithTheTableForLlama3) {
  // The table has five digits: half a unit in the last.
  const auto half_unit = [](double value) { return 0.5e-4 * std::pow(10.0, std::floor(std::log10(value))); };
  for (const Row& row : kLlama3) {
    const ModelSpec model = preset(row.model);
    EXPECT_NEAR(flop(model, FlopConvention::megatron, 8192), row.megatron, half_unit(row.megatron)) << row.model;
    EXPECT_NEAR(flop(model, FlopConvention::torchtitan, 8192), row.torchtitan, half_unit(row.torchtitan)) << row.model;
    EXPECT_NEAR(flop(model, FlopConvention::palm, 8192), row.palm, half_unit(row.palm)) << row.model;
    EXPECT_NEAR(flop(model, FlopConvention::six_n, 8192), row.six_n, half_unit(row.six_n)) << row.model;
  }
}

// pytorch/torchtitan issue 1920: attention width is heads * head_dim (4096), not the hidden size (2560).
TEST(Flops, AttentionWidthIsHeadsTimesHeadDim) {
  const ModelSpec model = qwen3_4b();
  const double attention = flop(model, FlopConvention::torchtitan, 8192) - flop(model, FlopConvention::torchtitan, 0);
  EXPECT_EQ(attention, 12.0 * 36 * 4096 * 8192);
  EXPECT_DOUBLE_EQ(attention / (12.0 * 36 * 2560 * 8192), 1.6);
}

// NVIDIA-NeMo/RL PR 2736: Qwen3-235B-A22B at 192K, 111.0 PFLOP a sequence with the head width taken as hidden / heads,
// 204.4 corrected; the causal half of the exact widths gives 204.0.
TEST(Flops, Qwen3Moe235bAt192K) {
  ModelSpec model = preset("qwen3-235b-a22b");
  constexpr int kLength = 192 * 1024;
  const double right = flop(model, FlopConvention::megatron, kLength) * kLength / 1e15;
  EXPECT_NEAR(right, 204.0, 0.05);
  model.head_dim = model.hidden / model.heads;
  const double wrong = flop(model, FlopConvention::megatron, kLength) * kLength / 1e15;
  EXPECT_NEAR(wrong, 111.0, 0.3); // the report's code kept some widths: 0.2 % apart
  EXPECT_NEAR(right / wrong, 1.842, 0.0005);
}

// pytorch/torchtitan PR 4300: Qwen3-30B-A3B at 8192, exactly. The wrong number beside it counted all experts, the input
// table, and attention as wide as the hidden size.
TEST(Flops, Qwen3Moe30bExactly) {
  const ModelSpec model = preset("qwen3-30b-a3b");
  EXPECT_EQ(flop(model, FlopConvention::torchtitan, 8192), 37'578'559'488.0);
  EXPECT_EQ(6 * count_parameters(model).total + std::int64_t{12} * 48 * 2048 * 8192, 192'856'412'160);
}

// pytorch/torchtitan PR 4366: QK^T and AV both count: forward 4 s a d per token, three times that in training.
TEST(Flops, BothAttentionProductsCount) {
  const ModelSpec model = preset("llama3-8b");
  const auto attention = [&](FlopConvention convention) {
    return flop(model, convention, 4096) - flop(model, convention, 0);
  };
  EXPECT_EQ(attention(FlopConvention::palm), 3.0 * 4 * 4096 * 32 * 32 * 128);
  EXPECT_EQ(attention(FlopConvention::megatron), attention(FlopConvention::palm) / 2);
}

// pytorch/torchtitan issue 452 and PR 280: whether embeddings count and whether attention is halved is the convention's
// matter, so every convention has its own name and they differ.
TEST(Flops, EveryConventionHasANameAndReadsBack) {
  std::vector<std::string_view> seen;
  for (const FlopConvention convention : all_flop_conventions()) {
    const auto read = flop_convention_from(id_of(convention), "--flops");
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, convention);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), id_of(convention)), 0);
    seen.push_back(id_of(convention));
  }
  const auto wrong = flop_convention_from("megatrn", "--flops");
  ASSERT_FALSE(wrong);
  EXPECT_NE(to_string(wrong.error()).find("megatron"), std::string::npos);
}

// huggingface/trl issue 6708: the lookup costs nothing and the head 2 V h, whether the table is tied or not.
TEST(Flops, TyingChangesNothing) {
  for (const FlopConvention convention : {FlopConvention::megatron, FlopConvention::torchtitan}) {
    ModelSpec tied = preset("llama3-8b");
    tied.tied_embeddings = true;
    ModelSpec untied = tied;
    untied.tied_embeddings = false;
    EXPECT_EQ(flop(tied, convention, 8192), flop(untied, convention, 8192)) << id_of(convention);
  }
}

// NVIDIA/Megatron-LM PR 682, Pai-Megatron-Patch issue 485, Megatron-DeepSpeed issue 398: three matrices when gated, and
// top-k experts plus the shared one instead of the dense width.
TEST(Flops, FeedForwardIsWhatTheModelHas) {
  const auto at_zero = [](const ModelSpec& model) { return flop(model, FlopConvention::megatron, 0); };
  ModelSpec gated = preset("llama3-8b");
  ModelSpec plain = gated;
  plain.gated = false;
  EXPECT_EQ(at_zero(gated) - at_zero(plain), 6.0 * 32 * 4096 * 14336);
  ModelSpec mixtral = preset("mixtral-8x7b");
  const double two = at_zero(mixtral);
  mixtral.moe->top_k = 3;
  EXPECT_EQ(at_zero(mixtral) - two, 6.0 * 32 * 3 * 4096 * 14336);
  mixtral.moe->shared_ffn = 1024;
  EXPECT_EQ(at_zero(mixtral) - two, 6.0 * 32 * 3 * 4096 * (14336 + 1024));
}

// AMD-AGI/Primus PR 772: an unknown device is an error, never 312 TFLOP/s. NVIDIA/Megatron-LM issue 1276: 400 TFLOP/s
// on H100 are 40 % of the dense 989, not 20 % of the sparse 1979.
TEST(Flops, PeakIsDenseAndNeverGuessed) {
  const DataFolder data{test::source_folder() / "data"};
  const auto h100 = data.device("h100-sxm-80gb");
  ASSERT_TRUE(h100);
  const auto peak = dense_peak(*h100, Precision::bf16);
  ASSERT_TRUE(peak);
  EXPECT_NEAR(peak->value / 1e12, 989, 1);
  EXPECT_NEAR(utilisation_percent(4e10, 1e4, *peak), 40.4, 0.1);
  DeviceSpec unknown;
  unknown.name = "new-chip";
  const auto none = dense_peak(unknown, Precision::bf16);
  ASSERT_FALSE(none);
  EXPECT_NE(to_string(none.error()).find("'new-chip': 'bf16' is unknown"), std::string::npos);
}

// NVIDIA/Megatron-LM issue 1475: latent attention counts its own projections and widths. DeepSeek-V3: per token and
// layer 7168 * 1536 + 1536 * 128 * 192 + 7168 * (512 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * 7168 elements, plus
// one row per compressed norm; core (192 + 128) * 128 * s / 2.
TEST(Flops, LatentAttentionCountsItsOwnWidths) {
  ModelSpec model = preset("deepseek-v3");
  model.mtp_layers = 0;
  const double elements =
      7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256 + 128.0 * 128 * 7168 + 1536 + 512;
  const double dense = 3 * 3.0 * 7168 * 18432;
  const double moe = 58 * 3.0 * 7168 * (8 * 2048 + 2048);
  EXPECT_DOUBLE_EQ(flop(model, FlopConvention::megatron, 0), 6 * (61 * elements + dense + moe + 7168.0 * 129280));
  EXPECT_EQ(flop(model, FlopConvention::megatron, 4096) - flop(model, FlopConvention::megatron, 0),
            6.0 * 61 * 128 * 320 * 4096 / 2);
}

// MTP of depth 1: one more layer, a 2h x h projection and a second head.
TEST(Flops, MultiTokenPredictionAddsALayerAndAHead) {
  ModelSpec with = preset("deepseek-v3");
  with.mtp_layers = 1;
  ModelSpec without = with;
  without.mtp_layers = 0;
  const double more = flop(with, FlopConvention::megatron, 0) - flop(without, FlopConvention::megatron, 0);
  EXPECT_GT(more, 6.0 * (2 * 7168.0 * 7168 + 7168.0 * 129280));
}

// jranaraki/vllm-fit issue 27: Mixtral 8x7B has 46,702,792,704 parameters, of which a token visits two experts.
TEST(Flops, SixNCountsVisitedExperts) {
  const ModelSpec model = preset("mixtral-8x7b");
  EXPECT_EQ(count_parameters(model).total, 46'702'792'704);
  EXPECT_EQ(flop(model, FlopConvention::six_n, 4096), 6.0 * static_cast<double>(count_parameters(model).active));
}

// GPT-3 175B at 2048: Korthikanti et al. 2022 (arXiv:2205.05198) 72 L s h^2 (1 + s/6h + V/12hL) per sequence; hardware
// FLOP with full recomputation about 4/3, with selective recomputation a few percent more.
TEST(Flops, K22HoldsForGptAlone) {
  const ModelSpec gpt3 = preset("gpt3-175b");
  const double model = flop(gpt3, FlopConvention::k22, 2048);
  const double h = gpt3.hidden;
  EXPECT_DOUBLE_EQ(model, 72 * 96 * h * h * (1 + 2048 / (6 * h) + gpt3.vocab / (12 * h * 96)));
  EXPECT_NEAR(flop(gpt3, FlopConvention::k22_hfu_full, 2048) / model, 4.0 / 3, 0.005);
  EXPECT_NEAR(flop(gpt3, FlopConvention::k22_hfu_selective, 2048) / model, 1 + 2048 / (6 * h), 0.002);
  // The elements counted one by one, attention not halved, are the same number.
  const double halved = flop(gpt3, FlopConvention::megatron, 2048) - flop(gpt3, FlopConvention::megatron, 0);
  EXPECT_NEAR((flop(gpt3, FlopConvention::megatron, 2048) + halved) / model, 1, 1e-9);
  EXPECT_FALSE(flop_per_token(preset("llama3-8b"), FlopConvention::k22, FlopShape{2048, {}, 0}));
}

// mosaicml/llm-foundry scripts/train/benchmarking/README.md: MFU* 3 · 2N, MFU adds 3 · 4 L d s, HFU is 4/3 of it.
TEST(Flops, LlmFoundryVariants) {
  const ModelSpec model = preset("llama2-7b");
  const double n = static_cast<double>(count_parameters(model).total);
  EXPECT_EQ(flop(model, FlopConvention::llm_foundry_star, 2048), 6 * n);
  EXPECT_EQ(flop(model, FlopConvention::llm_foundry, 2048), 6 * n + 12.0 * 32 * 4096 * 2048);
  EXPECT_NEAR(flop(model, FlopConvention::llm_foundry_hfu, 2048) / flop(model, FlopConvention::llm_foundry, 2048),
              4.0 / 3, 1e-12);
}

TEST(Flops, NanoGptLeavesPositionsOut) {
  const ModelSpec model = preset("gpt2");
  EXPECT_EQ(flop(model, FlopConvention::palm, 1024) - flop(model, FlopConvention::nanogpt, 1024),
            6.0 * model.learned_positions * model.hidden);
}

// Megatron-LM counts sum(L_i^2) of packed sequences: half the tokens in length 1000, half in 3000, is like length 2000.
TEST(Flops, PackedSequencesCountTheirOwnLengths) {
  const ModelSpec model = preset("llama3-8b");
  const FlopShape packed{8192, {{1000, 0.5}, {3000, 0.5}}, 0};
  EXPECT_DOUBLE_EQ(*flop_per_token(model, FlopConvention::megatron, packed),
                   flop(model, FlopConvention::megatron, 2000));
  EXPECT_EQ(*flop_per_token(model, FlopConvention::torchtitan, packed), flop(model, FlopConvention::torchtitan, 8192));
}

TEST(Flops, PaddedRowsOfTheHeadCount) {
  const ModelSpec model = preset("llama3-8b");
  EXPECT_EQ(flop(model, FlopConvention::megatron, 8192, 128512) - flop(model, FlopConvention::megatron, 8192),
            6.0 * 4096 * 256);
}

TEST(Flops, LinearMixersAreRefusedByName) {
  const auto refused = flop_per_token(preset("qwen3-next-80b-a3b"), FlopConvention::megatron, FlopShape{4096, {}, 0});
  ASSERT_FALSE(refused);
  EXPECT_NE(to_string(refused.error()).find("gated DeltaNet"), std::string::npos);
  EXPECT_TRUE(flop_per_token(preset("qwen3-next-80b-a3b"), FlopConvention::six_n, FlopShape{4096, {}, 0}));
}

} // namespace
} // namespace foretrain
