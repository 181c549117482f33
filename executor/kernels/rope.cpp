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

template <class T> void turn_parts(const HeadRows& from, const RopeShape& shape, const HeadRows& to, bool back) {
  const std::array<const Tensor*, 3> in = {&from.q, &from.k, &from.v};
  const std::array<const Tensor*, 3> out = {&to.q, &to.k, &to.v};
  const std::int64_t d = shape.width;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::int64_t count = i == 0 ? shape.query : shape.kv;
    const Heads<T> heads{in[i]->data_ptr<T>(), in[i]->stride(0), d, out[i]->data_ptr<T>(), out[i]->stride(0), d};
    if (i < 2 && shape.turns.defined())
      turn<T>(heads, in[i]->size(0), count, d, shape.turns, back);
    else
      copy<T>(heads, in[i]->size(0), count, d);
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

HeadRows parts_of(const Tensor& qkv, const RopeShape& shape) {
  const std::int64_t queries = shape.query * shape.width;
  const std::int64_t keys = shape.kv * shape.width;
  return {qkv.narrow(1, 0, queries), qkv.narrow(1, queries, keys), qkv.narrow(1, queries + keys, keys)};
}

void rope(const HeadRows& from, const RopeShape& shape, const HeadRows& to) {
  with_type(from.q.scalar_type(), [&](auto value) { turn_parts<decltype(value)>(from, shape, to, false); });
}

void rope_backward(const HeadRows& from, const RopeShape& shape, const HeadRows& to) {
  with_type(from.q.scalar_type(), [&](auto value) { turn_parts<decltype(value)>(from, shape, to, true); });
}

} // namespace foretrain::kernels
