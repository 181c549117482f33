#include "tests/core/spec/parameter_rows.h"
#include "tests/support/places.h"

#include <map>
#include <stdexcept>

namespace foretrain::testing {
namespace {

/// Fields of a CSV text, quotes doubled inside quoted fields.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"')
        rows.back().back() += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        rows.back().back() += text[++i];
      else
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      rows.emplace_back(1);
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();
  return rows;
}

using Fields = std::map<std::string, std::string>;

int integer(const Fields& fields, const char* key) {
  const std::string& text = fields.at(key);
  return text.empty() ? 0 : std::stoi(text);
}

int learned_positions(const Json& other) {
  if (!other.contains("learned_positions")) return 0;
  const Json& value = other["learned_positions"];
  return value == "2048+2" ? 2050 : value.get<int>();
}

void add_attention(ModelSpec& model, const Json& other) {
  const bool all = other.value("all_linear_bias", false);
  model.qkv_bias = all || other.value("qkv_bias", false);
  model.out_bias = all || other.value("o_bias", false);
  model.mlp_bias = all;
  if (other.value("qk_norm", "") == "per_head") model.qk_norm = QkNorm::per_head;
  if (other.value("qk_norm", "") == "full_width") model.qk_norm = QkNorm::full_width;
  model.attention_sinks = other.contains("attn_sinks_per_layer");
  model.output_gate = other.value("attn_output_gate", false);
  if (other.value("attention", "") != "mla") return;
  LatentAttention mla;
  if (!other["q_lora_rank"].is_null()) mla.q_lora_rank = other["q_lora_rank"].get<int>();
  mla.kv_lora_rank = other["kv_lora_rank"].get<int>();
  mla.qk_nope_head_dim = other["qk_nope_head_dim"].get<int>();
  mla.qk_rope_head_dim = other["qk_rope_head_dim"].get<int>();
  mla.v_head_dim = other["v_head_dim"].get<int>();
  if (other.contains("dsa_indexer")) {
    mla.index_heads = other["dsa_indexer"]["index_n_heads"].get<int>();
    mla.index_head_dim = other["dsa_indexer"]["index_head_dim"].get<int>();
  }
  model.latent = mla;
}

void add_experts(ModelSpec& model, const Fields& fields, const Json& other) {
  if (fields.at("n_experts").empty()) return;
  MoeSpec moe;
  moe.experts = integer(fields, "n_experts");
  moe.top_k = integer(fields, "top_k");
  moe.ffn = integer(fields, "moe_ffn");
  moe.shared_ffn = integer(fields, "n_shared") * moe.ffn;
  moe.shared_ffn = other.value("shared_expert_intermediate_size", moe.shared_ffn);
  moe.shared_ffn = other.value("moe_shared_expert_intermediate_size", moe.shared_ffn);
  moe.shared_gate = other.value("shared_expert_gate", false);
  moe.router_bias = other.value("router_bias", false);
  moe.correction_bias = other.contains("router_correction_bias") && other["router_correction_bias"].is_boolean();
  moe.expert_bias = other.value("expert_bias", false);
  moe.first_dense = integer(fields, "first_dense");
  moe.every = other.value("interleave_moe_layer_step", 1);
  model.moe = moe;
}

/// Every `full`-th layer `A`, the others `linear`.
std::string alternating(int layers, char linear, int full) {
  std::string pattern;
  for (int layer = 1; layer <= layers; ++layer) pattern += layer % full == 0 ? 'A' : linear;
  return pattern;
}

void add_pattern(ModelSpec& model, const Json& other) {
  if (other.contains("linear_key_head_dim")) {
    model.delta = DeltaNet{other["linear_num_key_heads"].get<int>(), other["linear_key_head_dim"].get<int>(),
                           other["linear_num_value_heads"].get<int>(), other["linear_value_head_dim"].get<int>(),
                           other["linear_conv_kernel_dim"].get<int>()};
    model.pattern = alternating(model.layers, 'D', other["full_attention_interval"].get<int>());
  }
  if (other.contains("full_attention_every"))
    model.pattern = alternating(model.layers, 'I', other["full_attention_every"].get<int>());
  if (other.contains("hybrid_override_pattern")) {
    model.pattern = other["hybrid_override_pattern"].get<std::string>();
    model.mamba =
        Mamba2{other["mamba_num_heads"].get<int>(), other["mamba_head_dim"].get<int>(), other["n_groups"].get<int>(),
               other["ssm_state_size"].get<int>(), other["conv_kernel"].get<int>()};
  }
}

ModelSpec spec_of(const Fields& fields, const Json& other) {
  ModelSpec model;
  model.name = fields.at("model");
  model.layers = integer(fields, "n_layers");
  model.hidden = integer(fields, "hidden");
  model.heads = integer(fields, "n_heads");
  model.kv_heads = integer(fields, "n_kv_heads");
  model.head_dim = integer(fields, "head_dim");
  model.ffn = integer(fields, "ffn");
  model.vocab = integer(fields, "vocab");
  model.tied_embeddings = fields.at("tied") == "true";
  // A norm with bias also marks the older architectures, whose feed-forward has two matrices.
  model.norm = other.value("norm", "rms") == "layernorm_with_bias" ? NormKind::layer : NormKind::rms;
  model.gated = other.value("gated_mlp", model.norm == NormKind::rms);
  model.norms_per_layer = other.value("norms_per_layer", 2);
  model.embedding_norm = other.value("embedding_layernorm", false);
  model.learned_positions = learned_positions(other);
  model.parallel_block = other.value("parallel_attn", false) || other.value("parallel_residual", false);
  add_attention(model, other);
  add_experts(model, fields, other);
  add_pattern(model, other);
  for (const char* key : {"mtp_params", "mtp_params_with_emb_head", "mtp_params_without_emb_head"})
    if (other.contains(key)) model.mtp_layers = 1;
  model.mtp_own_embeddings = other.contains("mtp_params_with_emb_head");
  return model;
}

} // namespace

std::string test_folder() {
  return test::source_folder() / "tests/core/spec";
}

std::vector<ParameterRow> parameter_rows() {
  const auto text = read_text_file(test_folder() + "/param_counts.csv");
  if (!text) throw std::runtime_error(to_string(text.error()));
  const auto lines = parse_csv(*text);
  std::vector<ParameterRow> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    Fields fields;
    for (std::size_t column = 0; column < lines[0].size(); ++column) fields[lines[0][column]] = lines[i].at(column);
    ParameterRow row;
    row.model = fields.at("model");
    row.config = fields.at("config");
    row.other = Json::parse(fields.at("other"));
    row.spec = spec_of(fields, row.other);
    row.total = std::stoll(fields.at("params_total"));
    row.active = std::stoll(fields.at("params_active"));
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace foretrain::testing
