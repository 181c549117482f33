#include "simulator/machine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "simulator/booking.h"
#include "simulator/rank_state.h"

namespace foretrain {
namespace {

class Machine final : public NetworkClient {
public:
  Machine(const Script& script, const World& world, Network& network, MachineOptions options)
      : script_(script), world_(world), network_(network), sharing_(options.ranks_per_processor) {
    const std::size_t size = world.rank.size();
    ranks_.resize(size);
    run_.ranks.resize(size);
    arrived_.assign(world.instances.size() * kLanes, 0);
    partner_.assign(size * 4, -1);
    std::vector<bool> seen(script.roles.size(), false);
    for (std::size_t r = 0; r < size; ++r) {
      const auto stage = static_cast<std::size_t>(world.stage[r]);
      ranks_[r].role = &script.roles[stage];
      ranks_[r].recorded = options.record && !seen[stage];
      ranks_[r].apart = script.program->post_validation;
      seen[stage] = true;
      run_.ranks[r].rank = world.rank[r];
      run_.ranks[r].stage = world.stage[r];
    }
  }

  Result<MachineRun> run() {
    for (int r = 0; r < world_.size(); ++r)
      for (int lane = 0; lane < kLanes; ++lane) ready_.push_back({r, static_cast<Lane>(lane)});
    drain();
    network_.run(*this);
    if (Result<void> ended = check_finished(); !ended) return tl::unexpected<Error>(ended.error());
    finish();
    return std::move(run_);
  }

  void on_time(std::uint64_t token) override {
    const int r = static_cast<int>(token >> 40);
    const Lane lane = static_cast<Lane>((token >> 32) & 0xff);
    LaneRun& state = ranks_[static_cast<std::size_t>(r)].lanes[at(lane)];
    if (state.state != LaneState::busy || state.version != static_cast<std::uint32_t>(token)) return;
    complete(r, lane);
    drain();
  }

  void on_finished(int transfer) override {
    const Active active = active_[static_cast<std::size_t>(transfer)];
    free_.push_back(transfer);
    if (active.instance >= 0) {
      for (const int member : world_.instances[static_cast<std::size_t>(active.instance)].members) {
        leave(member, active.lane);
        complete(member, active.lane);
      }
    } else {
      const bool forward = active.lane == Lane::send_forward;
      const Lane receiving = forward ? Lane::receive_forward : Lane::receive_backward;
      leave(active.from, active.lane);
      leave(active.to, receiving);
      complete(active.from, active.lane);
      complete(active.to, receiving);
    }
    drain();
  }

private:
  RankState& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  RankRun& of(int r) { return run_.ranks[static_cast<std::size_t>(r)]; }

  void drain() {
    // Breadth first in order of appearance: the order decides nothing but must not depend on anything outside.
    while (head_ < ready_.size()) {
      const RankLane ref = ready_[head_++];
      advance(ref.rank, ref.lane);
    }
    ready_.clear();
    head_ = 0;
    tell_transfers();
  }

  /// Between two compute steps without a gap nothing changes, so transfers are told once a round is over.
  void tell_transfers() {
    for (const int r : touched_) {
      RankState& state = rank(r);
      state.touched = false;
      const bool computes = state.slows && state.lanes[at(Lane::compute)].state == LaneState::busy;
      if (computes == state.computes) continue;
      state.computes = computes;
      computing_ += computes ? 1 : -1;
      for (const int number : state.transfer)
        if (number > 0) count_computing(number - 1, computes ? 1 : -1);
    }
    touched_.clear();
    if (sharing_ == 1) return;
    const double speed = shared_speed(world_.size(), computing_, sharing_);
    if (speed == std::exchange(speed_, speed)) return;
    for (int r = 0; r < world_.size(); ++r) change_rate(r);
  }

  void count_computing(int transfer, int change) {
    Active& active = active_[static_cast<std::size_t>(transfer)];
    const bool before = active.computing > 0;
    active.computing += change;
    const bool after = active.computing > 0;
    if (before != after && active.traffic->beside != 1)
      network_.set_pace(transfer, after ? active.traffic->beside : 1.0);
  }

