#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

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

/// Bytes of the blocks that threads bound to it took, whoever frees them: ranks that run as threads of one process have
/// one each.
struct AllocatorAccount {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
  bool apart = false; ///< a memory of its own (the host's, beside the device's): not in the process's count
  void restart_peak() { peak.store(current.load()); }
};

/// Counts bytes that another allocator took (pinned memory, say) as if they were a block that this thread took, until
/// the last copy of what it returns is gone.
[[nodiscard]] std::shared_ptr<const void> book(std::int64_t bytes);

/// Binds the calling thread to an account, which must outlive every block taken meanwhile; null: to none.
class AccountScope {
public:
  explicit AccountScope(AllocatorAccount* account);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

private:
  AllocatorAccount* before_;
};

} // namespace foretrain
