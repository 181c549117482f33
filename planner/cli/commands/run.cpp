#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/program/host.h"
#include "core/spec/io.h"
#include "planner/cli/child.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/run_record.h"
#include "planner/cli/slurm.h"
#include "planner/explain.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecords = "run.json";

std::string number_text(double value) {
  return fmt::format("{:.17g}", value);
}

std::vector<std::string> arguments_of(const Context& context, const RunOptions& o, const fs::path& plan,
                                      const fs::path& folder) {
  const std::string launcher = o.launcher == "local" ? "local" : "env"; // srun sets the variables
  std::vector<std::string> list = {plan.string(), "--launcher", launcher, "--steps", std::to_string(o.steps)};
  const auto add = [&list](const char* name, const std::string& value) { list.insert(list.end(), {name, value}); };
  add("--backend", o.backend);
  add("--warmup", std::to_string(o.warmup));
  add("--seed", std::to_string(o.seed));
  add("--learning-rate", number_text(o.learning_rate));
  add("--clip-norm", number_text(o.clip_norm));
  add("--timeout", number_text(o.timeout_s));
  std::error_code ignored; // ranks may start in another folder
  const auto add_path = [&](const char* name, const std::string& value) {
    if (!value.empty()) add(name, fs::absolute(value, ignored).string());
  };
  add_path("--checkpoint", o.checkpoint);
  if (o.checkpoint_every > 0) add("--checkpoint-every", std::to_string(o.checkpoint_every));
  if (o.checkpoint_background) list.emplace_back("--checkpoint-background");
  add_path("--resume", o.resume);
  if (o.max_restarts > 0) add("--max-restarts", std::to_string(o.max_restarts));
  add_path("--weights", o.weights);
  add_path("--tokens", o.tokens);
  if (!o.tokens.empty()) add("--token-type", o.token_type);
  add("--out", (folder / kRecords).string());
  if (o.launcher == "local") add("--logs", folder.string());
  add("--data", context.data.root.string());
  return list;
}

Json memory_json(const ExecutedPlan& plan, const MeasuredRun& run) {
  const HostMemory host = host_memory(plan.loaded.plan, plan.loaded.semantics, *plan.program);
  Json list = Json::array();
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < plan.stage.size(); ++rank) {
    const StageMemory& stage = plan.prediction.memory[static_cast<std::size_t>(plan.stage[rank])];
    const std::int64_t peak = run.ranks[rank].peak_bytes;
    list.push_back({{"rank", rank},
                    {"peak_allocated_bytes", peak < 0 ? Json() : Json(peak)},
                    {"predicted_allocated_bytes", stage.allocated.value}});
    const auto add = [&](const std::string& name, std::int64_t measured, Bytes predicted) {
      if (measured < 0) return;
      list.back()[name + "_bytes"] = measured;
      list.back()["predicted_" + name + "_bytes"] = predicted.value;
    };
    add("peak_host", run.ranks[rank].host_peak_bytes, host.optimizer[rank]);
    add("checkpoint_copy", run.ranks[rank].copied_bytes, host.checkpoint_copy[rank]);
  }
  return list;
}

Json checkpoints_json(const MeasuredRun& run) {
  Json list = Json::array();
  for (const MeasuredCheckpoint& checkpoint : run.checkpoints)
    list.push_back({{"steps", checkpoint.steps},
                    {"bytes", checkpoint.bytes},
                    {"stall_s", checkpoint.stall_seconds},
                    {"write_s", checkpoint.write_seconds},
                    {"background", checkpoint.background}});
  return list;
}

Json document(const ExecutedPlan& plan, const MeasuredRun& run, std::int64_t id, RunEnd end, const std::string& message,
              const fs::path& folder) {
  const JobSpec& job = plan.loaded.plan.job;
  const double step = run.step_time();
  Json json;
  json["run"] = id;
  json["status"] = end == RunEnd::done ? "done" : end == RunEnd::failed ? "failed" : "interrupted";
  json["steps"] = run.step_seconds.size();
  json["step_time_s"] = step > 0 ? Json(step) : Json();
  json["predicted_step_time_s"] = plan.prediction.step_time.value;
  json["tokens_per_s"] = step > 0 ? Json(static_cast<double>(job.global_batch) * job.sequence_length / step) : Json();
  json["evidence"] = std::string(id_of(plan.prediction.evidence));
  json["memory"] = memory_json(plan, run);
  json["loss"] = run.loss;
  json["first_step"] = run.first_step;
  json["restarts"] = run.restarts;
  json["checkpoints"] = checkpoints_json(run);
  json["folder"] = folder.string();
  json["environment"] = run.environment;
  if (plan.asked)
    json["asked"] = {{"semantics", plan.asked_semantics}, {"predicted_step_time_s", plan.asked->step_time.value}};
  if (!message.empty()) json["message"] = message;
  Json errors = Json::array();
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
    if (!run.ranks[rank].error.empty()) errors.push_back({{"rank", rank}, {"message", run.ranks[rank].error}});
  if (!errors.empty()) json["errors"] = std::move(errors);
  return json;
}

