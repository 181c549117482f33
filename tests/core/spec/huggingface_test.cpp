#include <gtest/gtest.h>

#include <algorithm>

#include "core/spec/huggingface.h"
#include "tests/core/spec/parameter_rows.h"

namespace foretrain {
namespace {

Json parsed(const std::string& text) {
  auto json = parse_json(text, "config.json");
  EXPECT_TRUE(json) << to_string(json.error());
  return json ? *json : Json();
}

ModelSpec read(const std::string& text) {
  auto model = read_huggingface(parsed(text), "config.json");
  EXPECT_TRUE(model) << to_string(model.error());
  return model ? *model : ModelSpec{};
}

Error refused(const std::string& text) {
  const auto model = read_huggingface(parsed(text), "config.json");
  EXPECT_FALSE(model) << text;
  return model ? Error{} : model.error();
}

ModelSpec read_file(const std::string& name) {
  const auto text = read_text_file(testing::test_folder() + "/configs/" + name);
  EXPECT_TRUE(text);
  return read(*text);
}

bool noted(const ModelSpec& model, const std::string& words) {
  return std::any_of(model.notes.begin(), model.notes.end(),
                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

// Defaults of the architecture's class, not global ones: huggingface/transformers, configuration_<architecture>.py.
TEST(HuggingFace, TakesClassDefaultsForAbsentKeys) {
  EXPECT_EQ(count_parameters(read(R"({"model_type": "llama"})")).total, 6'738'415'616); // Llama-2-7B
  EXPECT_EQ(read(R"({"model_type": "mistral"})").kv_heads, 8);
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_key_value_heads": null})").kv_heads, 32);
  EXPECT_EQ(read(R"({"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": null})").kv_heads, 64);
  EXPECT_EQ(read(R"({"model_type": "qwen3", "hidden_size": 1024})").head_dim, 128);
  EXPECT_EQ(read(R"({"model_type": "llama", "hidden_size": 1024})").head_dim, 32);
  EXPECT_EQ(read(R"({"model_type": "gemma2"})").head_dim, 256);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "gemma2"})")).total, 2'614'341'888); // Gemma-2-2B
  EXPECT_EQ(count_parameters(read(R"({"model_type": "gpt_neox"})")).total, 20'554'567'680);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "gpt_oss"})")).total, 116'829'156'672);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "deepseek_v3"})")).total, 671'026'419'200);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "kimi_k2"})")).total, 1'026'408'232'448);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "glm_moe_dsa"})")).total, 743'911'218'432);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "smollm3"})")).total, 3'075'098'624);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "minimax_m2"})")).total, 228'689'764'864);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "qwen3_next"})")).total, 79'674'391'296);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "gpt2"})")).total, 124'439'808);
  EXPECT_EQ(count_parameters(read(R"({"model_type": "falcon"})")).total, 6'921'720'704);
}

TEST(HuggingFace, TakesNullAsAbsent) {
  EXPECT_EQ(read(R"({"model_type": "qwen3", "head_dim": null})").head_dim, 128);
  EXPECT_EQ(read(R"({"model_type": "bloom", "hidden_size": 1024, "n_head": 16, "n_layer": 2, "n_inner": null})").ffn,
            4096);
  EXPECT_EQ(read(R"({"model_type": "qwen3_moe", "mlp_only_layers": null})").moe->dense_layers.size(), 0U);
  EXPECT_FALSE(read(R"({"model_type": "deepseek_v3", "q_lora_rank": null})").latent->q_lora_rank);
  EXPECT_FALSE(read(R"({"model_type": "mistral", "sliding_window": null})").window);
  EXPECT_EQ(read(R"({"model_type": "mistral"})").window->size, 4096);
}

