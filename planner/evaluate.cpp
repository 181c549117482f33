#include "planner/evaluate.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/program/flops.h"
#include "core/base/text.h"
#include "core/program/context.h"
#include "core/program/lower.h"
#include "core/program/memory.h"
#include "core/program/schedules/schedule.h"
#include "core/program/stages.h"
#include "planner/stage_cache.h"
#include "simulator/slot_memory.h"
#include "simulator/slots.h"

namespace foretrain {

struct Evaluator::Shared {
  StudyContext study;
  mutable ScheduleTable orders;
  explicit Shared(StudyContext context) : study(std::move(context)) {}
};

namespace {

/// Mean of the largest of n independent standard normal deviations; log-linear between tabulated n (docs/formulas.md,
/// "Stragglers").
double expected_maximum(int ranks) {
  struct Point {
    double n, value;
  };
  constexpr Point kPoints[] = {{1, 0}, {8, 1.42}, {64, 2.34}, {512, 3.04}, {1024, 3.25}, {4096, 3.63}, {16384, 3.97}};
  const double n = ranks;
  for (std::size_t i = 1; i < std::size(kPoints); ++i)
    if (n <= kPoints[i].n) {
      const double share = std::log(n / kPoints[i - 1].n) / std::log(kPoints[i].n / kPoints[i - 1].n);
      return kPoints[i - 1].value + share * (kPoints[i].value - kPoints[i - 1].value);
    }
  return kPoints[std::size(kPoints) - 1].value;
}

double straggling_of(const StudyContext& study, double compute_seconds) {
  return study.cost.calibration().spread * expected_maximum(device_count(study.cluster)) * compute_seconds;
}

} // namespace

struct Evaluator::Worker::Data {
  std::shared_ptr<const Shared> shared;
  StageCache cache;
  SlotWorkspace workspace;
  SlotCosts costs;
  SlotMemories memories;
  SlotResult result;
  std::vector<const StageState*> states;
  std::vector<const ChunkProfile*> chunks; ///< stage * chunks + chunk
  Bytes boundary;
  std::vector<int> layers;
  const SlotOrder* order = nullptr;

  explicit Data(std::shared_ptr<const Shared> s) : shared(std::move(s)), cache(shared->study) {}

  struct Shape {
    const Schedule* schedule;
    ScheduleShape shape;
    bool blocking;
  };
  [[nodiscard]] Shape shape_of(const Layout& layout) const {
    const StudyContext& study = shared->study;
    const Schedule* schedule = schedules().find(layout.schedule.kind);
    FORETRAIN_CHECK(schedule, "the rules admit only schedules of the catalogue");
    const ScheduleShape shape{layout.pp, layout.schedule.chunks, micro_batches_of(study.job, layout)};
    const bool blocking =
        layout.pp > 1 && (!layout.overlap.p2p || (!schedule->overlaps_p2p() && study.semantics.p2p_blocking_1f1b));
    return {schedule, shape, blocking};
  }

  /// Profiles of all stages, then slot costs and memories by chunk; `order` is that of the whole step.
  void prepare(const Layout& layout) {
    const Shape s = shape_of(layout);
    prepare(layout, s);
    order = &shared->orders.get(*s.schedule, s.shape, s.blocking);
  }

  void prepare(const Layout& layout, const Shape& s) {
    const Mesh& mesh = cache.mesh_of(layout);
    layers = layers_per_chunk(shared->study.model, layout);
    const LayoutView view{&layout, &mesh, &layers, s.shape.micro_batches, s.schedule->splits_backward()};
    states.clear();
    chunks.clear();
    cache.select(view);
    boundary = cache.boundary();
    // Stages between the ends with equally long chunks are equal when all layers are.
    const bool repeats = shared->study.uniform && std::all_of(layers.begin(), layers.end(), [&](int count) { return count == layers.front(); });
    for (int stage = 0; stage < layout.pp; ++stage) {
      if (repeats && stage >= 2 && stage < layout.pp - 1) {
        states.push_back(states.back());
        for (int c = 0; c < s.shape.chunks; ++c) chunks.push_back(chunks[chunks.size() - static_cast<std::size_t>(s.shape.chunks)]);
        continue;
      }
      states.push_back(&cache.state(stage));
      for (int c = 0; c < s.shape.chunks; ++c) {
        const bool inner = repeats && c >= 2 && c < s.shape.chunks - 1;
        chunks.push_back(inner ? chunks.back() : &cache.chunk(stage, c));
      }
    }
    fill_costs(layout, mesh, s);
    fill_memories(layout, s);
  }

