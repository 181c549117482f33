#include "executor/run.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include <sched.h>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "core/spec/io.h"
#include "executor/allocator.h"
#include "executor/blas_core.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/saver.h"
#include "executor/checkpoint/state.h"
#include "executor/communicators/device_communicator.h"
#include "executor/communicators/gloo.h"
#include "executor/device.h"
#include "executor/interpreter.h"
#include "executor/machine.h"
#include "executor/op_times.h"
#include "executor/probes.h"
#include "executor/rank_guard.h"
#include "executor/rendezvous/server.h"
#include "executor/rendezvous/store.h"
#include "executor/token_file.h"

namespace foretrain {
namespace {

constexpr std::chrono::milliseconds kLastWords{2'000}; ///< that ranks may need to hear of a failure

/// Waits until every rank has come. Error: one did not, named.
Result<void> meet(RendezvousClient& client, int rank, int world, std::chrono::milliseconds timeout) {
  const auto key = [](int number) { return "rank/" + std::to_string(number); };
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  int missing = 0;
  try {
    client.set(key(rank), "here");
    for (missing = 0; missing < world; ++missing) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      (void)client.get(key(missing), std::max(left, std::chrono::milliseconds(1)));
    }
    return {};
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank),
                            "waits for rank " + std::to_string(missing) + ": " + error.what(),
                            "all " + std::to_string(world) + " ranks must be started");
  }
}

/// The default scheduler lets small transfers wait for ticks of 4 ms when ranks share cores.
void schedule_as_batch() {
  const sched_param parameter{};
  (void)sched_setscheduler(0, SCHED_BATCH, &parameter); // a kernel that refuses is only slower
}

/// What this rank computes on: the host with Gloo, else one of the machine's GPUs.
Result<std::unique_ptr<Device>> open_device(const RunSettings& settings) {
  if (settings.backend == Backend::gloo) return host_device();
  FORETRAIN_TRY(const int devices, devices_of(settings.backend, own_folder())); // before LibTorch starts the driver
  return gpu_device(settings.index_here % devices);
}

/// This rank's end of the backend's devices; null where it has none.
Result<std::unique_ptr<DeviceLink>> open_link(int rank, const RunSettings& settings, const Device& device) {
  if (settings.backend == Backend::gloo) return nullptr;
  FORETRAIN_TRY(const DeviceLibrary* library, load_device_library(settings.backend, own_folder()));
  DeviceLinkOptions options;
  options.device = device.place().index();
  options.compute = device.queue();
  options.timeout = settings.timeout;
  try {
    return library->open(options);
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank),
                            "device " + std::to_string(options.device) + " cannot be used: " + error.what());
  }
}

Json header_of(const Runnable& runnable, const RunSettings& settings, const Device& device, const DeviceLink* link) {
  Json json;
  json["format"] = "foretrain-run 1";
  json["foretrain"] = FORETRAIN_VERSION;
  json["torch"] = TORCH_VERSION;
  json["backend"] = std::string(id_of(settings.backend));
  json["computes_on"] = device.description();
  if (link) json["device"] = link->description();
  json["world"] = runnable.program.mesh.world();
  json["semantics"] = runnable.program.semantics;
  json["machine"] = describe_machine();
  json["threads_per_rank"] = at::get_num_threads();
  if (const std::string core = blas_core(); !core.empty()) json["blas_core"] = core;
  json["steps"] = settings.steps;
  json["first_step"] = settings.first_step;
  json["warmup"] = warmup_of(settings);
  json["seed"] = settings.seed;
  json["learning_rate"] = settings.learning_rate;
  json["clip_norm"] = settings.clip_norm;
  json["data"] = settings.data;
  json["plan"] = to_json(runnable.plan);
  return json;
}

/// All steps, each appended to the file, with checkpoints between them; at the end (or when one fails) what each op
/// took.
Result<void> run_steps(Rank& executor, CheckpointSaver& saver, int rank, const RunSettings& settings) {
  const int warmup = settings.first_step + warmup_of(settings);
  OpTimes times;
  const auto write_times = [&]() -> Result<void> {
    return times.empty() ? Result<void>{} : append_line(settings.out, times.to_json(rank));
  };
  for (int step = settings.first_step; step < settings.steps; ++step) {
    const auto record = executor.step(step);
    if (!record) {
      (void)write_times(); // the failure is what matters
      return tl::unexpected<Error>(record.error());
    }
    if (step >= warmup) times.add(*record);
    const bool with_ops = settings.ops == RecordOps::all || (settings.ops == RecordOps::first && step == warmup);
    if (auto written = append_line(settings.out, to_json(*record, with_ops)); !written) return written;
    const bool last = step + 1 == settings.steps;
    if (auto saved = saver.after_step({step + 1, settings.seed, settings.data}, last); !saved) {
      (void)write_times();
      return saved;
    }
  }
  return write_times();
}

/// Weights and optimizer as a checkpoint or an export has them.
Result<void> restore_from(const Runnable& runnable, int rank, const RunSettings& settings, Rank& executor) {
  const Mesh& mesh = runnable.program.mesh;
  if (!settings.resume.empty()) {
    FORETRAIN_TRY(const Checkpoint checkpoint, read_checkpoint(settings.resume));
    FORETRAIN_TRY(PieceSource source, open_shards(checkpoint));
    return restore(source, runnable.plan, mesh, rank, checkpoint.state.steps, executor);
  }
  if (settings.weights.empty()) return {};
  FORETRAIN_TRY(PieceSource source, open_hugging_face(settings.weights, runnable.plan.model));
  return restore_weights(source, runnable.plan, mesh, rank, executor);
}

