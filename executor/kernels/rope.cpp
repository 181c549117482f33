#include <algorithm>
#include <array>
#include <cmath>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

namespace foretrain::kernels {
namespace {

/// Copies or turns heads: row i of `from` starts at i · from_stride, heads lie `from_step` apart.
template <class T> struct Heads {
  const T* from;
  std::int64_t from_stride;
  std::int64_t from_step;
  T* to;
  std::int64_t to_stride;
  std::int64_t to_step;
};

template <class T>
void turn(const Heads<T>& heads, std::int64_t rows, std::int64_t count, std::int64_t width, const Tensor& turns,
          bool back) {
  using S = Sum<T>;
  const std::int64_t half = width / 2;
  const std::int64_t length = turns.size(1);
  const S* cosines = turns.data_ptr<S>();
  const S* sines = cosines + length * half;
  for (std::int64_t row = 0; row < rows; ++row) {
    const S* c = cosines + row % length * half;
    const S* s = sines + row % length * half;
    for (std::int64_t head = 0; head < count; ++head) {
      const T* in = heads.from + row * heads.from_stride + head * heads.from_step;
      T* out = heads.to + row * heads.to_stride + head * heads.to_step;
      for (std::int64_t i = 0; i < half; ++i) {
        const S sine = back ? -s[i] : s[i];
        const S first = S(in[i]) * c[i] - S(in[i + half]) * sine;
        const S second = S(in[i + half]) * c[i] + S(in[i]) * sine;
        out[i] = T(first);
        out[i + half] = T(second);
      }
    }
  }
}

template <class T> void copy(const Heads<T>& heads, std::int64_t rows, std::int64_t count, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < count; ++head) {
      const T* in = heads.from + row * heads.from_stride + head * heads.from_step;
      std::copy(in, in + width, heads.to + row * heads.to_stride + head * heads.to_step);
    }
}

/// Between rows of [Q | K | V] and the three.
template <class T>
void split(const Tensor& mixed, const std::array<Tensor, 3>& parts, const RopeShape& shape, bool join) {
  const std::int64_t rows = mixed.size(0);
  const std::int64_t d = shape.width;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t count = i == 0 ? shape.query : shape.kv;
    T* whole = mixed.data_ptr<T>() + offset;
    T* part = parts[i].template data_ptr<T>();
    const Heads<T> heads = join ? Heads<T>{part, count * d, d, whole, mixed.size(1), d}
                                : Heads<T>{whole, mixed.size(1), d, part, count * d, d};
    if (i < 2 && shape.turns.defined())
      turn<T>(heads, rows, count, d, shape.turns, join);
    else
      copy<T>(heads, rows, count, d);
    offset += count * d;
  }
}

} // namespace

Tensor rope_turns(const std::vector<std::int64_t>& positions, std::int64_t width, at::ScalarType type) {
  const auto length = static_cast<std::int64_t>(positions.size());
  Tensor turns = at::empty({2, length, width / 2}, type);
  const Tensor exact = at::empty({2, length, width / 2}, at::kDouble);
  double* value = exact.data_ptr<double>();
  for (std::int64_t row = 0; row < length; ++row)
    for (std::int64_t i = 0; i < width / 2; ++i) {
      const double angle = static_cast<double>(positions[static_cast<std::size_t>(row)]) *
                           std::pow(kRopeBase, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      value[row * (width / 2) + i] = std::cos(angle);
      value[(length + row) * (width / 2) + i] = std::sin(angle);
    }
  return turns.copy_(exact);
}

void rope(const Tensor& qkv, const RopeShape& shape, Tensor& q, Tensor& k, Tensor& v) {
  with_type(qkv.scalar_type(), [&](auto value) { split<decltype(value)>(qkv, {q, k, v}, shape, false); });
}

void rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const RopeShape& shape, Tensor& dqkv) {
  with_type(dq.scalar_type(), [&](auto value) { split<decltype(value)>(dqkv, {dq, dk, dv}, shape, true); });
}

} // namespace foretrain::kernels
