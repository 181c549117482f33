#include "planner/cli/app.h"

#include <charconv>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/text.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/commands/validate_files.h"
#include "planner/cli/completion.h"
#include "planner/cli/help.h"
#include "planner/cli/interrupt.h"
#include "planner/cli/progress.h"
#include "planner/cli/usage.h"
#include "simulator/pool.h"

namespace foretrain::cli {
namespace {

using Action = std::function<int(const Context&)>;

struct Arguments {
  std::string data;
  std::string calibration;
  std::string color = "auto";
  PlanOptions plan;
  PredictOptions predict;
  ExplainOptions explain;
  ProgramOptions program;
  ValidateOptions validate;
  RunOptions run;
  CompareOptions compare;
  DetectOptions detect;
  CalibrateOptions calibrate;
  ValidateFiles validate_files;
  PresetsOptions presets;
  std::string schema;
  DbOptions db;
  std::string shell;
  Action action;
};

CLI::App* add_command(CLI::App& app, Arguments& arguments, const char* name, Action action) {
  const CommandHelp& help = help_of(name);
  CLI::App* command = app.add_subcommand(name, help.summary);
  command->footer(help.footer);
  command->callback([&arguments, action = std::move(action)] { arguments.action = action; });
  return command;
}

constexpr const char* kEngineHelp = "slots (slot by slot, microseconds), replay (op by op), simgrid (on the network)";

void add_plan(CLI::App& app, Arguments& arguments) {
  PlanOptions& o = arguments.plan;
  CLI::App* command = add_command(app, arguments, "plan", [&o](const Context& c) { return run_plan(c, o); });
  command->add_option("study", o.study, "study file (JSON); without it the flags below say what to plan");
  command->add_option("--model", o.model, "preset, model file or Hugging Face config.json");
  command->add_option("--cluster", o.cluster, "preset or cluster file");
  command->add_option("--gpus", o.gpus, "devices; without it all of the cluster");
  command->add_option("--seq-len", o.sequence_length, "tokens of a sequence");
  command->add_option("--global-batch", o.global_batch, "sequences of an optimizer step");
  command->add_option("--semantics", o.semantics,
                      "framework whose memory, overlap and rules hold (foretrain presets semantics)");
  command->add_option("--precision", o.precision, "bf16, fp16, fp8-delayed, …");
  command->add_option("--lora", o.lora,
                      "train adapters of this rank beside the attention's projections; a study file may name others");
  command->add_option("--overlap-tp", o.overlap_tp,
                      "tensor-parallel collectives in pieces beside their products, where the framework has it: no, "
                      "yes, both");
  command->add_option("--objective", o.objective, "step-time, throughput, memory-headroom, cost");
  command->add_option("--where", o.where, "condition over fields, such as 'tp == 8 and memory_gib < 70'");
  command->add_option("--top", o.top, "layouts in the table")->capture_default_str();
  command->add_option("--engine", o.engine, std::string(kEngineHelp) + "; for the best of the search");
  command
      ->add_option("--search", o.search,
                   "exhaustive (all that can fit), best-first (what a bound leaves a chance: the same best), automatic "
                   "(by the size of the space)")
      ->capture_default_str();
  command->add_option("--keep", o.keep, "layouts that the database keeps")->capture_default_str();
  command->add_option("--jobs", o.jobs, "threads; 0: one per core")->capture_default_str();
  command->add_option("--db", o.database, "database file to keep the study in");
  command->add_flag("--json", o.json, "one JSON document on stdout");
  command->add_flag("--csv", o.csv, "the ranked layouts with all fields");
}

void add_predict(CLI::App& app, Arguments& arguments) {
  PredictOptions& o = arguments.predict;
  CLI::App* command = add_command(app, arguments, "predict", [&o](const Context& c) { return run_predict(c, o); });
  command->add_option("plan", o.plan, "plan file (JSON)")->required();
  command->add_option("--engine", o.engine, kEngineHelp)->capture_default_str();
  command->add_option("--trace", o.trace, "file for the timeline, as a Chrome trace");
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_explain(CLI::App& app, Arguments& arguments) {
  ExplainOptions& o = arguments.explain;
  CLI::App* command = add_command(app, arguments, "explain", [&o](const Context& c) { return run_explain(c, o); });
  command->add_option("plan", o.plan, "plan file (JSON); not with a measured row");
  command->add_option("--against", o.against,
                      "another plan file, or a measured row (ROWS.csv:ROW_ID); without it the best of a search");
  command->add_option("--engine", o.engine, kEngineHelp)->capture_default_str();
  command->add_option("--jobs", o.jobs, "threads of the search; 0: one per core")->capture_default_str();
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_program(CLI::App& app, Arguments& arguments) {
  ProgramOptions& o = arguments.program;
  CLI::App* command = add_command(app, arguments, "program", [&o](const Context& c) { return run_program(c, o); });
  command->add_option("plan", o.plan, "plan file (JSON)")->required();
  command->add_option("--role", o.role, "one pipeline stage alone");
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_validate(CLI::App& app, Arguments& arguments) {
  ValidateOptions& o = arguments.validate;
  ValidateFiles& files = arguments.validate_files;
  CLI::App* command =
      add_command(app, arguments, "validate", [&o, &files](const Context& c) { return run_validate(c, o, files); });
  command->add_option("rows", o.files, "CSV files of published runs")->required();
  command->add_option("--engine", o.engine, kEngineHelp)->capture_default_str();
  command->add_option("--plot", files.plots, "folder for drawings (SVG)");
  command->add_option("--page", files.page, "accuracy page (Markdown) to write; its remarks are kept");
  command->add_option("--check", files.check, "accuracy page whose figures must not have got worse");
  command->add_option("--fit-intervals", files.intervals,
                      "file to write the 80 % intervals to that the residuals give");
  command->add_option("--jobs", o.jobs, "threads; 0: one per core")->capture_default_str();
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_run(CLI::App& app, Arguments& arguments) {
  RunOptions& o = arguments.run;
  CLI::App* command = add_command(app, arguments, "run", [&o](const Context& c) { return run_run(c, o); });
  command->add_option("plan", o.plan, "plan file (JSON)")->required();
  command
      ->add_option("--launcher", o.launcher,
                   "local: one process per rank on this machine. slurm: a batch job. env: this process is one rank, "
                   "named by the variables of torchrun, mpirun, PMI or srun")
      ->check(CLI::IsMember({"local", "env", "slurm"}))
      ->capture_default_str();
  command
      ->add_option(
          "--backend", o.backend,
          "gloo: the processor computes, transfers go through the host's memory. nccl, rccl: the GPUs of NVIDIA, AMD")
      ->check(CLI::IsMember({"gloo", "nccl", "rccl"}))
      ->capture_default_str();
  command->add_option("--steps", o.steps, "optimizer steps")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_option("--warmup", o.warmup, "first steps that are not measured; at most all but one")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->add_option("--seed", o.seed, "of weights and tokens")->capture_default_str();
  command->add_option("--learning-rate", o.learning_rate, "constant over the run")->capture_default_str();
  command->add_option("--clip-norm", o.clip_norm, "gradients are scaled down to this norm; 0: never")
      ->capture_default_str();
  command->add_option("--timeout", o.timeout_s, "seconds that a transfer may take before the run is given up")
      ->capture_default_str();
  command->add_option("--checkpoint", o.checkpoint, "folder for checkpoints; one is made after the last step");
  command->add_option("--checkpoint-every", o.checkpoint_every, "steps between two checkpoints; 0: only the last")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->add_flag("--checkpoint-background", o.checkpoint_background,
                    "copy the state in memory and write it while training goes on");
  command->add_option(
      "--resume", o.resume,
      "go on from a checkpoint, or from the newest in a folder, under any layout; --steps counts from 0");
  command
      ->add_option("--max-restarts", o.max_restarts,
                   "times that a run which lost a rank goes on from its newest checkpoint; with env whoever starts the "
                   "ranks starts them again (torchrun --max-restarts)")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->add_option("--weights", o.weights,
                      "start from weights under Hugging Face's names: a folder of safetensors files");
  command->add_option("--tokens", o.tokens, "file of tokens to train on, instead of synthetic ones");
  command->add_option("--token-type", o.token_type, "of that file's tokens")
      ->check(CLI::IsMember({"uint16", "uint32"}))
      ->capture_default_str();
  command->add_option("--out", o.out, "folder for records and logs; without it beside the database");
  command->add_option("--db", o.database, "database file to keep the run in")->capture_default_str();
  command->add_flag("--dry-run", o.dry_run, "slurm: print the script that would be submitted");
  command->add_option("--time", o.time, "slurm: time limit, such as 01:00:00");
  command->add_option("--partition", o.partition, "slurm: partition");
  command->add_option("--sbatch", o.sbatch, "slurm: a further option of sbatch, such as --sbatch=--account=lab");
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_compare(CLI::App& app, Arguments& arguments) {
  CompareOptions& o = arguments.compare;
  CLI::App* command = add_command(app, arguments, "compare", [&o](const Context& c) { return run_compare(c, o); });
  command->add_option("run", o.run, "its number (foretrain db runs FILE)")->required();
  command->add_option("--db", o.database, "database file that it was kept in")->capture_default_str();
  command->add_option("--trace", o.trace, "file for both timelines, as a Chrome trace");
  command->add_flag("--ops", o.ops, "the kinds of ops too");
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_measuring(CLI::App& app, Arguments& arguments) {
  DetectOptions& d = arguments.detect;
  CLI::App* detect = add_command(app, arguments, "detect", [&d](const Context& c) { return run_detect(c, d); });
  detect->add_option("--ranks", d.ranks, "ranks that share the machine; 0: one per core")->capture_default_str();
  detect->add_option("--out", d.out, "file to write; without it stdout");
  detect->add_flag("--json", d.json, "the cluster as JSON on stdout, as without it");
  CalibrateOptions& o = arguments.calibrate;
  CLI::App* command = add_command(app, arguments, "calibrate", [&o](const Context& c) { return run_calibrate(c, o); });
  command->add_option("--cluster", o.cluster, "preset or file: whose device this machine is")->capture_default_str();
  command->add_option("--out", o.out, "file to write; without it where later predictions find it");
  command->add_option("--work", o.work, "folder of the probes; an interrupted calibration goes on from it");
  command->add_option("--backend", o.backend, "gloo: this machine's processor. nccl: its GPUs, in half precision")
      ->check(CLI::IsMember({"gloo", "nccl"}))
      ->capture_default_str();
  command->add_option("--steps", o.steps, "optimizer steps of each probe; the first two are not measured")
      ->check(CLI::Range(3, 1'000))
      ->capture_default_str();
  command->add_flag("--quick", o.quick, "fewer sizes");
  command->add_option("--runs", o.runs, "database file: learn from its runs instead of measuring");
  command->add_option("--run", o.of_runs, "with --runs: from this run; without it from all that ended well");
  command->add_flag("--json", o.json, "one JSON document on stdout");
}

void add_looking_up(CLI::App& app, Arguments& arguments) {
  PresetsOptions& presets = arguments.presets;
  CLI::App* command =
      add_command(app, arguments, "presets", [&presets](const Context& c) { return run_presets(c, presets); });
  command->add_option("kind", presets.kind, "models, devices, clusters or semantics")->required();
  command->add_option("name", presets.name, "one of them, as a JSON document; of models also a file");
  command->add_flag("--json", presets.json, "one JSON document on stdout");
  std::string& schema = arguments.schema;
  command = add_command(app, arguments, "schema", [&schema](const Context&) { return run_schema(schema); });
  command->add_option("name", schema, "plan, study, model, cluster, …; without it the list");
  std::string& shell = arguments.shell;
  CLI::App* completion = add_command(app, arguments, "completion", [&app, &shell](const Context&) {
    const auto script = completion_script(app, shell);
    return script ? print_and(*script, kDone) : complain(script.error());
  });
  completion->add_option("shell", shell, "bash or zsh")->required();
}

void add_db(CLI::App& app, Arguments& arguments) {
  DbOptions& o = arguments.db;
  CLI::App* db = add_command(app, arguments, "db", {});
  db->callback({});
  db->require_subcommand(1);
  const auto add = [&](const char* name, const char* summary, bool of_study, bool ranked) {
    CLI::App* command = db->add_subcommand(name, summary);
    command->add_option("file", o.file, "database file")->required();
    if (of_study) command->add_option("study", o.study, "its number; without it the newest");
    if (ranked) command->add_option("--top", o.top, "layouts in the table")->capture_default_str();
    if (ranked) command->add_option("--objective", o.objective, "another objective than the study's");
    command->add_flag("--json", o.json, "one JSON document on stdout");
    command->callback([&arguments, &o, name] {
      o.action = name;
      arguments.action = [&o](const Context& c) { return run_db(c, o); };
    });
  };
  add("list", "the studies", false, false);
  add("show", "one study: what was asked, how many layouts, what rejected them", true, false);
  add("best", "the best layouts of a study", true, true);
  add("pareto", "its front of step time and memory", true, false);
  add("misses", "layouts that nearly run, and what is wrong with them", true, false);
  add("runs", "executed plans", false, false);
  CLI::App* import = db->add_subcommand("import", "keep runs that were made elsewhere");
  import->add_option("file", o.file, "database file")->required();
  import->add_option("runs", o.runs, "folders with the plan.json and run.json of foretrain-run")->required();
  import->add_flag("--json", o.json, "one JSON document on stdout");
  import->callback([&arguments, &o] { arguments.action = [&o](const Context& c) { return import_runs(c, o);
};
} // namespace
);
} // namespace foretrain::cli

/// Whole numbers are judged as they were typed: reading them would say another number, or only that it could not.
void expect_whole_numbers(CLI::App& app) {
  constexpr long long kMost = std::numeric_limits<int>::max();
  const auto whole = [](std::string& text) -> std::string {
    long long number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, number);
    if (stop == end && error == std::errc() && number >= -kMost && number <= kMost) return {};
    return fmt::format("'{}' is not a whole number of at most {}", text, with_commas(kMost));
  };
  for (CLI::Option* option : app.get_options())
    if (option->get_type_name() == "INT") option->check(CLI::Validator(whole, "INT").name("").description(""));
  for (CLI::App* command : app.get_subcommands({})) expect_whole_numbers(*command);
}

int execute(const Arguments& arguments) {
  Context context;
  const std::filesystem::path program = program_path();
  auto data = find_data(arguments.data, program);
  if (!data) return complain(data.error());
  context.data = std::move(*data);
  context.calibration = arguments.calibration;
  context.user_data = user_data_folder();
  context.rank = rank_in_environment();
  context.restarts = restarts_in_environment();
  std::error_code ignored;
  const std::filesystem::path worker = worker_beside_program();
  if (std::filesystem::exists(worker, ignored)) context.worker = worker;
  context.width = terminal_width();
  if (arguments.color != "auto" && arguments.color != "always" && arguments.color != "never")
    return complain(
        {Error::Kind::input, fmt::format("'{}' is not a choice", arguments.color), "--color", "auto, always or never"});
  context.color = arguments.color == "always" || (arguments.color == "auto" && ::isatty(STDOUT_FILENO) != 0);
  context.progress = ::isatty(STDERR_FILENO) != 0;
  context.stop = watch_for_interrupt();
  return arguments.action(context);
}

} // namespace

int run(int argc, const char* const* argv) {
  CLI::App app("Which parallel layouts of a training job run, what they cost in memory, and how fast they are.",
               "foretrain");
  Arguments arguments;
  app.footer(help_of("").footer);
  app.set_version_flag("--version", std::string("foretrain ") + std::string(version()));
  app.add_option("--data", arguments.data, "folder of presets");
  app.add_option("--calibration", arguments.calibration, "calibration file of the device; see foretrain calibrate");
  app.add_option("--color", arguments.color, "auto, always or never")->capture_default_str();
  app.require_subcommand(1);
  app.fallthrough();
  add_plan(app, arguments);
  add_predict(app, arguments);
  add_explain(app, arguments);
  add_program(app, arguments);
  add_validate(app, arguments);
  add_run(app, arguments);
  add_compare(app, arguments);
  add_measuring(app, arguments);
  add_looking_up(app, arguments);
  add_db(app, arguments);
  expect_whole_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_and(app.help(), kDone); // of the command that was named
  } catch (const CLI::CallForVersion& version_text) {
    return print_and(std::string(version_text.what()) + "\n", kDone);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  }
  return execute(arguments);
}

} // namespace foretrain::cli
