#include "simulator/private_network.h"

#include <algorithm>
#include <limits>

namespace foretrain {
namespace {

/// Demands within this of a port's capacity fit: caps are quotients and do not add up to the last bit.
constexpr double kSlack = 1e-9;

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

} // namespace

TierRates tier_rates(const Script& script) {
  TierRates rates{};
  for (const Traffic& traffic : script.traffic) {
    rates[0] = std::max(rates[0], traffic.wire.rate_cap(0));
    // What crosses a tier also goes through the network port and the uplinks below it.
    double sum = 0;
    for (int tier = kTiers - 1; tier > 0; --tier) {
      sum += traffic.wire.rate_cap(tier);
      rates[index(tier)] = std::max(rates[index(tier)], sum);
    }
  }
  return rates;
}

TierRates tier_rates(const CostModel& cost, const Script& script) {
  TierRates rates = tier_rates(script);
  for (int tier = 0; tier < std::min(cost.tiers(), kTiers); ++tier)
    rates[index(tier)] = std::max(rates[index(tier)], cost.port_rate(tier));
  return rates;
}

std::array<bool, 2> exclusive_ports(const Script& script) {
  std::array<std::array<bool, kLanes>, 2> used{};
  const auto use = [&](Lane lane, int traffic) {
    const auto& bytes = script.traffic[index(traffic)].wire.bytes_per_rank;
    for (int tier = 0; tier < kTiers; ++tier)
      if (bytes[index(tier)] > 0) used[port_of(tier)][at(lane)] = true;
  };
  for (const ScriptSlot& slot : script.slots)
    for (const ScriptStep& step : slot.steps)
      if (step.wire >= 0) use(step.lane, step.wire);
  for (const RoleScript& role : script.roles)
    for (const ScriptInstruction& instruction : role.instructions)
      if (instruction.wire >= 0) {
        const ScriptSlot& slot = script.slots[index(instruction.slot)];
        use(slot.steps.front().lane, instruction.wire);
      }
  std::array<bool, 2> exclusive{};
  for (std::size_t port = 0; port < exclusive.size(); ++port) {
    // A send and the receive at its other end use opposite halves.
    const auto& lanes = used[port];
    exclusive[port] = std::count(lanes.begin(), lanes.end(), true) <= 1;
  }
  return exclusive;
}

PrivateNetwork::PrivateNetwork(const World& world, const Script& script, TierRates rates)
    : world_(world), rates_(rates), exclusive_(exclusive_ports(script)) {
  demand_.assign(world.rank.size() * 4, 0.0);
  left_.assign(demand_.size(), 0.0);
  count_.assign(demand_.size(), 0);
}

void PrivateNetwork::push(double time, Kind kind, std::uint64_t token, std::uint32_t version) {
  events_.push_back({time, order_++, token, kind, version});
  std::push_heap(events_.begin(), events_.end(), Later());
}

void PrivateNetwork::call_at(double when, std::uint64_t token) {
  push(when, Kind::client, token);
}

void PrivateNetwork::start(const TransferRequest& request) {
  if (index(request.id) >= transfers_.size()) transfers_.resize(index(request.id) + 1);
  const Wire& wire = request.traffic->wire;
  bool undisturbed = wire.seconds <= 0;
  if (!undisturbed) {
    undisturbed = true;
    for (int tier = 0; tier < kTiers; ++tier)
      if (wire.bytes_per_rank[index(tier)] > 0 && !exclusive_[port_of(tier)]) undisturbed = false;
  }
  Transfer& transfer = transfers_[index(request.id)];
  transfer.request = request;
  transfer.flows = 0;
  transfer.pace = 1;
  transfer.timed = true;
  transfer.whole = undisturbed;
  transfer.left = undisturbed ? request.traffic->duration() : wire.latency;
  transfer.updated = now_;
  schedule(request.id);
}

void PrivateNetwork::schedule(int number) {
  Transfer& transfer = transfers_[index(number)];
  push(now_ + transfer.left / transfer.pace, transfer.whole ? Kind::end : Kind::begin,
       static_cast<std::uint64_t>(number), ++transfer.version);
}

void PrivateNetwork::set_pace(int number, double pace) {
  Transfer& transfer = transfers_[index(number)];
  if (transfer.timed) {
    transfer.left = std::max(0.0, transfer.left - (now_ - transfer.updated) * transfer.pace);
    transfer.updated = now_;
    transfer.pace = pace;
    schedule(number);
    return;
  }
  const double change = pace / transfer.pace;
  transfer.pace = pace;
  for (const int live : live_) {
    Flow& flow = flows_[index(live)];
    if (flow.transfer != number) continue;
    const double cap = flow.cap * change;
    demand_[index(flow.out)] += cap - flow.cap;
    demand_[index(flow.in)] += cap - flow.cap;
    flow.cap = cap;
  }
  share();
}

void PrivateNetwork::begin(int transfer) {
  transfers_[index(transfer)].timed = false;
  const TransferRequest request = transfers_[index(transfer)].request;
  const Wire& wire = request.traffic->wire;
  for (int tier = 0; tier < kTiers; ++tier) {
    const double bytes = wire.bytes_per_rank[index(tier)];
    if (bytes <= 0) continue;
    const double cap = wire.rate_cap(tier) * transfers_[index(transfer)].pace;
    if (request.instance < 0) {
      add_flow(transfer, request.from, request.to, port_of(tier), bytes, cap);
      continue;
    }
    // A neighbour sends what the rank itself sends, so the rank's own in-port stands for the neighbour's.
    for (const int member : world_.instances[index(request.instance)].members)
      add_flow(transfer, member, member, port_of(tier), bytes, cap);
  }
  share();
}

void PrivateNetwork::add_flow(int transfer, int from, int to, std::size_t port, double bytes, double cap) {
  int number = static_cast<int>(flows_.size());
  if (free_flows_.empty()) {
    flows_.emplace_back();
  } else {
    number = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[index(number)];
  flow.transfer = transfer;
  flow.out = port_index(from, port, false);
  flow.in = port_index(to, port, true);
  flow.remaining = bytes;
  flow.cap = cap;
  flow.rate = 0;
  flow.updated = now_;
  demand_[index(flow.out)] += cap;
  demand_[index(flow.in)] += cap;
  live_.push_back(number);
  ++transfers_[index(transfer)].flows;
}

void PrivateNetwork::set_rate(int number, double rate) {
  Flow& flow = flows_[index(number)];
  if (flow.rate == rate) return;
  flow.remaining = std::max(0.0, flow.remaining - (now_ - flow.updated) * flow.rate);
  flow.updated = now_;
  flow.rate = rate;
  push(now_ + flow.remaining / rate, Kind::flow, static_cast<std::uint64_t>(number), ++flow.version);
}

void PrivateNetwork::share() {
  bool fits = true;
  for (const int number : live_) {
    const Flow& flow = flows_[index(number)];
    fits = fits && demand_[index(flow.out)] <= capacity(flow.out) * (1 + kSlack) &&
           demand_[index(flow.in)] <= capacity(flow.in) * (1 + kSlack);
  }
  if (fits) {
    for (const int number : live_) set_rate(number, flows_[index(number)].cap);
    return;
  }
  // Progressive filling: give every open flow the smallest fair share or its cap, close what is saturated, repeat.
  std::vector<int> open = live_;
  std::vector<double> rate(flows_.size(), 0.0);
  for (std::size_t port = 0; port < left_.size(); ++port) left_[port] = capacity(static_cast<int>(port));
  while (!open.empty()) {
    std::fill(count_.begin(), count_.end(), 0);
    for (const int number : open) {
      ++count_[index(flows_[index(number)].out)];
      ++count_[index(flows_[index(number)].in)];
    }
    double level = std::numeric_limits<double>::infinity();
    for (const int number : open) {
      const Flow& flow = flows_[index(number)];
      level = std::min({level, flow.cap, left_[index(flow.out)] / count_[index(flow.out)],
                        left_[index(flow.in)] / count_[index(flow.in)]});
    }
    std::vector<int> rest;
    std::vector<int> closed;
    for (const int number : open) {
      const Flow& flow = flows_[index(number)];
      const bool tight = flow.cap <= level * (1 + kSlack) ||
                         left_[index(flow.out)] / count_[index(flow.out)] <= level * (1 + kSlack) ||
                         left_[index(flow.in)] / count_[index(flow.in)] <= level * (1 + kSlack);
      (tight ? closed : rest).push_back(number);
    }
    for (const int number : closed) {
      const Flow& flow = flows_[index(number)];
      rate[index(number)] = std::min(level, flow.cap);
      left_[index(flow.out)] = std::max(0.0, left_[index(flow.out)] - rate[index(number)]);
      left_[index(flow.in)] = std::max(0.0, left_[index(flow.in)] - rate[index(number)]);
    }
    open = std::move(rest);
  }
  for (const int number : live_) set_rate(number, rate[index(number)]);
}

void PrivateNetwork::end_flow(int number, NetworkClient& client) {
  Flow& flow = flows_[index(number)];
  const int transfer = flow.transfer;
  demand_[index(flow.out)] -= flow.cap;
  demand_[index(flow.in)] -= flow.cap;
  ++flow.version;
  flow.transfer = -1;
  live_.erase(std::find(live_.begin(), live_.end(), number));
  free_flows_.push_back(number);
  if (live_.empty()) std::fill(demand_.begin(), demand_.end(), 0.0); // differences drift
  share();
  if (--transfers_[index(transfer)].flows == 0) client.on_finished(transfer);
}

void PrivateNetwork::run(NetworkClient& client) {
  while (!events_.empty()) {
    std::pop_heap(events_.begin(), events_.end(), Later());
    const Event event = events_.back();
    events_.pop_back();
    const auto number = static_cast<std::size_t>(event.token);
    if (event.kind == Kind::flow && flows_[number].version != event.version) continue;
    if ((event.kind == Kind::begin || event.kind == Kind::end) && transfers_[number].version != event.version) continue;
    now_ = event.time;
    switch (event.kind) {
    case Kind::client:
      client.on_time(event.token);
      break;
    case Kind::begin:
      begin(static_cast<int>(event.token));
      break;
    case Kind::end:
      client.on_finished(static_cast<int>(event.token));
      break;
    case Kind::flow:
      end_flow(static_cast<int>(event.token), client);
      break;
    }
  }
}

} // namespace foretrain
