#include "executor/kernels/experts.h"

#include <algorithm>
#include <cmath>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

namespace foretrain::kernels {
namespace {

template <class T> T* row_of(const Tensor& rows, std::int64_t row) {
  return rows.data_ptr<T>() + row * rows.stride(0);
}

/// The k largest of a row, in falling order, the lower number first where two are equal.
template <class S> void largest(const S* line, std::int64_t count, std::int64_t k, std::int64_t* chosen) {
  for (std::int64_t place = 0; place < k; ++place) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::find(chosen, chosen + place, i) != chosen + place) continue;
      if (best < 0 || line[i] > line[best]) best = i;
    }
    chosen[place] = best;
  }
}

template <class S>
void choose(const Tensor& logits, const std::vector<std::int64_t>& forced, Tensor& weights, Tensor& choice) {
  const std::int64_t k = weights.size(1);
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    const S* line = row_of<S>(logits, row);
    std::int64_t* chosen = row_of<std::int64_t>(choice, row);
    if (forced.empty())
      largest(line, logits.size(1), k, chosen);
    else
      std::copy_n(forced.begin() + row * k, k, chosen);
    S top = line[chosen[0]];
    for (std::int64_t i = 1; i < k; ++i) top = std::max(top, line[chosen[i]]);
    S* w = row_of<S>(weights, row);
    S sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += w[i] = std::exp(line[chosen[i]] - top);
    for (std::int64_t i = 0; i < k; ++i) w[i] /= sum;
  }
}

template <class S>
void choose_backward(const Tensor& weights, const Tensor& choice, const Tensor& dweights, Tensor& dlogits) {
  const std::int64_t k = weights.size(1);
  dlogits.zero_();
  for (std::int64_t row = 0; row < weights.size(0); ++row) {
    const S* w = row_of<S>(weights, row);
    const S* dw = row_of<S>(dweights, row);
    const std::int64_t* chosen = row_of<std::int64_t>(choice, row);
    S level = 0;
    for (std::int64_t i = 0; i < k; ++i) level += w[i] * dw[i];
    for (std::int64_t i = 0; i < k; ++i) row_of<S>(dlogits, row)[chosen[i]] = w[i] * (dw[i] - level);
  }
}

template <class T> void copy_row(const Tensor& from, std::int64_t source, Tensor& to, std::int64_t target) {
  const std::int64_t width = from.dim() > 1 ? from.size(1) : 1;
  const T* in = from.data_ptr<T>() + source * width;
  std::copy(in, in + width, to.data_ptr<T>() + target * width);
}

/// Calls `visit(expert, first row, rows)` for experts with rows.
template <class Visit> void for_each_expert(const std::vector<std::int64_t>& per_expert, Visit&& visit) {
  std::int64_t first = 0;
  for (std::size_t expert = 0; expert < per_expert.size(); ++expert) {
    if (per_expert[expert] > 0) visit(static_cast<std::int64_t>(expert), first, per_expert[expert]);
    first += per_expert[expert];
  }
}

template <class T> void scale_rows(Tensor& rows, const Tensor& weights) {
  using S = Sum<T>;
  const S* w = weights.data_ptr<S>();
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    T* line = row_of<T>(rows, row);
    for (std::int64_t i = 0; i < rows.size(1); ++i) line[i] = T(S(line[i]) * w[row]);
  }
}

/// σ(gate) stands where dgate goes.
template <class T>
void gated_backward(const Tensor& up, const Tensor& weights, const Tensor& dhidden, Tensor& dup, Tensor& dweights) {
  using S = Sum<T>;
  const std::int64_t width = dhidden.size(1);
  const S* w = weights.data_ptr<S>();
  for (std::int64_t row = 0; row < up.size(0); ++row) {
    const T* gate = row_of<T>(up, row);
    const T* value = gate + width;
    const T* dh = row_of<T>(dhidden, row);
    T* dgate = row_of<T>(dup, row);
    T* dvalue = dgate + width;
    dweights.data_ptr<S>()[row] =
        add_up<S>(width, [&](std::int64_t i) { return S(dh[i]) * S(gate[i]) * S(dgate[i]) * S(value[i]); });
    for (std::int64_t i = 0; i < width; ++i) {
      const S sigmoid = S(dgate[i]);
      const S g = S(gate[i]);
      const S d = S(dh[i]) * w[row];
      dgate[i] = T(d * S(value[i]) * sigmoid * (S(1) + g * (S(1) - sigmoid)));
      dvalue[i] = T(d * g * sigmoid);
    }
  }
}

} // namespace

