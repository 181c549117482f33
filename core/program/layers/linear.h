#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/program/axes/tensor.h"
#include "core/program/builder.h"

namespace foretrain::layers {

/// Low-rank adapter of a linear layer on one rank: y += x Aᵀ Bᵀ. Both halves are split over tp like the layer (NeMo
/// nemo/collections/llm/peft, ParallelLinearAdapter: the rank where the layer is split by columns).
struct Adapter {
  int down = -1;  ///< parameter A
  int up = -1;    ///< parameter B
  int inner = -1; ///< x Aᵀ, saved
  std::int64_t rank = 0;
};

/// A linear layer y = x Wᵀ on one rank: `in` and `out` are the widths of this rank's weight.
struct Linear {
  Segment segment = Segment::none;
  int weight = -1;
  std::int64_t tokens = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool low = false; ///< products in 8 or 4 bits
  std::optional<Adapter> adapter = std::nullopt;
};

/// How a weight is split over tp, for its adapter.
enum class Split { columns, rows, none };

/// A linear layer of the model: its products run in the recipe's type, and it carries an adapter when the job says so.
[[nodiscard]] Linear declare_linear(BlockBuilder& b, Segment segment, Parameter weight, std::int64_t tokens,
                                    Split split, std::optional<AdapterTarget> target = std::nullopt);

/// Whether the backward needs the layer's input.
[[nodiscard]] bool needs_input(const BlockBuilder& b, const Linear& linear);

/// The buffer in which the layer's input stays for the backward: a quantised one where the recipe keeps it so, else
/// `input` itself. `shared`: something else keeps `input` in 16 bits in any case.
[[nodiscard]] int kept_buffer(BlockBuilder& b, const Linear& linear, int input, bool shared);
/// Writes it, where it is another buffer.
void keep(BlockBuilder& b, const Linear& linear, int input, int kept);

/// Whether a norm whose output only linear layers read writes it quantised.
[[nodiscard]] bool quantises_norm(const LayerContext& context, std::optional<AdapterTarget> reader);

void linear_forward(BlockBuilder& b, const Linear& linear, int input, int output);
/// dInput = dOutput W.
void linear_input_gradient(BlockBuilder& b, const Linear& linear, int grad_output, int grad_input);
/// Both for one of several pieces of the tokens: `piece` of `pieces`.
struct Piece {
  int piece = 0;
  int pieces = 1;
};
/// Entry and forward of a column-split layer: `begin_column` gathers or declares (tensor::in_pieces), `column_forward`
/// does the rest. `kept` as in `forward_keeping`.
[[nodiscard]] tensor::Entry begin_column(BlockBuilder& b, const Linear& linear, int shard, const std::string& name);
void column_forward(BlockBuilder& b, const Linear& linear, const tensor::Entry& entry, int output,
                    std::int64_t kept = 0);
/// Forward and exit of a row-split layer: the buffer that holds this rank's share.
int row_forward(BlockBuilder& b, const Linear& linear, int input, int partial, const std::string& name,
                std::int64_t kept = 0);
/// Entry and input gradient of a row-split layer's backward.
[[nodiscard]] tensor::Entry begin_row_backward(BlockBuilder& b, const Linear& linear, int grad_shard,
                                               const std::string& name);
void row_input_gradient(BlockBuilder& b, const Linear& linear, const tensor::Entry& entry, int grad_input);
/// Where the product of a weight gradient does not add to the buffer itself (`LayerContext::gradient_sum`): the kernel
/// that adds `weights` elements, in `op`. Returns what the gradient takes between the two.
[[nodiscard]] Bytes sum_gradient(const LayerContext& context, double weights, Op& op);
/// dW += dOutputᵀ input. Emitted as W: a split backward runs it apart.
void linear_weight_gradient(BlockBuilder& b, const Linear& linear, int input, int grad_output);

/// Whether recomputation of operators keeps this output.
[[nodiscard]] bool keeps_output(const LayerContext& context, KeptOutput output);
/// The forward of a layer of whose output `kept` columns stay: recomputation makes the others alone.
void forward_keeping(BlockBuilder& b, const Linear& linear, int input, int output, std::int64_t kept);

/// Traffic of quantising `elements` of a 16-bit tensor.
[[nodiscard]] Kernel quantisation(const LayerContext& context, double elements);

/// Emits `body` as part of W, then returns to the pass before.
template <class Body> void in_weight_pass(BlockBuilder& b, Body&& body) {
  const Pass before = b.pass();
  b.begin(Pass::weight);
  body();
  b.begin(before);
}

/// Whether a selective recomputation covers this module.
[[nodiscard]] bool recomputes(const LayerContext& context, RecomputeModule module);

/// Activations and rotary embeddings run as operators of their own: a framework of eager code, where nothing is
/// compiled.
[[nodiscard]] bool eager_operators(const LayerContext& context);

/// Emits `body` again inside the backward.
template <class Body> void recomputed(BlockBuilder& b, Body&& body) {
  const Pass before = b.pass();
  b.begin(Pass::recompute);
  body();
  b.begin(before);
}

} // namespace foretrain::layers
