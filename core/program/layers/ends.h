#pragma once

#include "core/program/builder.h"
#include "core/program/layers/dropout.h"
#include "core/program/layers/linear.h"
#include "core/program/layers/norm.h"

namespace foretrain::layers {

/// Vocabulary-parallel embedding lookup: writes `output`.
class Embedding {
public:
  /// `owns_table`: false where another block of the stage holds the table.
  explicit Embedding(bool owns_table) : owns_table_(owns_table) {}
  void forward(BlockBuilder& b, int output);
  void backward(BlockBuilder& b, int grad_output);

private:
  bool owns_table_;
  int weight_ = -1;
  Dropout dropout_;
};

/// Final norm, output table, cross-entropy.
class Head {
public:
  /// `owns_table`: false where the embedding (tied, one stage) or another head of the stage holds it.
  explicit Head(bool owns_table) : owns_table_(owns_table) {}
  void forward(BlockBuilder& b, int input);
  /// Starts at the loss; writes the gradient of the input (plus `residual_gradient` if ≥ 0).
  void backward(BlockBuilder& b, int residual_gradient, int grad_input);

private:
  void cap_logits(BlockBuilder& b);
  int uncap_gradient(BlockBuilder& b, int grad);
  void loss_forward(BlockBuilder& b);
  void gathered_loss_forward(BlockBuilder& b);
  int gathered_loss_backward(BlockBuilder& b);
  int loss_backward(BlockBuilder& b);

  bool owns_table_;
  Norm norm_;
  Linear head_;
  int logits_ = -1;
  int softmax_ = -1;  ///< fp32, where the loss keeps one
  int cast_ = -1;     ///< fp32 copy of the logits (plain loss)
  int tanh_ = -1;     ///< of capped logits, saved
  int gathered_ = -1; ///< logits of the whole vocabulary (gathered loss)
};

/// The loss that applies: the job's choice or the semantics' default.
[[nodiscard]] CrossEntropy cross_entropy_of(const LayerContext& context);

} // namespace foretrain::layers
