#include "simulator/rank_streams.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "simulator/block_time.h"
#include "simulator/private_network.h"

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;
constexpr double kSlack = 1e-9; ///< demands within this of a port fit: shares are quotients

/// Max-min shares of one port: the smallest demands are met, the others get equal parts of the rest.
template <std::size_t N>
void fill(double capacity, const std::array<double, N>& demand, std::size_t count, std::array<double, N>& got) {
  double left = capacity;
  std::array<bool, N> closed{};
  for (std::size_t open = count; open > 0;) {
    const double level = left / static_cast<double>(open);
    bool met = false;
    for (std::size_t i = 0; i < count; ++i)
      if (!closed[i] && demand[i] <= level * (1 + kSlack)) {
        got[i] = demand[i];
        left -= demand[i];
        closed[i] = true;
        met = true;
        --open;
      }
    if (met) continue;
    for (std::size_t i = 0; i < count; ++i)
      if (!closed[i]) got[i] = level;
    return;
  }
}

} // namespace

Load load_of(const Wire& wire, const CostModel& cost) {
  Load load;
  load.latency = wire.latency;
  load.seconds = wire.seconds;
  load.evidence = wire.evidence;
  for (int tier = 0; tier < kTiers; ++tier) load.load[port_of(tier)] += wire.rate_cap(tier);
  for (std::size_t port = 0; port < kPorts; ++port)
    if (load.load[port] > 0) load.load[port] /= cost.port_rate(static_cast<int>(port));
  return load;
}

Load load_of(const Op& op, const Mesh& mesh, const CostModel& cost) {
  Load load;
  const GroupShape& shape = mesh.shape(op.group);
  if (shape.size <= 1) return load;
  const Wire wire = cost.wire(op.collective, shape, op.dtype, op.bytes, op.rounds, network_share(op, shape));
  load = load_of(wire, cost);
  load.interference = cost.interference(shape);
  load.beside = cost.transfer_rate();
  return load;
}

double beside_transfer(const Load& load, const Load& other) {
  RankStreams streams;
  streams.transfer(0, load);
  streams.transfer(1, other);
  double seconds = 0;
  while (streams.transfers(0)) seconds += streams.advance();
  return seconds;
}

Beside beside_blocks(const Load& load, const std::vector<Work>& work, double pad, int blocks) {
  RankStreams streams;
  streams.transfer(0, load);
  Beside beside;
  double now = 0;
  double alone = 0;
  const auto compute = [&](const Work& part) {
    if (!streams.transfers(0)) {
      now += part.seconds;
      return;
    }
    streams.compute(part);
    while (streams.computes()) {
      const bool runs = streams.transfers(0);
      now += streams.advance();
      if (runs) beside.lasts = now;
    }
  };
  for (int done = 0; done < blocks && streams.transfers(0); ++done) {
    const RankStreams::Flows before = streams.flows();
    const double began = now;
    double whole = pad;
    for (const Work& part : work) {
      compute(part);
      whole += part.seconds;
    }
    if (pad > 0 && began + whole > now) compute({began + whole - now, false, 1, {}, {}});
    alone += whole;
    // The next blocks see the same, as long as nothing ends.
    const RankStreams::Flows after = streams.flows();
    const int more = streams.repeats(before, after, blocks - done - 1);
    if (more == 0) continue;
    streams.repeat(before, after, more);
    alone += whole * more;
    now += (now - began) * more;
    beside.lasts = now;
    done += more;
  }
  beside.delay = std::max(0.0, now - alone);
  if (streams.transfers(0)) beside.left = load.duration() * (1 - streams.done(0));
  while (streams.transfers(0)) beside.lasts = now += streams.advance();
  return beside;
}

void RankStreams::compute(const Work& work) {
  computes_ = work.seconds > kEpsilon;
  work_ = work;
  for (std::size_t port = 0; port < kPorts; ++port) capacity_[port] = std::max(capacity_[port], work.own[port]);
  left_ = work.seconds;
}

void RankStreams::transfer(std::size_t lane, const Load& load) {
  if (load.duration() <= kEpsilon) return;
  Lane& l = lanes_[lane];
  running_ |= 1U << lane;
  l.load = load;
  l.latency = load.latency;
  l.last = 0;
  bool flows = false;
  for (std::size_t port = 0; port < kPorts; ++port) {
    l.left[port] = load.load[port] > 0 ? load.seconds : 0;
    capacity_[port] = std::max(capacity_[port], load.load[port]);
    flows = flows || load.load[port] > 0;
  }
  if (!flows) l.latency += load.seconds;
}

