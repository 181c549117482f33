#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace foretrain {

/// A number with a unit in its type: a size cannot be added to a time. Only quantities that meet at interfaces get one;
/// counts of layers, heads and ranks stay `int`.
template <class Tag, class Rep> struct Quantity {
  Rep value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, Rep b) { return Quantity(a.value * b); }
  friend constexpr Quantity operator*(Rep a, Quantity b) { return Quantity(a * b.value); }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;             ///< exact; 2^63 B is 8 EiB
using Flop = Quantity<struct FlopTag, double>;                     ///< a count, not a rate; a multiply-add is 2
using Seconds = Quantity<struct SecondsTag, double>;               ///< a duration or a point on the step's clock
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>; ///< one direction of a link
using FlopPerSecond = Quantity<struct FlopPerSecondTag, double>;   ///< dense peak or achieved rate

[[nodiscard]] constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds(static_cast<double>(amount.value) / rate.value);
}
[[nodiscard]] constexpr Seconds operator/(Flop amount, FlopPerSecond rate) {
  return Seconds(amount.value / rate.value);
}

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

} // namespace foretrain
