#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace foretrain {

enum class DType { fp64, fp32, bf16, fp16, fp8, fp4, int64, int8 };

/// Bytes of one element; fp4 is half a byte, so the figure is in bits.
[[nodiscard]] constexpr int bits_of(DType type) {
  switch (type) {
  case DType::fp64:
  case DType::int64:
    return 64;
  case DType::fp32:
    return 32;
  case DType::bf16:
  case DType::fp16:
    return 16;
  case DType::fp8:
  case DType::int8:
    return 8;
  case DType::fp4:
    return 4;
  }
  return 0;
}

enum class Precision {
  fp64,
  fp32,
  bf16,          ///< bf16 weights and activations, fp32 master weights
  fp16,          ///< fp16 with loss scaling, fp32 master weights
  fp8_delayed,   ///< per-tensor scales from history
  fp8_current,   ///< per-tensor scales of this step
  fp8_blockwise, ///< 1x128 and 128x128 blocks (DeepSeek)
  mxfp8,         ///< 1x32 blocks with E8M0 scales
  nvfp4,         ///< 1x16 blocks
};
/// Products in 8 or 4 bits, by a recipe.
[[nodiscard]] constexpr bool is_low_precision(Precision precision) {
  switch (precision) {
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
  case Precision::nvfp4:
    return true;
  case Precision::fp64:
  case Precision::fp32:
  case Precision::bf16:
  case Precision::fp16:
    return false;
  }
  return false;
}

enum class OptimizerKind { adamw, lion, sgd, adafactor, muon, adamw_8bit };

struct OptimizerChoice {
  OptimizerKind kind = OptimizerKind::adamw;
  DType moments = DType::fp32; ///< dtype of the moments (adamw, lion, sgd with momentum, muon)
  bool momentum = true;        ///< sgd only
  bool operator==(const OptimizerChoice&) const = default;
};

enum class RoutingKind {
  balanced,   ///< every expert gets the same number of tokens
  imbalanced, ///< the busiest expert rank gets `imbalance` times the mean
};

struct RoutingChoice {
  RoutingKind kind = RoutingKind::balanced;
  double imbalance = 1;                  ///< busiest expert rank / mean, ≥ 1
  std::optional<double> capacity_factor; ///< drops above capacity and pads below; absent = dropless
  bool operator==(const RoutingChoice&) const = default;
};

enum class AttentionKernel {
  flash,   ///< scores never reach memory
  unfused, ///< products around one kernel that scales, masks and normalises the scores
  eager,   ///< the scores go through operators of their own, in fp32
};
enum class NormKernel {
  fused,   ///< keeps its input and one or two numbers per token
  unfused, ///< eager operators: the input in fp32 and the normalised value before the weight stay too
};
enum class CrossEntropy {
  fused,          ///< gradient written over the logits
  vocab_parallel, ///< fp32 copy beside the logits (Megatron unfused)
  plain,          ///< logits, fp32 cast, log-softmax and gradient all live (eager frameworks)
  gathered,       ///< plain, over the whole vocabulary on every tensor-parallel rank
  compiled,       ///< logits in their own type stay, the gradient is written beside them (torch.compile)
};

/// Linear layers that may carry an adapter.
enum class AdapterTarget { qkv, attention_out, ffn_up, ffn_down };

/// Low-rank adapters (LoRA, arXiv:2106.09685): every weight of the model is frozen; beside each target of `out` rows
/// and `in` columns a product of `out × rank` and `rank × in` is trained.
struct LoraChoice {
  int rank = 16;
  std::vector<AdapterTarget> targets = {AdapterTarget::qkv, AdapterTarget::attention_out}; ///< sorted, no duplicates
  bool operator==(const LoraChoice&) const = default;
};

/// Lengths of packed sequences: attention cost goes with the sum of squares.
struct LengthBin {
  int length = 0;
  double share = 0; ///< of tokens
  bool operator==(const LengthBin&) const = default;
};

struct JobSpec {
  int sequence_length = 0;
  std::int64_t global_batch = 0; ///< sequences per optimizer step
  Precision precision = Precision::bf16;
  bool quantised_weights = false; ///< 8- and 4-bit recipes: weights of linear layers lie and travel in that type alone
  DType gradient = DType::fp32;   ///< dtype in which gradients accumulate and are reduced
  std::optional<bool> gradient_accumulation_fusion; ///< weight gradients' products add to the buffer themselves,
                                                    ///< Megatron's option of that name; absent: as the semantics do
  OptimizerChoice optimizer;
  double dropout = 0;
  RoutingChoice routing;
  AttentionKernel attention = AttentionKernel::flash;
  NormKernel norm = NormKernel::fused;
  bool deterministic = false;                ///< kernels that give the same bits every time; may take others than usual
  std::optional<CrossEntropy> cross_entropy; ///< absent: what the semantics do by default
  bool compiled = false;                   ///< kernels are compiled (torch.compile) where the framework leaves a choice
  std::optional<LoraChoice> lora;          ///< absent: every weight is trained
  bool expandable_segments = false;        ///< allocator setting: less fragmentation
  std::optional<int> vocab_extra;          ///< rows the tokenizer adds before padding; absent: the semantics' figure
  std::string semantics = "megatron-core"; ///< id in data/semantics
  std::vector<LengthBin> packed;           ///< empty: every sequence has the full length
  bool operator==(const JobSpec&) const = default;
};

} // namespace foretrain