  /// Makespan of the whole step. Once a pipeline is full, each further round of `stages` micro-batches adds the same time
  /// (a max-plus linear system runs periodically): three short replays whose increments agree stand for a long one.
  /// Leaves `order` at a replay whose memory peak is the long one's.
  double makespan(const Shape& s) {
    constexpr int kRounds = 3;
    constexpr double kSame = 1e-9;
    const int p = s.shape.stages;
    const int m = s.shape.micro_batches;
    const bool keeps_all = s.schedule->id() == "gpipe"; // holds every micro-batch: memory grows with their number
    if (keeps_all || m <= 4 * kRounds * p) {
      order = &shared->orders.get(*s.schedule, s.shape, s.blocking);
      replay_slots(*order, costs, workspace, result);
      return result.makespan;
    }
    std::array<double, 3> spans{};
    ScheduleShape few = s.shape;
    for (int i = 0; i < 3; ++i) {
      few.micro_batches = (kRounds + i) * p + m % p;
      order = &shared->orders.get(*s.schedule, few, s.blocking);
      replay_slots(*order, costs, workspace, result);
      spans[static_cast<std::size_t>(i)] = result.makespan;
    }
    const double first = spans[1] - spans[0];
    const double second = spans[2] - spans[1];
    if (std::abs(first - second) <= kSame * second) return spans[2] + second * ((m - few.micro_batches) / p);
    order = &shared->orders.get(*s.schedule, s.shape, s.blocking);
    replay_slots(*order, costs, workspace, result);
    return result.makespan;
  }

  /// Seconds of slots on the busiest stage over the whole step.
  [[nodiscard]] double busiest(const Shape& s) const {
    const auto per_stage = static_cast<std::size_t>(s.shape.chunks);
    double most = 0;
    for (std::size_t i = 0; i < states.size(); ++i) {
      double busy = 0;
      for (std::size_t at = i * per_stage; at < (i + 1) * per_stage; ++at)
        busy += s.shape.micro_batches * (costs.forward[at] + costs.backward[at] + costs.input[at] + costs.weight[at]) +
                costs.first_forward[at] + costs.last_backward[at];
      most = std::max(most, busy);
    }
    return most;
  }

  void fill_costs(const Layout& layout, const Mesh& mesh, const Shape& s) {
    const auto per_stage = static_cast<std::size_t>(s.shape.chunks);
    const std::size_t count = chunks.size();
    const bool split = s.schedule->splits_backward();
    for (auto* list : {&costs.forward, &costs.backward, &costs.input, &costs.weight, &costs.first_forward, &costs.last_backward})
      list->assign(count, 0);
    costs.tail.assign(states.size(), 0);
    costs.p2p.clear();
    for (std::size_t i = 0; i < states.size(); ++i) {
      for (std::size_t c = 0; c < per_stage; ++c) {
        const std::size_t at = i * per_stage + c;
        const ChunkProfile& chunk = *chunks[at];
        const Pass last = split ? Pass::weight : Pass::backward;
        costs.forward[at] = chunk.at(Pass::forward, Turn::middle).seconds;
        costs.first_forward[at] = chunk.at(Pass::forward, Turn::first).seconds - costs.forward[at];
        costs.backward[at] = chunk.at(Pass::backward, Turn::middle).seconds;
        costs.input[at] = chunk.at(Pass::input, Turn::middle).seconds;
        costs.weight[at] = chunk.at(Pass::weight, Turn::middle).seconds;
        costs.last_backward[at] = chunk.at(last, Turn::last).seconds - chunk.at(last, Turn::middle).seconds;
      }
      // The first chunk's backward is the stage's last slot: what its reduction outlasts it by delays the step's end.
      costs.tail[i] = chunks[i * per_stage]->at(split ? Pass::weight : Pass::backward, Turn::last).outstanding;
    }
    if (layout.pp > 1) {
      costs.p2p.assign(states.size(), 0);
      for (int stage = 0; stage < layout.pp; ++stage) costs.p2p[static_cast<std::size_t>(stage)] = boundary_seconds(mesh, layout, stage);
    }
  }