  void touch(int r) {
    RankState& state = rank(r);
    if (state.touched) return;
    state.touched = true;
    touched_.push_back(r);
  }

  const ScriptInstruction& instruction_at(const RankState& state, Lane lane) const {
    const std::vector<int>& list = state.role->by_lane[at(lane)];
    return state.role
        ->instructions[static_cast<std::size_t>(list[static_cast<std::size_t>(state.lanes[at(lane)].cursor)])];
  }

  const ScriptStep& step_at(const ScriptInstruction& instruction, const LaneRun& run, Lane lane) const {
    const ScriptSlot& slot = script_.slots[static_cast<std::size_t>(instruction.slot)];
    return slot.steps[static_cast<std::size_t>(slot.by_lane[at(lane)][static_cast<std::size_t>(run.next)])];
  }

  void advance(int r, Lane lane) {
    RankState& state = rank(r);
    LaneRun& run = state.lanes[at(lane)];
    if (run.state == LaneState::busy || run.state == LaneState::finished) return;
    if (run.state == LaneState::blocked) {
      if (state.lanes[at(run.blocked_on)].done < run.need) return;
      if (lane == Lane::compute) book_wait(state, run.blocked_on, network_.now(), of(r));
      run.state = LaneState::idle;
    }
    const std::vector<int>& instructions = state.role->by_lane[at(lane)];
    while (true) {
      if (run.cursor == static_cast<int>(instructions.size())) {
        run.state = LaneState::finished;
        return;
      }
      const ScriptInstruction& instruction = instruction_at(state, lane);
      const ScriptStep& step = step_at(instruction, run, lane);
      if (!may_begin(state, run, instruction, step)) return;
      if (lane == Lane::compute && state.apart && !state.began)
        book_begin(state, instruction, step, script_.program->blocking_p2p, network_.now(), of(r));
      if (!begin(r, lane, instruction, step)) return;
    }
  }

  /// Starts a step; true when it is over at once.
  bool begin(int r, Lane lane, const ScriptInstruction& instruction, const ScriptStep& step) {
    RankState& state = rank(r);
    LaneRun& run = state.lanes[at(lane)];
    const double now = network_.now();
    run.part = step.part;
    switch (step.kind) {
    case ScriptStepKind::gate:
      if (step.begins) state.block_began = now;
      finish_step(r, lane, now);
      return true;
    case ScriptStepKind::pad:
      run.started = now;
      run.bubble_before = false;
      if (state.block_began + step.seconds <= now) {
        finish_step(r, lane, now);
        return true;
      }
      run.state = LaneState::busy;
      state.slows = false;
      schedule(r, lane, state.block_began + step.seconds);
      return false;
    case ScriptStepKind::local:
      run.started = now;
      run.bubble_before = false;
      if (step.seconds <= 0) {
        finish_step(r, lane, now);
        return true;
      }
      run.state = LaneState::busy;
      if (lane == Lane::compute) {
        of(r).compute += step.seconds;
        state.slows = step.op == nullptr || step.op->kind == OpKind::compute;
        state.remaining = step.seconds;
        state.updated = now;
        state.rate = state.slows ? compute_rate(state) * speed_ : 1;
        touch(r);
        schedule(r, lane, now + state.remaining / state.rate);
      } else {
        schedule(r, lane, now + step.seconds);
      }
      return false;
    case ScriptStepKind::collective:
      arrive(r, lane, step);
      return false;
    case ScriptStepKind::send:
    case ScriptStepKind::receive:
      meet(r, lane, instruction, step.kind);
      return false;
    }
    return false;
  }

  void schedule(int r, Lane lane, double when) {
    const std::uint32_t version = ++rank(r).lanes[at(lane)].version;
    network_.call_at(when, static_cast<std::uint64_t>(r) << 40 | static_cast<std::uint64_t>(lane) << 32 | version);
  }

