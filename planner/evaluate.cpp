#include "planner/evaluate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "core/base/check.h"
#include "core/base/text.h"
#include "core/program/context.h"
#include "core/program/lower.h"
#include "core/program/memory.h"
#include "core/program/schedules/schedule.h"
#include "core/program/stages.h"
#include "planner/finish.h"
#include "planner/slot_costs.h"
#include "planner/stage_cache.h"
#include "planner/stragglers.h"
#include "simulator/launches.h"
#include "simulator/slot_memory.h"
#include "simulator/slots.h"
#include "simulator/steady_replay.h"

namespace foretrain {

struct Evaluator::Shared {
  StudyContext study;
  double straggling = 0; ///< per second of compute
  mutable ScheduleTable orders;
  mutable SteadyTable steady;
  explicit Shared(StudyContext context);
};

namespace {

/// Equal but for what is recomputed.
bool same_setting(const Layout& a, const Layout& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.etp == b.etp && a.dp_shard == b.dp_shard && a.dp_replicate == b.dp_replicate &&
         a.placement == b.placement && a.micro_batch == b.micro_batch && a.sequence_parallel == b.sequence_parallel && a.schedule == b.schedule &&
         a.layers_per_stage == b.layers_per_stage && a.sharding == b.sharding && a.context_parallel == b.context_parallel &&
         a.expert_dispatch == b.expert_dispatch && a.offload == b.offload && a.overlap == b.overlap;
}

} // namespace

Evaluator::Shared::Shared(StudyContext context)
    : study(std::move(context)), straggling(study.cost.calibration().spread * expected_maximum(device_count(study.cluster))) {}

struct Evaluator::Worker::Data {
  /// One layout's costs; several with the same setting are replayed side by side.
  struct Lane {
    std::vector<ChunkProfile> profiles; ///< by kind of chunk
    SlotCosts costs;
    std::vector<double> reduction; ///< per stage: by how much gradient reductions outlast its slots and slow them
    Evidence evidence = Evidence::measured;
  };
  std::shared_ptr<const Shared> shared;
  StageCache cache;
  std::array<Lane, kLanes> lanes;
  SteadyWorkspace steady_workspace;
  SlotMemories memories;
  // Of the layout apart from what is recomputed.
  Layout setting;
  bool has_setting = false;
  const Schedule* schedule = nullptr;
  ScheduleShape shape;
  bool blocking = false;
  std::vector<const StageState*> states;
  std::vector<std::uint32_t> kinds; ///< of chunk stage * chunks + index
  std::vector<int> kind_depths;     ///< of one chunk of each kind
  Bytes boundary;
  bool remembers = false;           ///< the order tells slots apart by what ran before them
  std::vector<Load> transfers;      ///< from each stage to the next
  std::vector<double> p2p;
  std::vector<double> crowded;
  std::vector<int> layers;
  double fragmentation = 0;
  const SteadyOrder* steady = nullptr;
  const SlotOrder* memory_order = nullptr; ///< its memory peak is that of the whole step

  explicit Data(std::shared_ptr<const Shared> s) : shared(std::move(s)), cache(shared->study) {}

  [[nodiscard]] bool split() const { return schedule->splits_backward(); }

  /// Points the cache at a layout.
  void select(const Layout& layout) {
    const StudyContext& study = shared->study;
    setting = layout;
    schedule = schedules().find(layout.schedule.kind);
    FORETRAIN_CHECK(schedule, "the rules admit only schedules of the catalogue");
    shape = ScheduleShape{layout.pp, layout.schedule.chunks, micro_batches_of(study.job, layout)};
    blocking = layout.pp > 1 && (!layout.overlap.p2p || (!schedule->overlaps_p2p() && study.semantics.p2p_blocking_1f1b));
    layers = layers_per_chunk(study.model, layout);
    cache.select({&setting, &cache.mesh_of(setting), &layers, shape.micro_batches, split()});
    has_setting = false;
  }

