#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

/// Numbers that depend on what they are for and on nothing else: equal in every layout, on every rank and in any order.
namespace foretrain::counter {

/// One step of splitmix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195): a good hash of 64 bits.
[[nodiscard]] std::uint64_t splitmix64(std::uint64_t value);

/// FNV-1a of a name.
[[nodiscard]] std::uint64_t hash(std::string_view name);

/// Uniform in [−1, 1), from the name of a tensor and the index of an element in the whole tensor.
[[nodiscard]] double uniform(std::uint64_t seed, std::uint64_t name, std::int64_t element);

/// `count` + 1 tokens of a sequence: the input of position i is token i, its target token i + 1. A token follows the
/// one before by a stride that the sequence keeps, so that a model can learn from context; `sequence` counts from the
/// first step on.
[[nodiscard]] std::vector<std::int64_t> tokens(std::uint64_t seed, std::int64_t sequence, std::int64_t count,
                                               std::int64_t vocab);

} // namespace foretrain::counter