  /// One transfer from `stage` to the next (the last: to the first), over the highest tier that any rank crosses.
  [[nodiscard]] double boundary_seconds(const Mesh& mesh, const Layout& layout, int stage) const {
    const int next = (stage + 1) % layout.pp;
    int tier = 0;
    for (const int rank : {mesh.on_stage(0, stage), mesh.on_stage(mesh.world() - 1, stage)})
      tier = std::max(tier, mesh.tier_between(rank, mesh.on_stage(rank, next)));
    return shared->study.cost.transfer(tier, boundary).seconds;
  }

  /// Slots with the boundary tensors that are held beside them: their own input, and, where transfers overlap, the next
  /// input and the output still on its way. Never below the op-level peak; above it by two boundary tensors at most.
  void fill_memories(const Layout& layout, const Shape& s) {
    const auto per_stage = static_cast<std::size_t>(s.shape.chunks);
    const int depths = layout.pp * s.shape.chunks;
    const bool split = s.schedule->splits_backward();
    const std::size_t count = chunks.size();
    for (auto* list : {&memories.forward, &memories.backward, &memories.input, &memories.weight, &memories.first_forward, &memories.last_backward})
      list->assign(count, SlotMemory{});
    for (std::size_t i = 0; i < states.size(); ++i)
      for (std::size_t c = 0; c < per_stage; ++c) {
        const ChunkProfile& chunk = *chunks[i * per_stage + c];
        const int depth = static_cast<int>(c) * layout.pp + static_cast<int>(i);
        const Bytes zero(0);
        const Bytes before = depth > 0 ? boundary : zero;            // x in, dx out
        const Bytes after = depth + 1 < depths ? boundary : zero;    // y out, dy in
        const Bytes beside = layout.pp > 1 && !s.blocking ? boundary * 2 : zero;
        const auto slot = [&](Pass pass, Turn turn, Bytes in, Bytes out) {
          const Block::Memory& m = chunk.at(pass, turn).memory;
          const Bytes inside = in + std::max(m.peak, m.net + (s.blocking && layout.pp > 1 ? boundary : zero)) + beside;
          return SlotMemory{in + m.net - out, std::max(inside, std::max(zero, in + m.net - out))};
        };
        const std::size_t at = i * per_stage + c;
        memories.forward[at] = slot(Pass::forward, Turn::middle, before, after);
        memories.first_forward[at] = slot(Pass::forward, Turn::first, before, after);
        if (split) {
          memories.input[at] = slot(Pass::input, Turn::middle, after, before);
          memories.weight[at] = slot(Pass::weight, Turn::middle, zero, zero);
          memories.last_backward[at] = slot(Pass::weight, Turn::last, zero, zero);
        } else {
          memories.backward[at] = slot(Pass::backward, Turn::middle, after, before);
          memories.last_backward[at] = slot(Pass::backward, Turn::last, after, before);
        }
      }
  }

  /// Device bytes of a stage: slots and step end above the persistent set, fragmentation, outside.
  [[nodiscard]] Bytes device_bytes(const Layout& layout, std::size_t stage) const {
    const Bytes slots = slot_peak(*order, memories, stage).bytes;
    const bool keeps = shared->study.semantics.keeps_input_gradient && layout.pp > 1 && stage + 1 == states.size();
    const Bytes persistent = states[stage]->persistent + (keeps ? boundary : Bytes(0));
    const Bytes allocated = persistent + std::max(slots, states[stage]->step_peak);
    const Bytes fragments(static_cast<std::int64_t>(fragmentation_share(shared->study.model, shared->study.job, shared->study.semantics, layout) * static_cast<double>(allocated.value)));
    return allocated + fragments + states[stage]->outside;
  }

  [[nodiscard]] double straggling(double compute_seconds) const {
    return straggling_of(shared->study, compute_seconds);
  }

  /// Worst of what the layout's durations rest on.
  [[nodiscard]] Evidence evidence() const {
    Evidence worst = Evidence::measured;
    for (const StageState* state : states) worst = std::max(worst, state->evidence);
    for (const ChunkProfile* chunk : chunks) worst = std::max(worst, chunk->evidence);
    return worst;
  }

