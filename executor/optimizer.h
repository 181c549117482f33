#pragma once

#include <vector>

#include "core/spec/job.h"
#include "executor/allocator.h"
#include "executor/device.h"
#include "executor/parameters.h"

namespace foretrain {

/// Elements updated at a time on the host, so that temporaries stay small.
inline constexpr std::int64_t kOptimizerChunk = 1 << 16;

struct OptimizerOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9; ///< adamw and lion; sgd: its momentum
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1; ///< of matrices, decoupled
  double clip_norm = 1.0;    ///< gradients are scaled down to this norm; 0 = never
};

/// AdamW (arXiv:1711.05101), Lion (arXiv:2302.06675) or SGD with momentum, on the elements that this rank owns. Half
/// precision weights are rounded copies of fp32 ones that are kept here.
///
/// On the host: its state, weights of its own and what it works on are booked on the host's account instead of the
/// rank's. A step is then three ops: gradients to the host, the step, weights back.
class Optimizer {
public:
  /// `device`: has the parameters. `host`: null where the state lies beside them. Both outlive the optimizer.
  Optimizer(const OptimizerChoice& choice, const OptimizerOptions& options, const ParameterTable& parameters,
            Device& device, AllocatorAccount* host = nullptr);
  void step(ParameterTable& parameters);
  /// On the host alone: gradients come the first time in a step, weights go back the second time. Returns the bytes
  /// moved.
  std::int64_t copy(ParameterTable& parameters);

  /// Steps done, which the moments' correction goes by.
  [[nodiscard]] int steps() const { return steps_; }
  void set_steps(int steps) { steps_ = steps; }
  /// A tensor of the owned elements of entry `index`: "first_moment", "second_moment", "master"; those that there are.
  struct State {
    const char* name;
    at::Tensor tensor;
  };
  [[nodiscard]] std::vector<State> state(std::size_t index) const;
  [[nodiscard]] bool keeps_masters() const { return rounds_; }
  /// After weights were read without a state of the optimizer: the wide copies become theirs.
  void take_weights(const ParameterTable& parameters);

private:
  void update(at::Tensor weight, const at::Tensor& gradient, at::Tensor& first, at::Tensor* second, bool decays) const;

  OptimizerChoice choice_;
  OptimizerOptions options_;
  int steps_ = 0;
  std::vector<at::Tensor> first_;  ///< moments of the owned elements, one per entry; empty without momentum
  std::vector<at::Tensor> second_; ///< adamw only
  std::vector<at::Tensor> master_; ///< half precision, or on the host
  bool rounds_ = false;            ///< the model's weights are rounded
  Device& device_;
  AllocatorAccount* host_;
  std::vector<at::Tensor> gradients_; ///< on the host, between the two copies (pinned memory: from the first one on)
  bool has_gradients_ = false;        ///< the next copy is that of weights
};

} // namespace foretrain
