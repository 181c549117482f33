#pragma once

namespace foretrain {

/// A transfer that has been started; its memory must stay as it is until `wait` returns.
class Transfer {
public:
  virtual ~Transfer() = default;
  /// Throws when the peer is gone or the time is up. A second call does nothing.
  virtual void wait() = 0;
};

} // namespace foretrain
