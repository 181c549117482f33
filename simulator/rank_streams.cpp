#include "simulator/rank_streams.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "simulator/block_time.h"
#include "simulator/private_network.h"

namespace foretrain {
namespace {

constexpr double kEpsilon = 1e-15;
constexpr double kSlack = 1e-9; ///< demands within this of a port fit: shares are quotients

/// Max-min shares of one port: the smallest demands are met, the others get equal parts of the rest.
template <std::size_t N> void fill(const std::array<double, N>& demand, std::size_t count, std::array<double, N>& got) {
  double left = 1;
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
    if (load.load[port] > 0) load.load[port] = std::min(1.0, load.load[port] / cost.port_rate(static_cast<int>(port)));
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

void RankStreams::compute(const Work& work) {
  computes_ = work.seconds > kEpsilon;
  work_ = work;
  left_ = work.seconds;
}

void RankStreams::transfer(std::size_t lane, const Load& load) {
  if (load.duration() <= kEpsilon) return;
  Lane& l = lanes_[lane];
  running_ |= 1U << lane;
  l.load = load;
  l.latency = load.latency;
  bool flows = false;
  for (std::size_t port = 0; port < kPorts; ++port) {
    l.left[port] = load.load[port] > 0 ? load.seconds : 0;
    flows = flows || load.load[port] > 0;
  }
  if (!flows) l.latency += load.seconds;
}

double RankStreams::done(std::size_t lane) const {
  const Lane& l = lanes_[lane];
  const double left = l.latency + std::max(l.left[0], l.left[1]);
  return l.load.duration() > 0 ? 1 - left / l.load.duration() : 1;
}

double RankStreams::advance() {
  set_rates();
  double step = std::numeric_limits<double>::infinity();
  if (computes_) step = left_ / rate_;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    const Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency > 0) {
      step = std::min(step, lane.latency / pace_);
    } else {
      for (std::size_t port = 0; port < kPorts; ++port)
        if (lane.left[port] > 0) step = std::min(step, lane.left[port] / lane.speed[port]);
    }
  }
  if (computes_ && (left_ -= step * rate_) <= kEpsilon) computes_ = false;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency > 0) {
      if ((lane.latency -= step * pace_) <= kEpsilon) lane.latency = 0;
    } else {
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
  rate_ = 1;
  pace_ = 1;
  in_use_ = {};
  if (running_ == 0) return;
  if (computes_ && work_.computing > 0) {
    double slow = 1;
    double beside = 1;
    for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
      const Load& load = lanes_[static_cast<std::size_t>(std::countr_zero(bits))].load;
      slow = std::min(slow, load.interference);
      beside = std::min(beside, load.beside);
    }
    const double whole = 1 - work_.computing + work_.computing / slow;
    rate_ = 1 / whole;
    pace_ = 1 - (1 - beside) * work_.computing / slow / whole; // in the part of the time in which it computes
  }
  for (std::size_t port = 0; port < kPorts; ++port) share(port, pace_);
}

void RankStreams::share(std::size_t port, double pace) {
  std::array<Lane*, kLanes> flows{};
  std::array<double, kLanes + 1> demand{};
  std::size_t count = 0;
  double sum = 0;
  for (std::uint32_t bits = running_; bits != 0; bits &= bits - 1) {
    Lane& lane = lanes_[static_cast<std::size_t>(std::countr_zero(bits))];
    if (lane.latency <= 0 && lane.left[port] > 0) {
      flows[count] = &lane;
      demand[count++] = lane.load.load[port] * pace;
      sum += lane.load.load[port] * pace;
      lane.speed[port] = pace;
    }
  }
  if (count == 0) return;
  const bool inside = computes_ && work_.used[port] > 0;
  in_use_[port] = std::min(1.0, sum);
  if (sum + (inside ? work_.load[port] : 0) <= 1 + kSlack) return;
  std::array<double, kLanes + 1> alone = demand;
  if (sum > 1 + kSlack) fill(demand, count, alone);
  double beside = 0; // part of the time in which the work's own transfers run
  std::array<double, kLanes + 1> shared = alone;
  if (inside) {
    demand[count] = work_.load[port];
    fill(demand, count + 1, shared);
    const double stretch = work_.load[port] / shared[count];
    const double whole = 1 - work_.used[port] + work_.used[port] * stretch;
    rate_ /= whole;
    beside = work_.used[port] * stretch / whole;
  }
  for (std::size_t i = 0; i < count; ++i)
    flows[i]->speed[port] = ((1 - beside) * alone[i] + beside * shared[i]) / flows[i]->load.load[port];
}

} // namespace foretrain
