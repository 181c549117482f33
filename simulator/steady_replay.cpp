#include "simulator/steady_replay.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace foretrain {
namespace {

double sum(const std::vector<double>& list) {
  double total = 0;
  for (const double value : list) total += value;
  return total;
}

/// More than the step can take: everything one after the other.
double serial_seconds(const ScheduleShape& shape, int micro_batches, const SlotCosts& costs) {
  const double slots = sum(costs.forward) + sum(costs.backward) + sum(costs.input) + sum(costs.weight) +
                       sum(costs.forward_hold) + sum(costs.backward_hold);
  constexpr int kTransfers = 4; // of a micro-batch and chunk over a boundary: both directions, waited for at both ends
  const double transfers = std::max({sum(costs.p2p), sum(costs.gradient_p2p), sum(costs.crowded)});
  double added = 0; // no slot comes after more than one other
  for (const auto& chunk : costs.after)
    for (const double seconds : chunk) added += std::max(0.0, seconds);
  return micro_batches * (slots + added + kTransfers * shape.chunks * transfers) + sum(costs.first_forward) +
         sum(costs.last_backward) + sum(costs.behind) + sum(costs.start) + sum(costs.tail);
}

/// Replays a line of steps.
class Line {
public:
  /// The workspace's clock stands at the stages' starts.
  Line(const SteadyOrder& order, SteadyWorkspace& workspace, std::size_t steps)
      : order_(order), workspace_(workspace), first_(workspace.clock.size() + 1) {
    workspace.ends.resize(first_ + steps);
    std::copy(workspace.clock.rbegin(), workspace.clock.rend(), workspace.ends.begin());
    workspace.ends[first_ - 1] = {};
  }

  void run(const SteadySteps& steps) {
    const SteadyWorkspace::Cost* const table = workspace_.costs.data();
    const std::uint32_t* const kind = steps.kind.data();
    const std::uint32_t* const back = steps.back.data();
    LaneTimes* const clocks = workspace_.clock.data();
    LaneTimes* end = workspace_.ends.data() + first_ + done_;
    for (std::size_t k = 0; k < steps.size(); ++k, ++end) {
      const SteadyWorkspace::Cost& cost = table[kind[k]];
      const LaneTimes& needed = *(end - back[k]);
      LaneTimes& clock = clocks[cost.stage];
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const double arrival = needed[lane] + cost.latency[lane];
        const double free = clock[lane] + cost.hold[lane];
        clock[lane] = (free > arrival ? free : arrival) + cost.seconds[lane];
      }
      *end = clock;
    }
    done_ += steps.size();
  }

  /// Whether everything that later steps can need was put off by one time since the round before; that time.
  bool steady(LaneTimes& by) const {
    const std::size_t length = order_.round.size();
    const LaneTimes* const end = workspace_.ends.data() + first_ + done_;
    for (std::size_t lane = 0; lane < kLanes; ++lane) by[lane] = end[-1][lane] - (end - 1 - length)[0][lane];
    for (const LaneTimes* at = end - length * static_cast<std::size_t>(order_.window); at != end; ++at)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        if ((*at)[lane] - (at - length)[0][lane] != by[lane]) return false;
    return true;
  }

private:
  const SteadyOrder& order_;
  SteadyWorkspace& workspace_;
  std::size_t first_; ///< of the steps, among the ends
  std::size_t done_ = 0;
};

/// Costs of every kind of step in every lane, on the lanes' grids; lanes without costs repeat the first.
LaneTimes fill_costs(const SteadyOrder& order, int micro_batches, const std::vector<const SlotCosts*>& costs,
                     SteadyWorkspace& workspace) {
  LaneTimes grids{};
  workspace.costs.resize(order.kinds.size());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const SlotCosts& own = *costs[lane < costs.size() ? lane : 0];
    const double grid = grids[lane] = time_grid(serial_seconds(order.shape, micro_batches, own));
    for (std::size_t k = 0; k < order.kinds.size(); ++k) {
      const StepKind& kind = order.kinds[k];
      SteadyWorkspace::Cost& cost = workspace.costs[k];
      cost.stage = kind.stage;
      const double seconds = step_seconds(kind, order.shape, own);
      cost.hold[lane] = on_grid(step_hold(kind, order.shape, own), grid);
      cost.seconds[lane] = on_grid(seconds, grid);
      cost.latency[lane] = on_grid(step_latency(kind, order.shape, own, seconds), grid);
    }
  }
  return grids;
}

