#include "planner/evaluate_data.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/base/check.h"
#include "core/program/context.h"
#include "core/program/lower.h"
#include "core/program/schedules/schedule.h"
#include "core/program/slot_weights.h"
#include "core/program/stages.h"
#include "planner/stragglers.h"
#include "simulator/launches.h"

namespace foretrain {
namespace {

/// Equal but for what is recomputed.
bool same_setting(const Layout& a, const Layout& b) {
  return a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep && a.etp == b.etp && a.dp_shard == b.dp_shard &&
         a.dp_replicate == b.dp_replicate && a.placement == b.placement && a.micro_batch == b.micro_batch &&
         a.sequence_parallel == b.sequence_parallel && a.schedule == b.schedule &&
         a.layers_per_stage == b.layers_per_stage && a.sharding == b.sharding &&
         a.context_parallel == b.context_parallel && a.expert_dispatch == b.expert_dispatch && a.offload == b.offload &&
         a.overlap == b.overlap;
}

} // namespace

Evaluator::Shared::Shared(StudyContext context)
    : study(std::move(context)),
      straggling(study.cost.calibration().spread * expected_maximum(device_count(study.cluster))) {}

void Evaluator::Worker::Data::select(const Layout& layout) {
  const StudyContext& study = shared->study;
  setting = layout;
  schedule = schedules().find(layout.schedule.kind);
  FORETRAIN_CHECK(schedule, "the rules admit only schedules of the catalogue");
  shape = schedule_shape(study.job, layout);
  if (schedule->by_cost()) shape.weights = weights_of(layout);
  blocking = layout.pp > 1 && (!layout.overlap.p2p || (!schedule->overlaps_p2p() && study.semantics.p2p_blocking_1f1b));
  apart = post_validates(study.semantics, layout, split());
  layers = layers_per_chunk(study.model, layout, study.semantics);
  cache.select({&setting, &cache.mesh_of(setting), &layers, shape.micro_batches, split()});
  has_setting = false;
}

const SlotWeights& Evaluator::Worker::Data::weights_of(const Layout& layout) {
  const Layout part = weighed_part(layout);
  for (const auto& [known, own] : weights)
    if (known == part) return own;
  const StudyContext& s = shared->study;
  return weights.emplace_back(part, foretrain::slot_weights(s.model, s.job, s.semantics, s.cluster.device, part))
      .second;
}

void Evaluator::Worker::Data::outline(const Layout& layout) {
  select(layout);
  boundary = cache.boundary();
  kind_depths.assign(cache.sort_chunks(kinds), 0);
  for (std::size_t at = 0; at < kinds.size(); ++at)
    kind_depths[kinds[at]] = static_cast<int>(at) % shape.chunks * shape.stages + static_cast<int>(at) / shape.chunks;
  states.clear();
  // Stages between the ends with equally long chunks are equal when all layers are.
  const bool repeats = shared->study.uniform &&
                       std::all_of(layers.begin(), layers.end(), [&](int count) { return count == layers.front(); });
  for (int stage = 0; stage < shape.stages; ++stage)
    states.push_back(repeats && stage >= 2 && stage < shape.stages - 1 ? states.back() : &cache.state(stage));
  fragmentation = fragmentation_share(shared->study.model, shared->study.job, shared->study.semantics, setting);
  // Collectives in every micro-batch run on into the next slot; one stage alone has but one order of slots.
  remembers = shape.stages > 1 &&
              (setting.sharding.kind == ShardingKind::gradients || setting.sharding.kind == ShardingKind::parameters);
}

void Evaluator::Worker::Data::set(const Layout& layout) {
  if (has_setting && same_setting(layout, setting)) return;
  outline(layout);
  price_transfers();
  steady = &shared->steady.get(*schedule, shape, blocking, remembers);
  memory_order = &shared->orders.get(*schedule, steady->shape, blocking);
  has_setting = true;
}

void Evaluator::Worker::Data::price_transfers() {
  transfers.clear();
  p2p.clear();
  crowded.clear();
  const int parts = boundary_parts(shared->study.semantics, setting);
  std::array<std::optional<double>, kTiers> alone_twice; // two at once through one port
  for (int stage = 0; shape.stages > 1 && stage < shape.stages; ++stage) {
    const int tier = boundary_tier(stage);
    const CostModel& cost = shared->study.cost;
    Load load = load_of(cost.boundary_wire(tier, boundary, parts, cache.mesh_of(setting).shape(Group::tp)), cost);
    if (blocking && boundary.value > 0) load.latency += restart_seconds(shared->study.semantics);
    std::optional<double>& twice = alone_twice[static_cast<std::size_t>(tier)];
    if (!twice) twice = beside_transfer(load, load);
    p2p.push_back(load.duration());
    crowded.push_back(*twice);
    load.interference = shared->study.cost.transfer_interference();
    transfers.push_back(load);
  }
}

int Evaluator::Worker::Data::boundary_tier(int stage) {
  const Mesh& mesh = cache.mesh_of(setting);
  const int next = (stage + 1) % shape.stages;
  int tier = 0;
  for (const int rank : {mesh.on_stage(0, stage), mesh.on_stage(mesh.world() - 1, stage)})
    tier = std::max(tier, mesh.tier_between(rank, mesh.on_stage(rank, next)));
  return tier;
}

void Evaluator::Worker::Data::fill(Lane& lane, const RecomputeChoice& recompute) {
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
    costs.tail[stage] = lane.reduction[stage] + (apart ? states[stage]->step_seconds : states[stage]->step_before);
    const auto behind = costs.behind.begin() + static_cast<std::ptrdiff_t>(stage) * shape.chunks;
    lane.reduction[stage] = std::accumulate(behind, behind + shape.chunks, lane.reduction[stage]);
  }
  costs.apart = apart;
  costs.p2p = p2p;
  costs.crowded = crowded;
  for (auto* list : {&costs.forward_hold, &costs.backward_hold, &costs.gradient_p2p}) list->clear();
  if (!blocking && shape.stages > 1) go_beside(slots, shape, transfers, split() ? Pass::input : Pass::backward);
}

