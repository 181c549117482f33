#include "planner/cli/slurm.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include <sys/wait.h>

#include <fmt/format.h>

#include "planner/cli/context.h"

namespace foretrain::cli {
namespace {

constexpr std::chrono::milliseconds kLook{500};
constexpr int kLooksForRequeue = 120; ///< that the controller may take to queue a job again

/// 'It''s' as one word of a shell.
std::string quoted(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

struct Output {
  int code = 0;
  std::string text;
};
/// Runs a command of Slurm; its messages are part of the text.
Output output_of(const std::string& command) {
  const auto close = [](FILE* pipe) { (void)pclose(pipe); };
  std::unique_ptr<FILE, decltype(close)> pipe(popen((command + " 2>&1").c_str(), "r"), close);
  Output output;
  if (!pipe) return {127, "cannot be started"};
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    output.text.append(buffer.data(), got);
  const int status = pclose(pipe.release());
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return output;
}

/// "State=RUNNING" of what scontrol says; empty when it says none.
std::string field_of(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + "=");
  if (at == std::string::npos) return {};
  const std::size_t start = at + name.size() + 1;
  return text.substr(start, text.find_first_of(" \n", start) - start);
}

bool over(const std::string& state) {
  for (const char* running : {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"})
    if (state == running) return false;
  return true;
}

/// States that a job has for a moment before it is queued again.
bool lost_a_machine(const std::string& state) {
  return state == "NODE_FAIL" || state == "BOOT_FAIL" || state == "PREEMPTED";
}

/// "1:0": code and signal.
int exit_code_of(const std::string& text) {
  int code = 0;
  int signal = 0;
  if (std::sscanf(text.c_str(), "%d:%d", &code, &signal) != 2) return kBadInput;
  return signal != 0 ? 1000 + signal : code;
}

} // namespace

std::string slurm_script(const SlurmJob& job) {
  std::string text = "#!/bin/sh\n";
  const auto option = [&text](const std::string& line) { text += "#SBATCH " + line + "\n"; };
  option("--job-name=foretrain");
  option(fmt::format("--ntasks={}", job.ranks));
  option(fmt::format("--ntasks-per-node={}", job.per_node));
  option("--output=" + (job.folder / "slurm.log").string());
  if (!job.time.empty()) option("--time=" + job.time);
  if (!job.partition.empty()) option("--partition=" + job.partition);
  option(job.max_restarts > 0 ? "--requeue" : "--no-requeue"); // one that starts again needs a checkpoint
  if (job.max_restarts > 0) option("--open-mode=append");
  for (const std::string& line : job.options) option(line);
  text += "set -eu\n"
          "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
          "address=$(scontrol show node \"$MASTER_ADDR\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')\n"
          "MASTER_ADDR=${address:-$MASTER_ADDR}\n"
          "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n"
          "FORETRAIN_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n"
          "export MASTER_ADDR MASTER_PORT FORETRAIN_TOKEN\n"
          "export OPENBLAS_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}\n";
  std::string command = "srun --kill-on-bad-exit=1 ";
  if (job.max_restarts > 0) command += "--open-mode=append ";
  command += "--output=" + quoted((job.folder / "rank-%t.log").string()) + " " + quoted(job.program.string());
  for (const std::string& argument : job.arguments) command += " " + quoted(argument);
  if (job.max_restarts == 0) return text + command + "\n";
  // What is wrong with the plan, an error of ours and an interrupt come again or are meant: 2, 3, 130.
  return text +
         "FORETRAIN_RESTART=${SLURM_RESTART_COUNT:-0}\n"
         "export FORETRAIN_RESTART\n"
         "while :; do\n"
         "  code=0\n"
         "  " +
         command +
         " || code=$?\n"
         "  case $code in 0 | 2 | 3 | 130) exit \"$code\" ;; esac\n"
         "  [ \"$FORETRAIN_RESTART\" -lt " +
         std::to_string(job.max_restarts) +
         " ] || exit \"$code\"\n"
         "  FORETRAIN_RESTART=$((FORETRAIN_RESTART + 1))\n"
         "  echo \"foretrain: a rank was lost (code $code): restart $FORETRAIN_RESTART of " +
         std::to_string(job.max_restarts) +
         "\"\n"
         "done\n";
}

Result<int> run_in_slurm(const std::filesystem::path& script, bool requeued, const std::atomic<bool>* stop) {
  const Output submitted = output_of("sbatch --parsable " + quoted(script.string()));
  if (submitted.code != 0)
    return fail_environment("sbatch", submitted.text.substr(0, submitted.text.find('\n')),
                            "is this a machine from which jobs are submitted? --dry-run prints the script");
  const std::string id = submitted.text.substr(0, submitted.text.find_first_of(";\n"));
  remark("submitted batch job " + id);
  bool cancelled = false;
  int lost = 0; ///< looks since it lost a machine
  std::string last;
  while (true) {
    if (stop && stop->load(std::memory_order_relaxed) && !cancelled) {
      cancelled = true;
      (void)output_of("scancel " + quoted(id));
    }
    const Output shown = output_of("scontrol show job " + quoted(id));
    const std::string state = field_of(shown.text, "JobState");
    if (state != last && !state.empty()) remark("job " + id + ": " + state);
    last = state;
    lost = requeued && lost_a_machine(state) ? lost + 1 : 0;
    const bool comes_back = lost > 0 && lost < kLooksForRequeue && !cancelled;
    if (comes_back) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (shown.code != 0 || over(state))
      return cancelled ? kInterrupted : state == "COMPLETED" ? kDone : exit_code_of(field_of(shown.text, "ExitCode"));
    std::this_thread::sleep_for(kLook);
  }
}

} // namespace foretrain::cli
