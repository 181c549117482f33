// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/run_plan.h"

#include <algorithm>
#include <ctime>
#include <system_error>
#include <utility>

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
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--checkpoint", request.checkpoint);
  if (request.checkpoint_every > 0) add("--checkpoint-every", std::to_string(request.checkpoint_every));
  if (request.checkpoint_background) words.emplace_back("--checkpoint-background");
  add("--resume", request.resume);
  if (request.max_restarts > 0) add("--max-restarts", std::to_string(request.max_restarts));
  add("--tokens", request.tokens);
  if (!request.tokens.empty()) add("--token-type", request.token_type);
  add("--weights", request.weights);
  if (request.launcher != "slurm") return words;
  if (!request.time.empty()) words.insert(words.end(), {"--time", request.time});
  if (!request.partition.empty()) words.insert(words.end(), {"--partition", request.partition});
  for (const std::string& option : request.sbatch) words.push_back("--sbatch=" + option);
  return words;
}

std::optional<std::string> problem_of(const RunRequest& request) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool saves = !request.checkpoint.empty();
  if (!saves && request.checkpoint_every > 0) return "Checkpoints every so many steps need a folder.";
  if (!saves && request.checkpoint_background) return "Checkpoints in the background need a folder.";
  if (!saves && request.max_restarts > 0) return "Restarts go on from checkpoints: name a folder for them.";
  if (saves && fs::exists(request.checkpoint, ignored) && !fs::is_directory(request.checkpoint, ignored))
    return "Checkpoints go into a folder; " + request.checkpoint + " is none.";
  if (!request.resume.empty() && !request.weights.empty())
    return "A checkpoint has weights of its own: resume, or start from given weights.";
  for (const auto& [folder, what] :
       {std::pair{request.resume, "checkpoint to resume from"}, std::pair{request.weights, "folder of weights"}})
    if (!folder.empty() && !fs::is_directory(folder, ignored))
      return "There is no " + std::string(what) + " " + folder + ".";
  if (request.tokens.empty()) return std::nullopt;
  if (!fs::is_regular_file(request.tokens, ignored)) return "There is no file of tokens " + request.tokens + ".";
  const std::uintmax_t width = request.token_type == "uint32" ? 4 : 2;
  const std::uintmax_t bytes = fs::file_size(request.tokens, ignored);
  if (bytes == 0 || bytes % width != 0)
    return fmt::format("{} has {} bytes: no whole number of tokens of {} bytes.", request.tokens, bytes, width);
  return std::nullopt;
}

std::vector<std::string> export_arguments(const RunRequest& request, const std::string& folder) {
  return {"--resume", request.resume.empty() ? request.checkpoint : request.resume, "--export", folder};
}

std::optional<std::string> export_problem_of(const RunRequest& request, const std::string& folder) {
  std::error_code ignored;
  const std::string& from = request.resume.empty() ? request.checkpoint : request.resume;
  if (from.empty()) return "Weights are those of a checkpoint: name the folder where it is.";
  if (!std::filesystem::is_directory(from, ignored)) return "There is no checkpoint " + from + ".";
  if (folder.empty()) return "Name a folder to export the weights to.";
  return std::nullopt;
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
