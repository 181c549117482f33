#pragma once

#include <cstdint>

namespace foretrain {

/// Bytes that LibTorch's tensors hold on the CPU, all threads together.
struct AllocatorCount {
  std::int64_t current = 0;
  std::int64_t peak = 0;        ///< highest since the last `restart_peak`
  std::int64_t allocations = 0; ///< since the start
};

/// Replaces LibTorch's CPU allocator by one that counts, for the whole process: call it once, from `main`, before the
/// first tensor. Every block carries its size in 64 bytes before it, which are not counted.
void install_counting_allocator();
[[nodiscard]] AllocatorCount allocator_count();
void restart_peak();

} // namespace foretrain
