#include "planner/evaluate.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/program/lower.h"
#include "core/program/reserved.h"
#include "core/program/schedules/schedule.h"
#include "planner/evaluate_data.h"
#include "planner/finish.h"
#include "simulator/slots.h"

namespace foretrain {

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
    return fail(cluster.name, "figures that a prediction needs are not known: " + join(unknown, "; "),
                "write the cluster as a file and fill them in");
  CostNeeds needs;
  needs.precision = job.precision;
  FORETRAIN_TRY(CostModel cost, CostModel::make(cluster, calibration, needs));
  return Evaluator(std::make_shared<const Shared>(make_study_context(model, cluster, job, semantics, std::move(cost))));
}

Evaluator::Worker Evaluator::worker() const {
  return Worker(std::make_unique<Worker::Data>(shared_));
}

const CostModel& Evaluator::cost() const {
  return shared_->study.cost;
}
double Evaluator::straggling(double compute_seconds) const {
  return shared_->straggling * compute_seconds;
}

std::optional<Bytes> Evaluator::capacity() const {
  const DeviceSpec& device = shared_->study.cluster.device;
  return device.usable_memory ? device.usable_memory : device.memory;
}

Evaluation Evaluator::Worker::evaluate(const Layout& layout) {
  Evaluation evaluation;
  evaluate(layout, {&layout.recompute, 1}, {&evaluation, 1});
  return evaluation;
}

void Evaluator::Worker::evaluate(const Layout& layout, std::span<const RecomputeChoice> choices,
                                 std::span<Evaluation> into) {
  data_->set(layout);
  for (std::size_t first = 0; first < choices.size(); first += kLanes) {
    const std::size_t count = std::min(kLanes, choices.size() - first);
    data_->evaluate(choices.subspan(first, count), into.subspan(first, count));
  }
}

SlotWeights Evaluator::Worker::slot_weights(const Layout& layout) {
  return data_->weights_of(layout);
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
  const double share =
      fragmentation_share(d.shared->study.model, d.shared->study.job, d.shared->study.semantics, layout);
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
  const auto busiest =
      static_cast<std::size_t>(std::max_element(result.busy.begin(), result.busy.end()) - result.busy.begin());
  const double slots = result.seconds;
  SlotCosts still = lane.costs;
  std::fill(still.p2p.begin(), still.p2p.end(), 0);
  still.crowded.clear();
  still.gradient_p2p.clear();
  SlotResult without;
  replay_slots(order, still, workspace, without);
  const auto add = [&prediction](TimePart part, double seconds) {
    prediction.time[static_cast<std::size_t>(part)] += Seconds(seconds);
  };
  const auto per_stage = static_cast<std::size_t>(d.shape.chunks);
  const int m = d.shape.micro_batches;
  for (std::size_t c = 0; c < per_stage; ++c) {
    const ChunkProfile& chunk = lane.profiles[d.kinds[busiest * per_stage + c]];
    const auto pass = [&](Pass which) {
      for (int j = 0; j < m; ++j) {
        const Turn turn = j == m - 1 && which != Pass::forward ? Turn::last
                          : j == 0 && which == Pass::forward   ? Turn::first
                                                               : Turn::middle;
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
  for (std::size_t p = 0; p < prediction.time.size(); ++p)
    add(static_cast<TimePart>(p), d.states[busiest]->step_parts[p].value);
  double booked = 0;
  for (const Seconds seconds : prediction.time) booked += seconds.value;
  const double waiting = slots + d.step_tail() - booked;
  const double transfers = std::clamp(slots - without.seconds, 0.0, std::max(0.0, waiting));
  const double reduction =
      std::min(lane.reduction[busiest], waiting - transfers); // below zero: slots beside fewer transfers
  add(TimePart::pp, transfers);
  add(TimePart::dp, reduction);
  add(TimePart::bubble, waiting - transfers - reduction);
  const double step = d.on_shared_processors(slots, lane) + d.step_tail();
  for (Seconds& part : prediction.time) part = Seconds(part.value * step / (slots + d.step_tail()));
  const double late = straggling(d.busiest(lane));
  add(TimePart::other, late);
  add(TimePart::host, d.host_step());
  prediction.step_time = Seconds(step + d.host_step() + late);
  prediction.evidence = lane.evidence;

  Plan plan{study.model, study.cluster, study.job, layout};
  const Program program = lower(plan, study.semantics);
  for (const Role& role : program.roles) prediction.memory.push_back(stage_memory_within(program, role, capacity()));
  finish_prediction(prediction, plan, study.semantics, capacity());
  return prediction;
}

} // namespace foretrain
