#include "executor/optimizer.h"

#include <cmath>

namespace foretrain {

Optimizer::Optimizer(const OptimizerChoice& choice, const OptimizerOptions& options, const ParameterTable& parameters)
    : choice_(choice), options_(options) {
  for (const ParameterEntry& entry : parameters.entries()) {
    first_.push_back(at::zeros({entry.owned_count}, entry.weight.options()));
    if (choice_.kind == OptimizerKind::adamw) second_.push_back(at::zeros_like(first_.back()));
  }
}

void Optimizer::step(ParameterTable& parameters) {
  ++steps_;
  const OptimizerOptions& o = options_;
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const ParameterEntry& entry = parameters.entries()[i];
    at::Tensor weight = entry.owned(entry.weight);
    const at::Tensor gradient = entry.owned(entry.gradient);
    if (entry.spec->shape.size() > 1) weight.mul_(1 - o.learning_rate * o.weight_decay);
    at::Tensor& first = first_[i];
    if (choice_.kind == OptimizerKind::sgd) {
      first.mul_(choice_.momentum ? o.beta1 : 0).add_(gradient);
      weight.add_(first, -o.learning_rate);
      continue;
    }
    at::Tensor& second = second_[i];
    first.mul_(o.beta1).add_(gradient, 1 - o.beta1);
    second.mul_(o.beta2).addcmul_(gradient, gradient, 1 - o.beta2);
    const double correction1 = 1 - std::pow(o.beta1, steps_);
    const double correction2 = 1 - std::pow(o.beta2, steps_);
    const at::Tensor deviation = second.sqrt().div_(std::sqrt(correction2)).add_(o.epsilon);
    weight.addcdiv_(first, deviation, -o.learning_rate / correction1);
  }
}

} // namespace foretrain
