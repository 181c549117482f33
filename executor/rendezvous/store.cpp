#include "executor/rendezvous/store.h"

#include <mutex>

namespace foretrain {
namespace {

#ifdef __clang__
#pragma clang diagnostic ignored "-Winconsistent-missing-override" // which of them override depends on the version
#endif

/// Gloo asks from several threads.
class RendezvousStore final : public c10d::Store {
public:
  RendezvousStore(std::unique_ptr<RendezvousClient> client, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), client_(std::move(client)) {}

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const std::lock_guard lock(mutex_);
    client_->set(key, {value.begin(), value.end()});
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const std::string value = client_->get(key, timeout_);
    return {value.begin(), value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const std::lock_guard lock(mutex_);
    return client_->add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return client_->remove(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    return client_->check(keys);
  }
  std::int64_t getNumKeys() override { TORCH_CHECK(false, "the rendezvous does not count its keys"); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const std::lock_guard lock(mutex_);
    for (const std::string& key : keys) (void)client_->get(key, timeout);
  }
  // Newer versions ask for a copy per thread; this store may be shared.
  c10::intrusive_ptr<c10d::Store> clone() { return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this); } // NOLINT

private:
  std::mutex mutex_;
  std::unique_ptr<RendezvousClient> client_;
};

} // namespace

c10::intrusive_ptr<c10d::Store> make_store(std::unique_ptr<RendezvousClient> client,
                                           std::chrono::milliseconds timeout) {
  return c10::make_intrusive<RendezvousStore>(std::move(client), timeout);
}

} // namespace foretrain