std::string error_text(double predicted, double measured) {
  return fmt::format("{:+.1f} %", (predicted - measured) / measured * 100);
}

std::string summary_text(const ExecutedPlan& plan, const MeasuredRun& run, std::int64_t id,
                         const std::string& database) {
  const double step = run.step_time();
  std::string text;
  if (step > 0)
    text += fmt::format("step    {:.1f} ms measured, {:.1f} ms predicted ({})\n", step * 1e3,
                        plan.prediction.step_time.value * 1e3, error_text(plan.prediction.step_time.value, step));
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < plan.stage.size(); ++rank) {
    const auto peak = static_cast<double>(run.ranks[rank].peak_bytes);
    if (peak <= 0) continue;
    const Bytes promised = plan.prediction.memory[static_cast<std::size_t>(plan.stage[rank])].allocated;
    text += fmt::format("rank {:<2} {:.1f} MiB allocated at most, {:.1f} MiB predicted ({})\n", rank, peak / 1048576,
                        static_cast<double>(promised.value) / 1048576,
                        error_text(static_cast<double>(promised.value), peak));
  }
  const HostMemory host = host_memory(plan.loaded.plan, plan.loaded.semantics, *plan.program);
  for (std::size_t rank = 0; rank < run.ranks.size() && rank < plan.stage.size(); ++rank)
    if (const std::int64_t copied = run.ranks[rank].copied_bytes; copied > 0)
      text += fmt::format(
          "rank {:<2} {:.1f} MiB copied for a checkpoint, {:.1f} MiB predicted ({})\n", rank,
          static_cast<double>(copied) / 1048576, static_cast<double>(host.checkpoint_copy[rank].value) / 1048576,
          error_text(static_cast<double>(host.checkpoint_copy[rank].value), static_cast<double>(copied)));
  for (const MeasuredCheckpoint& checkpoint : run.checkpoints)
    text += fmt::format("checkpoint after {} steps: {:.1f} MiB, training waited {:.2f} s\n", checkpoint.steps,
                        static_cast<double>(checkpoint.bytes) / 1048576, checkpoint.stall_seconds);
  return text + fmt::format("foretrain compare {} --db {}\n", id, database);
}

/// What the run ended with, from the executor's exit code.
RunEnd end_of(int code) {
  return code == kDone ? RunEnd::done : code == kInterrupted ? RunEnd::interrupted : RunEnd::failed;
}

Result<fs::path> folder_of(const RunOptions& options, std::int64_t id) {
  std::error_code problem;
  const fs::path database = fs::absolute(options.database, problem);
  const fs::path folder = options.out.empty()
                              ? database.parent_path() / (database.stem().string() + "-runs") / std::to_string(id)
                              : fs::absolute(options.out, problem);
  fs::create_directories(folder, problem);
  if (problem) return fail_environment(folder.string(), "cannot be made: " + problem.message());
  return folder;
}

SlurmJob job_of(const RunOptions& options, const ExecutedPlan& plan, const fs::path& program,
                const std::vector<std::string>& arguments, const fs::path& folder) {
  SlurmJob job;
  job.program = program;
  job.arguments = arguments;
  job.folder = folder;
  job.ranks = plan.program->mesh.world();
  job.per_node = std::min(job.ranks, devices_per_node(plan.loaded.plan.cluster));
  job.time = options.time;
  job.partition = options.partition;
  job.options = options.sbatch;
  job.max_restarts = options.max_restarts;
  return job;
}

/// What would be submitted, without a run that it belongs to.
int print_script(const Context& context, const RunOptions& options, const ExecutedPlan& plan) {
  std::error_code ignored;
  const fs::path folder = fs::absolute(options.out.empty() ? "foretrain-run" : options.out, ignored);
  const auto arguments = arguments_of(context, options, folder / "plan.json", folder);
  const fs::path program = program_path().parent_path() / "foretrain-run";
  return print_and(slurm_script(job_of(options, plan, program, arguments, folder)), kDone);
}