  /// A member has come to its group's transfer.
  void arrive(int r, Lane lane, const ScriptStep& step) {
    LaneRun& run = rank(r).lanes[at(lane)];
    run.state = LaneState::busy;
    const int number = world_.instance_of[static_cast<std::size_t>(r)][static_cast<std::size_t>(step.group)];
    const World::Instance& instance = world_.instances[static_cast<std::size_t>(number)];
    run.bubble_before = instance.spans_stages;
    run.started = network_.now();
    int& arrived = arrived_[static_cast<std::size_t>(number) * kLanes + at(lane)];
    if (++arrived < static_cast<int>(instance.members.size())) return;
    arrived = 0;
    const Traffic& traffic = script_.traffic[static_cast<std::size_t>(step.wire)];
    const int id = add({number, -1, -1, lane, &traffic, 0});
    for (const int member : instance.members) enter(member, lane, id);
    launch(id);
  }

  /// One end of a pipeline transfer is there. A channel is one direction between two stages.
  void meet(int r, Lane lane, const ScriptInstruction& instruction, ScriptStepKind kind) {
    LaneRun& run = rank(r).lanes[at(lane)];
    run.state = LaneState::busy;
    run.bubble_before = true;
    run.started = network_.now();
    const bool sends = kind == ScriptStepKind::send;
    const bool forward = lane == Lane::send_forward || lane == Lane::receive_forward;
    const int stages = static_cast<int>(script_.roles.size());
    const int stage = ((world_.stage[static_cast<std::size_t>(r)] + instruction.peer) % stages + stages) % stages;
    const int there = script_.program->mesh.on_stage(world_.rank[static_cast<std::size_t>(r)], stage);
    const int other = world_.simulated[static_cast<std::size_t>(there)];
    const int from = sends ? r : other;
    const int to = sends ? other : r;
    const int direction = sends ? instruction.peer : -instruction.peer;
    const std::size_t channel = static_cast<std::size_t>(from) * 4 + (forward ? 0U : 2U) + (direction > 0 ? 1U : 0U);
    if (partner_[channel] < 0) {
      partner_[channel] = sends ? 1 : 2;
      return;
    }
    // The same end twice cannot be: its lane is busy until the transfer is over.
    partner_[channel] = -1;
    const Traffic& traffic = script_.traffic[static_cast<std::size_t>(instruction.wire)];
    const Lane sending = forward ? Lane::send_forward : Lane::send_backward;
    const int id = add({-1, from, to, sending, &traffic, 0});
    enter(from, sending, id);
    enter(to, forward ? Lane::receive_forward : Lane::receive_backward, id);
    launch(id);
  }

  int add(const Active& active) {
    int id = static_cast<int>(active_.size());
    if (free_.empty()) {
      active_.push_back(active);
    } else {
      id = free_.back();
      free_.pop_back();
      active_[static_cast<std::size_t>(id)] = active;
    }
    return id;
  }

  void launch(int id) {
    const Active& active = active_[static_cast<std::size_t>(id)];
    ++run_.transfers;
    network_.start({id, active.traffic, active.instance, active.from, active.to, active.lane});
    if (active.computing > 0 && active.traffic->beside != 1) network_.set_pace(id, active.traffic->beside);
  }

  void enter(int r, Lane lane, int transfer) {
    RankState& state = rank(r);
    Active& active = active_[static_cast<std::size_t>(transfer)];
    state.lanes[at(lane)].started = network_.now();
    state.transfer[at(lane)] = transfer + 1;
    if (state.computes) ++active.computing;
    if (active.traffic->slowdown == 0) return;
    state.slowdown[at(lane)] = active.traffic->slowdown;
    change_rate(r);
  }

  void leave(int r, Lane lane) {
    RankState& state = rank(r);
    state.transfer[at(lane)] = 0;
    if (state.slowdown[at(lane)] == 0) return;
    state.slowdown[at(lane)] = 0;
    change_rate(r);
  }