/// When each stage begins its own span, as in `replay_slots`; nothing where stages are not timed apart.
std::vector<LaneTimes> begins(const SteadyOrder& order, const std::vector<const SlotCosts*>& costs,
                              const LaneTimes& grids, const SteadyWorkspace& workspace, bool apart) {
  std::vector<LaneTimes> begin;
  if (!apart) return begin;
  const std::size_t stages = workspace.clock.size();
  const std::vector<std::size_t> first = first_steps(order.kinds, order.before.kind, stages);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const SteadyWorkspace::Cost& cost = workspace.costs[order.before.kind[first[stage]]];
    LaneTimes& at = begin.emplace_back(workspace.ends[stages + 1 + first[stage]]);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::vector<double>& start = costs[lane < costs.size() ? lane : 0]->start;
      at[lane] -= cost.seconds[lane] + cost.hold[lane] + (start.empty() ? 0 : on_grid(start[stage], grids[lane]));
    }
  }
  return begin;
}

} // namespace

double time_grid(double seconds) {
  constexpr int kBits = 51;
  return seconds > 0 ? std::ldexp(1.0, std::ilogb(seconds) + 1 - kBits) : 1.0;
}

double on_grid(double seconds, double grid) {
  const double magic = 0x1.8p52 * grid; // where doubles lie `grid` apart
  return (seconds + magic) - magic;
}

LaneTimes steady_seconds(const SteadyOrder& order, int micro_batches, const std::vector<const SlotCosts*>& costs,
                         SteadyWorkspace& workspace) {
  FORETRAIN_CHECK(!costs.empty() && costs.size() <= kLanes, "costs for at least one lane");
  const int rest = micro_batches - order.shape.micro_batches;
  FORETRAIN_CHECK(rest >= 0 && rest % order.per_round == 0, "as many micro-batches as rounds make");
  const int rounds = order.rounds + rest / order.per_round;
  const LaneTimes grids = fill_costs(order, micro_batches, costs, workspace);
  workspace.clock.assign(static_cast<std::size_t>(order.shape.stages), LaneTimes{});
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::vector<double>& start = costs[lane < costs.size() ? lane : 0]->start;
    for (std::size_t stage = 0; stage < start.size(); ++stage)
      workspace.clock[stage][lane] = on_grid(start[stage], grids[lane]);
  }
  const auto most = order.before.size() + order.after.size() + static_cast<std::size_t>(rounds) * order.round.size();
  Line line(order, workspace, most);
  line.run(order.before);
  LaneTimes put_off{};
  for (int done = 1; done <= rounds; ++done) {
    line.run(order.round);
    LaneTimes by{};
    if (!line.steady(by)) continue;
    for (std::size_t lane = 0; lane < kLanes; ++lane) put_off[lane] = by[lane] * (rounds - done);
    break;
  }
  line.run(order.after);
  LaneTimes longest{};
  const bool apart = costs.front()->apart;
  const std::vector<LaneTimes> begin = begins(order, costs, grids, workspace, apart);
  for (std::size_t stage = 0; stage < workspace.clock.size(); ++stage)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::vector<double>& tail = costs[lane < costs.size() ? lane : 0]->tail;
      const double end = workspace.clock[stage][lane] + (tail.empty() ? 0 : on_grid(tail[stage], grids[lane]));
      longest[lane] = std::max(longest[lane], apart ? end - begin[stage][lane] : end);
    }
  for (std::size_t lane = 0; lane < kLanes; ++lane) longest[lane] += put_off[lane];
  return longest;
}

} // namespace foretrain