TEST(HuggingFace, AcceptsEverySpelling) {
  const ModelSpec model = read(R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16})");
  EXPECT_EQ(count_parameters(model).total, 559'214'592); // BLOOM-560M
  EXPECT_EQ(read(R"({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25})").hidden, 1600);
  EXPECT_EQ(read(R"({"model_type": "opt", "ffn_dim": 8192})").ffn, 8192);
  EXPECT_EQ(read(R"({"model_type": "gpt_oss", "experts_per_token": 2})").moe->top_k, 2);
  EXPECT_EQ(read(R"({"model_type": "glm4_moe", "num_experts": 160})").moe->experts, 160);
  EXPECT_EQ(read(R"({"model_type": "falcon", "new_decoder_architecture": true, "num_attention_heads": 64,
                     "hidden_size": 4096, "num_kv_heads": 8})")
                .kv_heads,
            8);
  EXPECT_EQ(read(R"({"model_type": "falcon", "new_decoder_architecture": true, "num_attention_heads": 64,
                     "hidden_size": 4096, "n_head_kv": 4})")
                .kv_heads,
            4);
}

TEST(HuggingFace, FallsBackToTheClassName) {
  EXPECT_TRUE(is_huggingface_config(parsed(R"({"architectures": ["LlamaForCausalLM"]})")));
  EXPECT_EQ(count_parameters(read(R"({"architectures": ["LlamaForCausalLM"]})")).total, 6'738'415'616);
  EXPECT_EQ(count_parameters(read(R"({"architectures": ["GPT2LMHeadModel"]})")).total, 124'439'808);
  EXPECT_FALSE(is_huggingface_config(parsed(R"({"layers": 2, "hidden": 64})")));
}

// Biases: Qwen2 always has them on q, k and v and no key says so; GLM-4.5's key biases q, k, v alone; Llama's all four.
TEST(HuggingFace, KnowsWhichBiasesAKeyMeans) {
  const ModelSpec qwen = read(R"({"model_type": "qwen2"})");
  EXPECT_TRUE(qwen.qkv_bias && !qwen.out_bias);
  const ModelSpec glm = read(R"({"model_type": "glm4_moe", "attention_bias": true})");
  EXPECT_TRUE(glm.qkv_bias && !glm.out_bias);
  const ModelSpec llama = read(R"({"model_type": "llama", "attention_bias": true})");
  EXPECT_TRUE(llama.qkv_bias && llama.out_bias);
}

// Expert width under `intermediate_size` (Mixtral, gpt-oss, Llama 4, MiniMax) or under its own key.
TEST(HuggingFace, FindsTheExpertsWidth) {
  const ModelSpec mixtral = read(R"({"model_type": "mixtral", "intermediate_size": 16384})");
  EXPECT_EQ(mixtral.moe->ffn, 16384);
  EXPECT_EQ(mixtral.ffn, 0);
  const ModelSpec qwen =
      read(R"({"model_type": "qwen3_moe", "intermediate_size": 6144, "moe_intermediate_size": 768})");
  EXPECT_EQ(qwen.moe->ffn, 768);
  const ModelSpec llama = read(R"({"model_type": "llama4_text", "intermediate_size": 8192})");
  EXPECT_EQ(llama.moe->ffn, 8192);
  EXPECT_EQ(llama.moe->shared_ffn, 8192);
  EXPECT_EQ(llama.ffn, 16384);
}

TEST(HuggingFace, ReadsWhichLayersAreMoe) {
  const auto kinds = [](const std::string& text) {
    std::string letters;
    for (const LayerShape& shape : layer_shapes(read(text)))
      letters += shape.feed_forward == FeedForward::moe ? 'E' : 'd';
    return letters;
  };
  EXPECT_EQ(
      kinds(R"({"model_type": "qwen2_moe", "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]})"),
      "dEdddE");
  EXPECT_EQ(
      kinds(
          R"({"model_type": "deepseek_v3", "num_hidden_layers": 5, "first_k_dense_replace": 1, "moe_layer_freq": 2})"),
      "ddEdE");
  EXPECT_EQ(kinds(R"({"model_type": "llama4_text", "num_hidden_layers": 4, "interleave_moe_layer_step": 2})"), "dEdE");
  EXPECT_EQ(kinds(R"({"model_type": "llama4_text", "num_hidden_layers": 4, "moe_layers": [0, 3]})"), "EddE");
  EXPECT_EQ(kinds(R"({"model_type": "glm_moe_dsa", "num_hidden_layers": 4,
                      "mlp_layer_types": ["dense", "sparse", "dense", "sparse"]})"),
            "dEdE");
}