  /// Everything but what depends on recomputation.
  void set(const Layout& layout) {
    if (has_setting && same_setting(layout, setting)) return;
    select(layout);
    boundary = cache.boundary();
    kind_depths.assign(cache.sort_chunks(kinds), 0);
    for (std::size_t at = 0; at < kinds.size(); ++at)
      kind_depths[kinds[at]] = static_cast<int>(at) % shape.chunks * shape.stages + static_cast<int>(at) / shape.chunks;
    states.clear();
    // Stages between the ends with equally long chunks are equal when all layers are.
    const bool repeats = shared->study.uniform && std::all_of(layers.begin(), layers.end(), [&](int count) { return count == layers.front(); });
    for (int stage = 0; stage < shape.stages; ++stage)
      states.push_back(repeats && stage >= 2 && stage < shape.stages - 1 ? states.back() : &cache.state(stage));
    price_transfers();
    fragmentation = fragmentation_share(shared->study.model, shared->study.job, shared->study.semantics, setting);
    // Collectives in every micro-batch run on into the next slot; one stage alone has but one order of slots.
    remembers = shape.stages > 1 && (setting.sharding.kind == ShardingKind::gradients || setting.sharding.kind == ShardingKind::parameters);
    steady = &shared->steady.get(*schedule, shape, blocking, remembers);
    memory_order = &shared->orders.get(*schedule, steady->shape, blocking);
    has_setting = true;
  }

  /// Transfers between stages.
  void price_transfers() {
    transfers.clear();
    p2p.clear();
    crowded.clear();
    std::array<std::optional<double>, kTiers> alone_twice; // two at once through one port
    for (int stage = 0; shape.stages > 1 && stage < shape.stages; ++stage) {
      const int tier = boundary_tier(stage);
      Load load = load_of(shared->study.cost.transfer_wire(tier, boundary), shared->study.cost);
      std::optional<double>& twice = alone_twice[static_cast<std::size_t>(tier)];
      if (!twice) twice = beside_transfer(load, load);
      p2p.push_back(load.duration());
      crowded.push_back(*twice);
      load.interference = shared->study.cost.transfer_interference();
      transfers.push_back(load);
    }
  }

  /// The highest tier that any rank crosses from `stage` to the next (the last: to the first).
  [[nodiscard]] int boundary_tier(int stage) {
    const Mesh& mesh = cache.mesh_of(setting);
    const int next = (stage + 1) % shape.stages;
    int tier = 0;
    for (const int rank : {mesh.on_stage(0, stage), mesh.on_stage(mesh.world() - 1, stage)})
      tier = std::max(tier, mesh.tier_between(rank, mesh.on_stage(rank, next)));
    return tier;
  }

  /// Profiles of all chunks under one recomputation, and the costs of their slots.
  void fill(Lane& lane, const RecomputeChoice& recompute) {
    lane.profiles.resize(kind_depths.size());
    lane.evidence = Evidence::measured;
    for (const StageState* state : states) lane.evidence = std::max(lane.evidence, state->evidence);
    for (std::size_t kind = 0; kind < kind_depths.size(); ++kind) {
      cache.profile(kind, recompute, lane.profiles[kind]);
      lane.evidence = std::max(lane.evidence, lane.profiles[kind].evidence);
    }
    const Pass last = split() ? Pass::weight : Pass::backward;
    SlotCosts& costs = lane.costs;
    StepSlots slots{lane.profiles, kinds, costs};
    fill_slots(slots, last);
    fill_after(slots);
    costs.start.resize(states.size());
    costs.tail.resize(states.size());
    queue_reductions(slots, shape, last, lane.reduction);
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
      costs.start[stage] = lane.profiles[kinds[stage * static_cast<std::size_t>(shape.chunks)]].ahead;
      costs.tail[stage] = lane.reduction[stage] + states[stage]->step_before;
      const auto behind = costs.behind.begin() + static_cast<std::ptrdiff_t>(stage) * shape.chunks;
      lane.reduction[stage] = std::accumulate(behind, behind + shape.chunks, lane.reduction[stage]);
    }
    costs.p2p = p2p;
    costs.crowded = crowded;
    for (auto* list : {&costs.forward_hold, &costs.backward_hold, &costs.gradient_p2p}) list->clear();
    if (!blocking && shape.stages > 1) go_beside(slots, shape, transfers, split() ? Pass::input : Pass::backward);
  }

