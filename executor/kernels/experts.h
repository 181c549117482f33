#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

/// Kernels of mixture-of-experts layers. A choice is [tokens, k] experts; its copies count token by token. Sorted rows
/// stand expert by expert, within an expert in the order of tokens, so that every sum has a fixed order.
namespace foretrain::kernels {

using at::Tensor;

/// Copies of tokens in the order of experts: copy i of the sorted rows is `order[i]` of token · k + place. Only experts
/// first … first + count of the choice are in it.
struct SortedCopies {
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> per_expert; ///< rows of each of them
};
[[nodiscard]] SortedCopies sort_copies(const Tensor& choice, std::int64_t first, std::int64_t count);

/// The k experts with the largest logits x Wᵀ of each token, the lower number where two are equal, and the softmax over
/// these (Mixtral, arXiv:2401.04088). `forced` not empty: the experts of each token, instead of the largest.
void route(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& forced, Tensor& weights,
           Tensor& choice);
/// Gradient of the logits: w (dw − Σ w dw) where chosen, else 0.
void route_backward(const Tensor& weights, const Tensor& choice, const Tensor& dweights, Tensor& dlogits);
/// dx += dlogits W.
void add_router_input_gradient(const Tensor& dlogits, const Tensor& weight, Tensor& dx);
void add_router_weight_gradient(const Tensor& x, const Tensor& dlogits, Tensor& dweight);

/// Row i of `to` is row order[i] / k of `from`, and its weight that of the copy.
void copy_to_rows(const Tensor& from, const SortedCopies& copies, std::int64_t k, Tensor& to);
void copy_weights(const Tensor& weights, const SortedCopies& copies, Tensor& to);
/// Row t of `to` is the sum of the copies of token t, in the order of their places.
void sum_copies(const Tensor& rows, const SortedCopies& copies, std::int64_t k, Tensor& to);
void return_weights(const Tensor& rows, const SortedCopies& copies, Tensor& weights);
/// to[i] = from[order[i]], or to[order[i]] = from[i] when `back`.
void reorder(const Tensor& from, const std::vector<std::int64_t>& order, bool back, Tensor& to);

// Weights are [experts, out, in]; rows of an expert lie together.
void expert_linear(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& per_expert, Tensor& y);
void expert_input_gradient(const Tensor& dy, const Tensor& weight, const std::vector<std::int64_t>& per_expert,
                           Tensor& dx);
void expert_weight_gradient(const Tensor& x, const Tensor& dy, const std::vector<std::int64_t>& per_expert,
                            Tensor& dweight);

/// activation(up) · weight of the row.
void weighted_activation(const Tensor& up, const Tensor& weights, bool gated, Tensor& hidden);
/// Without a gate `dhidden` is scaled in place.
void weighted_activation_backward(const Tensor& up, const Tensor& weights, Tensor& dhidden, bool gated, Tensor& dup,
                                  Tensor& dweights);

} // namespace foretrain::kernels
