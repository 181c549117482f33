#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/base/units.h"

namespace foretrain {

/// The rules of PyTorch's caching allocator without expandable segments (pytorch/pytorch
/// c10/cuda/CUDACachingAllocator.cpp): what a series of allocations reserves on the device, and whether it fits.
/// - Sizes are rounded to 512 B. Up to 1 MiB they come from segments of 2 MiB, below 10 MiB from segments of 20 MiB,
///   else from a segment of their own in steps of 2 MiB.
/// - The smallest free block that is large enough is taken, the rest is split off: in small segments from 512 B, else
///   above 1 MiB. Free neighbours of a segment join.
/// - What another stream used can be taken again only once the device has got there (Tensor.record_stream).
/// - Where the device has no room for a new segment, the host waits for the device, all segments that are free as a
///   whole are given back, and it is tried again.
class CachingAllocator {
public:
  /// `limit`: what the device has for segments.
  explicit CachingAllocator(Bytes limit) : limit_(limit.value) {}

  static constexpr int kNone = -1;
  /// A block of at least `bytes`; kNone for no bytes at all, and where the device has no room: `failed` says so.
  int allocate(Bytes bytes);
  void free(int block);
  /// Another stream may still use it: free at the next `synchronise`.
  void free_later(int block);
  /// The device has done what was issued.
  void synchronise();

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] Bytes reserved() const { return Bytes(reserved_); }
  [[nodiscard]] Bytes allocated() const { return Bytes(allocated_); }
  [[nodiscard]] Bytes peak_reserved() const { return Bytes(peak_reserved_); }
  [[nodiscard]] Bytes peak_allocated() const { return Bytes(peak_allocated_); }

private:
  struct Block {
    std::int64_t size = 0;
    int before = kNone; ///< neighbours in the segment
    int after = kNone;
    bool free = false;
    bool small = false;
  };
  using FreeList = std::set<std::pair<std::int64_t, int>>; ///< size, block

  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  FreeList& list_of(const Block& block) { return free_[block.small ? 0 : 1]; }
  int make(Block block);
  void drop(int block) { unused_.push_back(block); }
  /// A new segment; kNone where there is no room.
  int segment(std::int64_t size, bool small);
  void give_back();

  std::int64_t limit_;
  std::int64_t reserved_ = 0;
  std::int64_t allocated_ = 0;
  std::int64_t peak_reserved_ = 0;
  std::int64_t peak_allocated_ = 0;
  bool failed_ = false;
  std::vector<Block> blocks_;
  std::vector<int> late_;   ///< freed, but another stream may still use them
  std::vector<int> unused_; ///< indices that may be taken again
  std::array<FreeList, 2> free_;
};

} // namespace foretrain
