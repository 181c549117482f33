#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "core/program/check.h"
#include "core/program/lower.h"
#include "core/spec/io.h"
#include "core/spec/presets.h"
#include "executor/check.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/communicators/device_library.h"
#include "executor/environment.h"
#include "executor/launcher.h"
#include "executor/machine.h"
#include "executor/rendezvous/server.h"
#include "executor/run.h"
#include "executor/summary.h"
#include "executor/table.h"

/// foretrain-run: executes a plan on processors. Reads a plan, writes a run; started by hand, by
/// `foretrain run`, by a cluster's launcher, or by itself (one process per rank).
namespace foretrain {
namespace {

constexpr int kDone = 0;
constexpr int kWrongInput = 1;
constexpr int kRefused = 2;
constexpr int kInternal = 3;
constexpr int kCancelled = 130;
constexpr int kMostLocalRanks = 64;

struct Arguments {
  std::string plan;
  std::string launcher = "local";
  std::string data;
  std::string ops = "first";
  std::string backend = "gloo";
  std::string rendezvous; ///< of ranks that the local launcher starts: where it listens
  std::string logs;
  std::string describe; ///< file
  std::string checkpoint; ///< folder
  std::string resume;     ///< folder
  std::string weights;    ///< folder
  std::string tokens;     ///< file
  std::string token_type = "uint16";
  std::string export_to; ///< folder
  int max_restarts = 0;
  int rank = -1;
  double timeout_s = 60;
  bool json = false;
  bool check = false;
  RunSettings settings;
};

/// The presets: as told, beside an installation, or in the source tree that this program was built from.
DataFolder data_folder(const std::string& told) {
  if (!told.empty()) return {told};
  const std::filesystem::path installed = own_folder().parent_path() / "share" / "foretrain";
  if (std::filesystem::exists(installed / "semantics")) return {installed};
  return {FORETRAIN_SOURCE_DATA};
}

int report(const Error& error) {
  std::cerr << "foretrain-run: " << to_string(error) << "\n";
  return error.kind == Error::Kind::cancelled ? kCancelled : kWrongInput;
}

/// The plan under the executor's own semantics; the reasons when it cannot run.
Result<Plan> read_plan(const Arguments& arguments, const DataFolder& data) {
  FORETRAIN_TRY(const Json json, read_json_file(arguments.plan));
  FORETRAIN_TRY(Plan plan, plan_from(json, arguments.plan, data));
  plan.job.semantics = "foretrain";
  return plan;
}

std::optional<int> refuse(const std::vector<std::string>& reasons, const std::string& plan) {
  if (reasons.empty()) return std::nullopt;
  std::cerr << "foretrain-run: " << plan << " cannot be executed:\n";
  for (const std::string& reason : reasons) std::cerr << "  - " << reason << "\n";
  return kRefused;
}

void print_step(const RunFollower::Step& step, std::ostream& out) {
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "step %4d   loss %.6f   %.1f ms\n", step.number, step.loss,
                step.seconds * 1e3);
  out << line.data() << std::flush;
}

std::vector<std::string> arguments_of_ranks(const Arguments& a, std::uint16_t port) {
  std::vector<std::string> list = {
      a.plan, "--rendezvous", "127.0.0.1:" + std::to_string(port), "--out", a.settings.out.string(), "--ops", a.ops};
  const auto add = [&list](const char* name, const auto& value) {
    std::ostringstream text;
    text.precision(17);
    text << value;
    list.insert(list.end(), {name, text.str()});
  };
  add("--steps", a.settings.steps);
  add("--warmup", a.settings.warmup);
  add("--seed", a.settings.seed);
  add("--learning-rate", a.settings.learning_rate);
  add("--clip-norm", a.settings.clip_norm);
  add("--timeout", a.timeout_s);
  add("--backend", a.backend);
  if (!a.data.empty()) add("--data", a.data);
  if (!a.settings.checkpoint.folder.empty()) {
    add("--checkpoint", a.settings.checkpoint.folder.string());
    add("--checkpoint-every", a.settings.checkpoint.every);
    if (a.settings.checkpoint.background) list.emplace_back("--checkpoint-background");
  }
  if (!a.settings.resume.empty()) add("--resume", a.settings.resume.string());
  if (!a.settings.weights.empty() && a.settings.resume.empty()) add("--weights", a.settings.weights.string());
  if (!a.tokens.empty()) {
    add("--tokens", a.tokens);
    add("--token-type", a.token_type);
  }
  if (a.settings.probe) list.emplace_back("--probe");
  return list;
}

/// A token that nobody guesses.
std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  std::ifstream("/dev/urandom", std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), bytes.size());
  std::string text;
  for (const unsigned char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

/// All ranks once, to the end or to the first failure.
Result<void> launch_once(const Arguments& a, const Runnable& runnable, const std::function<void()>& watch) {
  const int world = runnable.program.mesh.world();
  RendezvousOptions meeting;
  meeting.token = new_token();
  meeting.fingerprint = fingerprint_of(runnable, a.settings);
  meeting.silence = a.settings.timeout;
  FORETRAIN_TRY(const std::unique_ptr<RendezvousServer> server, RendezvousServer::listen(meeting));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  LocalLaunch launch;
  launch.program = std::filesystem::read_symlink("/proc/self/exe");
  launch.arguments = arguments_of_ranks(a, server->port());
  launch.world = world;
  launch.threads = std::max(1, cores / world);
  launch.logs = a.logs;
  launch.environment = {kTokenVariable + std::string("=") + meeting.token};
  LaunchHooks hooks;
  hooks.started = [&] { server->start(); };
  hooks.failed = [&](const std::string& who) { server->abort(who); };
  hooks.given_up = [&] { return server->given_up(); };
  hooks.watch = watch;
  return launch_local(launch, hooks);
}

/// A rank that was lost, or ended while it was still starting, has not said anything: the launcher does.
Result<void> speak_for_silent(const std::filesystem::path& out, RunFollower& follower, const Error& error) {
  (void)follower.poll();
  for (const int rank : follower.silent()) {
    const std::string text = "rank " + std::to_string(rank) + ": ended without a word of its own: " + to_string(error);
    if (auto said = append_line(out, Json{{"rank", rank}, {"error", text}, {"by", "launcher"}}); !said) return said;
  }
  return {};
}

/// Whether a run that failed goes on; then with the newest checkpoint.
bool restart(Arguments& a, int restarts, const Error& error) {
  if (restarts >= a.max_restarts || error.kind == Error::Kind::cancelled) return false;
  prepare_restart(a.settings);
  std::cerr << "foretrain-run: " << to_string(error) << "\nforetrain-run: restart " << restarts + 1 << " of "
            << a.max_restarts << ", from step " << a.settings.first_step << "\n";
  const Json line = {{"number", restarts + 1}, {"step", a.settings.first_step}, {"because", to_string(error)}};
  return append_line(a.settings.out, Json{{"restart", line}}).has_value();
}

int run_local(Arguments& a, const Runnable& runnable) {
  const int world = runnable.program.mesh.world();
  if (world > kMostLocalRanks)
    return report({Error::Kind::input, std::to_string(world) + " ranks are more than one machine should run", a.plan,
                   "at most " + std::to_string(kMostLocalRanks) + "; start them with --launcher env instead"});
  RunFollower follower(a.settings.out, world, a.settings.first_step, warmup_of(a.settings));
  const auto watch = [&] {
    for (const RunFollower::Step& step : follower.poll()) print_step(step, a.json ? std::cerr : std::cout);
  };
  auto launched = launch_once(a, runnable, watch);
  for (int restarts = 0; !launched && restart(a, restarts, launched.error()); ++restarts)
    launched = launch_once(a, runnable, watch);
  watch();
  if (!launched && launched.error().kind != Error::Kind::cancelled)
    if (auto said = speak_for_silent(a.settings.out, follower, launched.error()); !said) return report(said.error());
  Json summary = follower.summary();
  if (!launched) summary["failure"] = to_string(launched.error());
  if (auto written = append_line(a.settings.out, Json{{"summary", summary}}); !written) return report(written.error());
  if (a.json) std::cout << summary.dump(2) << "\n";
  return launched ? kDone : report(launched.error());
}

/// Options that only make sense together.
Result<void> check_options(Arguments& a) {
  a.settings.checkpoint.folder = a.checkpoint;
  a.settings.resume = a.resume;
  a.settings.weights = a.weights;
  a.settings.tokens = a.tokens;
  a.settings.token_bytes = a.token_type == "uint16" ? 2 : 4;
  if (a.checkpoint.empty() && (a.settings.checkpoint.every > 0 || a.settings.checkpoint.background))
    return fail("--checkpoint", "is needed with --checkpoint-every and --checkpoint-background", "a folder");
  if (a.checkpoint.empty() && a.max_restarts > 0)
    return fail("--checkpoint", "is needed with --max-restarts", "a folder");
  if (a.launcher != "local" && a.max_restarts > 0)
    return fail("--max-restarts", "is for --launcher local", "whoever starts the ranks starts them again, with --resume");
  return {};
}

/// Weights of a checkpoint under Hugging Face's names; needs no plan and no ranks.
int export_weights(const Arguments& a) {
  const auto newest = newest_checkpoint(a.resume.empty() ? a.checkpoint : a.resume);
  if (!newest) return report(newest.error());
  const auto checkpoint = read_checkpoint(*newest);
  if (!checkpoint) return report(checkpoint.error());
  const auto exported = export_hugging_face(*checkpoint, a.export_to);
  return exported ? kDone : report(exported.error());
}

int describe(const std::string& file) {
  const auto written = write_text_file(file, describe_machine().dump(2) + "\n");
  return written ? kDone : report(written.error());
}

int run(Arguments& a) {
  if (!a.describe.empty()) return describe(a.describe);
  if (!a.export_to.empty()) return export_weights(a);
  if (auto checked = check_options(a); !checked) return report(checked.error());
  if (a.plan.empty()) return report({Error::Kind::input, "is needed", "plan", "foretrain-run plan.json"});
  a.settings.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(a.timeout_s * 1000));
  a.settings.ops = a.ops == "none" ? RecordOps::none : a.ops == "all" ? RecordOps::all : RecordOps::first;
  a.settings.backend = backend_of(a.backend).value_or(Backend::gloo); // one of them: the parser looked
  const DataFolder data = data_folder(a.data);
  auto plan = read_plan(a, data);
  if (!plan) return report(plan.error());
  const auto semantics = data.semantics("foretrain");
  if (!semantics) return report(semantics.error());
  if (a.check) std::cout << runnable_table(*semantics);
  if (const auto code = refuse(check_runnable(*plan, *semantics), a.plan)) return *code;
  Runnable runnable{*plan, lower(*plan, *semantics)};
  std::vector<std::string> reasons = check_runnable(runnable.program);
  for (const Problem& problem : check(runnable.program)) reasons.push_back("its Program is wrong: " + problem.text);
  if (const auto code = refuse(reasons, a.plan)) return *code;
  if (a.check) {
    std::cout << a.plan << " can be executed\n";
    return kDone;
  }
  if (auto prepared = prepare_run(*plan, a.settings); !prepared) return report(prepared.error());

  if (a.settings.backend != Backend::gloo)
    if (const auto devices = devices_of(a.settings.backend, own_folder()); !devices) return report(devices.error());
  const bool starts_ranks = a.rank < 0 && a.launcher == "local";
  if (starts_ranks) {
    if (auto written = start_file(a.settings.out); !written) return report(written.error());
    return run_local(a, runnable);
  }
  const auto place = a.rank < 0 ? place_from_environment(runnable.program.mesh.world())
                                : place_from_launcher(a.rank, a.rendezvous, runnable.program.mesh.world());
  if (!place) return report(place.error());
  a.settings.index_here = place->here;
  const auto done = run_rank(runnable, place->rank, place->rendezvous, a.settings);
  return done ? kDone : done.error().kind == Error::Kind::cancelled ? kCancelled : kWrongInput;
}

} // namespace
} // namespace foretrain

