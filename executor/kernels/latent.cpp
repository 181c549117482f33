#include "executor/kernels/latent.h"

#include <algorithm>
#include <cmath>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

namespace foretrain::kernels {
namespace {

template <class T> Sum<T> inverse_length(const T* row, std::int64_t width) {
  using S = Sum<T>;
  const S square = add_up<S>(width, [&](std::int64_t i) { return S(row[i]) * S(row[i]); });
  return S(1) / std::sqrt(square / S(width) + S(kNormEpsilon));
}

template <class T> void norm_rows(const Tensor& x, const Tensor& weight, Tensor& y) {
  using S = Sum<T>;
  const std::int64_t width = weight.size(0);
  const T* w = weight.data_ptr<T>();
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const T* in = x.data_ptr<T>() + row * x.size(1);
    T* out = y.data_ptr<T>() + row * width;
    const S scale = inverse_length(in, width);
    for (std::int64_t i = 0; i < width; ++i) out[i] = T(S(in[i]) * scale * S(w[i]));
  }
}

template <class T>
void norm_rows_backward(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor* rest, Tensor& dx,
                        Tensor& dweight) {
  using S = Sum<T>;
  const std::int64_t width = weight.size(0);
  const std::int64_t further = x.size(1) - width;
  const T* w = weight.data_ptr<T>();
  S* dw = dweight.data_ptr<S>();
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const T* in = x.data_ptr<T>() + row * x.size(1);
    const T* g = dy.data_ptr<T>() + row * width;
    T* out = dx.data_ptr<T>() + row * x.size(1);
    const S scale = inverse_length(in, width);
    const S along = add_up<S>(width, [&](std::int64_t i) { return S(g[i]) * S(w[i]) * S(in[i]); }) * scale / S(width);
    for (std::int64_t i = 0; i < width; ++i) {
      dw[i] += S(g[i]) * S(in[i]) * scale;
      out[i] = T((S(g[i]) * S(w[i]) - S(in[i]) * scale * along) * scale);
    }
    if (rest) std::copy_n(rest->data_ptr<T>() + row * further, further, out + width);
  }
}

/// Turns `width` numbers, halves being the two coordinates; backwards for gradients.
template <class T> class Turner {
public:
  using S = Sum<T>;
  explicit Turner(const LatentShape& shape)
      : half_(shape.turned / 2), length_(shape.turns.size(1)), cosines_(shape.turns.data_ptr<S>()),
        sines_(cosines_ + length_ * half_) {}
  /// `adds`: onto what stands there.
  void turn(std::int64_t row, const T* in, T* out, bool back, bool adds) const {
    const S* c = cosines_ + row % length_ * half_;
    const S* s = sines_ + row % length_ * half_;
    for (std::int64_t i = 0; i < half_; ++i) {
      const S sine = back ? -s[i] : s[i];
      const S first = S(in[i]) * c[i] - S(in[i + half_]) * sine;
      const S second = S(in[i + half_]) * c[i] + S(in[i]) * sine;
      out[i] = T(adds ? S(out[i]) + first : first);
      out[i + half_] = T(adds ? S(out[i + half_]) + second : second);
    }
  }

private:
  std::int64_t half_;
  std::int64_t length_;
  const S* cosines_;
  const S* sines_;
};

template <class T> T* head_of(const Tensor& rows, std::int64_t row, std::int64_t head, std::int64_t width) {
  return rows.data_ptr<T>() + row * rows.size(1) + head * width;
}

} // namespace

void latent_norm(const Tensor& x, const Tensor& weight, Tensor& y) {
  with_type(x.scalar_type(), [&](auto value) { norm_rows<decltype(value)>(x, weight, y); });
}

void latent_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor* rest, Tensor& dx,
                          Tensor& dweight) {
  with_type(x.scalar_type(),
            [&](auto value) { norm_rows_backward<decltype(value)>(x, weight, dy, rest, dx, dweight); });
}

void latent_rope(const Tensor& queries, const Tensor& keys_values, const Tensor& compressed, const LatentShape& s,
                 Tensor& q, Tensor& k, Tensor& v) {
  with_type(queries.scalar_type(), [&](auto value) {
    using T = decltype(value);
    const Turner<T> turner(s);
    const std::int64_t width = s.plain + s.turned;
    for (std::int64_t row = 0; row < queries.size(0); ++row) {
      const T* shared = head_of<T>(compressed, row, 0, 0) + compressed.size(1) - s.turned;
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const T* from_q = head_of<T>(queries, row, head, width);
        const T* from_kv = head_of<T>(keys_values, row, head, s.plain + s.value);
        T* to_q = head_of<T>(q, row, head, width);
        T* to_k = head_of<T>(k, row, head, width);
        std::copy_n(from_q, s.plain, to_q);
        turner.turn(row, from_q + s.plain, to_q + s.plain, false, false);
        std::copy_n(from_kv, s.plain, to_k);
        turner.turn(row, shared, to_k + s.plain, false, false);
        std::copy_n(from_kv + s.plain, s.value, head_of<T>(v, row, head, s.value));
      }
    }
  });
}

void latent_rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const LatentShape& s, Tensor& dqueries,
                          Tensor& dkeys_values, Tensor& dshared) {
  with_type(dq.scalar_type(), [&](auto value) {
    using T = decltype(value);
    const Turner<T> turner(s);
    const std::int64_t width = s.plain + s.turned;
    for (std::int64_t row = 0; row < dq.size(0); ++row)
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const T* from_q = head_of<T>(dq, row, head, width);
        const T* from_k = head_of<T>(dk, row, head, width);
        T* to_q = head_of<T>(dqueries, row, head, width);
        T* to_kv = head_of<T>(dkeys_values, row, head, s.plain + s.value);
        std::copy_n(from_q, s.plain, to_q);
        turner.turn(row, from_q + s.plain, to_q + s.plain, true, false);
        std::copy_n(from_k, s.plain, to_kv);
        turner.turn(row, from_k + s.plain, head_of<T>(dshared, row, 0, 0), true, head > 0);
        std::copy_n(head_of<T>(dv, row, head, s.value), s.value, to_kv + s.plain);
      }
  });
}

} // namespace foretrain::kernels
