#pragma once

namespace foretrain {

/// A transfer that has been started; its memory must stay as it is until `wait` returns.
class Transfer {
public:
  virtual ~Transfer() = default;
  /// Where a device moves data it is the device that waits: what is issued from now on runs after the transfer. Throws
  /// when the peer is gone or the time is up. A second call does nothing.
  virtual void wait() = 0;
};

/// When a device ran a transfer, in seconds since the clock's start.
struct TransferTime {
  double start = 0;
  double end = 0;
};

} // namespace foretrain
