#include "executor/checkpoint/hugging_face.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/executor/folder.h"

namespace foretrain {
namespace {

using namespace test;

ModelSpec llama() {
  ModelSpec m;
  m.name = "tiny-llama";
  m.layers = 2;
  m.hidden = 8;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 3; // another width than hidden / heads
  m.ffn = 6;
  m.vocab = 5;
  return m;
}

ModelSpec mixtral() {
  ModelSpec m = llama();
  m.moe = MoeSpec{};
  m.moe->experts = 3;
  m.moe->top_k = 2;
  m.moe->ffn = 4;
  return m;
}

ModelSpec normed(ModelSpec model, QkNorm norm) {
  model.qk_norm = norm;
  return model;
}

TEST(HuggingFaceNames, AreThoseOfLlama) {
  ModelSpec model = llama();
  model.layers = 1;
  model.qkv_bias = true; // Qwen2
  const auto names = hugging_face_names(model);
  ASSERT_TRUE(names) << to_string(names.error());
  const std::vector<NamedRows> expected = {
      {"embedding", 0, 5, 8, "model.embed_tokens.weight", true},
      {"layers.0.norm1", 0, 8, 1, "model.layers.0.input_layernorm.weight", false},
      {"layers.0.qkv", 0, 12, 8, "model.layers.0.self_attn.q_proj.weight", true},
      {"layers.0.qkv.bias", 0, 12, 1, "model.layers.0.self_attn.q_proj.bias", false},
      {"layers.0.qkv", 12, 6, 8, "model.layers.0.self_attn.k_proj.weight", true},
      {"layers.0.qkv.bias", 12, 6, 1, "model.layers.0.self_attn.k_proj.bias", false},
      {"layers.0.qkv", 18, 6, 8, "model.layers.0.self_attn.v_proj.weight", true},
      {"layers.0.qkv.bias", 18, 6, 1, "model.layers.0.self_attn.v_proj.bias", false},
      {"layers.0.attention_out", 0, 8, 12, "model.layers.0.self_attn.o_proj.weight", true},
      {"layers.0.norm2", 0, 8, 1, "model.layers.0.post_attention_layernorm.weight", false},
      {"layers.0.ffn_up", 0, 6, 8, "model.layers.0.mlp.gate_proj.weight", true},
      {"layers.0.ffn_up", 6, 6, 8, "model.layers.0.mlp.up_proj.weight", true},
      {"layers.0.ffn_down", 0, 8, 6, "model.layers.0.mlp.down_proj.weight", true},
      {"final_norm", 0, 8, 1, "model.norm.weight", false},
      {"head", 0, 5, 8, "lm_head.weight", true},
  };
  EXPECT_EQ(*names, expected);
}

TEST(HuggingFaceNames, AreThoseOfMixtral) {
  const auto names = hugging_face_names(mixtral());
  ASSERT_TRUE(names) << to_string(names.error());
  const auto has = [&](const NamedRows& rows) { return std::count(names->begin(), names->end(), rows) == 1; };
  EXPECT_TRUE(has({"layers.1.router", 0, 3, 8, "model.layers.1.block_sparse_moe.gate.weight", true}));
  EXPECT_TRUE(has({"layers.1.expert_up", 16, 4, 8, "model.layers.1.block_sparse_moe.experts.2.w1.weight", true}));
  EXPECT_TRUE(has({"layers.1.expert_up", 20, 4, 8, "model.layers.1.block_sparse_moe.experts.2.w3.weight", true}));
  EXPECT_TRUE(has({"layers.1.expert_down", 16, 8, 4, "model.layers.1.block_sparse_moe.experts.2.w2.weight", true}));
}

/// `names` has these rows, once each.
void expect_rows(const Result<std::vector<NamedRows>>& names, const std::vector<NamedRows>& expected) {
  ASSERT_TRUE(names) << to_string(names.error());
  for (const NamedRows& rows : expected) EXPECT_EQ(std::count(names->begin(), names->end(), rows), 1) << rows.theirs;
}

// Norms of a head's width (transformers modeling_qwen3.py Qwen3Attention), or of all heads' (modeling_olmoe.py
// OlmoeAttention).
TEST(HuggingFaceNames, AreThoseOfQwen3AndOlmoe) {
  const auto qwen3 = hugging_face_names(normed(llama(), QkNorm::per_head));
  expect_rows(qwen3, {{"layers.1.q_norm", 0, 3, 1, "model.layers.1.self_attn.q_norm.weight", false},
                      {"layers.1.k_norm", 0, 3, 1, "model.layers.1.self_attn.k_norm.weight", false},
                      {"layers.1.ffn_down", 0, 8, 6, "model.layers.1.mlp.down_proj.weight", true}});
  EXPECT_EQ(qwen3->size(), hugging_face_names(llama())->size() + 4);
  const std::string experts = "model.layers.1.mlp.experts.2.";
  for (const QkNorm norm : {QkNorm::per_head, QkNorm::full_width}) {
    const bool wide = norm == QkNorm::full_width;
    expect_rows(hugging_face_names(normed(mixtral(), norm)),
                {{"layers.1.q_norm", 0, wide ? 12 : 3, 1, "model.layers.1.self_attn.q_norm.weight", false},
                 {"layers.1.k_norm", 0, wide ? 6 : 3, 1, "model.layers.1.self_attn.k_norm.weight", false},
                 {"layers.1.router", 0, 3, 8, "model.layers.1.mlp.gate.weight", true},
                 {"layers.1.expert_up", 16, 4, 8, experts + "gate_proj.weight", true},
                 {"layers.1.expert_up", 20, 4, 8, experts + "up_proj.weight", true},
                 {"layers.1.expert_down", 16, 8, 4, experts + "down_proj.weight", true}});
  }
}

/// The map has an inverse: each of their names once, and each row of ours once.
TEST(HuggingFaceNames, MeetEveryRowOnce) {
  for (const ModelSpec& model :
       {llama(), mixtral(), normed(llama(), QkNorm::per_head), normed(mixtral(), QkNorm::full_width)}) {
    const auto names = hugging_face_names(model);
    ASSERT_TRUE(names);
    std::set<std::string> theirs;
    std::map<std::string, std::vector<bool>> rows;
    for (const NamedRows& named : *names) {
      EXPECT_TRUE(theirs.insert(named.theirs).second) << named.theirs;
      std::vector<bool>& seen = rows[named.ours];
      const auto end = static_cast<std::size_t>(named.first + named.rows);
      if (seen.size() < end) seen.resize(end);
      for (auto row = static_cast<std::size_t>(named.first); row < end; ++row) {
        EXPECT_FALSE(seen[row]) << named.ours << " row " << row;
        seen[row] = true;
      }
    }
    for (const auto& [name, seen] : rows)
      EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << name << " has rows without a name";
  }
}

TEST(HuggingFaceNames, AreRefusedByNameWhereThereAreNone) {
  ModelSpec latent = llama();
  latent.latent = LatentAttention{};
  ModelSpec gpt = llama();
  gpt.norm = NormKind::layer;
  ModelSpec gated = normed(llama(), QkNorm::per_head); // Qwen3-Next
  gated.output_gate = true;
  ModelSpec shared = mixtral();
  shared.moe->shared_ffn = 4;
  EXPECT_NE(to_string(hugging_face_names(latent).error()).find("latent attention"), std::string::npos);
  EXPECT_NE(to_string(hugging_face_names(gpt).error()).find("LayerNorm"), std::string::npos);
  EXPECT_NE(to_string(hugging_face_names(gated).error()).find("sinks or gates"), std::string::npos);
  EXPECT_NE(to_string(hugging_face_names(shared).error()).find("shared experts"), std::string::npos);
}

TEST(HuggingFace, SaysWhichTensorIsMissingOrOfAnotherShape) {
  const TestFolder folder;
  const auto names = *hugging_face_names(llama());
  const auto write = [&](std::size_t without, bool transposed) {
    std::vector<safetensors::Entry> entries;
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i == without) continue;
      std::vector<std::int64_t> shape = {names[i].rows};
      if (names[i].matrix) shape.push_back(names[i].columns);
      if (transposed && i == 0) std::reverse(shape.begin(), shape.end());
      elements += names[i].rows * names[i].columns;
      entries.push_back({names[i].theirs, "F32", shape, 0});
    }
    auto writer = safetensors::Writer::create(folder / "model.safetensors", entries, {});
    ASSERT_TRUE(writer);
    const std::vector<float> zeros(static_cast<std::size_t>(elements), 0);
    ASSERT_TRUE(writer->put(zeros.data(), elements * 4));
    ASSERT_TRUE(writer->finish());
  };
  EXPECT_FALSE(open_hugging_face(folder.path(), llama())) << "no file at all";
  write(names.size(), false);
  EXPECT_TRUE(open_hugging_face(folder.path(), llama()));
  write(2, false);
  EXPECT_NE(to_string(open_hugging_face(folder.path(), llama()).error()).find("has no tensor " + names[2].theirs),
            std::string::npos);
  write(names.size(), true);
  EXPECT_NE(to_string(open_hugging_face(folder.path(), llama()).error()).find("of shape [8,5]; the model's is [5,8]"),
            std::string::npos)
      << to_string(open_hugging_face(folder.path(), llama()).error());
  write_file(folder / "model.safetensors.index.json", R"({"weight_map": {"lm_head.weight": "../x"}})");
  EXPECT_FALSE(open_hugging_face(folder.path(), llama())) << "a file outside the folder";
}

} // namespace
} // namespace foretrain