  /// Seconds that the busiest stage computes, its host's waits among them, over the whole step: what straggles.
  [[nodiscard]] double busiest(const Lane& lane) const {
    std::vector<double> of_kind;
    for (const ChunkProfile& chunk : lane.profiles) of_kind.push_back(working(chunk, shape.micro_batches));
    const auto per_stage = static_cast<std::size_t>(shape.chunks);
    double most = 0;
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
      double seconds = states[stage]->step_compute;
      for (std::size_t at = stage * per_stage; at < (stage + 1) * per_stage; ++at) seconds += of_kind[kinds[at]];
      most = std::max(most, seconds);
    }
    return most;
  }

  /// Memory of a chunk's slot with its own input; what else is in flight beside it, the order knows.
  [[nodiscard]] static SlotMemory slot_of(const ChunkProfile& chunk, Pass pass, Turn turn, Bytes in, Bytes out) {
    const Block::Memory& m = chunk.at(pass, turn).memory;
    const Bytes net = in + m.net - out;
    return {net, std::max({Bytes(0), net, in + m.net, in + m.peak}), in + m.net};
  }

  void fill_memories(const Lane& lane) {
    const int depths = shape.stages * shape.chunks;
    const Bytes zero(0);
    memories.boundary = boundary;
    for (auto* list : {&memories.forward, &memories.backward, &memories.input, &memories.weight, &memories.first_forward, &memories.last_backward})
      list->resize(kinds.size());
    for (std::size_t at = 0; at < kinds.size(); ++at) {
      const ChunkProfile& chunk = lane.profiles[kinds[at]];
      const int depth = kind_depths[kinds[at]];
      const Bytes before = depth > 0 ? boundary : zero;         // x in, dx out
      const Bytes after = depth + 1 < depths ? boundary : zero; // y out, dy in
      memories.forward[at] = slot_of(chunk, Pass::forward, Turn::middle, before, after);
      memories.first_forward[at] = slot_of(chunk, Pass::forward, Turn::first, before, after);
      if (split()) {
        memories.input[at] = slot_of(chunk, Pass::input, Turn::middle, after, before);
        memories.weight[at] = slot_of(chunk, Pass::weight, Turn::middle, zero, zero);
        memories.last_backward[at] = slot_of(chunk, Pass::weight, Turn::last, zero, zero);
      } else {
        memories.backward[at] = slot_of(chunk, Pass::backward, Turn::middle, after, before);
        memories.last_backward[at] = slot_of(chunk, Pass::backward, Turn::last, after, before);
      }
    }
  }

  /// Device bytes of a stage: slots and step end above the persistent set, fragmentation, outside.
  [[nodiscard]] Bytes device_bytes(std::size_t stage) const {
    const Bytes slots = slot_peak(*memory_order, memories, stage).bytes;
    const bool keeps = shared->study.semantics.keeps_input_gradient && shape.stages > 1 && stage + 1 == states.size();
    const Bytes persistent = states[stage]->persistent + (keeps ? boundary : Bytes(0));
    const Bytes allocated = persistent + std::max(slots, states[stage]->step_peak);
    const Bytes fragments(static_cast<std::int64_t>(fragmentation * static_cast<double>(allocated.value)));
    return allocated + fragments + states[stage]->outside;
  }

  /// What the step's end waits for the host.
  [[nodiscard]] double host_step() const { return kStepLaunches * shared->study.host.per_layer; }

  [[nodiscard]] double step_tail() const {
    double tail = 0;
    for (const StageState* state : states) tail = std::max(tail, state->step_seconds - state->step_before);
    return tail;
  }

  void evaluate(std::span<const RecomputeChoice> choices, std::span<Evaluation> into) {
    std::vector<const SlotCosts*> costs;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      fill(lanes[i], choices[i]);
      costs.push_back(&lanes[i].costs);
    }
    const LaneTimes makespans = steady_makespan(*steady, shape.micro_batches, costs, steady_workspace);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      Evaluation& evaluation = into[i];
      evaluation = {};
      evaluation.evidence = lanes[i].evidence;
      evaluation.step_seconds = makespans[i] + step_tail() + host_step() + shared->straggling * busiest(lanes[i]);
      fill_memories(lanes[i]);
      for (std::size_t stage = 0; stage < states.size(); ++stage) {
        const std::int64_t bytes = device_bytes(stage).value;
        if (bytes <= evaluation.device_bytes) continue;
        evaluation.device_bytes = bytes;
        evaluation.worst_stage = static_cast<int>(stage);
      }
    }
  }
};