TEST(HuggingFace, ReadsWhichLayersSlide) {
  EXPECT_EQ(*read(R"({"model_type": "gemma3_text", "sliding_window": 512})").window, (SlidingWindow{512, 6, {}}));
  EXPECT_EQ(
      *read(R"({"model_type": "gpt_oss", "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention",
                      "sliding_attention", "full_attention"]})")
           .window,
      (SlidingWindow{128, 2, {}}));
  EXPECT_EQ(
      *read(R"({"model_type": "gpt_oss", "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention",
                      "sliding_attention"]})")
           .window,
      (SlidingWindow{128, 0, {0}}));
  EXPECT_FALSE(read(R"({"model_type": "qwen2", "sliding_window": 4096})").window);
  EXPECT_EQ(
      *read(R"({"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": true, "max_window_layers": 2})")
           .window,
      (SlidingWindow{4096, 0, {0, 1}}));
}

TEST(HuggingFace, FollowsNestedTextConfigurations) {
  const std::string text =
      R"("text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 1024, "num_hidden_layers": 4,
      "num_attention_heads": 8, "mtp_num_hidden_layers": 1})";
  const ModelSpec tied = read(R"({"model_type": "qwen3_5_moe", "tie_word_embeddings": true, )" + text + "}");
  EXPECT_EQ(tied.hidden, 1024);
  EXPECT_EQ(tied.pattern, "DDDA");
  EXPECT_EQ(tied.mtp_layers, 1);
  EXPECT_TRUE(tied.tied_embeddings);
  // The inner value wins over the outer one.
  EXPECT_FALSE(read(R"({"model_type": "gemma3", "tie_word_embeddings": true,
      "text_config": {"model_type": "gemma3_text", "tie_word_embeddings": false}})")
                   .tied_embeddings);
  EXPECT_TRUE(read(R"({"model_type": "gemma3", "text_config": {}})").tied_embeddings);
  EXPECT_EQ(read(R"({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}})").moe->experts, 384);
  EXPECT_EQ(read(R"({"model_type": "mistral3", "text_config": {"hidden_size": 5120, "head_dim": 128}})").head_dim, 128);
  EXPECT_EQ(read(R"({"model_type": "qwen3_vl", "text_config": {"num_hidden_layers": 3}})").layers, 3);
}

TEST(HuggingFace, NotesTowersWithTheirSizeWhereKnown) {
  EXPECT_TRUE(noted(read_file("llama-4-scout-17b-16e.json"), "871932416"));
  EXPECT_TRUE(noted(read_file("gemma-3-4b.json"), "419816304"));
  EXPECT_TRUE(noted(read_file("gemma-3-12b.json"), "421290864"));
  EXPECT_TRUE(noted(read_file("gemma-3-27b.json"), "423060336"));
  EXPECT_TRUE(read_file("gemma-3-1b.json").notes.empty());
  EXPECT_TRUE(noted(read(R"({"model_type": "gemma3", "vision_config": {"hidden_size": 768}})"), "no formula"));
  EXPECT_TRUE(noted(read(R"({"model_type": "qwen3_vl", "vision_config": {"depth": 27}})"), "vision tower not counted"));
  EXPECT_TRUE(noted(read(R"({"model_type": "qwen3_vl", "audio_config": {}})"), "audio tower not counted"));
  EXPECT_TRUE(noted(read_file("deepseek-v3.json"), "fp8"));
}

// Published total of DeepSeek-V3.2 with its MTP layer: V3 plus 62 indexers of 13 959 424 parameters.
TEST(HuggingFace, CountsTheIndexerOfDeepSeekV32) {
  const ParameterCount v3 = count_parameters(read(R"({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1})"));
  const ParameterCount v32 = count_parameters(read(R"({"model_type": "deepseek_v32", "num_nextn_predict_layers": 1})"));
  EXPECT_EQ(v32.total - v3.total, std::int64_t{61} * 13'959'424);
  EXPECT_EQ(v32.mtp - v3.mtp, 13'959'424);
}

