#include "executor/counter.h"

namespace foretrain::counter {

std::uint64_t splitmix64(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

std::uint64_t hash(std::string_view name) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char character : name) value = (value ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
  return value;
}

double uniform(std::uint64_t seed, std::uint64_t name, std::int64_t element) {
  const std::uint64_t bits = splitmix64(splitmix64(seed ^ name) + static_cast<std::uint64_t>(element));
  return static_cast<double>(bits >> 11U) * 0x1p-52 - 1;
}

std::vector<std::int64_t> tokens(std::uint64_t seed, std::int64_t sequence, std::int64_t count, std::int64_t vocab) {
  constexpr std::uint64_t kStrides = 4;
  const std::uint64_t bits = splitmix64(splitmix64(seed) + static_cast<std::uint64_t>(sequence));
  const auto stride = static_cast<std::int64_t>(1 + bits % kStrides);
  const auto start = static_cast<std::int64_t>((bits / kStrides) % static_cast<std::uint64_t>(vocab));
  std::vector<std::int64_t> result(static_cast<std::size_t>(count) + 1);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = (start + static_cast<std::int64_t>(i) * stride) % vocab;
  return result;
}

} // namespace foretrain::counter