int main(int count, char** words) {
  std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of the write
  foretrain::Arguments a;
  CLI::App app{"Executes a plan: the same Program that `foretrain predict` times, on LibTorch and Gloo.\n"
               "Example: foretrain-run plan.json --steps 20 --out run.json"};
  std::string out = "run.json";
  app.add_option("plan", a.plan, "The plan to execute (JSON)");
  app.add_option("--steps", a.settings.steps, "Optimizer steps")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--warmup", a.settings.warmup, "First steps that are not measured; at most all but one")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--out", out, "Where records are appended, one JSON document a line")->capture_default_str();
  app.add_option("--launcher", a.launcher,
                 "local: starts every rank here. env: this process is one rank, named by the variables of torchrun, "
                 "mpirun, PMI or srun")
      ->check(CLI::IsMember({"local", "env"}))
      ->capture_default_str();
  app.add_option("--backend", a.backend,
                 "What carries transfers: gloo, in the host's memory. nccl, rccl: between the GPUs of NVIDIA, AMD")
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
  app.add_option("--resume", a.resume, "Go on from a checkpoint, or from the newest in a folder; --steps counts from 0");
  app.add_option("--max-restarts", a.max_restarts,
                 "Times that a run which lost a rank goes on from its newest checkpoint (--launcher local)")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--weights", a.weights, "Start from weights under Hugging Face's names: a folder of safetensors files");
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
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? foretrain::kDone : foretrain::kWrongInput;
  }
  a.settings.out = out;
  try {
    return foretrain::run(a);
  } catch (const std::exception& error) { // of a library: none of ours throws
    std::cerr << "foretrain-run: internal error: " << error.what() << "\n";
    return foretrain::kInternal;
  }
}
