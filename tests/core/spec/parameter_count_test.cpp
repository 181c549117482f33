#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "core/spec/huggingface.h"
#include "tests/core/spec/parameter_rows.h"

namespace foretrain {
namespace {

using testing::parameter_rows;
using testing::ParameterRow;

class PublishedCount : public ::testing::TestWithParam<ParameterRow> {};

std::int64_t number(const Json& other, const char* key) {
  return other.at(key).get<std::int64_t>();
}

void expect_published(const ModelSpec& model, const ParameterRow& row) {
  const ParameterCount count = count_parameters(model);
  EXPECT_EQ(count.total, row.total);
  EXPECT_EQ(count.active, row.active);
  EXPECT_EQ(count.active_no_input_embedding, number(row.other, "active_no_input_emb"));
  const auto check = row.other.at("check").get<std::string>();
  if (check == "exact") {
    EXPECT_EQ(count.total, number(row.other, "published_total"));
  } else if (check != "formula only") {
    // "delta N": the published total also counts N buffer elements.
    const std::int64_t delta = std::stoll(check.substr(check.find(' ')));
    EXPECT_LE(std::abs(count.total - number(row.other, "published_total")), delta);
  }
}

TEST_P(PublishedCount, OfTheModelBuiltFromItsNumbers) {
  expect_published(GetParam().spec, GetParam());
}

TEST_P(PublishedCount, OfTheConfigurationFile) {
  const std::string file = testing::test_folder() + "/configs/" + GetParam().config;
  const auto json = read_json_file(file);
  ASSERT_TRUE(json) << to_string(json.error());
  ASSERT_TRUE(is_huggingface_config(*json));
  const auto model = read_huggingface(*json, file);
  ASSERT_TRUE(model) << to_string(model.error());
  expect_published(*model, GetParam());
}

TEST_P(PublishedCount, IsTheSumOfItsLayersAndTables) {
  const ModelSpec& model = GetParam().spec;
  const ParameterCount count = count_parameters(model);
  std::int64_t sum = count.embedding + count.head + (model.norm == NormKind::layer ? 2 : 1) * model.hidden;
  for (const LayerShape& shape : layer_shapes(model)) sum += layer_parameters(model, shape, false);
  EXPECT_EQ(sum, count.total);
}

INSTANTIATE_TEST_SUITE_P(Rows, PublishedCount, ::testing::ValuesIn(parameter_rows()), [](const auto& row) {
  std::string name = row.param.config;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

TEST(PublishedCounts, AreSixtyEightExactTwoWithinADeltaEightByFormula) {
  std::map<std::string, int> kinds;
  for (const ParameterRow& row : parameter_rows()) ++kinds[row.other.at("check").get<std::string>().substr(0, 5)];
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"delta", 2}, {"exact", 68}, {"formu", 8}}));
}

TEST(PublishedCounts, OfMultiTokenPredictionLayers) {
  int seen = 0;
  for (const ParameterRow& row : parameter_rows()) {
    ModelSpec model = row.spec;
    for (const auto& [key, own] : std::map<std::string, bool>{
             {"mtp_params", false}, {"mtp_params_without_emb_head", false}, {"mtp_params_with_emb_head", true}}) {
      if (!row.other.contains(key)) continue;
      ++seen;
      model.mtp_own_embeddings = own;
      EXPECT_EQ(count_parameters(model).mtp, number(row.other, key.c_str())) << row.model << ' ' << key;
    }
    if (row.other.contains("total_with_mtp")) {
      const ParameterCount count = count_parameters(row.spec);
      EXPECT_EQ(count.total + count.mtp, number(row.other, "total_with_mtp")) << row.model;
    }
  }
  EXPECT_EQ(seen, 7); // Qwen3-Next, DeepSeek-V3 twice, GLM-5, GLM-4.5 twice, GLM-4.5-Air
}

// DeepSeek-V3's auxiliary-loss-free balancing adds one bias per expert and MoE layer: 58 x 256.
TEST(PublishedCounts, OfDeepSeekV3WithoutCorrectionBias) {
  for (const ParameterRow& row : parameter_rows()) {
    if (row.model != "DeepSeek-V3") continue;
    ModelSpec model = row.spec;
    model.moe->correction_bias = false;
    EXPECT_EQ(count_parameters(model).total, number(row.other, "total_without_correction_bias"));
  }
}

