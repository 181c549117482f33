#include "executor/allocator.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace foretrain {
namespace {

constexpr std::size_t kHeader = 64; ///< keeps the alignment that vector instructions want

/// The one place where the executor holds state for the process: LibTorch asks one allocator per device type.
struct Counters {
  std::atomic<std::int64_t> current{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> allocations{0};
};
Counters& counters() {
  static Counters instance;
  return instance;
}

/// Which account a thread's blocks are booked on: LibTorch hands an allocator nothing but a size.
AllocatorAccount*& bound() {
  thread_local AllocatorAccount* account = nullptr;
  return account;
}

/// What stands before a block.
struct Header {
  std::int64_t bytes = 0;
  AllocatorAccount* account = nullptr;
};
static_assert(sizeof(Header) <= kHeader);

void raise(std::atomic<std::int64_t>& current, std::atomic<std::int64_t>& peak, std::int64_t bytes) {
  const std::int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t highest = peak.load(std::memory_order_relaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

void add(const Header& header) {
  Counters& c = counters();
  c.allocations.fetch_add(1, std::memory_order_relaxed);
  if (!header.account || !header.account->apart) raise(c.current, c.peak, header.bytes);
  if (header.account) raise(header.account->current, header.account->peak, header.bytes);
}

void subtract(const Header& header) {
  if (!header.account || !header.account->apart) counters().current.fetch_sub(header.bytes, std::memory_order_relaxed);
  if (header.account) header.account->current.fetch_sub(header.bytes, std::memory_order_relaxed);
}

void release(void* pointer) {
  if (!pointer) return;
  char* base = static_cast<char*>(pointer) - kHeader;
  Header header;
  std::memcpy(&header, base, sizeof header);
  subtract(header);
  std::free(base); // NOLINT: of aligned_alloc
}

#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-missing-override" // which of them override depends on the version
#endif

/// Versions of LibTorch differ in whether `allocate` is const and whether `copy_data` exists: both are here, and those
/// that the base declares override it.
class CountingAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t bytes) const { return take(bytes); } // NOLINT
  c10::DataPtr allocate(std::size_t bytes) { return take(bytes); }       // NOLINT
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); } // NOLINT

private:
  static c10::DataPtr take(std::size_t bytes) {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    const std::size_t whole = (bytes + kHeader + kHeader - 1) / kHeader * kHeader;
    char* base = static_cast<char*>(std::aligned_alloc(kHeader, whole));
    if (!base) throw std::bad_alloc();
    const Header header{static_cast<std::int64_t>(bytes), bound()};
    std::memcpy(base, &header, sizeof header);
    add(header);
    return {base + kHeader, base + kHeader, &release, device};
  }
};

} // namespace

void install_counting_allocator() {
  static CountingAllocator allocator;
#ifdef __GLIBC__
  // What is freed is wanted again in the next block or step: without these glibc gives it back and faults it in anew.
  constexpr int kMostByMap = 32 << 20; // the highest that glibc takes
  constexpr int kPad = 64 << 20;
  (void)mallopt(M_MMAP_THRESHOLD, kMostByMap);
  (void)mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  (void)mallopt(M_TOP_PAD, kPad);
#endif
  c10::SetCPUAllocator(&allocator, 255); // above LibTorch's own, whatever it is built with
}

AllocatorCount allocator_count() {
  const Counters& c = counters();
  return {c.current.load(), c.peak.load(), c.allocations.load()};
}

std::shared_ptr<const void> book(std::int64_t bytes) {
  const auto header = new Header{bytes, bound()};
  add(*header);
  return {header, [](const Header* booked) {
            subtract(*booked);
            delete booked;
          }};
}

AccountScope::AccountScope(AllocatorAccount* account) : before_(std::exchange(bound(), account)) {}
AccountScope::~AccountScope() {
  bound() = before_;
}

void restart_peak() {
  counters().peak.store(counters().current.load());
}

} // namespace foretrain
