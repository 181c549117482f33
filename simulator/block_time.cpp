#include "simulator/block_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "simulator/launches.h"

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

  BlockTime run() {
    BlockTime result;
    std::array<Transfer, kStreams> begun{};
    while (start_ready(result, begun)) {
      if (running_[0] == nullptr && waits_since_ < 0) waits_since_ = result.seconds;
      if (running_[0] != nullptr && waits_since_ >= 0) waited(result);
      if (!busy()) break;
      const double step = streams_.advance();
      result.seconds += step;
      book(result, step);
      add_stretch(result.work, step);
      for (std::size_t s = 0; s < kStreams; ++s) {
        if (!running_[s] || (s == 0 ? streams_.computes() : streams_.transfers(s))) continue;
        begun[s].end = result.seconds;
        begun[s].until = result.work.size();
        begun[s].ports = streams_.last_ports(s);
        if (s > 0) ended_.push_back(begun[s]);
        finish(s);
      }
    }
    waited(result);
    return result;
  }

private:
  /// A transfer that has ended: the stretches and the time in which it ran, and the ports that it ended on, as bits.
  struct Transfer {
    std::size_t since = 0;
    std::size_t until = 0;
    double start = 0;
    double end = 0;
    unsigned ports = 0;
  };

  /// Compute has waited until now. What ended now put it off, and so did what that had waited for in turn.
  void waited(BlockTime& result) {
    double at = result.seconds;
    while (waits_since_ >= 0) {
      const auto last =
          std::find_if(ended_.rbegin(), ended_.rend(), [at](const Transfer& t) { return t.end == at && t.start < at; });
      if (last == ended_.rend()) break;
      for (std::size_t i = last->since; i < last->until; ++i)
        for (std::size_t port = 0; port < kPorts; ++port)
          if ((last->ports >> port & 1U) != 0) result.work[i].critical[port] = true;
      at = last->start;
    }
    waits_since_ = -1;
  }

  [[nodiscard]] bool busy() const {
    return std::any_of(running_.begin(), running_.end(), [](const Op* op) { return op != nullptr; });
  }

  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

  /// Always true.
  bool start_ready(BlockTime& result, std::array<Transfer, kStreams>& begun) {
    // Issue order: an op starts once its stream is free and the ops before it that write what it waits for are done.
    for (bool again = true; again;) {
      again = false;
      for (std::size_t s = 0; s < kStreams; ++s) {
        if (running_[s] || next_[s] == queues_[s].size()) continue;
        const std::size_t at = queues_[s][next_[s]];
        if (!ready(at)) continue;
        ++next_[s];
        running_[s] = &ops_[at];
        begun[s] = {result.work.size(), 0, result.seconds, 0, 0};
        if (start(s, ops_[at], result)) continue;
        finish(s);
        again = true;
      }
    }
    return true;
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
      const bool computes = op.kind == OpKind::compute;
      result.compute += cost.seconds;
      streams_.compute({cost.seconds, computes, 1, {}, {}});
    } else {
      streams_.transfer(stream, {cost.seconds, 0, {}, 1, 1, cost.evidence});
    }
    return true;
  }

  void add_stretch(std::vector<Work>& list, double step) const {
    const bool computes = running_[0] != nullptr && running_[0]->kind == OpKind::compute;
    const double rate = computes ? streams_.rate() : 1;
    if (!list.empty()) {
      Work& last = list.back();
      if (last.computes == computes && last.rate == rate && last.own == streams_.in_use() &&
          last.critical == std::array<bool, kPorts>{}) {
        last.seconds += step;
        return;
      }
    }
    list.push_back({step, computes, rate, streams_.in_use(), {}});
  }

  /// Every op issued before `at` that writes a buffer it waits for has finished.
  [[nodiscard]] bool ready(std::size_t at) const {
    for (const int buffer : ops_[at].waits)
      for (std::size_t i = done_before_; i < at; ++i)
        if (!done(i) && std::find(ops_[i].writes.begin(), ops_[i].writes.end(), buffer) != ops_[i].writes.end())
          return false;
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
    if (running_[0])
      part = running_[0]->part;
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
  std::vector<Transfer> ended_; ///< so far
  double waits_since_ = -1;     ///< compute runs: below zero
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
  case OpKind::compute:
    return cost.compute(op);
  case OpKind::collective: {
    const GroupShape& shape = mesh.shape(op.group);
    if (shape.size <= 1) return {0, Evidence::measured};
    return cost.collective(op.collective, shape, op.dtype, op.bytes, op.rounds, network_share(op, shape));
  }
  case OpKind::host_sync:
    return {host.sync, Evidence::datasheet};
  case OpKind::copy:
    return cost.host_copy(op.bytes);
  }
  return {};
}

BlockTime block_time(const Block& block, Pass pass, const Mesh& mesh, const CostModel& cost, const HostFloor& host) {
  BlockTime result = Streams(block.ops(pass), mesh, cost, host).run();
  const double floor = host.per_layer * launches(block, pass);
  // A block cannot finish before the host has launched it; the difference is the host's.
  if (floor > result.seconds) {
    result.pad = floor - result.seconds;
    result.parts[static_cast<std::size_t>(TimePart::host)] += Seconds(result.pad);
    result.seconds = floor;
  }
  return result;
}

} // namespace foretrain