// OPT-350M: word embedding of 512 projected to 1024 and back, norms after the layers and none at the end.
TEST(HuggingFace, ReadsProjectedEmbeddings) {
  const ModelSpec model = read(R"({"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24,
      "num_attention_heads": 16, "ffn_dim": 4096, "word_embed_proj_dim": 512, "do_layer_norm_before": false})");
  EXPECT_FALSE(model.final_norm);
  EXPECT_EQ(model.learned_positions, 2050);
  const ParameterCount count = count_parameters(model);
  EXPECT_EQ(count.embedding, 50272 * 512 + 512 * 1024 + 2050 * 1024);
  EXPECT_EQ(count.head, 512 * 1024);
}

// Falcon before its grouped architecture ignores num_kv_heads.
TEST(HuggingFace, ReadsFalconsThreeShapes) {
  EXPECT_EQ(read(R"({"model_type": "falcon", "num_kv_heads": 71})").kv_heads, 1);
  const ModelSpec rw = read(R"({"model_type": "RefinedWebModel", "hidden_size": 2048, "n_head": 32, "n_layer": 24,
      "multi_query": false, "parallel_attn": false, "bias": true, "alibi": true})");
  EXPECT_EQ(rw.kv_heads, 32);
  EXPECT_EQ(rw.norms_per_layer, 2);
  EXPECT_TRUE(rw.mlp_bias && rw.qkv_bias && !rw.parallel_block);
}

TEST(HuggingFace, RefusesByNameWhatHasNoFormula) {
  for (const char* name :
       {"kimi_k3", "kimi_linear", "gemma4", "nemotron-nas", "minimax_m3", "deepseek_v4", "step3p7", "mimo_v2_flash"}) {
    const Error error = refused(std::string(R"({"model_type": ")") + name + R"("})");
    EXPECT_NE(error.message.find(std::string("'") + name + "' is not supported"), std::string::npos) << error.message;
    EXPECT_EQ(error.where, "config.json:/model_type");
  }
  EXPECT_NE(refused(R"({"architectures": ["DeciLMForCausalLM"]})").message.find("block_configs"), std::string::npos);
  EXPECT_NE(refused(R"({"model_type": "lama"})").hint.find("did you mean 'llama'"), std::string::npos);
  EXPECT_NE(refused(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma4_text"}})").message.find("gemma4"),
            std::string::npos);
  EXPECT_EQ(refused(R"({"model_type": "kimi_k25", "text_config": {"model_type": "x"}})").where,
            "config.json:/text_config/model_type");
}

TEST(HuggingFace, RefusesWhatAFormulaDoesNotCover) {
  EXPECT_EQ(refused(R"({"model_type": "glm_moe_dsa", "indexer_types": ["full", "shared"]})").where,
            "config.json:/indexer_types");
  EXPECT_EQ(refused(R"({"model_type": "glm_moe_dsa", "index_topk_freq": 4})").where, "config.json:/index_topk_freq");
  EXPECT_EQ(refused(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "ME", "moe_latent_size": 64})").where,
            "config.json:/moe_latent_size");
  EXPECT_EQ(refused(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"})").where,
            "config.json:/hybrid_override_pattern");
  EXPECT_EQ(refused(R"({"model_type": "nemotron_h"})").where, "config.json:/hybrid_override_pattern");
  EXPECT_EQ(refused(R"({"model_type": "nemotron_h", "hybrid_override_pattern": "M*", "num_hidden_layers": 3})").where,
            "config.json:/num_hidden_layers");
}