/// A rank other than 0 of a run that a cluster's launcher started: rank 0 keeps the record.
int follow_rank_0(const Context& context, const RunOptions& options) {
  const auto program = executor_program();
  if (!program) return complain(program.error());
  const auto code =
      run_child(*program, arguments_of(context, options, options.plan, options.out), {true, context.stop});
  if (!code) return complain(code.error());
  return *code >= 1000 ? kBadInput : *code;
}

struct Finished {
  int code = kInternal;
  RunEnd end = RunEnd::failed;
  MeasuredRun run;
  std::string message;
};

/// Executes the plan of a folder; what was measured before a failure counts.
Result<Finished> execute(const Context& context, const RunOptions& options, const ExecutedPlan& plan,
                         const fs::path& folder) {
  FORETRAIN_TRY(const fs::path program, executor_program());
  const fs::path file = folder / "plan.json";
  if (auto written = write_text_file(file, to_json(plan.loaded.plan).dump(2) + "\n"); !written)
    return tl::unexpected<Error>(written.error());
  std::error_code ignored;
  const bool goes_on = options.launcher == "env" && context.restarts > 0;
  if (!goes_on) fs::remove(folder / kRecords, ignored);
  Finished finished;
  const std::vector<std::string> arguments = arguments_of(context, options, file, folder);
  if (options.launcher == "slurm") {
    const fs::path script = folder / "job.sbatch";
    if (auto written = write_text_file(script, slurm_script(job_of(options, plan, program, arguments, folder)));
        !written)
      return tl::unexpected<Error>(written.error());
    FORETRAIN_TRY(finished.code, run_in_slurm(script, options.max_restarts > 0, context.stop));
  } else {
    FORETRAIN_TRY(finished.code, run_child(program, arguments, {options.json, context.stop}));
  }
  // A signal that comes before the executor watches for it ends it as any other program.
  if (finished.code >= 1000 && context.stop && context.stop->load()) finished.code = kInterrupted;
  finished.end = end_of(finished.code);
  if (auto run = read_run(folder / kRecords); run) finished.run = std::move(*run);
  finished.message = finished.run.failure;
  if (finished.end == RunEnd::failed && finished.message.empty())
    finished.message = finished.code == kNothingFits ? "the executor does not run this plan"
                       : finished.code >= 1000
                           ? fmt::format("the launcher was ended by signal {}", finished.code - 1000)
                           : fmt::format("the executor ended with code {}", finished.code);
  return finished;
}

int report_illegal(const ExecutedPlan& plan, bool json) {
  if (json) return print_and(to_json(plan.prediction).dump(2) + "\n", kNothingFits);
  std::string text = "cannot run:\n";
  for (const Rejection& rejection : plan.prediction.rejections) text += rejection_line(rejection) + "\n";
  return print_and(text, kNothingFits);
}

} // namespace

int run_run(const Context& context, const RunOptions& options) {
  if (options.launcher == "env" && options.out.empty())
    return complain({Error::Kind::input, "is needed with --launcher env", "--out", "a folder that all ranks see"});
  if (options.max_restarts > 0 && options.checkpoint.empty())
    return complain({Error::Kind::input, "is needed with --max-restarts", "--checkpoint",
                     "a folder, and --checkpoint-every: a run goes on from its newest checkpoint"});
  if (options.dry_run && options.launcher != "slurm")
    return complain({Error::Kind::input, "is for --launcher slurm", "--dry-run", ""});
  if (options.launcher == "env" && context.rank != 0) return follow_rank_0(context, options);
  auto loaded = load_plan(context, options.plan);
  if (!loaded) return complain(loaded.error());
  const auto plan = executed_plan(context, std::move(*loaded));
  if (!plan) return complain(plan.error());
  if (!plan->program) return report_illegal(*plan, options.json);
  if (options.dry_run) return print_script(context, options, *plan);
  auto record = RunRecord::begin(options.database, context.data, *plan, options.launcher);
  if (!record) return complain(record.error());
  const auto give_up = [&](const Error& error) {
    (void)record->keep(*plan, {}, {}, RunEnd::failed, to_string(error));
    return complain(error);
  };
  const auto folder = folder_of(options, record->id());
  if (!folder) return give_up(folder.error());
  const auto finished = execute(context, options, *plan, *folder);
  if (!finished) return give_up(finished.error());
  const auto kept = record->keep(*plan, finished->run, *folder, finished->end, finished->message);
  if (!kept) return complain(kept.error());
  const int code = finished->code >= 1000 ? kBadInput : finished->code;
  if (options.json)
    return print_and(
        document(*plan, finished->run, record->id(), finished->end, finished->message, *folder).dump(2) + "\n", code);
  return print_and(summary_text(*plan, finished->run, record->id(), options.database), code);
}

} // namespace foretrain::cli