/// Who counts the rank's memory: the device's allocator, or the host's.
void count_memory(Device& device, RankOptions& options) {
  if (!device.queues()) {
    options.take_peak = [] {
      const std::int64_t peak = allocator_count().peak;
      restart_peak();
      return peak;
    };
    return;
  }
  const auto reserved = std::make_shared<std::int64_t>(0);
  options.take_peak = [&device, reserved] {
    const Device::Peaks peaks = device.take_peaks().value_or(Device::Peaks{});
    *reserved = std::max(*reserved, peaks.reserved);
    return peaks.allocated;
  };
  options.take_reserved = [reserved] { return std::exchange(*reserved, 0); };
}

/// Connected, to its end.
Result<void> run_connected(const Runnable& runnable, int rank, const RendezvousPlace& place,
                           const RunSettings& settings, RankGuard& guard) {
  FORETRAIN_TRY(const std::unique_ptr<Device> device, open_device(settings));
  device->enter();
  FORETRAIN_TRY(std::unique_ptr<DeviceLink> link, open_link(rank, settings, *device));
  FORETRAIN_TRY(std::unique_ptr<RendezvousClient> client, RendezvousClient::connect(place));
  if (auto watched = guard.watch(place); !watched) return watched;
  const std::string address = settings.address.empty() ? client->address() : settings.address;
  if (auto met = meet(*client, rank, runnable.program.mesh.world(), settings.timeout); !met) return met;
  if (rank == 0) { // the others wait for what comes after this
    if (settings.restarts > 0) {
      const Json line = {{"number", settings.restarts}, {"step", settings.first_step}, {"because", "a rank was lost"}};
      if (auto written = append_line(settings.out, Json{{"restart", line}}); !written) return written;
    }
    if (auto written = append_line(settings.out, header_of(runnable, settings, *device, link.get())); !written)
      return written;
    client->set("header", "written");
  } else {
    (void)client->get("header", settings.timeout);
  }
  const auto store = make_store(std::move(client), settings.timeout);
  FORETRAIN_TRY(const std::unique_ptr<Communicator> communicator,
                link ? connect_devices(runnable.program, rank, store, std::move(link))
                     : connect_gloo(runnable.program, rank, store, {address, settings.timeout}));
  RankOptions options;
  options.seed = settings.seed;
  options.optimizer.learning_rate = settings.learning_rate;
  options.optimizer.clip_norm = settings.clip_norm;
  options.progress = guard.progress();
  count_memory(*device, options);
  std::shared_ptr<const TokenFile> tokens;
  if (!settings.tokens.empty()) {
    FORETRAIN_TRY(TokenFile file,
                  TokenFile::open(settings.tokens, settings.token_bytes, runnable.plan.job.sequence_length));
    tokens = std::make_shared<const TokenFile>(std::move(file));
    options.tokens = [tokens, vocab = runnable.plan.model.vocab](std::int64_t number, std::int64_t) {
      auto sequence = tokens->sequence(number, vocab);
      if (!sequence) throw std::runtime_error(to_string(sequence.error()));
      return std::move(*sequence);
    };
  }
  Rank executor(runnable.plan, runnable.program, rank, *device, *communicator, options);
  if (auto restored = restore_from(runnable, rank, settings, executor); !restored)
    return fail_environment("rank " + std::to_string(rank), to_string(restored.error()));
  CheckpointSaver saver(settings.checkpoint, runnable.plan, runnable.program, rank, *communicator, executor,
                        [&settings](const Json& line) { return append_line(settings.out, line); });
  auto stepped = run_steps(executor, saver, rank, settings);
  if (!stepped || !settings.probe) return stepped;
  return probe(*device, *communicator, runnable.program, rank, settings.out);
}

/// The same; an exception of a library is an error.
Result<void> guarded_run(const Runnable& runnable, int rank, const RendezvousPlace& place, const RunSettings& settings,
                         RankGuard& guard) {
  try {
    return run_connected(runnable, rank, place, settings, guard);
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank), error.what());
  }
}

} // namespace

Result<void> run_rank(const Runnable& runnable, int rank, const Rendezvous& rendezvous, const RunSettings& settings) {
  schedule_as_batch();
  install_counting_allocator();
  const Fingerprint fingerprint = fingerprint_of(runnable, settings);
  std::unique_ptr<RendezvousServer> server;
  RankGuard guard(runnable.program, rank, settings.out); // ends before the server, which it talks to
  if (rendezvous.host_here) {
    auto listening =
        RendezvousServer::listen({rendezvous.host, rendezvous.port, rendezvous.token, fingerprint, settings.timeout});
    if (!listening) {
      guard.fail(to_string(listening.error()));
      return tl::unexpected<Error>(listening.error());
    }
    server = std::move(*listening);
    server->start();
  }
  const RendezvousPlace place{rendezvous.host, rendezvous.port, rendezvous.token, fingerprint, rank, settings.timeout};
  auto done = guarded_run(runnable, rank, place, settings, guard);
  if (done)
    guard.leave();
  else
    guard.fail(to_string(done.error()));
  if (server) server->wait_for_all(done ? settings.timeout : kLastWords);
  return done;
}

} // namespace foretrain