Evaluator::Worker::Worker(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Evaluator::Worker::~Worker() = default;
Evaluator::Worker::Worker(Worker&&) noexcept = default;
Evaluator::Evaluator(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
Evaluator::~Evaluator() = default;
Evaluator::Evaluator(Evaluator&&) noexcept = default;
Evaluator& Evaluator::operator=(Evaluator&&) noexcept = default;

Result<Evaluator> Evaluator::make(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                  const Semantics& semantics, const Calibration& calibration) {
  const std::vector<std::string> unknown = unknown_figures(cluster);
  if (!unknown.empty())
    return fail(cluster.name, "figures that a prediction needs are not known: " + join(unknown, "; "), "write the cluster as a file and fill them in");
  CostNeeds needs;
  needs.precision = job.precision;
  FORETRAIN_TRY(CostModel cost, CostModel::make(cluster, calibration, needs));
  return Evaluator(std::make_shared<const Shared>(make_study_context(model, cluster, job, semantics, std::move(cost))));
}

Evaluator::Worker Evaluator::worker() const { return Worker(std::make_unique<Worker::Data>(shared_)); }

const CostModel& Evaluator::cost() const { return shared_->study.cost; }
double Evaluator::straggling(double compute_seconds) const { return shared_->straggling * compute_seconds; }

std::optional<Bytes> Evaluator::capacity() const {
  const DeviceSpec& device = shared_->study.cluster.device;
  return device.usable_memory ? device.usable_memory : device.memory;
}

Evaluation Evaluator::Worker::evaluate(const Layout& layout) {
  Evaluation evaluation;
  evaluate(layout, {&layout.recompute, 1}, {&evaluation, 1});
  return evaluation;
}

void Evaluator::Worker::evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, std::span<Evaluation> into) {
  data_->set(layout);
  for (std::size_t first = 0; first < choices.size(); first += kLanes) {
    const std::size_t count = std::min(kLanes, choices.size() - first);
    data_->evaluate(choices.subspan(first, count), into.subspan(first, count));
  }
}

Evaluator::Worker::Least Evaluator::Worker::least_state(const Layout& layout) {
  Data& d = *data_;
  d.select(layout);
  Least least;
  for (const int stage : {0, layout.pp - 1}) {
    const StageState& state = d.cache.state(stage);
    if (state.persistent + state.outside > least.bytes) least = {state.persistent + state.outside, stage};
  }
  return least;
}

Evaluator::Worker::Least Evaluator::Worker::least_activations(const Layout& layout) {
  Data& d = *data_;
  d.select(layout);
  // Split backwards free part of what a pair holds in between: of those, one pair is sure.
  const int pairs = d.split() ? 1 : d.schedule->peak_in_flight(d.shape, 0);
  const StageState& state = d.cache.state(0);
  const Bytes allocated = state.persistent + d.cache.least_retained(0) * pairs;
  const double share = fragmentation_share(d.shared->study.model, d.shared->study.job, d.shared->study.semantics, layout);
  const Bytes fragments(static_cast<std::int64_t>(share * static_cast<double>(allocated.value)));
  return {allocated + fragments + state.outside, 0};
}

Prediction Evaluator::predict(const Layout& layout) const {
  Worker w = worker();
  Worker::Data& d = *w.data_;
  d.set(layout);
  Worker::Data::Lane& lane = d.lanes[0];
  d.fill(lane, layout.recompute);
  const SlotOrder& order = shared_->orders.get(*d.schedule, d.shape, d.blocking, d.remembers);
  SlotWorkspace workspace;
  SlotResult result;
  replay_slots(order, lane.costs, workspace, result);
  const StudyContext& study = shared_->study;
  Prediction prediction;
  prediction.engine = Engine::slots;

  // The busiest stage is the critical path; what it waits for is transfers (seen by replaying without them) or bubble.
  const auto busiest = static_cast<std::size_t>(std::max_element(result.busy.begin(), result.busy.end()) - result.busy.begin());
  const double makespan = result.makespan;
  SlotCosts still = lane.costs;
  std::fill(still.p2p.begin(), still.p2p.end(), 0);
  still.crowded.clear();
  still.gradient_p2p.clear();
  SlotResult without;
  replay_slots(order, still, workspace, without);
  const auto add = [&prediction](TimePart part, double seconds) { prediction.time[static_cast<std::size_t>(part)] += Seconds(seconds); };
  const auto per_stage = static_cast<std::size_t>(d.shape.chunks);
  const int m = d.shape.micro_batches;
  for (std::size_t c = 0; c < per_stage; ++c) {
    const ChunkProfile& chunk = lane.profiles[d.kinds[busiest * per_stage + c]];
    const auto pass = [&](Pass which) {
      for (int j = 0; j < m; ++j) {
        const Turn turn = j == m - 1 && which != Pass::forward ? Turn::last : j == 0 && which == Pass::forward ? Turn::first : Turn::middle;
        const SlotTimeOf& slot = chunk.at(which, turn);
        for (std::size_t p = 0; p < slot.parts.size(); ++p) add(static_cast<TimePart>(p), slot.parts[p].value);
      }
    };
    pass(Pass::forward);
    if (d.split()) {
      pass(Pass::input);
      pass(Pass::weight);
    } else {
      pass(Pass::backward);
    }
  }
  for (std::size_t p = 0; p < prediction.time.size(); ++p) add(static_cast<TimePart>(p), d.states[busiest]->step_parts[p].value);
  double booked = 0;
  for (const Seconds seconds : prediction.time) booked += seconds.value;
  const double waiting = makespan + d.step_tail() - booked;
  const double transfers = std::clamp(makespan - without.makespan, 0.0, std::max(0.0, waiting));
  const double reduction = std::min(lane.reduction[busiest], waiting - transfers); // below zero: slots beside fewer transfers
  add(TimePart::pp, transfers);
  add(TimePart::dp, reduction);
  add(TimePart::bubble, waiting - transfers - reduction);
  const double late = straggling(d.busiest(lane));
  add(TimePart::other, late);
  add(TimePart::host, d.host_step());
  prediction.step_time = Seconds(makespan + d.step_tail() + d.host_step() + late);
  prediction.evidence = lane.evidence;

  Plan plan{study.model, study.cluster, study.job, layout};
  const Program program = lower(plan, study.semantics);
  for (const Role& role : program.roles) prediction.memory.push_back(stage_memory(program, role));
  finish_prediction(prediction, plan, study.semantics, capacity());
  return prediction;
}

} // namespace foretrain
