#include "executor/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace foretrain {
namespace {

bool is_half(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

} // namespace

Optimizer::Optimizer(const OptimizerChoice& choice, const OptimizerOptions& options, const ParameterTable& parameters,
                     Device& device, AllocatorAccount* host)
    : choice_(choice), options_(options), device_(device), host_(host) {
  std::optional<AccountScope> scope;
  if (host_) scope.emplace(host_);
  for (const ParameterEntry& entry : parameters.entries()) {
    const bool half = is_half(entry.owned_weight.scalar_type());
    rounds_ = rounds_ || half;
    const auto type = half ? at::kFloat : entry.owned_weight.scalar_type();
    const auto zeros = [&] {
      return host_ ? device.host_memory(entry.owned_count, type).zero_()
                   : at::zeros({entry.owned_count}, entry.owned_weight.options().dtype(type));
    };
    if (host_)
      master_.push_back(device.host_memory(entry.owned_count, type).copy_(entry.owned_weight));
    else if (half)
      master_.push_back(entry.owned_weight.to(type));
    if (choice_.kind != OptimizerKind::sgd || choice_.momentum) first_.push_back(zeros());
    if (choice_.kind == OptimizerKind::adamw) second_.push_back(zeros());
  }
}

void Optimizer::update(at::Tensor weight, const at::Tensor& gradient, at::Tensor& first, at::Tensor* second,
                       bool decays) const {
  const OptimizerOptions& o = options_;
  if (decays) weight.mul_(1 - o.learning_rate * o.weight_decay);
  if (choice_.kind == OptimizerKind::lion) {
    // Sign of the interpolation with beta1; the moment moves with beta2 afterwards.
    const at::Tensor direction = (first * o.beta1).add_(gradient, 1 - o.beta1).sign_();
    weight.add_(direction, -o.learning_rate);
    first.mul_(o.beta2).add_(gradient, 1 - o.beta2);
    return;
  }
  if (choice_.kind == OptimizerKind::sgd) {
    if (!choice_.momentum) {
      weight.add_(gradient, -o.learning_rate);
      return;
    }
    first.mul_(o.beta1).add_(gradient);
    weight.add_(first, -o.learning_rate);
    return;
  }
  first.mul_(o.beta1).add_(gradient, 1 - o.beta1);
  second->mul_(o.beta2).addcmul_(gradient, gradient, 1 - o.beta2);
  const double correction1 = 1 - std::pow(o.beta1, steps_);
  const double correction2 = 1 - std::pow(o.beta2, steps_);
  const at::Tensor deviation = second->sqrt().div_(std::sqrt(correction2)).add_(o.epsilon);
  weight.addcdiv_(first, deviation, -o.learning_rate / correction1);
}

std::vector<Optimizer::State> Optimizer::state(std::size_t index) const {
  std::vector<State> list;
  if (!first_.empty()) list.push_back({"first_moment", first_[index]});
  if (!second_.empty()) list.push_back({"second_moment", second_[index]});
  if (keeps_masters()) list.push_back({"master", master_[index]});
  return list;
}

void Optimizer::take_weights(const ParameterTable& parameters) {
  for (std::size_t i = 0; i < master_.size(); ++i) master_[i].copy_(parameters.entries()[i].owned_weight);
}

std::int64_t Optimizer::copy(ParameterTable& parameters) {
  const bool weights = std::exchange(has_gradients_, !has_gradients_);
  const bool pinned = device_.queues(); // taken once: pinning takes longer than copying
  const AccountScope scope(host_);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const ParameterEntry& entry = parameters.entries()[i];
    at::Tensor part = weights ? entry.owned_weight : entry.owned_gradient;
    bytes += part.numel() * static_cast<std::int64_t>(part.element_size());
    if (weights) {
      part.copy_(master_[i]);
      continue;
    }
    if (gradients_.size() == i) gradients_.push_back(device_.host_memory(part.numel(), part.scalar_type()));
    gradients_[i].copy_(part, /*non_blocking=*/true);
  }
  if (!weights) device_.synchronize(); // the host goes on with them
  if (weights && !pinned) gradients_.clear();
  return bytes;
}

void Optimizer::step(ParameterTable& parameters) {
  ++steps_;
  std::optional<AccountScope> scope;
  if (host_) scope.emplace(host_);
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const ParameterEntry& entry = parameters.entries()[i];
    const bool decays = entry.spec->shape.size() > 1;
    const std::int64_t chunk = host_ ? kOptimizerChunk : device_.chunk();
    for (std::int64_t done = 0; done < entry.owned_count; done += chunk) {
      const std::int64_t count = std::min(chunk, entry.owned_count - done);
      const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, done, count); };
      at::Tensor weight = part(master_.empty() ? entry.owned_weight : master_[i]);
      at::Tensor gradient = part(host_ ? gradients_[i] : entry.owned_gradient);
      if (gradient.scalar_type() != weight.scalar_type()) gradient = gradient.to(weight.scalar_type());
      at::Tensor first = first_.empty() ? at::Tensor() : part(first_[i]);
      at::Tensor second = second_.empty() ? at::Tensor() : part(second_[i]);
      update(weight, gradient, first, second_.empty() ? nullptr : &second, decays);
      if (!master_.empty() && !host_) part(entry.owned_weight).copy_(weight);
    }
  }
}

} // namespace foretrain
