#include "executor/run.h"
#include "executor/token_file.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

/// Checkpoints of another run would be taken for this one's.
Result<void> check_folder(const RunSettings& settings) {
  const fs::path& folder = settings.checkpoint.folder;
  std::error_code ignored;
  if (folder.empty() || !fs::exists(folder, ignored) || !newest_checkpoint(folder)) return {};
  if (!settings.resume.empty() &&
      fs::weakly_canonical(settings.resume, ignored).parent_path() == fs::weakly_canonical(folder, ignored))
    return {};
  return fail(folder.string(), "has the checkpoints of another run", "another folder, or --resume to go on with them");
}

} // namespace

Result<void> prepare_run(const Plan& plan, RunSettings& settings) {
  if (!settings.tokens.empty()) {
    FORETRAIN_TRY(const TokenFile file,
                  TokenFile::open(settings.tokens, settings.token_bytes, plan.job.sequence_length));
    settings.data = file.describe();
  }
  if (!settings.resume.empty()) {
    if (!settings.weights.empty()) return fail("--weights", "is of no use with --resume: a checkpoint has its own");
    FORETRAIN_TRY(settings.resume, newest_checkpoint(settings.resume));
    FORETRAIN_TRY(const Checkpoint checkpoint, read_checkpoint(settings.resume));
    const CheckpointState state{checkpoint.state.steps, settings.seed, settings.data};
    if (auto same = check_same_training(checkpoint, plan, state); !same) return same;
    settings.first_step = checkpoint.state.steps;
    if (settings.first_step >= settings.steps)
      return fail("--steps", std::to_string(settings.steps) + " steps are done in " + settings.resume.string(),
                  "it counts all steps of the training: more than " + std::to_string(settings.first_step));
  }
  return check_folder(settings);
}

void prepare_restart(RunSettings& settings) {
  const auto newest = newest_checkpoint(settings.checkpoint.folder);
  if (!newest) return;
  const auto checkpoint = read_checkpoint(*newest);
  if (!checkpoint || checkpoint->state.steps >= settings.steps) return;
  settings.resume = *newest;
  settings.first_step = checkpoint->state.steps;
  settings.weights.clear(); // a checkpoint has its own
}

} // namespace foretrain
