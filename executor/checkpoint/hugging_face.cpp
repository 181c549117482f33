#include "executor/checkpoint/hugging_face.h"

#include <array>
#include <cstdio>
#include <map>

#include "core/spec/io.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
const std::string kWeight = "weight/";

/// Why a model has no names there; empty when it has.
std::string unnamed(const ModelSpec& m) {
  if (m.norm != NormKind::rms) return "LayerNorm";
  if (!m.gated) return "a feed-forward without gate";
  if (m.latent) return "latent attention";
  if (m.learned_positions > 0) return "learned positions";
  if (!m.final_norm || m.norms_per_layer != 2 || m.norm_placement != NormPlacement::before || m.embedding_norm)
    return "norms at other places";
  if (m.delta || m.mamba || !m.pattern.empty()) return "layers of several kinds";
  if (m.attention_sinks || m.output_gate) return "attention with sinks or gates";
  if (m.parallel_block || m.embedding_projection > 0) return "parallel blocks or a projected embedding";
  if (m.mtp_layers > 0) return "multi-token prediction";
  if (m.moe && (m.moe->shared_ffn > 0 || m.moe->every != 1 || m.moe->first_dense > 0 || !m.moe->dense_layers.empty()))
    return "shared experts, or experts in some layers only";
  if (m.moe && (m.moe->router_bias || m.moe->correction_bias || m.moe->expert_bias))
    return "biases of routers or experts";
  return "";
}

class Names {
public:
  explicit Names(const ModelSpec& model) : m_(model) {}

  std::vector<NamedRows> all() {
    const std::int64_t h = m_.hidden;
    add("embedding", 0, m_.vocab, h, "model.embed_tokens.weight");
    for (int layer = 0; layer < m_.layers; ++layer) {
      ours_ = "layers." + std::to_string(layer) + ".";
      theirs_ = "model.layers." + std::to_string(layer) + ".";
      attention();
      if (m_.moe)
        experts();
      else
        dense();
    }
    ours_ = theirs_ = "";
    add("final_norm", 0, h, 1, "model.norm.weight");
    if (!m_.tied_embeddings) add("head", 0, m_.vocab, h, "lm_head.weight");
    return std::move(list_);
  }

private:
  void add(const std::string& ours, std::int64_t first, std::int64_t rows, std::int64_t columns,
           const std::string& theirs) {
    const bool matrix = theirs.find("norm") == std::string::npos && theirs.find(".bias") == std::string::npos;
    list_.push_back({ours_ + ours, first, rows, columns, theirs_ + theirs, matrix});
  }
  void attention() {
    const std::int64_t h = m_.hidden;
    const std::int64_t queries = std::int64_t{m_.heads} * m_.head_dim;
    const std::int64_t keys = std::int64_t{m_.kv_heads} * m_.head_dim;
    add("norm1", 0, h, 1, "input_layernorm.weight");
    const std::array<std::pair<const char*, std::int64_t>, 3> parts = {{{"q", queries}, {"k", keys}, {"v", keys}}};
    std::int64_t first = 0;
    for (const auto& [letter, rows] : parts) {
      add("qkv", first, rows, h, std::string("self_attn.") + letter + "_proj.weight");
      if (m_.qkv_bias) add("qkv.bias", first, rows, 1, std::string("self_attn.") + letter + "_proj.bias");
      first += rows;
    }
    if (m_.qk_norm != QkNorm::none) {
      const bool over_all = m_.qk_norm == QkNorm::full_width;
      add("q_norm", 0, over_all ? queries : m_.head_dim, 1, "self_attn.q_norm.weight");
      add("k_norm", 0, over_all ? keys : m_.head_dim, 1, "self_attn.k_norm.weight");
    }
    add("attention_out", 0, h, queries, "self_attn.o_proj.weight");
    if (m_.out_bias) add("attention_out.bias", 0, h, 1, "self_attn.o_proj.bias");
    add("norm2", 0, h, 1, "post_attention_layernorm.weight");
  }
  void dense() {
    const std::int64_t h = m_.hidden;
    const std::int64_t f = m_.ffn;
    add("ffn_up", 0, f, h, "mlp.gate_proj.weight");
    add("ffn_up", f, f, h, "mlp.up_proj.weight");
    add("ffn_down", 0, h, f, "mlp.down_proj.weight");
    if (!m_.mlp_bias) return;
    add("ffn_up.bias", 0, f, 1, "mlp.gate_proj.bias");
    add("ffn_up.bias", f, f, 1, "mlp.up_proj.bias");
    add("ffn_down.bias", 0, h, 1, "mlp.down_proj.bias");
  }
  /// With norms of queries and keys under the names of Qwen3-MoE and OLMoE (transformers modeling_qwen3_moe.py,
  /// modeling_olmoe.py), else under those of Mixtral: a model's shape does not say more.
  void experts() {
    const std::int64_t h = m_.hidden;
    const std::int64_t f = m_.moe->ffn;
    const bool mixtral = m_.qk_norm == QkNorm::none;
    const std::string block = mixtral ? "block_sparse_moe." : "mlp.";
    add("router", 0, m_.moe->experts, h, block + "gate.weight");
    for (int expert = 0; expert < m_.moe->experts; ++expert) {
      const std::string name = block + "experts." + std::to_string(expert) + ".";
      add("expert_up", 2 * f * expert, f, h, name + (mixtral ? "w1" : "gate_proj") + ".weight");
      add("expert_up", 2 * f * expert + f, f, h, name + (mixtral ? "w3" : "up_proj") + ".weight");
      add("expert_down", h * expert, h, f, name + (mixtral ? "w2" : "down_proj") + ".weight");
    }
  }

