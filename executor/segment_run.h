#pragma once

#include <string>

#include "executor/kernels/kernel_set.h"
#include "executor/segments.h"

namespace foretrain {

/// One compute op on its buffers, read and written by place in the op's lists.
class SegmentRun {
public:
  using Tensor = at::Tensor;
  SegmentRun(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context)
      : op_(op), state_(state), parameters_(parameters), context_(context), model_(context.plan->model),
        kernels_(*context.kernel_set) {}

  void embedding();
  void norm();
  void linear();
  void projection();
  void rope();
  void attention();
  void activation();
  void residual();
  void loss();
  void router();
  void permute();
  void unpermute();
  void expert_linear();
  void expert_activation();
  /// Rows that this rank's experts get, where the op that is about to run makes them known.
  void count_rows();

private:
  [[nodiscard]] bool forward() const { return op_.pass == Pass::forward || op_.pass == Pass::recompute; }
  [[nodiscard]] Tensor& buffer(int index) const { return state_.buffers[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Tensor& read(std::size_t i) const { return buffer(op_.reads[i]); }
  [[nodiscard]] Tensor& write(std::size_t i) const { return buffer(op_.writes[i]); }
  [[nodiscard]] const std::string& buffer_name(int index) const {
    return state_.block->buffers[static_cast<std::size_t>(index)].name;
  }
  [[nodiscard]] ParameterEntry& parameter(int index) const {
    return parameters_.at(state_.chunk, state_.position, index);
  }
  [[nodiscard]] ParameterEntry* named(const std::string& name) const; ///< of the block, or null
  /// The one weight of an op; lookups and heads without a table of their own use another block's.
  [[nodiscard]] ParameterEntry& weight() const;
  [[nodiscard]] bool predicts_later() const { return state_.block->kind == BlockKind::mtp; }
  /// Rows of the whole micro-batch that this rank holds where the sequence is split.
  [[nodiscard]] Tensor own_rows(const Tensor& whole) const;
  [[nodiscard]] Tensor positions() const;
  [[nodiscard]] kernels::Vocabulary vocabulary(std::int64_t columns) const;
  /// Which layer of a block of several this op is of.
  [[nodiscard]] int layer_inside() const;

  [[nodiscard]] bool norms_heads() const;
  [[nodiscard]] kernels::HeadNormShape head_norm_shape(const std::string& name) const;
  void head_norm();

  // Attention: the keys that an op meets, part by part in the order of their ranks.
  struct KeyPart {
    Tensor k;
    Tensor v;
    Tensor dk;
    Tensor dv;
    std::int64_t member = 0;
  };
  [[nodiscard]] kernels::AttentionShape attention_shape(std::int64_t member) const;
  [[nodiscard]] std::vector<KeyPart> key_parts(const Tensor& keys, const Tensor& gradients,
                                               const std::string& name) const;
  void attention_forward();
  void attention_backward();

  // Experts.
  [[nodiscard]] Routing& routing() const;
  [[nodiscard]] std::vector<std::int64_t> forced_choice(std::int64_t rows, std::int64_t k) const;
  [[nodiscard]] const kernels::SortedCopies& copies(const Tensor& choice) const;
  [[nodiscard]] std::vector<std::int64_t> arrival_order() const;

  const Op& op_;
  BlockState& state_;
  ParameterTable& parameters_;
  SegmentContext& context_;
  const ModelSpec& model_;
  const kernels::KernelSet& kernels_;
};

} // namespace foretrain
