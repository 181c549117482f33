#pragma once

#include <memory>

#include "core/program/builder.h"
#include "core/program/layers/half.h"
#include "core/program/layers/linear.h"

namespace foretrain::layers {

/// `reduces` as in half.h.
[[nodiscard]] std::unique_ptr<Half> make_dense(bool reduces);
[[nodiscard]] std::unique_ptr<Half> make_moe();
/// As our own executor runs it.
[[nodiscard]] std::unique_ptr<Half> make_executed_moe();

/// The gated (or plain) MLP between a tensor-parallel entry and exit: buffers and ops without norm and residual, shared
/// by the dense feed-forward and by shared experts.
struct Mlp {
  Linear up;
  Linear down;
  Segment activation = Segment::activation;
  int up_out = -1;
  int hidden = -1;        ///< activation output, input of the down projection
  int kept = -1;          ///< the same as it stays for the backward
  int gate = -1;          ///< eager operators: the activated gate, saved
  std::int64_t width = 0; ///< of this rank
};
/// `name` prefixes buffers and parameters; `ffn` is the width of the whole model; `adapters`: its layers may carry
/// some.
[[nodiscard]] Mlp declare_mlp(BlockBuilder& b, const std::string& name, std::int64_t ffn, Segment up,
                              Segment activation, Segment down, bool adapters);
void mlp_activation(BlockBuilder& b, const Mlp& mlp);
/// From the input, entered by `begin_column`, to this rank's share of the output; `partial` holds the down projection's
/// sums and `down` names the share; without a name it ends with these sums. No share (-1) also where recomputation ends
/// before them.
int mlp_forward(BlockBuilder& b, const Mlp& mlp, const tensor::Entry& entry, int partial, const std::string& down);
/// From the gradient of the output, entered by `begin_row_backward`, to that of the gathered input; weight gradient of
/// `down` included. Returns the gradient of the up projection's output, which its weight gradient needs.
int mlp_backward(BlockBuilder& b, const Mlp& mlp, const tensor::Entry& entry, int grad_gathered,
                 const std::string& name);

} // namespace foretrain::layers