SortedCopies sort_copies(const Tensor& choice, std::int64_t first, std::int64_t count) {
  SortedCopies copies;
  copies.per_expert.assign(static_cast<std::size_t>(count), 0);
  const std::int64_t* chosen = choice.data_ptr<std::int64_t>();
  const std::int64_t all = choice.numel();
  std::vector<std::int64_t> next(static_cast<std::size_t>(count), 0);
  for (std::int64_t copy = 0; copy < all; ++copy) {
    const std::int64_t expert = chosen[copy] - first;
    if (expert >= 0 && expert < count) ++copies.per_expert[static_cast<std::size_t>(expert)];
  }
  std::int64_t rows = 0;
  for (std::size_t expert = 0; expert < next.size(); ++expert) {
    next[expert] = rows;
    rows += copies.per_expert[expert];
  }
  copies.order.resize(static_cast<std::size_t>(rows));
  for (std::int64_t copy = 0; copy < all; ++copy) {
    const std::int64_t expert = chosen[copy] - first;
    if (expert < 0 || expert >= count) continue;
    copies.order[static_cast<std::size_t>(next[static_cast<std::size_t>(expert)]++)] = copy;
  }
  return copies;
}

void route(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& forced, Tensor& weights,
           Tensor& choice) {
  Tensor logits = at::mm(x, weight.t());
  if (logits.scalar_type() != weights.scalar_type()) logits = logits.to(weights.scalar_type());
  with_type(weights.scalar_type(), [&](auto value) { choose<Sum<decltype(value)>>(logits, forced, weights, choice); });
}

void route_backward(const Tensor& weights, const Tensor& choice, const Tensor& dweights, Tensor& dlogits) {
  with_type(weights.scalar_type(),
            [&](auto value) { choose_backward<Sum<decltype(value)>>(weights, choice, dweights, dlogits); });
}

void add_router_input_gradient(const Tensor& dlogits, const Tensor& weight, Tensor& dx) {
  if (dlogits.scalar_type() == dx.scalar_type())
    dx.addmm_(dlogits, weight);
  else
    dx.addmm_(dlogits.to(dx.scalar_type()), weight);
}

void add_router_weight_gradient(const Tensor& x, const Tensor& dlogits, Tensor& dweight) {
  add_product(dlogits.scalar_type() == x.scalar_type() ? dlogits : dlogits.to(x.scalar_type()), x, dweight);
}

void copy_to_rows(const Tensor& from, const SortedCopies& copies, std::int64_t k, Tensor& to) {
  with_type(from.scalar_type(), [&](auto value) {
    for (std::size_t i = 0; i < copies.order.size(); ++i)
      copy_row<decltype(value)>(from, copies.order[i] / k, to, static_cast<std::int64_t>(i));
  });
}

void copy_weights(const Tensor& weights, const SortedCopies& copies, Tensor& to) {
  with_type(weights.scalar_type(), [&](auto value) {
    using T = decltype(value);
    for (std::size_t i = 0; i < copies.order.size(); ++i) to.data_ptr<T>()[i] = weights.data_ptr<T>()[copies.order[i]];
  });
}

