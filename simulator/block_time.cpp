#include "simulator/block_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "simulator/launches.h"

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;

/// One op under way.
struct Running {
  const Op* op = nullptr;
  double left = 0; ///< seconds of undisturbed work
};

/// The streams of one rank while a block runs.
class Streams {
public:
  Streams(const std::vector<Op>& ops, const Mesh& mesh, const CostModel& cost, const HostFloor& host)
      : ops_(ops), mesh_(mesh), cost_(cost), host_(host) {
    for (std::size_t i = 0; i < ops.size(); ++i) queues_[index(ops[i].stream)].push_back(i);
  }

  BlockTime run() {
    BlockTime result;
    while (start_ready(result.evidence), any_running()) {
      const double compute = compute_rate();
      const double transfer = running(Stream::compute).op ? cost_.transfer_rate() : 1;
      double step = std::numeric_limits<double>::infinity();
      for (std::size_t s = 0; s < kStreams; ++s)
        if (running_[s].op) step = std::min(step, running_[s].left / (s == 0 ? compute : transfer));
      book(result, step);
      for (std::size_t s = 0; s < kStreams; ++s) {
        if (!running_[s].op) continue;
        running_[s].left -= step * (s == 0 ? compute : transfer);
        if (running_[s].left <= kEpsilon) finish(s);
      }
      result.seconds += step;
    }
    return result;
  }

private:
  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }
  [[nodiscard]] const Running& running(Stream stream) const { return running_[index(stream)]; }
  [[nodiscard]] bool any_running() const {
    return std::any_of(running_.begin(), running_.end(), [](const Running& r) { return r.op != nullptr; });
  }

  void start_ready(Evidence& evidence) {
    // Issue order: an op starts once its stream is free and the ops before it that write what it waits for are done.
    for (bool again = true; again;) {
      again = false;
      for (std::size_t s = 0; s < kStreams; ++s) {
        if (running_[s].op || next_[s] == queues_[s].size()) continue;
        const std::size_t at = queues_[s][next_[s]];
        if (!ready(at)) continue;
        ++next_[s];
        const Cost cost = op_cost(ops_[at], mesh_, cost_, host_);
        if (cost.seconds > 0) evidence = std::max(evidence, cost.evidence);
        running_[s] = {&ops_[at], cost.seconds};
        if (cost.seconds <= kEpsilon) {
          finish(s);
          again = true;
        }
      }
    }
  }

  /// Every op issued before `at` that writes a buffer it waits for has finished.
  [[nodiscard]] bool ready(std::size_t at) const {
    for (const int buffer : ops_[at].waits)
      for (std::size_t i = done_before_; i < at; ++i)
        if (!done(i) && std::find(ops_[i].writes.begin(), ops_[i].writes.end(), buffer) != ops_[i].writes.end()) return false;
    return true;
  }
  [[nodiscard]] bool done(std::size_t at) const {
    const std::size_t s = index(ops_[at].stream);
    const std::size_t finished = next_[s] - (running_[s].op ? 1 : 0);
    return finished > 0 && queues_[s][finished - 1] >= at;
  }

  void finish(std::size_t stream) {
    running_[stream] = {};
    while (done_before_ < ops_.size() && done(done_before_)) ++done_before_;
  }

  [[nodiscard]] double compute_rate() const {
    double rate = 1;
    for (std::size_t s = 1; s < kStreams; ++s)
      if (running_[s].op && running_[s].op->kind == OpKind::collective)
        rate = std::min(rate, cost_.interference(mesh_.shape(running_[s].op->group)));
    return rate;
  }

  /// Time passes: to compute when it runs, else to the transfer that the next compute op waits for.
  void book(BlockTime& result, double step) const {
    TimePart part = TimePart::other;
    if (const Op* op = running(Stream::compute).op) part = op->part;
    else
      for (std::size_t s = kStreams; s-- > 1;)
        if (running_[s].op) part = running_[s].op->part;
    result.parts[static_cast<std::size_t>(part)] += Seconds(step);
  }

  const std::vector<Op>& ops_;
  const Mesh& mesh_;
  const CostModel& cost_;
  const HostFloor& host_;
  std::array<std::vector<std::size_t>, kStreams> queues_;
  std::array<std::size_t, kStreams> next_{};
  std::array<Running, kStreams> running_{};
  std::size_t done_before_ = 0; ///< all ops before this one are done
};

} // namespace

/// N·(1 − (1 − 1/N)^k) distinct nodes for k balanced picks over N nodes, instead of k·(N − 1)/N copies.
double network_share(const Op& op, const GroupShape& shape) {
  if (op.deduplicated <= 1 || shape.nodes() <= 1) return 1;
  const double nodes = shape.nodes();
  const double distinct = nodes * (1 - std::pow(1 - 1 / nodes, op.deduplicated));
  return std::min(1.0, distinct / op.deduplicated);
}

Cost op_cost(const Op& op, const Mesh& mesh, const CostModel& cost, const HostFloor& host) {
  switch (op.kind) {
  case OpKind::compute: return cost.compute(op);
  case OpKind::collective: {
    const GroupShape& shape = mesh.shape(op.group);
    if (shape.size <= 1) return {0, Evidence::measured};
    return cost.collective(op.collective, shape, op.dtype, op.bytes, op.rounds, network_share(op, shape));
  }
  case OpKind::host_sync: return {host.sync, Evidence::datasheet};
  case OpKind::copy: return cost.host_copy(op.bytes);
  }
  return {};
}

BlockTime block_time(const Block& block, Pass pass, const Mesh& mesh, const CostModel& cost, const HostFloor& host) {
  const std::vector<Op>& ops = block.ops(pass);
  BlockTime result = Streams(ops, mesh, cost, host).run();
  // A block cannot finish before the host has launched it; the difference is the host's.
  const double floor = host.per_layer * launches(block, pass);
  if (floor > result.seconds) {
    result.pad = floor - result.seconds;
    result.parts[static_cast<std::size_t>(TimePart::host)] += Seconds(result.pad);
    result.seconds = floor;
  }
  return result;
}

} // namespace foretrain
