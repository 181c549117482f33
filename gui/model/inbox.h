// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace foretrain::gui {

/// What other threads leave for the thread that owns the session.
class Inbox {
public:
  /// From any thread. `wake` is called after it, on the same thread.
  void post(std::function<void()> message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    if (wake) wake();
  }
  /// On the owning thread.
  void deliver() {
    std::vector<std::function<void()>> messages;
    {
      const std::lock_guard lock(mutex_);
      messages.swap(messages_);
    }
    for (const auto& message : messages) message();
  }

  std::function<void()> wake; ///< set before the first post

private:
  std::mutex mutex_;
  std::vector<std::function<void()>> messages_;
};

} // namespace foretrain::gui
