#include <algorithm>

#include "executor/interpreter.h"

/// What a step's record says of its ops and of the whole: noted while it runs, read when the device is done.
namespace foretrain {

void Rank::begin(OpPlace place) {
  place_ = std::move(place);
  if (options_.progress)
    options_.progress->store((static_cast<std::int64_t>(step_) << 32) + static_cast<std::int64_t>(record_.ops.size()),
                             std::memory_order_relaxed);
  moved_ = 0;
  started_.begin = device_.mark(true);
  started_.first_transfer = communicator_.issued();
}

void Rank::finish() {
  started_.end = device_.mark(false);
  started_.end_transfer = communicator_.issued();
  record_.ops.push_back({place_, moved_, 0, 0, {}});
  marks_.push_back(started_);
}

/// After the step, when the device has reached all places.
void Rank::read_times() {
  const std::vector<double> times = device_.marks();
  const std::vector<TransferTime> transfers = communicator_.take_times();
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    OpRecord& op = record_.ops[i];
    op.start = times[static_cast<std::size_t>(marks_[i].begin)];
    op.end = times[static_cast<std::size_t>(marks_[i].end)];
    for (std::int64_t t = marks_[i].first_transfer; t < marks_[i].end_transfer; ++t) {
      if (t >= static_cast<std::int64_t>(transfers.size())) break; // not timed
      const TransferTime& time = transfers[static_cast<std::size_t>(t)];
      if (!op.transfer) op.transfer = time;
      op.transfer->start = std::min(op.transfer->start, time.start);
      op.transfer->end = std::max(op.transfer->end, time.end);
    }
  }
}

/// What the device computed and the record says.
void Rank::read_results() {
  const double tokens = static_cast<double>(plan_.job.global_batch) * plan_.job.sequence_length;
  double mtp_loss = 0;
  for (const auto& [micro_batch, context] : contexts_) {
    loss_ += context.loss.value();
    mtp_loss += context.mtp_loss.value();
  }
  // All ranks of a tensor-parallel group know the same loss; one of them reports it.
  const bool reports = program_.mesh.coordinate(rank_, Axis::tp) == 0;
  record_.loss = reports ? loss_ / tokens : 0;
  if (plan_.model.mtp_layers > 0) record_.mtp_loss = reports ? mtp_loss / tokens : 0;
  if (norm_.defined()) record_.gradient_norm = norm_.item<double>();
}

} // namespace foretrain
