// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/search_job.h"

#include <atomic>
#include <memory>

namespace foretrain::gui {
namespace {

Result<SearchResult> run(const Environment& environment, const Study& study, const SearchOptions& options) {
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, study.cluster.device));
  return search(study, semantics, calibration, options);
}

} // namespace

void SearchJob::start(const Study& study, Extent extent, Reports reports) {
  abandon();
  stop_ = false;
  running_ = true;
  const auto shared = std::make_shared<Reports>(std::move(reports));
  const auto post = [this, generation = generation_](std::function<void()> message) {
    inbox_.post([this, generation, message = std::move(message)] {
      if (generation == generation_) message();
    });
  };
  thread_ = std::jthread([this, study, extent, shared, post] {
    SearchOptions options;
    options.jobs = environment_.jobs;
    options.top = 50;
    options.extent = extent;
    options.worker = environment_.worker.string();
    options.data = environment_.data.root.string();
    options.stop = &stop_;
    options.progress = [&](const Progress& progress) { post([shared, progress] { shared->progress(progress); }); };
    // Parts that the window has not taken yet are not followed by more of them.
    const auto waiting = std::make_shared<std::atomic<bool>>(false);
    options.found = [&](const SearchResult& best) {
      const bool part = best.kept.size() <= static_cast<std::size_t>(options.found_limit);
      if (part && waiting->exchange(true)) return;
      post([shared, waiting, results = results_of(study, best)] {
        *waiting = false;
        if (shared->found) shared->found(results);
      });
    };
    auto found = run(environment_, study, options);
    Result<std::shared_ptr<const Results>> results =
        found ? Result<std::shared_ptr<const Results>>(results_of(study, *found))
              : Result<std::shared_ptr<const Results>>(tl::unexpected<Error>(found.error()));
    post([this, shared, results = std::move(results)] {
      running_ = false;
      shared->done(results);
    });
  });
}

void SearchJob::abandon() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  ++generation_;
  running_ = false;
}

} // namespace foretrain::gui
