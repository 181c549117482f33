#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include <unistd.h>

#include "executor/arguments.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/environment.h"
#include "executor/launcher.h"
#include "executor/machine.h"
#include "executor/rendezvous/server.h"
#include "executor/summary.h"

/// foretrain-run: executes a plan. Reads a plan, writes a run; started by hand, by `foretrain run` or by a cluster's
/// launcher. It has no LibTorch itself, so that it starts at once: ranks are processes of foretrain-rank.
namespace foretrain {
namespace {

constexpr int kMostLocalRanks = 64;

std::filesystem::path rank_program() {
  return own_folder() / "foretrain-rank";
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
  LocalLaunch launch;
  launch.program = rank_program();
  launch.arguments = arguments_of_ranks(a, server->port());
  launch.world = world;
  launch.threads = std::max(1, usable_cores() / world);
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

/// With --launcher env this process is a rank: it becomes that program, under the number that its launcher knows.
int become_rank(char** words) {
  const std::string program = rank_program().string();
  execv(program.c_str(), words);
  return report({Error::Kind::environment, std::string("cannot be started: ") + std::strerror(errno), program,
                 "it is installed beside foretrain-run"});
}

int run(Arguments& a, char** words) {
  if (!a.describe.empty()) return describe(a.describe);
  if (!a.export_to.empty()) return export_weights(a);
  if (a.launcher == "env" && !a.check) return become_rank(words);
  if (auto settled = settle_options(a); !settled) return report(settled.error());
  const Prepared prepared = prepare_plan(a);
  if (!prepared.runnable) return prepared.code;
  if (a.check) {
    std::cout << a.plan << " can be executed\n";
    return kDone;
  }
  if (auto ready = prepare_run(prepared.runnable->plan, a.settings); !ready) return report(ready.error());
  if (a.settings.backend != Backend::gloo)
    if (const auto devices = devices_of(a.settings.backend, own_folder()); !devices) return report(devices.error());
  if (auto written = start_file(a.settings.out); !written) return report(written.error());
  return run_local(a, *prepared.runnable);
}

} // namespace
} // namespace foretrain

int main(int count, char** words) {
  return foretrain::run_program(count, words, [words](foretrain::Arguments& a) { return foretrain::run(a, words); });
}