TEST(HuggingFace, NamesTheKeyOfABadValue) {
  const auto where = [](const std::string& pair) { return refused(R"({"model_type": "llama", )" + pair + "}").where; };
  EXPECT_EQ(where(R"("hidden_size": "4096")"), "config.json:/hidden_size");
  EXPECT_EQ(where(R"("hidden_size": -1)"), "config.json:/hidden_size");
  EXPECT_EQ(where(R"("hidden_size": 0)"), "config.json:/hidden_size");
  EXPECT_EQ(where(R"("hidden_size": 4096.5)"), "config.json:/hidden_size");
  EXPECT_EQ(where(R"("num_hidden_layers": 1e308)"), "config.json:/num_hidden_layers");
  EXPECT_EQ(where(R"("num_hidden_layers": 9223372036854775807)"), "config.json:/num_hidden_layers");
  EXPECT_EQ(where(R"("num_hidden_layers": [32])"), "config.json:/num_hidden_layers");
  EXPECT_EQ(where(R"("tie_word_embeddings": "yes")"), "config.json:/tie_word_embeddings");
  EXPECT_EQ(where(R"("num_attention_heads": 30)"), "config.json:/hidden_size");
  EXPECT_EQ(where(R"("num_key_value_heads": 5)"), "config.json:/num_key_value_heads");
  EXPECT_EQ(where(R"("num_hidden_layers": 1000000, "hidden_size": 1000000, "num_attention_heads": 8000,
                      "intermediate_size": 4000000)"),
            "config.json");
  EXPECT_EQ(refused(R"({"model_type": 3})").where, "config.json:/model_type");
  EXPECT_EQ(refused(R"({"model_type": "deepseek_v2"})").where, "config.json:/num_experts_per_tok");
  EXPECT_EQ(refused(R"({"model_type": "gpt_oss", "layer_types": [1]})").where, "config.json:/layer_types/0");
  EXPECT_EQ(refused(R"({"model_type": "gpt_oss", "layer_types": ["full_attention"]})").where,
            "config.json:/layer_types");
  EXPECT_EQ(refused(R"({"model_type": "gemma3", "text_config": {"head_dim": "x"}})").where,
            "config.json:/text_config/head_dim");
  EXPECT_EQ(refused(R"({"model_type": "mixtral", "num_experts_per_tok": 9})").where,
            "config.json:/num_experts_per_tok");
  EXPECT_EQ(refused(R"({"model_type": "qwen3_moe", "mlp_only_layers": [99]})").where, "config.json:/mlp_only_layers/0");
  EXPECT_EQ(refused(R"({"model_type": "gemma3", "text_config": 3})").where, "config.json:/text_config");
  EXPECT_EQ(refused(R"({"model_type": "gemma3", "thinker_config": {"text_config": 3}})").where,
            "config.json:/thinker_config/text_config");
  const auto inside =
      read_huggingface(Json{{"model_type", "gemma3"}, {"text_config", {{"head_dim", "x"}}}}, "plan.json", "/model");
  ASSERT_FALSE(inside);
  EXPECT_EQ(inside.error().where, "plan.json:/model/text_config/head_dim");
  EXPECT_FALSE(read_huggingface(Json::array(), "config.json"));
  EXPECT_FALSE(read_huggingface(Json(3), "config.json"));
}

/// Every key of every configuration file, replaced by nonsense: an error or a model, never a crash.
TEST(HuggingFace, SurvivesNonsenseUnderEveryKey) {
  const std::vector<Json> nonsense = {Json(nullptr), Json(-1),      Json(0),        Json(1e300), Json(2147483647),
                                      Json("x"),     Json::array(), Json::object(), Json(true),  Json::array({1, "a"})};
  for (const auto& row : testing::parameter_rows()) {
    const auto json = read_json_file(testing::test_folder() + "/configs/" + row.config);
    ASSERT_TRUE(json);
    for (const auto& [key, unused] : json->items())
      for (const Json& value : nonsense) {
        Json changed = *json;
        changed[key] = value;
        const auto model = read_huggingface(changed, "config.json");
        if (!model)
          EXPECT_FALSE(model.error().message.empty());
        else
          EXPECT_TRUE(check_model(*model, "config.json:"));
      }
  }
}

TEST(HuggingFace, ReadsItsOwnListOfArchitectures) {
  for (const std::string& name : huggingface_architectures()) {
    const auto model = read_huggingface(
        Json{{"model_type", name}, {"num_experts_per_tok", 2}, {"hybrid_override_pattern", "M*-"}}, "config.json");
    EXPECT_TRUE(model) << name << ": " << to_string(model.error());
  }
}

} // namespace
} // namespace foretrain
