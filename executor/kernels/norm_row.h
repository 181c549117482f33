#pragma once

#include <cmath>
#include <cstdint>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

/// The arithmetic of norms for `width` values that share a statistic. RMSNorm is the case without a bias: its mean
/// is 0.
namespace foretrain::kernels {

template <class T> Sum<T> mean_of(const T* in, std::int64_t width) {
  using S = Sum<T>;
  return add_up<S>(width, [&](std::int64_t i) { return S(in[i]); }) / S(width);
}

/// Σ (x − mean)².
template <class T> Sum<T> squares_of(const T* in, std::int64_t width, Sum<T> mean) {
  using S = Sum<T>;
  return add_up<S>(width, [&](std::int64_t i) { return (S(in[i]) - mean) * (S(in[i]) - mean); });
}

/// 1 / deviation from the sum of squares of `whole` values.
template <class S> S inverse_deviation(S squares, std::int64_t whole) {
  return S(1) / std::sqrt(squares / S(whole) + S(kNormEpsilon));
}

/// y = (x − mean) · scale · w + b.
template <class T>
void write_normed(const T* in, const T* w, const T* b, std::int64_t width, Sum<T> mean, Sum<T> scale, T* out) {
  using S = Sum<T>;
  if (b)
    for (std::int64_t i = 0; i < width; ++i) out[i] = T((S(in[i]) - mean) * scale * S(w[i]) + S(b[i]));
  else
    for (std::int64_t i = 0; i < width; ++i) out[i] = T(S(in[i]) * scale * S(w[i]));
}

/// Σ dy · w · (x − mean): what of the gradient changes the row's length.
template <class T> Sum<T> products_of(const T* in, const T* g, const T* w, std::int64_t width, Sum<T> mean) {
  using S = Sum<T>;
  return add_up<S>(width, [&](std::int64_t i) { return S(g[i]) * S(w[i]) * (S(in[i]) - mean); });
}

/// Adds to the gradients of weight and bias.
template <class T>
void add_norm_gradients(const T* in, const T* g, std::int64_t width, Sum<T> mean, Sum<T> scale, Sum<T>* dw,
                        Sum<T>* db) {
  using S = Sum<T>;
  for (std::int64_t i = 0; i < width; ++i) dw[i] += S(g[i]) * (S(in[i]) - mean) * scale;
  if (db)
    for (std::int64_t i = 0; i < width; ++i) db[i] += S(g[i]);
}

/// dx = (dy · w − level − (x − mean) · scale · along) · scale, plus `added` when given. `along`: the products' mean
/// times `scale`; `level`: the mean of dy · w where the norm has a mean, else 0.
template <class T> struct NormGradient {
  const T* in;
  const T* g;
  const T* w;
  const T* added;
  std::int64_t width;
  Sum<T> mean;
  Sum<T> scale;
  Sum<T> along;
  Sum<T> level;

  void write(T* out) const {
    using S = Sum<T>;
    for (std::int64_t i = 0; i < width; ++i) {
      const S here = (S(g[i]) * S(w[i]) - level - (S(in[i]) - mean) * scale * along) * scale;
      out[i] = T(added ? here + S(added[i]) : here);
    }
  }
};

/// Mean of dy · w.
template <class T> Sum<T> level_of(const T* g, const T* w, std::int64_t width) {
  using S = Sum<T>;
  return add_up<S>(width, [&](std::int64_t i) { return S(g[i]) * S(w[i]); }) / S(width);
}

} // namespace foretrain::kernels
