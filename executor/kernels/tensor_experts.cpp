#include "executor/kernels/tensor_kernels.h"

/// Experts: routing, permutation, weighted activations.
namespace foretrain::kernels::tensors {
namespace {

std::int64_t rows_in(const std::vector<std::int64_t>& order) {
  return static_cast<std::int64_t>(order.size());
}

} // namespace

SortedCopies sort_copies(const Tensor& choice, std::int64_t first, std::int64_t count) {
  return kernels::sort_copies(choice.cpu(), first, count); // sizes of tensors follow from it
}

void route(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& forced, Tensor& weights,
           Tensor& choice) {
  const Tensor logits = at::mm(x, weight.t()).to(weights.scalar_type());
  if (forced.empty()) // stable: the lower number first where two are equal
    choice.copy_(
        std::get<1>(at::sort(logits, /*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(1, 0, choice.size(1)));
  else
    choice.copy_(placed(forced, choice.device()).view(choice.sizes()));
  weights.copy_(logits.gather(1, choice).softmax(-1));
}

void route_backward(const Tensor& weights, const Tensor& choice, const Tensor& dweights, Tensor& dlogits) {
  dlogits.zero_();
  dlogits.scatter_(1, choice, weights * (dweights - (weights * dweights).sum(-1, true)));
}

void copy_to_rows(const Tensor& from, const SortedCopies& copies, std::int64_t k, Tensor& to) {
  const Tensor tokens = placed(copies.order, from.device()).floor_divide(k);
  to.narrow(0, 0, rows_in(copies.order)).copy_(from.index_select(0, tokens));
}

void copy_weights(const Tensor& weights, const SortedCopies& copies, Tensor& to) {
  const Tensor order = placed(copies.order, weights.device());
  to.narrow(0, 0, rows_in(copies.order)).copy_(weights.view(-1).index_select(0, order));
}

void sum_copies(const Tensor& rows, const SortedCopies& copies, std::int64_t k, Tensor& to) {
  to.zero_();
  if (copies.order.empty()) return;
  // Where each copy stands; −1: with experts of other ranks.
  std::vector<std::int64_t> place(static_cast<std::size_t>(to.size(0) * k), -1);
  for (std::size_t i = 0; i < copies.order.size(); ++i)
    place[static_cast<std::size_t>(copies.order[i])] = static_cast<std::int64_t>(i);
  const Tensor places = placed(place, rows.device()).view({to.size(0), k});
  for (std::int64_t i = 0; i < k; ++i) {
    const Tensor here = places.select(1, i);
    to.add_(rows.index_select(0, here.clamp_min(0)).masked_fill_(here.lt(0).unsqueeze(1), 0));
  }
}

void return_weights(const Tensor& rows, const SortedCopies& copies, Tensor& weights) {
  weights.zero_();
  weights.view(-1).index_copy_(0, placed(copies.order, rows.device()), rows.narrow(0, 0, rows_in(copies.order)));
}

void reorder(const Tensor& from, const std::vector<std::int64_t>& order, bool back, Tensor& to) {
  const Tensor places = placed(order, from.device());
  if (back)
    to.index_copy_(0, places, from.narrow(0, 0, rows_in(order)));
  else
    to.narrow(0, 0, rows_in(order)).copy_(from.index_select(0, places));
}

void weighted_activation(const Tensor& up, const Tensor& weights, bool gated, Tensor& hidden) {
  if (up.size(0) == 0) return;
  activation(up, gated, hidden);
  hidden.mul_(weights.view({-1, 1}));
}

void weighted_activation_backward(const Tensor& up, const Tensor& weights, Tensor& dhidden, bool gated, Tensor& dup,
                                  Tensor& dweights) {
  if (up.size(0) == 0) return;
  const Tensor scale = weights.view({-1, 1});
  if (!gated) {
    at::gelu_out(dup, up);
    dweights.copy_((wide(dhidden) * wide(dup)).sum(-1));
    dhidden.mul_(scale);
    at::gelu_backward_out(dup, dhidden, up);
    return;
  }
  const std::int64_t width = dhidden.size(1);
  const Tensor gate = wide(up.narrow(-1, 0, width));
  const Tensor value = wide(up.narrow(-1, width, width));
  const Tensor dh = wide(dhidden);
  const Tensor sigmoid = gate.sigmoid();
  const Tensor silu = gate * sigmoid;
  dweights.copy_((dh * silu * value).sum(-1));
  const Tensor d = dh * scale;
  Tensor slope = 1 - sigmoid;
  slope.mul_(gate).add_(1).mul_(sigmoid);
  dup.narrow(-1, 0, width).copy_(slope.mul_(d).mul_(value));
  dup.narrow(-1, width, width).copy_(d * silu);
}

} // namespace foretrain::kernels::tensors
