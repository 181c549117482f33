#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

/// Fits of times that are sums of a few rates.
namespace foretrain {

/// Σ coefficient · feature ≈ seconds.
template <std::size_t N> struct Sample {
  std::array<double, N> features{};
  double seconds = 0;
  double whole = 0; ///< what an error is relative to; 0 = `seconds`. Where those are a rest, which may be negative
  [[nodiscard]] double measure() const { return whole > 0 ? whole : seconds; }
};

/// Solves a x = b of size `n` by elimination with pivots; a column without a pivot gets 0.
template <std::size_t N> std::array<double, N> solve(std::array<std::array<double, N + 1>, N> a) {
  std::array<bool, N> used{};
  std::array<int, N> row_of{};
  row_of.fill(-1);
  for (std::size_t column = 0; column < N; ++column) {
    std::size_t best = N;
    for (std::size_t row = 0; row < N; ++row)
      if (!used[row] && (best == N || std::abs(a[row][column]) > std::abs(a[best][column]))) best = row;
    if (best == N || std::abs(a[best][column]) < 1e-12) continue;
    used[best] = true;
    row_of[column] = static_cast<int>(best);
    for (std::size_t row = 0; row < N; ++row) {
      if (row == best) continue;
      const double factor = a[row][column] / a[best][column];
      for (std::size_t k = column; k <= N; ++k) a[row][k] -= factor * a[best][k];
    }
  }
  std::array<double, N> x{};
  for (std::size_t column = 0; column < N; ++column)
    if (row_of[column] >= 0) {
      const auto row = static_cast<std::size_t>(row_of[column]);
      x[column] = a[row][N] / a[row][column];
    }
  return x;
}

/// Least squares of relative errors with coefficients that are not negative: the most negative is set to 0 until none
/// is left. Features are scaled to their largest, so that the pivots compare.
template <std::size_t N> std::array<double, N> fit(const std::vector<Sample<N>>& samples) {
  std::array<double, N> scale{};
  for (const Sample<N>& sample : samples)
    for (std::size_t i = 0; i < N; ++i) scale[i] = std::max(scale[i], sample.features[i] / sample.measure());
  std::array<bool, N> off{};
  for (std::size_t i = 0; i < N; ++i) off[i] = !(scale[i] > 0);
  while (true) {
    std::array<std::array<double, N + 1>, N> normal{};
    for (const Sample<N>& sample : samples) {
      std::array<double, N> f{};
      for (std::size_t i = 0; i < N; ++i) f[i] = off[i] ? 0 : sample.features[i] / sample.measure() / scale[i];
      for (std::size_t i = 0; i < N; ++i) {
        for (std::size_t k = 0; k < N; ++k) normal[i][k] += f[i] * f[k];
        normal[i][N] += f[i] * sample.seconds / sample.measure();
      }
    }
    std::array<double, N> x = solve<N>(normal);
    const auto lowest = std::min_element(x.begin(), x.end());
    if (*lowest >= 0) {
      for (std::size_t i = 0; i < N; ++i) x[i] = off[i] ? 0 : x[i] / scale[i];
      return x;
    }
    off[static_cast<std::size_t>(lowest - x.begin())] = true;
  }
}

} // namespace foretrain
