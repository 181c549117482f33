#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

/// What the loops written by hand share. Values of half precision are added up, and statistics and gradients of weights
/// kept, in single precision.
namespace foretrain::kernels {

template <class T> using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Σ value(i) for i < count, in eight interleaved sums: a vector unit can do it, and the order is fixed.
template <class S, class Value> S add_up(std::int64_t count, Value&& value) {
  constexpr std::int64_t kLanes = 8;
  std::array<S, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<std::size_t>(lane)] += value(i + lane);
  for (; i < count; ++i) lanes[0] += value(i);
  S sum = 0;
  for (const S lane : lanes) sum += lane;
  return sum;
}

/// The largest value(i) for i < count, in interleaved parts as in `add_up`; −∞ of none.
template <class S, class Value> S largest_of(std::int64_t count, Value&& value) {
  constexpr std::int64_t kLanes = 8;
  std::array<S, kLanes> lanes;
  lanes.fill(-std::numeric_limits<S>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      S& top = lanes[static_cast<std::size_t>(lane)];
      const S here = value(i + lane);
      top = top < here ? here : top;
    }
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], S(value(i)));
  return *std::max_element(lanes.begin(), lanes.end());
}

/// Calls `body` with a value of the tensor's type: double, float or bfloat16.
template <class Body> void with_type(at::ScalarType type, Body&& body) {
  if (type == at::kDouble) return body(double{});
  if (type == at::kFloat) return body(float{});
  TORCH_CHECK(type == at::kBFloat16, "kernels work in double, float and bfloat16");
  body(at::BFloat16{});
}

} // namespace foretrain::kernels
