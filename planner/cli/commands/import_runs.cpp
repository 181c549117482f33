#include <filesystem>

#include <fmt/format.h>

#include "db/store.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/executed_plan.h"
#include "planner/cli/run_record.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostRuns = 1'000'000;

struct Imported {
  std::int64_t id = 0; ///< 0: the database has it already
  std::size_t steps = 0;
  double step_seconds = 0;
  double predicted_seconds = 0;
};

/// The folder of a run, also by its records.
fs::path folder_of(const std::string& text) {
  std::error_code ignored;
  const fs::path path = fs::absolute(text, ignored).lexically_normal();
  return fs::is_regular_file(path, ignored) ? path.parent_path() : path;
}

Result<bool> known(const Context& context, const std::string& database, const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(database, ignored)) return false;
  FORETRAIN_TRY(const Store store, Store::open(database, OpenMode::write, context.data));
  FORETRAIN_TRY(const std::vector<RunSummary> runs, store.runs(kMostRuns));
  for (const RunSummary& run : runs)
    if (fs::path(run.folder) == folder) return true;
  return false;
}

Result<Imported> import_run(const Context& context, const std::string& database, const fs::path& folder) {
  FORETRAIN_TRY(const bool before, known(context, database, folder));
  if (before) return Imported{};
  FORETRAIN_TRY(const MeasuredRun run, read_run(folder / "run.json"));
  FORETRAIN_TRY(LoadedPlan loaded, load_plan(context, (folder / "plan.json").string()));
  FORETRAIN_TRY(const ExecutedPlan plan, executed_plan(context, std::move(loaded)));
  if (!plan.program)
    return fail((folder / "plan.json").string(), "cannot run: " + plan.prediction.rejections.front().reason);
  if (run.ranks.size() > plan.stage.size())
    return fail((folder / "run.json").string(),
                fmt::format("has {} ranks, its plan {}", run.ranks.size(), plan.stage.size()));
  FORETRAIN_TRY(RunRecord record, RunRecord::begin(database, context.data, plan, "imported"));
  const bool failed = !run.failure.empty() || run.step_seconds.empty();
  if (auto kept = record.keep(plan, run, folder, failed ? RunEnd::failed : RunEnd::done, run.failure); !kept)
    return tl::unexpected<Error>(kept.error());
  return Imported{record.id(), run.step_seconds.size(), run.step_time(), plan.prediction.step_time.value};
}

} // namespace

int import_runs(const Context& context, const DbOptions& options) {
  Json list = Json::array();
  std::string text;
  for (const std::string& name : options.runs) {
    const fs::path folder = folder_of(name);
    const auto run = import_run(context, options.file, folder);
    if (!run) return complain(run.error());
    list.push_back({{"folder", folder.string()},
                    {"run", run->id > 0 ? Json(run->id) : Json()},
                    {"steps", run->steps},
                    {"step_time_s", run->step_seconds > 0 ? Json(run->step_seconds) : Json()},
                    {"predicted_step_time_s", run->id > 0 ? Json(run->predicted_seconds) : Json()}});
    text += run->id > 0 ? fmt::format("run {}: {} steps of {}\n", run->id, run->steps, folder.string())
                        : fmt::format("{} is there already\n", folder.string());
  }
  return print_and(options.json ? Json{{"runs", list}}.dump(2) + "\n" : text, kDone);
}

} // namespace foretrain::cli