void sum_copies(const Tensor& rows, const SortedCopies& copies, std::int64_t k, Tensor& to) {
  // Where each copy stands; −1: with experts of other ranks.
  std::vector<std::int64_t> place(static_cast<std::size_t>(to.size(0) * k), -1);
  for (std::size_t i = 0; i < copies.order.size(); ++i)
    place[static_cast<std::size_t>(copies.order[i])] = static_cast<std::int64_t>(i);
  with_type(rows.scalar_type(), [&](auto value) {
    using T = decltype(value);
    using S = Sum<T>;
    const std::int64_t width = to.size(1);
    for (std::int64_t token = 0; token < to.size(0); ++token) {
      T* out = row_of<T>(to, token);
      std::fill(out, out + width, T(0));
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t row = place[static_cast<std::size_t>(token * k + i)];
        if (row < 0) continue;
        const T* in = row_of<T>(rows, row);
        for (std::int64_t j = 0; j < width; ++j) out[j] = T(S(out[j]) + S(in[j]));
      }
    }
  });
}

void return_weights(const Tensor& rows, const SortedCopies& copies, Tensor& weights) {
  weights.zero_();
  with_type(weights.scalar_type(), [&](auto value) {
    using T = decltype(value);
    for (std::size_t i = 0; i < copies.order.size(); ++i)
      weights.data_ptr<T>()[copies.order[i]] = rows.data_ptr<T>()[i];
  });
}

void reorder(const Tensor& from, const std::vector<std::int64_t>& order, bool back, Tensor& to) {
  with_type(from.scalar_type(), [&](auto value) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto here = static_cast<std::int64_t>(i);
      copy_row<decltype(value)>(from, back ? here : order[i], to, back ? order[i] : here);
    }
  });
}

void expert_linear(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& per_expert, Tensor& y) {
  for_each_expert(per_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    Tensor part = y.narrow(0, first, rows);
    at::mm_out(part, x.narrow(0, first, rows), weight.select(0, expert).t());
  });
}

void expert_input_gradient(const Tensor& dy, const Tensor& weight, const std::vector<std::int64_t>& per_expert,
                           Tensor& dx) {
  for_each_expert(per_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    Tensor part = dx.narrow(0, first, rows);
    at::mm_out(part, dy.narrow(0, first, rows), weight.select(0, expert));
  });
}

void expert_weight_gradient(const Tensor& x, const Tensor& dy, const std::vector<std::int64_t>& per_expert,
                            Tensor& dweight) {
  for_each_expert(per_expert, [&](std::int64_t expert, std::int64_t first, std::int64_t rows) {
    add_product(dy.narrow(0, first, rows), x.narrow(0, first, rows), dweight.select(0, expert));
  });
}

void weighted_activation(const Tensor& up, const Tensor& weights, bool gated, Tensor& hidden) {
  if (up.size(0) == 0) return;
  activation(up, gated, hidden);
  with_type(up.scalar_type(), [&](auto value) { scale_rows<decltype(value)>(hidden, weights); });
}

void weighted_activation_backward(const Tensor& up, const Tensor& weights, Tensor& dhidden, bool gated, Tensor& dup,
                                  Tensor& dweights) {
  if (up.size(0) == 0) return;
  if (gated) {
    Tensor sigmoid = dup.narrow(-1, 0, dhidden.size(1));
    at::sigmoid_out(sigmoid, up.narrow(-1, 0, dhidden.size(1)));
    with_type(up.scalar_type(),
              [&](auto value) { gated_backward<decltype(value)>(up, weights, dhidden, dup, dweights); });
    return;
  }
  at::gelu_out(dup, up);
  with_type(up.scalar_type(), [&](auto value) {
    using T = decltype(value);
    using S = Sum<T>;
    for (std::int64_t row = 0; row < up.size(0); ++row) {
      const T* dh = row_of<T>(dhidden, row);
      const T* hidden = row_of<T>(dup, row);
      dweights.data_ptr<S>()[row] = add_up<S>(up.size(1), [&](std::int64_t i) { return S(dh[i]) * S(hidden[i]); });
    }
    scale_rows<T>(dhidden, weights);
  });
  at::gelu_backward_out(dup, dhidden, up);
}

} // namespace foretrain::kernels
