#include "executor/arguments.h"

#include <csignal>
#include <iostream>

#include <CLI/CLI.hpp>

#include "core/program/check.h"
#include "core/program/lower.h"
#include "core/spec/io.h"
#include "executor/check.h"
#include "executor/table.h"

namespace foretrain {
namespace {

/// The plan under the executor's own semantics.
Result<Plan> read_plan(const std::string& file, const DataFolder& data) {
  FORETRAIN_TRY(const Json json, read_json_file(file));
  FORETRAIN_TRY(Plan plan, plan_from(json, file, data));
  plan.job.semantics = "foretrain";
  return plan;
}

int refuse(const std::vector<std::string>& reasons, const std::string& plan) {
  std::cerr << "foretrain-run: " << plan << " cannot be executed:\n";
  for (const std::string& reason : reasons) std::cerr << "  - " << reason << "\n";
  return kRefused;
}

} // namespace

int report(const Error& error) {
  std::cerr << "foretrain-run: " << to_string(error) << "\n";
  return error.kind == Error::Kind::cancelled ? kCancelled : kWrongInput;
}

DataFolder data_folder(const std::string& told) {
  if (!told.empty()) return {told};
  const std::filesystem::path installed = own_folder().parent_path() / "share" / "foretrain";
  if (std::filesystem::exists(installed / "semantics")) return {installed};
  return {FORETRAIN_SOURCE_DATA};
}

Prepared prepare_plan(const Arguments& a) {
  if (a.plan.empty())
    return {std::nullopt, report({Error::Kind::input, "is needed", "plan", "foretrain-run plan.json"})};
  const DataFolder data = data_folder(a.data);
  auto plan = read_plan(a.plan, data);
  if (!plan) return {std::nullopt, report(plan.error())};
  const auto semantics = data.semantics("foretrain");
  if (!semantics) return {std::nullopt, report(semantics.error())};
  if (a.check) std::cout << runnable_table(*semantics);
  if (const auto reasons = check_runnable(*plan, *semantics); !reasons.empty())
    return {std::nullopt, refuse(reasons, a.plan)};
  Runnable runnable{*plan, lower(*plan, *semantics)};
  std::vector<std::string> reasons = check_runnable(runnable.program);
  for (const Problem& problem : check(runnable.program)) reasons.push_back("its Program is wrong: " + problem.text);
  if (!reasons.empty()) return {std::nullopt, refuse(reasons, a.plan)};
  return {std::move(runnable), kDone};
}

Result<void> settle_options(Arguments& a) {
  RunSettings& s = a.settings;
  s.out = a.out;
  s.checkpoint.folder = a.checkpoint;
  s.resume = a.resume;
  s.weights = a.weights;
  s.tokens = a.tokens;
  s.token_bytes = a.token_type == "uint16" ? 2 : 4;
  s.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(a.timeout_s * 1000));
  s.ops = a.ops == "none" ? RecordOps::none : a.ops == "all" ? RecordOps::all : RecordOps::first;
  s.backend = backend_of(a.backend).value_or(Backend::gloo); // one of them: the parser looked
  if (a.checkpoint.empty() && (s.checkpoint.every > 0 || s.checkpoint.background))
    return fail("--checkpoint", "is needed with --checkpoint-every and --checkpoint-background", "a folder");
  if (a.checkpoint.empty() && a.max_restarts > 0)
    return fail("--checkpoint", "is needed with --max-restarts", "a folder");
  return {};
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("plan", a.plan, "The plan to execute (JSON)");
  app.add_option("--steps", a.settings.steps, "Optimizer steps")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup", a.settings.warmup, "First steps that are not measured; at most all but one")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--out", a.out, "Where records are appended, one JSON document a line")->capture_default_str();
  app.add_option("--launcher", a.launcher,
                 "local: starts every rank here. env: this process is one rank, named by the variables of torchrun, "
                 "mpirun, PMI or srun")
      ->check(CLI::IsMember({"local", "env"}))
      ->capture_default_str();
  app.add_option(
         "--backend", a.backend,
         "gloo: the processor computes, transfers go through the host's memory. nccl, rccl: the GPUs of NVIDIA, AMD")
      ->check(CLI::IsMember({"gloo", "nccl", "rccl"}))
      ->capture_default_str();
  app.add_option("--seed", a.settings.seed, "Of weights and tokens")->capture_default_str();
  app.add_option("--learning-rate", a.settings.learning_rate, "Constant over the run")
      ->check(CLI::Range(0.0, 1e3))
      ->capture_default_str();
  app.add_option("--clip-norm", a.settings.clip_norm, "Gradients are scaled down to this norm; 0 = never")
      ->check(CLI::Range(0.0, 1e12))
      ->capture_default_str();
  app.add_option("--timeout", a.timeout_s, "Seconds that a transfer may take before the run is given up")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  app.add_option("--logs", a.logs, "Folder for what each rank prints, as rank-N.log (--launcher local)");
  app.add_option("--ops", a.ops, "Steps whose ops are recorded one by one; first: the first measured one")
      ->check(CLI::IsMember({"none", "first", "all"}))
      ->capture_default_str();
  app.add_option("--checkpoint", a.checkpoint, "Folder for checkpoints; one is made after the last step");
  app.add_option("--checkpoint-every", a.settings.checkpoint.every, "Steps between two checkpoints; 0: only the last")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_flag("--checkpoint-background", a.settings.checkpoint.background,
               "Copy the state in memory and write it while training goes on");
  app.add_option("--resume", a.resume,
                 "Go on from a checkpoint, or from the newest in a folder; --steps counts from 0");
  app.add_option("--max-restarts", a.max_restarts,
                 "Times that a run which lost a rank goes on from its newest checkpoint. --launcher local starts the "
                 "ranks again; with env torchrun or a batch script does, and says so in TORCHELASTIC_RESTART_COUNT or "
                 "FORETRAIN_RESTART")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--weights", a.weights,
                 "Start from weights under Hugging Face's names: a folder of safetensors files");
  app.add_option("--tokens", a.tokens, "File of tokens to train on, instead of synthetic ones");
  app.add_option("--token-type", a.token_type, "Of that file's tokens")
      ->check(CLI::IsMember({"uint16", "uint32"}))
      ->capture_default_str();
  app.add_option("--export", a.export_to,
                 "Write the weights of --resume's checkpoint into this folder under Hugging Face's names, and end");
  app.add_option("--address", a.settings.address,
                 "This machine's address for the other ranks; without it the one on the way to rank 0");
  app.add_option("--data", a.data, "Folder of presets, where it is not found by itself");
  app.add_flag("--check", a.check, "Print what can be executed and what of this plan cannot; starts nothing");
  app.add_flag("--json", a.json, "Print the summary as JSON on stdout, steps on stderr");
  app.add_flag("--probe", a.settings.probe, "Time collectives over sizes after the steps (for foretrain calibrate)");
  app.add_option("--describe", a.describe, "Write what this machine is to a file, and end");
  app.add_option("--rank", a.rank)->group("");
  app.add_option("--rendezvous", a.rendezvous)->group("");
}

int run_program(int count, char** words, const std::function<int(Arguments& arguments)>& run) {
  std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of the write
  Arguments a;
  CLI::App app{"Executes a plan: the same Program that `foretrain predict` times, on LibTorch and Gloo.\n"
               "Example: foretrain-run plan.json --steps 20 --out run.json"};
  add_options(app, a);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongInput;
  }
  try {
    return run(a);
  } catch (const std::exception& error) { // of a library: none of ours throws
    std::cerr << "foretrain-run: internal error: " << error.what() << "\n";
    return kInternal;
  }
}

} // namespace foretrain
