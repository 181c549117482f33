#include "core/program/allocator.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

constexpr std::int64_t kGrain = 512;
constexpr std::int64_t kSmallRequest = kMiB;
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kOwnSegment = 10 * kMiB; ///< from here a request gets a segment of its own size
constexpr std::int64_t kSegmentGrain = 2 * kMiB;

std::int64_t rounded(std::int64_t size, std::int64_t grain) {
  return (size + grain - 1) / grain * grain;
}

} // namespace

int CachingAllocator::make(Block block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int>(blocks_.size()) - 1;
  }
  const int index = unused_.back();
  unused_.pop_back();
  at(index) = block;
  return index;
}

void CachingAllocator::free_later(int block) {
  if (block != kNone) late_.push_back(block);
}

void CachingAllocator::synchronise() {
  for (const int block : late_) free(block);
  late_.clear();
}

void CachingAllocator::give_back() {
  synchronise();
  for (FreeList& list : free_)
    for (auto entry = list.begin(); entry != list.end();) {
      const Block& block = at(entry->second);
      if (block.before == kNone && block.after == kNone) {
        reserved_ -= block.size;
        drop(entry->second);
        entry = list.erase(entry);
      } else {
        ++entry;
      }
    }
}

int CachingAllocator::segment(std::int64_t size, bool small) {
  const std::int64_t bytes = small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : rounded(size, kSegmentGrain);
  if (reserved_ + bytes > limit_) give_back();
  if (reserved_ + bytes > limit_) return kNone;
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return make({bytes, kNone, kNone, false, small});
}

int CachingAllocator::allocate(Bytes bytes) {
  if (bytes.value <= 0 || failed_) return kNone;
  const std::int64_t size = rounded(bytes.value, kGrain);
  const bool small = size <= kSmallRequest;
  FreeList& list = free_[small ? 0 : 1];
  int block = kNone;
  if (const auto found = list.lower_bound({size, 0}); found != list.end()) {
    block = found->second;
    list.erase(found);
  } else {
    block = segment(size, small);
  }
  if (block == kNone) {
    failed_ = true;
    return kNone;
  }
  const std::int64_t rest = at(block).size - size;
  if (small ? rest >= kGrain : rest > kSmallRequest) {
    const int after = at(block).after;
    const int split = make({rest, block, after, true, small});
    if (after != kNone) at(after).before = split;
    at(block).after = split;
    at(block).size = size;
    list.insert({rest, split});
  }
  at(block).free = false;
  allocated_ += at(block).size;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return block;
}

void CachingAllocator::free(int block) {
  if (block == kNone) return;
  FORETRAIN_CHECK(!at(block).free, "a block is freed once");
  FreeList& list = list_of(at(block));
  allocated_ -= at(block).size;
  at(block).free = true;
  if (const int before = at(block).before; before != kNone && at(before).free) {
    list.erase({at(before).size, before});
    at(before).size += at(block).size;
    at(before).after = at(block).after;
    if (at(block).after != kNone) at(at(block).after).before = before;
    drop(block);
    block = before;
  }
  if (const int after = at(block).after; after != kNone && at(after).free) {
    list.erase({at(after).size, after});
    at(block).size += at(after).size;
    at(block).after = at(after).after;
    if (at(after).after != kNone) at(at(after).after).before = block;
    drop(after);
  }
  list.insert({at(block).size, block});
}

} // namespace foretrain
