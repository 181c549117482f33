// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/run_plan.h"

#include <algorithm>
#include <ctime>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "gui/model/numbers.h"
#include "planner/measured_run.h"

namespace foretrain::gui {
namespace {

constexpr int kMostLocalRanks = 64; ///< of foretrain-run's local launcher

} // namespace

std::vector<std::string> run_arguments(const RunRequest& request, const std::string& plan, const std::string& database,
                                       const std::string& folder) {
  std::vector<std::string> words = {"run",        plan,
                                    "--launcher", request.launcher,
                                    "--steps",    std::to_string(request.steps),
                                    "--warmup",   std::to_string(request.warmup),
                                    "--db",       database,
                                    "--out",      folder,
                                    "--json"};
  if (request.launcher != "slurm") return words;
  if (!request.time.empty()) words.insert(words.end(), {"--time", request.time});
  if (!request.partition.empty()) words.insert(words.end(), {"--partition", request.partition});
  for (const std::string& option : request.sbatch) words.push_back("--sbatch=" + option);
  return words;
}

std::filesystem::path new_run_folder(const std::filesystem::path& database) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  const std::filesystem::path runs = database.parent_path() / (database.stem().string() + "-runs");
  const std::string name = fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                                       parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
  std::filesystem::path folder = runs / name;
  std::error_code ignored;
  for (int again = 2; std::filesystem::exists(folder, ignored); ++again)
    folder = runs / fmt::format("{}-{}", name, again);
  return folder;
}

std::optional<std::string> reason_against_local(const Layout& layout, const Prediction* prediction,
                                                double memory_bytes) {
  if (layout.world() > kMostLocalRanks)
    return fmt::format("it has {} ranks; this machine starts at most {}", grouped(layout.world()), kMostLocalRanks);
  if (!prediction || prediction->memory.empty() || !(memory_bytes > 0)) return std::nullopt;
  double needed = 0;
  for (const StageMemory& stage : prediction->memory) needed += double(stage.allocated.value);
  needed *= double(layout.world()) / double(prediction->memory.size()); // a stage has as many ranks as the others
  if (needed <= memory_bytes) return std::nullopt;
  return fmt::format("its {} ranks need {} together, this machine has {}", layout.world(), short_bytes(needed),
                     short_bytes(memory_bytes));
}

double machine_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long bytes = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && bytes > 0 ? double(pages) * double(bytes) : 0;
}

Result<RunState> run_state(const std::filesystem::path& folder) {
  const std::filesystem::path records = folder / "run.json";
  std::error_code ignored;
  if (!std::filesystem::exists(records, ignored)) return RunState{};
  FORETRAIN_TRY(const foretrain::MeasuredRun run, read_run(records));
  return RunState{static_cast<int>(run.ranks.size()), run.step_seconds, run.loss, run.warmup, run.failure};
}

} // namespace foretrain::gui