ModelSpec llama_like(int layers, int hidden, int heads, int kv_heads, int ffn, int vocab) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = 128;
  model.ffn = ffn;
  model.vocab = vocab;
  return model;
}

// Abdullah-Taha9/ui-training issue 29: acceptance numbers of Qwen3-4B and Qwen2.5-72B.
TEST(PublishedCounts, OfQwen34BAndQwen2572B) {
  ModelSpec small = llama_like(36, 2560, 32, 8, 9728, 151936);
  small.tied_embeddings = true;
  small.qk_norm = QkNorm::per_head;
  EXPECT_EQ(count_parameters(small).total, 4'022'468'096);
  ModelSpec large = llama_like(80, 8192, 64, 8, 29568, 152064);
  large.qkv_bias = true;
  EXPECT_EQ(count_parameters(large).total, 72'706'203'648);
}

// pytorch/torchtitan issue 1920: the attention of Qwen3-4B is heads x head_dim = 4096 wide, hidden is 2560.
TEST(ParameterCount, TakesTheAttentionWidthFromHeadsTimesHeadDim) {
  const ModelSpec model = llama_like(1, 2560, 32, 8, 9728, 1);
  const std::int64_t feed_forward = std::int64_t{3} * 2560 * 9728;
  const std::int64_t norms = 2 * 2560;
  EXPECT_EQ(layer_parameters(model, layer_shapes(model)[0], false) - feed_forward - norms,
            2 * 2560 * 4096 + 2 * 2560 * 1024);
}

// huggingface/trl issue 6708: tying changes what is stored, not what a token passes through.
TEST(ParameterCount, CountsATiedTableOnceAndKeepsItInTheHead) {
  ModelSpec model = llama_like(4, 2560, 32, 8, 9728, 151936);
  const ParameterCount untied = count_parameters(model);
  model.tied_embeddings = true;
  const ParameterCount tied = count_parameters(model);
  EXPECT_EQ(untied.total - tied.total, std::int64_t{151936} * 2560);
  EXPECT_EQ(untied.active_no_input_embedding, tied.active_no_input_embedding);
  EXPECT_EQ(untied.head, std::int64_t{151936} * 2560);
  EXPECT_EQ(tied.head, 0);
}

// NVIDIA/Megatron-LM pull request 682: a gated feed-forward has three matrices of the width given, not 4 x hidden.
TEST(ParameterCount, OfAGatedFeedForwardIsThreeMatrices) {
  ModelSpec model = llama_like(1, 4096, 32, 8, 14336, 1);
  const std::int64_t gated = layer_parameters(model, layer_shapes(model)[0], false);
  model.gated = false;
  EXPECT_EQ(gated - layer_parameters(model, layer_shapes(model)[0], false), std::int64_t{4096} * 14336);
}

// alibaba/Pai-Megatron-Patch issue 485, jranaraki/vllm-fit issue 27: the experts' own width, all of them in the total
// and top-k of them in what is active.
TEST(ParameterCount, KeepsTotalAndActiveApart) {
  ModelSpec model = llama_like(32, 4096, 32, 8, 0, 32000);
  model.moe = MoeSpec{};
  model.moe->experts = 8;
  model.moe->top_k = 2;
  model.moe->ffn = 14336;
  const ParameterCount count = count_parameters(model);
  EXPECT_EQ(count.total, 46'702'792'704); // Mixtral-8x7B
  EXPECT_EQ(count.active, 12'879'925'248);
  EXPECT_EQ(count.total - count.active, std::int64_t{32} * 6 * 3 * 4096 * 14336);
}

// cli99/llm-analysis issue 19: two norms per layer are counted, and a LayerNorm has a bias.
TEST(ParameterCount, CountsEveryNorm) {
  ModelSpec model = llama_like(1, 4096, 32, 8, 14336, 1);
  const std::int64_t rms = count_parameters(model).total;
  model.norm = NormKind::layer;
  EXPECT_EQ(count_parameters(model).total - rms, 3 * 4096); // two of the layer, one after it
}

TEST(ParameterCount, StaysAtTheMaximumInsteadOfOverflowing) {
  ModelSpec model = llama_like(1'000'000, 1'000'000, 8000, 8000, 4'000'000, 1'000'000);
  model.head_dim = 125;
  EXPECT_EQ(count_parameters(model).total, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(count_parameters(model).active_no_input_embedding, std::numeric_limits<std::int64_t>::max());
  const auto checked = check_model(model, "m.json:");
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("more than can be counted"), std::string::npos);
}

TEST(LayerShapes, FollowPrefixFrequencyAndDenseList) {
  ModelSpec model = llama_like(8, 64, 2, 2, 128, 100);
  model.moe = MoeSpec{};
  model.moe->experts = 4;
  model.moe->top_k = 1;
  model.moe->ffn = 32;
  model.moe->first_dense = 2;
  model.moe->every = 2;
  model.moe->dense_layers = {5};
  std::string kinds;
  for (const LayerShape& shape : layer_shapes(model)) kinds += shape.feed_forward == FeedForward::moe ? 'E' : 'd';
  EXPECT_EQ(kinds, "dddEdddE");
  EXPECT_EQ(mtp_shape(model), layer_shapes(model).back());
}

TEST(LayerShapes, SlideExceptEveryFullLayer) {
  ModelSpec model = llama_like(7, 64, 2, 2, 128, 100);
  model.window = SlidingWindow{16, 3, {0}};
  std::vector<int> windows;
  for (const LayerShape& shape : layer_shapes(model)) windows.push_back(shape.window);
  EXPECT_EQ(windows, (std::vector<int>{0, 16, 0, 16, 16, 0, 16}));
}

TEST(LayerShapes, FollowThePattern) {
  ModelSpec model = llama_like(5, 64, 2, 2, 128, 100);
  model.pattern = "M*-EA";
  model.moe = MoeSpec{};
  const auto shapes = layer_shapes(model);
  EXPECT_EQ(shapes[0], (LayerShape{Mixer::mamba2, FeedForward::none, 0}));
  EXPECT_EQ(shapes[1], (LayerShape{Mixer::attention, FeedForward::none, 0}));
  EXPECT_EQ(shapes[2], (LayerShape{Mixer::none, FeedForward::dense, 0}));
  EXPECT_EQ(shapes[3], (LayerShape{Mixer::none, FeedForward::moe, 0}));
  EXPECT_EQ(shapes[4], (LayerShape{Mixer::attention, FeedForward::moe, 0}));
}

TEST(CheckModel, NamesTheKeyThatIsWrong) {
  const auto where = [](auto change) {
    ModelSpec model = llama_like(4, 256, 2, 2, 512, 100);
    model.moe = MoeSpec{};
    model.moe->experts = 4;
    model.moe->top_k = 2;
    model.moe->ffn = 64;
    change(model);
    const auto checked = check_model(model, "m.json:");
    return checked ? std::string("fine") : checked.error().where;
  };
  EXPECT_EQ(where([](ModelSpec&) {}), "fine");
  EXPECT_EQ(where([](ModelSpec& model) { model.layers = 0; }), "m.json:/layers");
  EXPECT_EQ(where([](ModelSpec& model) { model.hidden = -1; }), "m.json:/hidden");
  EXPECT_EQ(where([](ModelSpec& model) { model.heads = 3; }), "m.json:/kv_heads");
  EXPECT_EQ(where([](ModelSpec& model) { model.moe->top_k = 5; }), "m.json:/moe/top_k");
  EXPECT_EQ(where([](ModelSpec& model) { model.moe->first_dense = 5; }), "m.json:/moe/first_dense");
  EXPECT_EQ(where([](ModelSpec& model) { model.moe->dense_layers = {0, 4}; }), "m.json:/moe/dense_layers/1");
  EXPECT_EQ(where([](ModelSpec& model) { model.pattern = "AAA"; }), "m.json:/pattern");
  EXPECT_EQ(where([](ModelSpec& model) { model.pattern = "AAAM"; }), "m.json:/pattern");
  EXPECT_EQ(where([](ModelSpec& model) { model.moe.reset(), model.ffn = 0; }), "m.json:/ffn");
  EXPECT_EQ(where([](ModelSpec& model) { model.latent = LatentAttention{}; }), "m.json:/latent/kv_lora_rank");
  EXPECT_EQ(where([](ModelSpec& model) { model.window = SlidingWindow{}; }), "m.json:/window/size");
}

} // namespace
} // namespace foretrain
