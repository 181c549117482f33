#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/model.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/checkpoint/pieces.h"

/// Weights under the names that Hugging Face's transformers give them: Llama-like (Llama, Mistral, Qwen2 with its
/// biases) and Mixtral-like models. Queries, keys and values are three tensors there and one here, gate and up
/// projections two and one, experts a tensor each. Both turn the halves of a head against each other (rotary
/// positions), so no row moves.
namespace foretrain {

/// Rows of one of our tensors that are a whole tensor there.
struct NamedRows {
  std::string ours; ///< "layers.3.qkv"
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  std::string theirs; ///< "model.layers.3.self_attn.q_proj.weight"
  bool matrix = true; ///< else a vector of `rows`
  bool operator==(const NamedRows&) const = default;
};
/// Every weight of a model, each row of ours once, in the order of layers. Error: what about the model has no names
/// there.
[[nodiscard]] Result<std::vector<NamedRows>> hugging_face_names(const ModelSpec& model);

/// A folder with model.safetensors, or with several files and model.safetensors.index.json. Keys are
/// "weight/layers.3.qkv". Errors: a file or a tensor is missing, or has another shape than the model's.
[[nodiscard]] Result<PieceSource> open_hugging_face(const std::filesystem::path& folder, const ModelSpec& model);

/// Bytes of tensors in one file of an export.
inline constexpr std::int64_t kExportFile = 5'000'000'000;
/// Writes a checkpoint's weights in its own precision, tensor by tensor; the index last. Errors: of
/// `hugging_face_names`, of `open_shards`; the folder is not empty; a full disk.
[[nodiscard]] Result<void> export_hugging_face(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                               std::int64_t file_bytes = kExportFile);

} // namespace foretrain
