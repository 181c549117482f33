#pragma once

#include <cstdint>

#include "core/program/precision.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// How attention is made to give the same bits every time.
enum class DeterministicAttention {
  no,
  split,          ///< FlashAttention-2: as many blocks of keys at once as processors, each with a gradient of its own
  score_gradients ///< cuDNN on Hopper: gradients of the scores go through memory, that of the queries is a product of
                  ///< them
};

/// Everything that the ops of a layer depend on, with the widths of one rank worked out once.
/// Tokens: t = sequence_length * micro_batch / cp; with sequence parallelism t_sp = t / tp, else t_sp = t.
struct LayerContext {
  const ModelSpec* model = nullptr;
  const JobSpec* job = nullptr;
  const Semantics* semantics = nullptr;
  Layout layout;

  std::int64_t tokens = 0;       ///< t
  std::int64_t tokens_sp = 0;    ///< t_sp
  bool tp_split = false;         ///< tp > 1
  bool sp = false;               ///< sequence parallel and tp > 1
  int heads = 0;                 ///< query heads on this rank, before Ulysses
  int kv_heads = 0;              ///< key and value heads on this rank, at least one
  int ulysses = 1;               ///< degree of the all-to-all inside attention
  int ring = 1;                  ///< ranks of the ring or of the key/value gather
  std::int64_t vocab_padded = 0; ///< rows of the padded table
  DType dtype = DType::bf16;     ///< of activations
  std::int64_t width = 2;        ///< bytes of an activation element
  bool split_backward = false;   ///< the schedule runs I and W apart
  bool batch_first = false;      ///< attention runs in another order than the rest and keeps its output in both
  bool large_workspaces = true;  ///< of TransformerEngine: 32 MiB, 4 MiB before compute capability 9
  DeterministicAttention deterministic = DeterministicAttention::no;
  int processors = 0;      ///< of the device; 0: unknown
  LowPrecision low;        ///< what an 8- or 4-bit recipe changes
  double gradient_sum = 0; ///< bytes per weight of the kernel that adds its gradient, 0 where the product does
};

[[nodiscard]] LayerContext make_context(const ModelSpec& model, const JobSpec& job, const Semantics& semantics,
                                        const Layout& layout, const DeviceSpec& device, bool split_backward);
/// The context points at the model, the job and the semantics: they must outlive it.
LayerContext make_context(const ModelSpec&, const JobSpec&, Semantics&&, const Layout&, const DeviceSpec&,
                          bool) = delete;

/// Rows of the embedding table after padding: ceil((vocab + extra) / (multiple * tp)) * multiple * tp
/// (Megatron-LM training/vocab_utils.py).
[[nodiscard]] std::int64_t padded_vocab(const ModelSpec& model, const JobSpec& job, const Semantics& semantics, int tp);

/// dtype of activations and GEMM outputs under a precision recipe.
[[nodiscard]] DType activation_dtype(Precision precision);

/// dtype of per-token statistics (norms, softmax, loss): fp32, or the activations' own where that is wider.
[[nodiscard]] DType statistics_dtype(const LayerContext& context);

/// Pairs (query, visible key) of one causal sequence of length s: s(s+1)/2, or with a window w: w·s - w(w-1)/2.
/// Packed sequences count each piece on its own.
[[nodiscard]] double visible_pairs(const JobSpec& job, int window);

} // namespace foretrain