std::vector<double> Evaluator::Worker::Data::work_of_stages(const Lane& lane) const {
  std::vector<double> of_kind;
  for (const ChunkProfile& chunk : lane.profiles) of_kind.push_back(working(chunk, shape.micro_batches));
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  std::vector<double> work(states.size());
  for (std::size_t at = 0; at < kinds.size(); ++at) work[at / per_stage] += of_kind[kinds[at]];
  return work;
}

double Evaluator::Worker::Data::busiest(const Lane& lane) const {
  const std::vector<double> work = work_of_stages(lane);
  double most = 0;
  for (std::size_t stage = 0; stage < states.size(); ++stage)
    most = std::max(most, work[stage] + states[stage]->step_compute);
  return most;
}

double Evaluator::Worker::Data::on_shared_processors(double slots, const Lane& lane) const {
  const int sharing = shared->study.cluster.ranks_per_processor;
  if (sharing == 1) return slots;
  const std::vector<double> work = work_of_stages(lane);
  const double mean = std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
  return std::max(std::min(slots, mean), slots / sharing);
}

SlotMemory Evaluator::Worker::Data::slot_of(const ChunkProfile& chunk, Pass pass, Turn turn, Bytes in, Bytes out) {
  const Block::Memory& m = chunk.at(pass, turn).memory;
  const Bytes net = in + m.net - out;
  return {net, std::max({Bytes(0), net, in + m.net, in + m.peak}), in + m.net};
}

void Evaluator::Worker::Data::fill_memories(const Lane& lane) {
  const int depths = shape.stages * shape.chunks;
  const Bytes zero(0);
  memories.boundary = boundary;
  for (auto* list : {&memories.forward, &memories.backward, &memories.input, &memories.weight, &memories.first_forward,
                     &memories.last_backward})
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

Bytes Evaluator::Worker::Data::device_bytes(std::size_t stage) const {
  const Bytes slots = slot_peak(*memory_order, memories, stage).bytes;
  const bool keeps = shared->study.semantics.keeps_input_gradient && shape.stages > 1 && stage + 1 == states.size();
  const Bytes persistent = states[stage]->persistent + (keeps ? boundary : Bytes(0));
  const Bytes allocated = persistent + std::max(slots, states[stage]->step_peak);
  const Bytes fragments(static_cast<std::int64_t>(fragmentation * static_cast<double>(allocated.value)));
  return allocated + fragments + states[stage]->outside;
}

double Evaluator::Worker::Data::step_tail() const {
  if (apart) return 0;
  double tail = 0;
  for (const StageState* state : states) tail = std::max(tail, state->step_seconds - state->step_before);
  return tail;
}

const Utilisation& Evaluator::Worker::Data::utilisation() {
  for (const auto& [tp, known] : utilisations)
    if (tp == setting.tp) return known;
  const StudyContext& study = shared->study;
  return utilisations
      .emplace_back(setting.tp, Utilisation(study.model, study.cluster, study.job, study.semantics, setting.tp))
      .second;
}

void Evaluator::Worker::Data::evaluate(std::span<const RecomputeChoice> choices, std::span<Evaluation> into) {
  const Utilisation& used = utilisation();
  std::vector<const SlotCosts*> costs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    fill(lanes[i], choices[i]);
    costs.push_back(&lanes[i].costs);
  }
  const LaneTimes steps = steady_seconds(*steady, shape.micro_batches, costs, steady_workspace);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Evaluation& evaluation = into[i];
    evaluation = {};
    evaluation.evidence = lanes[i].evidence;
    evaluation.step_seconds =
        on_shared_processors(steps[i], lanes[i]) + step_tail() + host_step() + shared->straggling * busiest(lanes[i]);
    evaluation.tflops_per_device = used.tflops_per_device(evaluation.step_seconds);
    evaluation.mfu_percent = used.mfu_percent(evaluation.step_seconds);
    fill_memories(lanes[i]);
    for (std::size_t stage = 0; stage < states.size(); ++stage) {
      const std::int64_t bytes = device_bytes(stage).value;
      if (bytes <= evaluation.device_bytes) continue;
      evaluation.device_bytes = bytes;
      evaluation.worst_stage = static_cast<int>(stage);
    }
  }
}

} // namespace foretrain
