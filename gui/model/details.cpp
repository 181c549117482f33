// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/details.h"

#include <algorithm>

#include "core/program/lower.h"
#include "core/spec/framework_kernels.h"
#include "simulator/cost.h"
#include "simulator/replay.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kRemembered = 24;
/// Above this many passes (stages times micro-batches times chunks times layers) a timeline op by op is left out.
constexpr double kMostPasses = 3e6;

Result<Simulated> simulated(const Environment& environment, const Plan& plan, const std::atomic<bool>& stop) {
  if (environment.worker.empty())
    return fail_environment("simulation", "the program foretrain-sim-worker is not beside this one",
                            "build or install it");
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(plan.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, plan.cluster.device));
  return simulate(plan, semantics, calibration, environment.worker.string(), environment.data.root.string(), &stop);
}

Result<Detail> replayed(const Environment& environment, const Study& study, const Layout& layout) {
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, study.cluster.device));
  Detail detail;
  detail.layout = layout;
  const Plan plan{study.model, study.cluster, study.job, layout};
  FORETRAIN_TRY(detail.prediction, predict(plan, semantics, calibration, Engine::replay, environment.worker.string(),
                                           environment.data.root.string()));
  if (detail.prediction.verdict == Verdict::illegal) return detail;
  const double sequences = double(layout.micro_batch) * layout.dp();
  const double passes = double(study.job.global_batch) / sequences * double(study.model.layers);
  if (passes > kMostPasses) {
    detail.problem = "the step has too many passes for a timeline op by op";
    return detail;
  }
  FORETRAIN_TRY(const OnDevice own, on_device(semantics, calibration, study.cluster.device, environment.data.root));
  FORETRAIN_TRY(const CostModel cost,
                CostModel::make(study.cluster, own.calibration, {study.job.precision, layout.offload.optimizer}));
  const Program program = lower(plan, own.semantics);
  FORETRAIN_TRY(Simulation simulation, replay(program, cost, own.semantics, {.record = true}));
  detail.simulation = std::make_shared<const Simulation>(std::move(simulation));
  return detail;
}

} // namespace

Detail detail_of(const Environment& environment, const Study& study, const Layout& layout) {
  Result<Detail> detail = replayed(environment, study, layout);
  if (detail) return std::move(*detail);
  Detail failed;
  failed.layout = layout;
  failed.prediction.verdict = Verdict::illegal;
  failed.problem = to_string(detail.error());
  return failed;
}

Details::~Details() {
  forget();
  for (Worker& worker : retired_) worker.thread.request_stop();
}

std::shared_ptr<const Detail> Details::known(const Layout& layout) {
  const auto found = std::find_if(recent_.begin(), recent_.end(), [&](const auto& d) { return d->layout == layout; });
  if (found == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found);
  return recent_.front();
}

void Details::remember(std::shared_ptr<const Detail> detail) {
  const auto seen =
      std::find_if(simulated_.begin(), simulated_.end(), [&](const auto& s) { return s.layout == detail->layout; });
  if (seen != simulated_.end()) {
    auto both = std::make_shared<Detail>(*detail);
    both->network = seen->result;
    both->network_problem = seen->problem;
    detail = std::move(both);
  }
  recent_.push_front(std::move(detail));
  if (recent_.size() > kRemembered) recent_.pop_back();
}

std::shared_ptr<const Detail> Details::of(const Study& study, const Layout& layout) {
  if (auto found = known(layout)) return found;
  if (!queue_) {
    queue_ = std::make_shared<Queue>();
    thread_ = std::jthread([this, queue = queue_, study, generation = generation_](const std::stop_token& stop) {
      work(stop, queue, study, generation);
    });
  }
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->current == layout) return nullptr;
    const auto old = std::find(queue_->wishes.begin(), queue_->wishes.end(), layout);
    if (old == queue_->wishes.end())
      ++queue_->working;
    else
      queue_->wishes.erase(old);
    queue_->wishes.push_back(layout);
  }
  queue_->wish_made.notify_one();
  return nullptr;
}

std::shared_ptr<const Detail> Details::now(const Study& study, const Layout& layout) {
  if (auto found = known(layout)) return found;
  remember(std::make_shared<const Detail>(detail_of(environment_, study, layout)));
  return recent_.front();
}

void Details::work(const std::stop_token& stop, const std::shared_ptr<Queue>& queue, const Study& study,
                   std::uint64_t generation) {
  while (!stop.stop_requested()) {
    Layout layout;
    {
      std::unique_lock lock(queue->mutex);
      if (!queue->wish_made.wait(lock, stop, [&] { return !queue->wishes.empty(); })) break;
      layout = std::move(queue->wishes.back());
      queue->wishes.pop_back();
      queue->current = layout;
    }
    auto detail = std::make_shared<const Detail>(detail_of(environment_, study, layout));
    {
      const std::lock_guard lock(queue->mutex);
      queue->current.reset();
    }
    --queue->working;
    if (stop.stop_requested()) break;
    inbox_.post([this, detail, generation] {
      if (generation != generation_) return;
      remember(detail);
      if (arrived) arrived();
    });
  }
  queue->finished = true;
}

void Details::simulate(const Study& study, const Layout& layout) {
  if (simulating_) return;
  simulating_ = layout;
  stop_simulation_ = std::make_shared<std::atomic<bool>>(false);
  if (simulator_.joinable()) simulator_.join(); // it has delivered its result
  simulator_ = std::jthread([this, plan = Plan{study.model, study.cluster, study.job, layout}, stop = stop_simulation_,
                             generation = generation_] {
    Result<Simulated> result = simulated(environment_, plan, *stop);
    inbox_.post([this, layout = plan.layout, generation, result = std::move(result)]() mutable {
      if (generation != generation_) return;
      take_simulated(layout, std::move(result));
      if (arrived) arrived();
    });
  });
}

void Details::take_simulated(const Layout& layout, Result<Simulated> result) {
  simulating_.reset();
  if (!result && result.error().kind == Error::Kind::cancelled) return;
  std::erase_if(simulated_, [&](const auto& s) { return s.layout == layout; });
  simulated_.push_back({layout, result ? std::make_shared<const Simulated>(std::move(*result)) : nullptr,
                        result ? std::string() : to_string(result.error())});
  if (auto before = known(layout)) {
    recent_.pop_front();
    remember(std::move(before));
  }
}

void Details::forget() {
  std::erase_if(retired_, [](const Worker& worker) { return worker.queue->finished.load(); });
  if (queue_) {
    thread_.request_stop();
    retired_.push_back({std::move(queue_), std::move(thread_)});
    queue_.reset();
  }
  stop_simulation_->store(true); // the worker process is killed within a tenth of a second
  if (simulator_.joinable()) simulator_.join();
  simulating_.reset();
  ++generation_;
  recent_.clear();
  simulated_.clear();
}

} // namespace foretrain::gui