RankStreams::Flows RankStreams::flows() const {
  Flows flows;
  flows.running = running_;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(bits));
    flows.left[lane] = lanes_[lane].left;
    flows.moving = flows.moving && lanes_[lane].latency <= 0;
  }
  return flows;
}

int RankStreams::repeats(const Flows& before, const Flows& after, int most) const {
  if (!before.moving || before.running != after.running || running_ != after.running) return 0;
  double least = most;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(bits));
    for (std::size_t port = 0; port < kPorts; ++port) {
      if ((before.left[lane][port] > 0) != (lanes_[lane].left[port] > 0)) return 0; // other flows than there were
      const double moved = before.left[lane][port] - after.left[lane][port];
      if (moved > 0) least = std::min(least, std::ceil(lanes_[lane].left[port] / moved) - 1); // something is left
    }
  }
  return static_cast<int>(std::max(0.0, least));
}

bool RankStreams::repeat(const Flows& before, const Flows& after, int times) {
  if (repeats(before, after, times) < times) return false;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(bits));
    for (std::size_t port = 0; port < kPorts; ++port)
      if (lanes_[lane].left[port] > 0)
        lanes_[lane].left[port] -= (before.left[lane][port] - after.left[lane][port]) * times;
  }
  return true;
}

double RankStreams::done(std::size_t lane) const {
  const Lane& l = lanes_[lane];
  const double left = l.latency + std::max(l.left[0], l.left[1]);
  return l.load.duration() > 0 ? 1 - left / l.load.duration() : 1;
}

double RankStreams::advance() {
  set_rates();
  double step = std::numeric_limits<double>::infinity();
  if (computes_) step = left_ / speed_;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    const Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency > 0) {
      step = std::min(step, lane.latency / pace_);
    } else {
      for (std::size_t port = 0; port < kPorts; ++port)
        if (lane.left[port] > 0) step = std::min(step, lane.left[port] / lane.speed[port]);
    }
  }
  if (computes_ && (left_ -= step * speed_) <= kEpsilon) computes_ = false;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency > 0) {
      if ((lane.latency -= step * pace_) <= kEpsilon) lane.latency = 0;
    } else {
      lane.last = (lane.left[0] > 0 ? 1U : 0U) | (lane.left[1] > 0 ? 2U : 0U);
      for (std::size_t port = 0; port < kPorts; ++port)
        if (lane.left[port] > 0 && (lane.left[port] -= step * lane.speed[port]) <= kEpsilon) lane.left[port] = 0;
    }
    if (lane.latency <= 0 && lane.left[0] <= 0 && lane.left[1] <= 0) {
      running_ &= ~(bits & (~bits + 1));
    }
  }
  return step;
}

void RankStreams::set_rates() {
  rate_ = computes_ ? work_.rate : 1;
  speed_ = 1;
  pace_ = 1;
  in_use_ = {};
  if (running_ == 0) return;
  double slow = 1; // the work's own rate relative to alone
  if (computes_ && work_.computes) {
    double rate = work_.rate;
    for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
      const Load& load = lanes_[static_cast<std::size_t>(std::countr_zero(bits))].load;
      rate = std::min(rate, load.interference); // the one that takes most decides
      pace_ = std::min(pace_, load.beside);
    }
    slow = rate / work_.rate;
    rate_ = rate;
  }
  double stretch = 1;
  for (std::size_t port = 0; port < kPorts; ++port) stretch = std::max(stretch, share(port));
  speed_ = std::min(slow, 1 / stretch);
}

/// Speeds of the transfers through a port; returns how much longer the work waits for its own.
double RankStreams::share(std::size_t port) {
  std::array<Lane*, kLanes> flows{};
  std::array<double, kLanes + 1> demand{};
  std::size_t count = 0;
  double sum = 0;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency <= 0 && lane.left[port] > 0) {
      flows[count] = &lane;
      demand[count++] = lane.load.load[port] * pace_;
      sum += lane.load.load[port] * pace_;
      lane.speed[port] = pace_;
    }
  }
  if (count == 0) return 1;
  in_use_[port] = std::min(capacity_[port], sum);
  const double own = computes_ ? work_.own[port] : 0;
  const double capacity = capacity_[port];
  if (sum + own <= capacity * (1 + kSlack)) return 1;
  std::array<double, kLanes + 1> got = demand;
  if (own > 0) demand[count] = own;
  fill(capacity, demand, count + (own > 0 ? 1 : 0), got);
  for (std::size_t i = 0; i < count; ++i) flows[i]->speed[port] = got[i] / flows[i]->load.load[port];
  return own > 0 && work_.critical[port] ? own / got[count] : 1;
}

} // namespace foretrain