  [[nodiscard]] double step_tail() const {
    double tail = 0;
    for (const StageState* state : states) tail = std::max(tail, state->step_seconds);
    return tail;
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
double Evaluator::straggling(double compute_seconds) const { return straggling_of(shared_->study, compute_seconds); }

std::optional<Bytes> Evaluator::capacity() const {
  const DeviceSpec& device = shared_->study.cluster.device;
  return device.usable_memory ? device.usable_memory : device.memory;
}

Evaluation Evaluator::Worker::evaluate(const Layout& layout) {
  Data& d = *data_;
  const Data::Shape s = d.shape_of(layout);
  d.prepare(layout, s);
  Evaluation evaluation;
  evaluation.evidence = d.evidence();
  evaluation.step_seconds = d.makespan(s) + d.step_tail() + d.straggling(d.busiest(s));
  for (std::size_t stage = 0; stage < d.states.size(); ++stage) {
    const std::int64_t bytes = d.device_bytes(layout, stage).value;
    if (bytes > evaluation.device_bytes) {
      evaluation.device_bytes = bytes;
      evaluation.worst_stage = static_cast<int>(stage);
    }
  }
  return evaluation;
}

bool Evaluator::Worker::state_exceeds(const Layout& layout, Bytes capacity) {
  Data& d = *data_;
  const Data::Shape s = d.shape_of(layout);
  const Mesh& mesh = d.cache.mesh_of(layout);
  d.layers = layers_per_chunk(d.shared->study.model, layout);
  const LayoutView view{&layout, &mesh, &d.layers, s.shape.micro_batches, s.schedule->splits_backward()};
  d.cache.select(view);
  for (const int stage : {0, layout.pp - 1}) {
    const StageState& state = d.cache.state(stage);
    if (state.persistent + state.outside > capacity) return true;
  }
  return false;
}

Prediction Evaluator::predict(const Layout& layout) const {
  Worker w = worker();
  Worker::Data& d = *w.data_;
  d.prepare(layout);
  replay_slots(*d.order, d.costs, d.workspace, d.result);
  const StudyContext& study = shared_->study;
  Prediction prediction;
  prediction.engine = Engine::slots;

  // The busiest stage is the critical path; what it waits for is transfers (seen by replaying without them) or bubble.
  const auto busiest = static_cast<std::size_t>(std::max_element(d.result.busy.begin(), d.result.busy.end()) - d.result.busy.begin());
  const double makespan = d.result.makespan;
  const double busy = d.result.busy[busiest];
  SlotCosts still = d.costs;
  std::fill(still.p2p.begin(), still.p2p.end(), 0);
  SlotResult without;
  replay_slots(*d.order, still, d.workspace, without);
  const auto add = [&prediction](TimePart part, double seconds) { prediction.time[static_cast<std::size_t>(part)] += Seconds(seconds); };
  const std::size_t per_stage = d.chunks.size() / d.states.size();
  const int m = micro_batches_of(study.job, layout);
  const bool split = d.order->split_backward;
  for (std::size_t c = 0; c < per_stage; ++c) {
    const ChunkProfile& chunk = *d.chunks[busiest * per_stage + c];
    const auto pass = [&](Pass which) {
      for (int j = 0; j < m; ++j) {
        const Turn turn = j == m - 1 && which != Pass::forward ? Turn::last : j == 0 && which == Pass::forward ? Turn::first : Turn::middle;
        const SlotTimeOf& slot = chunk.at(which, turn);
        for (std::size_t p = 0; p < slot.parts.size(); ++p) add(static_cast<TimePart>(p), slot.parts[p].value);
      }
    };
    pass(Pass::forward);
    if (split) {
      pass(Pass::input);
      pass(Pass::weight);
    } else {
      pass(Pass::backward);
    }
  }
  prediction.step_time = Seconds(makespan + d.step_tail() + d.straggling(busy));
  const double waiting = makespan - busy;
  const double transfers = std::clamp(makespan - without.makespan, 0.0, waiting);
  const double reduction = std::clamp(d.costs.tail[busiest], 0.0, waiting - transfers);
  add(TimePart::pp, transfers);
  add(TimePart::dp, reduction);
  add(TimePart::bubble, waiting - transfers - reduction);
  const auto slowest = std::max_element(d.states.begin(), d.states.end(), [](const StageState* a, const StageState* b) { return a->step_seconds < b->step_seconds; });
  for (std::size_t p = 0; p < prediction.time.size(); ++p) add(static_cast<TimePart>(p), (*slowest)->step_parts[p].value);
  add(TimePart::other, d.straggling(busy));
  prediction.evidence = d.evidence();

  Plan plan{study.model, study.cluster, study.job, layout};
  const Program program = lower(plan, study.semantics);
  for (const Role& role : program.roles) prediction.memory.push_back(stage_memory(program, role));
  finish_prediction(prediction, plan, study.semantics, capacity());
  return prediction;
}

namespace {

/// Half width of the 80 % interval of a step time, as a share, by the worst evidence in it. Engineering estimates until
/// `validate` has residuals to replace them (docs/formulas.md, "Intervals").
double half_width(Evidence evidence) {
  switch (evidence) {
  case Evidence::measured: return 0.05;
  case Evidence::interpolated: return 0.08;
  case Evidence::fitted: return 0.12;
  case Evidence::datasheet: return 0.25;
  }
  return 0.25;
}

} // namespace

void finish_prediction(Prediction& prediction, const Plan& plan, const Semantics& semantics, std::optional<Bytes> capacity) {
  const double step = prediction.step_time.value;
  const double devices = device_count(plan.cluster);
  if (step > 0) {
    const double tokens = static_cast<double>(plan.job.global_batch) * plan.job.sequence_length;
    prediction.tokens_per_s_per_device = tokens / step / devices;
    const FlopShape shape{plan.job.sequence_length, plan.job.packed, static_cast<int>(padded_vocab(plan.model, plan.job, semantics, plan.layout.tp))};
    prediction.flop_convention = std::string(id_of(FlopConvention::megatron));
    if (const auto flop = flop_per_token(plan.model, FlopConvention::megatron, shape)) {
      prediction.model_tflops_per_device = *flop * prediction.tokens_per_s_per_device / 1e12;
      if (const auto peak = dense_peak(plan.cluster.device, plan.job.precision))
        prediction.mfu_percent = utilisation_percent(*flop, prediction.tokens_per_s_per_device, *peak);
    }
    const double width = half_width(prediction.evidence);
    prediction.step_time_interval = {Seconds(step * (1 - width)), Seconds(step * (1 + width))};
  }
  Bytes worst(0);
  int worst_stage = 0;
  for (std::size_t i = 0; i < prediction.memory.size(); ++i)
    if (prediction.memory[i].device > worst) {
      worst = prediction.memory[i].device;
      worst_stage = static_cast<int>(i);
    }
  constexpr double kMemoryHalfWidth = 0.04; // reserved against allocated spreads by this much in measured runs
  const auto scaled = [&](double factor) { return Bytes(static_cast<std::int64_t>(factor * static_cast<double>(worst.value))); };
  prediction.memory_interval = {scaled(1 - kMemoryHalfWidth), scaled(1 + kMemoryHalfWidth)};
  if (capacity && worst > *capacity) {
    prediction.verdict = Verdict::oom;
    Rejection rejection;
    rejection.rule = "out-of-memory";
    rejection.reason = "stage " + std::to_string(worst_stage) + " needs " + pretty(worst) + ", a " + plan.cluster.device.name + " has " + pretty(*capacity);
    rejection.needed = static_cast<double>(worst.value);
    rejection.available = static_cast<double>(capacity->value);
    prediction.rejections.push_back(std::move(rejection));
  }
  if (!capacity) prediction.notes.push_back("the device's memory is not known: nothing is said about whether the plan fits");
  if (plan.layout.pp > 1)
    if (const Schedule* schedule = schedules().find(plan.layout.schedule.kind)) {
      std::string caution = schedule->caution({plan.layout.pp, plan.layout.schedule.chunks, micro_batches_of(plan.job, plan.layout)});
      if (!caution.empty()) prediction.notes.push_back(std::move(caution));
    }
}

} // namespace foretrain
