#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "core/program/ranks.h"
#include "executor/transfer.h"

namespace foretrain {

/// Moves tensors between the members of this rank's groups. One object per rank; not for several threads at once.
/// Every function throws (std::exception) when a peer is gone or the time is up: the interpreter adds rank and op.
class Communicator {
public:
  virtual ~Communicator() = default;

  enum class Reduction { sum, maximum };
  /// In place; the same bits on every member.
  virtual void all_reduce(Group group, at::Tensor& tensor, Reduction reduction) = 0;
  /// `whole` holds the members' shares one after another along its first dimension. It need not be contiguous, but each
  /// share is. `share` may be this member's part of it: then nothing is copied.
  virtual void all_gather(Group group, const at::Tensor& share, at::Tensor& whole) = 0;
  /// `share` gets this member's part (along the first dimension) of the sum, added in the same order every time (Gloo:
  /// of members). It may be this member's part of `whole`.
  virtual void reduce_scatter(Group group, const at::Tensor& whole, at::Tensor& share) = 0;

  /// `peer` is an index into the group. A transfer meets the one with the same tag.
  [[nodiscard]] virtual std::unique_ptr<Transfer> start_send(Group group, int peer, const at::Tensor& tensor,
                                                             int tag) = 0;
  [[nodiscard]] virtual std::unique_ptr<Transfer> start_receive(Group group, int peer, at::Tensor& tensor, int tag) = 0;

  virtual void barrier(Group group) = 0;

  // Of devices that move data on queues of their own.
  /// Starts the clock of transfers, at the place where the device's compute is; forgets those before.
  virtual void start_clock() {}
  /// Transfers issued since the clock was started.
  [[nodiscard]] virtual std::int64_t issued() const { return 0; }
  /// When each of them ran, once the device is done with all; empty: they are not timed.
  [[nodiscard]] virtual std::vector<TransferTime> take_times() { return {}; }
  /// Throws when a peer was lost since the last wait, so that what the device has received may be nothing.
  virtual void check() {}
};

} // namespace foretrain
