#include "planner/stragglers.h"

#include <cmath>
#include <iterator>

namespace foretrain {

double expected_maximum(int ranks) {
  struct Point {
    double n, value;
  };
  constexpr Point kPoints[] = {{1, 0}, {8, 1.42}, {64, 2.34}, {512, 3.04}, {1024, 3.25}, {4096, 3.63}, {16384, 3.97}};
  const double n = ranks;
  for (std::size_t i = 1; i < std::size(kPoints); ++i)
    if (n <= kPoints[i].n) {
      const double share = std::log(n / kPoints[i - 1].n) / std::log(kPoints[i].n / kPoints[i - 1].n);
      return kPoints[i - 1].value + share * (kPoints[i].value - kPoints[i - 1].value);
    }
  return kPoints[std::size(kPoints) - 1].value;
}

} // namespace foretrain
