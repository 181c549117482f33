#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/base/check.h"

namespace foretrain {

/// A key of up to `kMost` small numbers, without memory of its own on the heap.
class CacheKey {
public:
  static constexpr std::size_t kMost = 64;

  CacheKey() = default;
  CacheKey(std::initializer_list<std::int32_t> values) {
    for (const std::int32_t value : values) add(value);
  }
  void add(std::int32_t value) {
    FORETRAIN_CHECK(size_ < kMost, "a key of few numbers");
    values_[size_++] = value;
    hash_ = (hash_ ^ static_cast<std::uint32_t>(value)) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 32;
  }
  [[nodiscard]] std::size_t hash() const { return hash_; }
  bool operator==(const CacheKey& other) const {
    if (hash_ != other.hash_ || size_ != other.size_) return false;
    for (std::uint32_t i = 0; i < size_; ++i)
      if (values_[i] != other.values_[i]) return false;
    return true;
  }

private:
  std::uint64_t hash_ = 0x51afd7ed558ccd;
  std::uint32_t size_ = 0;
  std::array<std::int32_t, kMost> values_; // NOLINT: only the first size_ are read
};

struct CacheKeyHash {
  std::size_t operator()(const CacheKey& key) const { return key.hash(); }
};

} // namespace foretrain