  void change_rate(int r) {
    RankState& state = rank(r);
    LaneRun& run = state.lanes[at(Lane::compute)];
    if (run.state != LaneState::busy || !state.slows) return;
    const double now = network_.now();
    state.remaining = std::max(0.0, state.remaining - (now - state.updated) * state.rate);
    state.updated = now;
    state.rate = compute_rate(state) * speed_;
    schedule(r, Lane::compute, now + state.remaining / state.rate);
  }

  void complete(int r, Lane lane) {
    finish_step(r, lane, network_.now());
    ready_.push_back({r, lane});
  }

  /// Books the step, moves the lane on and wakes the lanes that waited for it.
  void finish_step(int r, Lane lane, double now) {
    RankState& state = rank(r);
    LaneRun& run = state.lanes[at(lane)];
    const std::vector<int>& list = state.role->by_lane[at(lane)];
    const int number = list[static_cast<std::size_t>(run.cursor)];
    const ScriptSlot& slot =
        script_.slots[static_cast<std::size_t>(state.role->instructions[static_cast<std::size_t>(number)].slot)];
    const std::vector<int>& steps = slot.by_lane[at(lane)];
    RankRun& out = of(r);
    if (lane == Lane::parameters && state.apart && !state.began) state.gathered.push_back(now);
    if (lane == Lane::compute && run.state == LaneState::busy) {
      book_wait(state, lane, now, out);
      touch(r);
    }
    const int step = steps[static_cast<std::size_t>(run.next)];
    if (lane == Lane::compute && run.state == LaneState::busy &&
        slot.steps[static_cast<std::size_t>(step)].kind == ScriptStepKind::local)
      out.slowed += std::max(0.0, now - run.started - slot.steps[static_cast<std::size_t>(step)].seconds);
    if (state.recorded && slot.steps[static_cast<std::size_t>(step)].kind != ScriptStepKind::gate)
      out.records.push_back({number, step, run.started, now});
    run.state = LaneState::idle;
    run.ended = now;
    ++run.done;
    ++run_.steps;
    if (++run.next == static_cast<int>(steps.size())) {
      run.next = 0;
      ++run.cursor;
    }
    for (int other = 0; other < kLanes; ++other) {
      const LaneRun& waiting = state.lanes[static_cast<std::size_t>(other)];
      if (waiting.state == LaneState::blocked && waiting.blocked_on == lane && run.done >= waiting.need)
        ready_.push_back({r, static_cast<Lane>(other)});
    }
  }

  Result<void> check_finished() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        if (ranks_[r].lanes[lane].state != LaneState::finished)
          return fail("program",
                      fmt::format("rank {} waits forever on its {} lane, step {} of {}", world_.rank[r],
                                  name_of(static_cast<Lane>(lane)), ranks_[r].lanes[lane].done,
                                  ranks_[r].role->total[lane]),
                      "sends and receives of the Program do not pair");
    return {};
  }

  void finish() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      book_end(ranks_[r], run_.ranks[r]);
      run_.seconds = std::max(run_.seconds, run_.ranks[r].span);
    }
    for (RankRun& rank : run_.ranks) book_until(run_.seconds, rank);
  }

  const Script& script_;
  const World& world_;
  Network& network_;
  std::vector<RankState> ranks_;
  std::vector<Active> active_;
  std::vector<int> free_;
  std::vector<int> arrived_; ///< per instance and lane
  std::vector<int> partner_; ///< per channel: -1 nobody, 1 the sender waits, 2 the receiver waits
  std::vector<int> touched_;
  std::vector<RankLane> ready_;
  std::size_t head_ = 0;
  int sharing_ = 1;
  int computing_ = 0; ///< ranks
  double speed_ = 1;  ///< of compute, for processors that nobody else uses at the moment
  MachineRun run_;
};

} // namespace

Result<MachineRun> run_machine(const Script& script, const World& world, Network& network, MachineOptions options) {
  return Machine(script, world, network, options).run();
}

} // namespace foretrain
