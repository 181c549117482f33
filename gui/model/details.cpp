// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/details.h"

#include <algorithm>

#include "core/program/lower.h"
#include "core/spec/calibration.h"
#include "planner/search.h"
#include "simulator/replay.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kRemembered = 24;
/// Above this many passes (stages times micro-batches times chunks times layers) a timeline op by op is left out.
constexpr double kMostPasses = 3e6;

Result<Detail> replayed(const Environment& environment, const Study& study, const Layout& layout) {
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, load_calibration(environment.data.root, study.cluster.device));
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
  FORETRAIN_TRY(const CostModel cost, CostModel::make(study.cluster, calibration,
                                                      {study.job.precision, layout.offload.optimizer}));
  const Program program = lower(plan, semantics);
  FORETRAIN_TRY(Simulation simulation, replay(program, cost, semantics, {.record = true}));
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

std::shared_ptr<const Detail> Details::known(const Layout& layout) {
  const auto found = std::find_if(recent_.begin(), recent_.end(), [&](const auto& d) { return d->layout == layout; });
  if (found == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found);
  return recent_.front();
}

void Details::remember(std::shared_ptr<const Detail> detail) {
  recent_.push_front(std::move(detail));
  if (recent_.size() > kRemembered) recent_.pop_back();
}

std::shared_ptr<const Detail> Details::of(const Study& study, const Layout& layout) {
  if (auto found = known(layout)) return found;
  {
    const std::lock_guard lock(mutex_);
    if (current_ == layout) return nullptr;
    const auto old = std::find(wishes_.begin(), wishes_.end(), layout);
    if (old == wishes_.end())
      ++working_;
    else
      wishes_.erase(old);
    wishes_.push_back(layout);
  }
  if (!thread_.joinable()) thread_ = std::jthread([this, study](const std::stop_token& stop) { work(stop, study); });
  wish_made_.notify_one();
  return nullptr;
}

std::shared_ptr<const Detail> Details::now(const Study& study, const Layout& layout) {
  if (auto found = known(layout)) return found;
  remember(std::make_shared<const Detail>(detail_of(environment_, study, layout)));
  return recent_.front();
}

void Details::work(const std::stop_token& stop, const Study& study) {
  while (!stop.stop_requested()) {
    Layout layout;
    {
      std::unique_lock lock(mutex_);
      if (!wish_made_.wait(lock, stop, [this] { return !wishes_.empty(); })) return;
      layout = std::move(wishes_.back());
      wishes_.pop_back();
      current_ = layout;
    }
    auto detail = std::make_shared<const Detail>(detail_of(environment_, study, layout));
    {
      const std::lock_guard lock(mutex_);
      current_.reset();
    }
    --working_;
    if (stop.stop_requested()) return;
    inbox_.post([this, detail, generation = generation_] {
      if (generation != generation_) return;
      remember(detail);
      if (arrived) arrived();
    });
  }
}

void Details::forget() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    thread_ = {};
  }
  ++generation_;
  recent_.clear();
  wishes_.clear();
  current_.reset();
  working_ = 0;
}

} // namespace foretrain::gui
