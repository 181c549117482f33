#include "simulator/block_time.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;

/// The streams of one rank while a block runs.
class Streams {
public:
  Streams(const std::vector<Op>& ops, const Mesh& mesh, const CostModel& cost, const HostFloor& host)
      : ops_(ops), mesh_(mesh), cost_(cost), host_(host) {
    for (std::size_t i = 0; i < ops.size(); ++i) queues_[index(ops[i].stream)].push_back(i);
  }

  /// A transfer that begins with the block.
  void begin_beside(const Load& load) {
    streams_.transfer(kBeside, load);
    beside_ = streams_.transfers(kBeside);
  }
  /// Part of it that was done when it ended or the block did, and when that was.
  [[nodiscard]] double lasts(const BlockTime& run) const {
    if (!beside_) return beside_end_;
    const double done = streams_.done(kBeside);
    return done > 0 ? run.seconds / done : 0;
  }

  BlockTime run() {
    BlockTime result;
    double computing = 0;
    PortShares used{};
    PortShares load{};
    while (start_ready(result), busy()) {
      const bool computes = streams_.computing();
      const double step = streams_.advance();
      result.seconds += step;
      if (beside_ && !streams_.transfers(kBeside)) {
        beside_ = false;
        beside_end_ = result.seconds;
      }
      book(result, step);
      if (computes) computing += step;
      for (std::size_t port = 0; port < kPorts; ++port) {
        if (streams_.in_use()[port] <= 0) continue;
        used[port] += step;
        load[port] += step * streams_.in_use()[port];
      }
      for (std::size_t s = 0; s < kStreams; ++s)
        if (running_[s] && !(s == 0 ? streams_.computes() : streams_.transfers(s))) finish(s);
    }
    result.work.seconds = result.seconds;
    if (result.seconds <= 0) return result;
    result.work.computing = computing / result.seconds;
    for (std::size_t port = 0; port < kPorts; ++port) {
      result.work.used[port] = used[port] / result.seconds;
      result.work.load[port] = used[port] > 0 ? load[port] / used[port] : 0;
    }
    return result;
  }

private:
  static constexpr auto kBeside = static_cast<std::size_t>(Stream::p2p_forward); ///< no block uses it
  [[nodiscard]] bool busy() const {
    return std::any_of(running_.begin(), running_.end(), [](const Op* op) { return op != nullptr; });
  }

  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

  void start_ready(BlockTime& result) {
    // Issue order: an op starts once its stream is free and the ops before it that write what it waits for are done.
    for (bool again = true; again;) {
      again = false;
      for (std::size_t s = 0; s < kStreams; ++s) {
        if (running_[s] || next_[s] == queues_[s].size()) continue;
        const std::size_t at = queues_[s][next_[s]];
        if (!ready(at)) continue;
        ++next_[s];
        running_[s] = &ops_[at];
        if (start(s, ops_[at], result)) continue;
        finish(s);
        again = true;
      }
    }
  }

  /// False when the op takes no time.
  bool start(std::size_t stream, const Op& op, BlockTime& result) {
    if (op.kind == OpKind::collective) {
      const Load load = load_of(op, mesh_, cost_);
      if (load.duration() <= kEpsilon) return false;
      result.evidence = std::max(result.evidence, load.evidence);
      streams_.transfer(stream, load);
      return true;
    }
    const Cost cost = op_cost(op, mesh_, cost_, host_);
    if (cost.seconds <= kEpsilon) return false;
    result.evidence = std::max(result.evidence, cost.evidence);
    if (stream == 0) {
      result.compute += cost.seconds;
      streams_.compute({cost.seconds, op.kind == OpKind::compute ? 1.0 : 0.0, {}, {}});
    } else {
      streams_.transfer(stream, {cost.seconds, 0, {}, 1, 1, cost.evidence});
    }
    return true;
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
    const std::size_t finished = next_[s] - (running_[s] ? 1 : 0);
    return finished > 0 && queues_[s][finished - 1] >= at;
  }

  void finish(std::size_t stream) {
    running_[stream] = nullptr;
    while (done_before_ < ops_.size() && done(done_before_)) ++done_before_;
  }

  /// Time passes: to compute when it runs, else to the transfer that the next compute op waits for.
  void book(BlockTime& result, double step) const {
    TimePart part = TimePart::other;
    if (running_[0]) part = running_[0]->part;
    else
      for (std::size_t s = kStreams; s-- > 1;)
        if (running_[s]) part = running_[s]->part;
    result.parts[static_cast<std::size_t>(part)] += Seconds(step);
  }

  const std::vector<Op>& ops_;
  const Mesh& mesh_;
  const CostModel& cost_;
  const HostFloor& host_;
  std::array<std::vector<std::size_t>, kStreams> queues_;
  std::array<std::size_t, kStreams> next_{};
  std::array<const Op*, kStreams> running_{};
  std::size_t done_before_ = 0; ///< all ops before this one are done
  RankStreams streams_;
  bool beside_ = false;
  double beside_end_ = 0;
};

/// Host time of one pass: a layer cannot finish before the host has launched it. A whole backward takes two forwards, a
/// recomputation one more.
double floor_of(const Block& block, Pass pass, const HostFloor& host) {
  if (block.kind != BlockKind::layer && block.kind != BlockKind::mtp) return 0;
  double passes = 0;
  for (const Op& op : block.ops(pass))
    passes = std::max(passes, op.pass == Pass::recompute ? 3.0 : pass == Pass::backward ? 2.0 : 1.0);
  return host.per_layer * block.layers * passes;
}

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
  BlockTime result = Streams(block.ops(pass), mesh, cost, host).run();
  const double floor = floor_of(block, pass, host);
  if (floor > result.seconds) {
    result.parts[static_cast<std::size_t>(TimePart::host)] += Seconds(floor - result.seconds);
    result.work.computing *= result.seconds / floor;
    for (double& used : result.work.used) used *= result.seconds / floor;
    result.work.seconds = result.seconds = floor;
  }
  return result;
}

BesideBlock beside_block(const Block& block, Pass pass, const Mesh& mesh, const CostModel& cost, const HostFloor& host,
                         const BlockTime& alone, const Load& transfer) {
  Streams streams(block.ops(pass), mesh, cost, host);
  streams.begin_beside(transfer);
  const BlockTime run = streams.run();
  return {std::max(0.0, std::max(run.seconds, floor_of(block, pass, host)) - alone.seconds), streams.lasts(run)};
}

} // namespace foretrain