  const ModelSpec& m_;
  std::string ours_;
  std::string theirs_;
  std::vector<NamedRows> list_;
};

std::vector<std::int64_t> shape_of(const NamedRows& rows) {
  return rows.matrix ? std::vector<std::int64_t>{rows.rows, rows.columns} : std::vector<std::int64_t>{rows.rows};
}

/// Which file has which tensor.
Result<std::map<std::string, std::string>> files_of(const fs::path& folder, const std::vector<NamedRows>& names) {
  std::map<std::string, std::string> files;
  std::error_code ignored;
  if (!fs::exists(folder / kIndexFile, ignored)) {
    for (const NamedRows& rows : names) files[rows.theirs] = kOneFile;
    return files;
  }
  const std::string index = (folder / kIndexFile).string();
  FORETRAIN_TRY(const Json json, read_json_file(index));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return fail(index, "has no weight_map");
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      return fail(index, "names no file for " + name);
    files[name] = file.get<std::string>();
  }
  return files;
}

std::string export_name(std::size_t file, std::size_t files) {
  if (files == 1) return kOneFile;
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", file + 1, files);
  return name.data();
}

Result<void> export_file(const fs::path& path, const std::vector<NamedRows>& names, const std::string& type,
                         PieceSource& source) {
  std::vector<safetensors::Entry> entries;
  for (const NamedRows& rows : names) entries.push_back({rows.theirs, type, shape_of(rows), 0});
  FORETRAIN_TRY(safetensors::Writer writer, safetensors::Writer::create(path, std::move(entries), {{"format", "pt"}}));
  std::vector<char> bytes;
  for (const NamedRows& rows : names) {
    const std::int64_t count = rows.rows * rows.columns;
    bytes.resize(static_cast<std::size_t>(count * safetensors::width_of(type)));
    StatePart part;
    part.type = type;
    part.slice = {{{rows.first, rows.rows}}, 0, rows.columns, rows.columns};
    part.shape = {rows.first + rows.rows, rows.columns};
    part.count = count;
    part.data = bytes.data();
    const bool half = source.has("master/" + rows.ours); // the weight itself is its rounded copy
    if (auto filled = source.fill(part, (half ? "master/" : kWeight) + rows.ours); !filled) return filled;
    if (auto put = writer.put(bytes.data(), static_cast<std::int64_t>(bytes.size())); !put) return put;
  }
  return writer.finish();
}

std::string type_of(Precision precision) {
  return precision == Precision::fp64 ? "F64" : precision == Precision::fp32 ? "F32" : "BF16";
}

} // namespace

Result<std::vector<NamedRows>> hugging_face_names(const ModelSpec& model) {
  if (const std::string why = unnamed(model); !why.empty())
    return fail("model", "has no names of Hugging Face here: " + why,
                "models like Llama, Qwen3, Mixtral, Qwen3-MoE and OLMoE have");
  return Names(model).all();
}

Result<PieceSource> open_hugging_face(const fs::path& folder, const ModelSpec& model) {
  FORETRAIN_TRY(const std::vector<NamedRows> names, hugging_face_names(model));
  FORETRAIN_TRY(const auto files, files_of(folder, names));
  std::map<std::string, std::shared_ptr<const safetensors::File>> opened;
  PieceSource source;
  for (const NamedRows& rows : names) {
    const auto name = files.find(rows.theirs);
    if (name == files.end()) return fail(folder.string(), "has no tensor " + rows.theirs);
    auto& file = opened[name->second];
    if (!file) {
      FORETRAIN_TRY(safetensors::File fresh, safetensors::File::open(folder / name->second));
      file = std::make_shared<const safetensors::File>(std::move(fresh));
    }
    const auto entry = file->entries().find(rows.theirs);
    if (entry == file->entries().end()) return fail(file->path().string(), "has no tensor " + rows.theirs);
    if (entry->second.shape != shape_of(rows))
      return fail(file->path().string(), "has " + rows.theirs + " of shape " + Json(entry->second.shape).dump() +
                                             "; the model's is " + Json(shape_of(rows)).dump());
    source.add(kWeight + rows.ours,
               {file, rows.theirs, {{rows.first * rows.columns, 0, rows.rows * rows.columns}}, ""});
  }
  return source;
}

Result<void> export_hugging_face(const Checkpoint& checkpoint, const fs::path& folder, std::int64_t file_bytes) {
  FORETRAIN_TRY(const std::vector<NamedRows> names, hugging_face_names(checkpoint.model));
  FORETRAIN_TRY(PieceSource source, open_shards(checkpoint));
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) return fail_environment(folder.string(), "cannot be made: " + problem.message());
  if (!fs::is_empty(folder, problem)) return fail(folder.string(), "is not empty");
  const std::string type = type_of(checkpoint.job.precision);
  std::vector<std::vector<NamedRows>> files(1);
  std::int64_t filled = 0;
  std::int64_t total = 0;
  for (const NamedRows& rows : names) {
    const std::int64_t bytes = rows.rows * rows.columns * safetensors::width_of(type);
    if (filled > 0 && filled + bytes > file_bytes) {
      files.emplace_back();
      filled = 0;
    }
    filled += bytes;
    total += bytes;
    files.back().push_back(rows);
  }
  Json map = Json::object();
  for (std::size_t file = 0; file < files.size(); ++file) {
    const std::string name = export_name(file, files.size());
    if (auto written = export_file(folder / name, files[file], type, source); !written) return written;
    for (const NamedRows& rows : files[file]) map[rows.theirs] = name;
  }
  if (files.size() == 1) return {};
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  return write_text_file(folder / kIndexFile, index.dump(2) + "\n");
}

} // namespace foretrain
