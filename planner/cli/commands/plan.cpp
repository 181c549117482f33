#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/inputs.h"
#include "planner/cli/keep.h"
#include "planner/cli/plan_report.h"
#include "planner/cli/progress.h"

namespace foretrain::cli {
namespace {

constexpr int kSimulated = 5; ///< of the replayed candidates, simulated on the network

Result<void> check_numbers(const PlanOptions& options) {
  if (options.top < 1 || options.top > 100'000)
    return fail("--top", fmt::format("{} is not between 1 and 100000", options.top));
  if (options.keep < 0 || options.keep > 10'000'000)
    return fail("--keep", fmt::format("{} is not between 0 and 10000000", options.keep));
  if (const auto jobs = check_jobs(options.jobs); !jobs) return jobs;
  if (options.json && options.csv) return fail("--csv", "stands beside --json", "leave one of them out");
  return {};
}

Result<SearchResult> search_for(const Context& context, const PlanOptions& options, const Study& study,
                                const Calibration& calibration, Engine engine, ProgressLine& line) {
  FORETRAIN_TRY(const Semantics semantics, context.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const SpaceSize size, space_size(study, semantics));
  FORETRAIN_TRY(const Extent extent, extent_from(options.search, "--search"));
  if (const std::string note = extent == Extent::exhaustive ? large_space_note(size) : ""; !note.empty())
    std::fprintf(stderr, "%s\n", note.c_str());
  SearchOptions search_options;
  search_options.jobs = jobs_or_cores(options.jobs);
  search_options.top = options.top;
  search_options.extent = extent;
  search_options.keep = options.keep;
  search_options.front = !options.database.empty();
  search_options.best = options.database.empty() ? options.top : 0; // nobody sees the others
  search_options.refine = engine != Engine::slots;
  search_options.refine_simgrid = engine == Engine::simgrid ? kSimulated : 0;
  search_options.worker = context.worker.string();
  search_options.data = context.data.root.string();
  search_options.stop = context.stop;
  search_options.progress = [&line](const Progress& progress) { line.show(progress); };
  return search(study, semantics, calibration, search_options);
}

int report(const Context& context, const PlanOptions& options, const Study& study, const SearchResult& result) {
  const int code = !result.complete ? kInterrupted : result.ranked.empty() ? kNothingFits : kDone;
  if (options.json) return print_and(plan_document(study, result).dump(2) + "\n", code);
  if (options.csv) return print_and(plan_csv(study, result), code);
  return print_and(plan_text(study, result, context.width, context.color), code);
}

} // namespace

int run_plan(const Context& context, const PlanOptions& options) {
  if (const auto checked = check_numbers(options); !checked) return complain(checked.error());
  const std::string wanted = !options.engine.empty() ? options.engine : context.worker.empty() ? "replay" : "simgrid";
  const auto engine = engine_of(context, wanted);
  if (!engine) return complain(engine.error());
  const auto study = study_of(context, options);
  if (!study) return complain(study.error());
  const auto calibration = calibration_of(context, study->cluster.device);
  if (!calibration) return complain(calibration.error());
  std::optional<StudyRecord> record;
  if (!options.database.empty()) {
    auto begun = StudyRecord::begin(options.database, context.data, *study, *calibration);
    if (!begun) return complain(begun.error());
    record.emplace(std::move(*begun));
  }
  ProgressLine line(context.progress);
  const auto result = search_for(context, options, *study, *calibration, *engine, line);
  line.clear();
  if (!result) return complain(result.error());
  if (record) {
    // The result is worth showing even when it cannot be kept.
    if (const auto kept = record->keep(*study, *result); !kept) {
      (void)report(context, options, *study, *result);
      return complain(kept.error());
    }
  }
  return report(context, options, *study, *result);
}

} // namespace foretrain::cli
