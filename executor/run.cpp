#include "executor/run.h"

#include <exception>

#include <sched.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include "core/spec/io.h"
#include "executor/allocator.h"
#include "executor/communicators/gloo.h"
#include "executor/interpreter.h"

namespace foretrain {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

Result<StorePointer> open_store(const Rendezvous& rendezvous, int rank, int world, std::chrono::milliseconds timeout) {
  try {
    StorePointer store;
    if (!rendezvous.file.empty()) {
      store = c10::make_intrusive<c10d::FileStore>(rendezvous.file.string(), world);
    } else {
      c10d::TCPStoreOptions options;
      options.port = rendezvous.port;
      options.isServer = rank == 0;
      options.numWorkers = static_cast<std::size_t>(world);
      options.timeout = timeout;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
      options.useLibUV = false; // Debian's LibTorch is built without it
#endif
      store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
    }
    store->setTimeout(timeout);
    return store;
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank), std::string("cannot reach rank 0: ") + error.what(),
                            "start all ranks with the same MASTER_ADDR and MASTER_PORT");
  }
}

/// The default scheduler lets small transfers wait for ticks of 4 ms when ranks share cores.
void schedule_as_batch() {
  const sched_param parameter{};
  (void)sched_setscheduler(0, SCHED_BATCH, &parameter); // a kernel that refuses is only slower
}

Json header_of(const Runnable& runnable, const RunSettings& settings) {
  Json json;
  json["format"] = "foretrain-run 1";
  json["torch"] = TORCH_VERSION;
  json["backend"] = "gloo";
  json["world"] = runnable.program.mesh.world();
  json["semantics"] = runnable.program.semantics;
  json["steps"] = settings.steps;
  json["seed"] = settings.seed;
  json["learning_rate"] = settings.learning_rate;
  json["clip_norm"] = settings.clip_norm;
  json["plan"] = to_json(runnable.plan);
  return json;
}

} // namespace

Result<void> run_rank(const Runnable& runnable, int rank, const Rendezvous& rendezvous, const RunSettings& settings) {
  schedule_as_batch();
  install_counting_allocator();
  FORETRAIN_TRY(const StorePointer store,
                open_store(rendezvous, rank, runnable.program.mesh.world(), settings.timeout));
  if (rank == 0) { // before any other rank can have a record: none connects without this one
    if (auto written = append_line(settings.out, header_of(runnable, settings)); !written) return written;
  }
  FORETRAIN_TRY(const std::unique_ptr<Communicator> communicator,
                connect_gloo(runnable.program, rank, store, {settings.address, settings.timeout}));
  RankOptions options;
  options.seed = settings.seed;
  options.optimizer.learning_rate = settings.learning_rate;
  options.optimizer.clip_norm = settings.clip_norm;
  options.take_peak = [] {
    const std::int64_t peak = allocator_count().peak;
    restart_peak();
    return peak;
  };
  Rank executor(runnable.plan, runnable.program, rank, *communicator, options);
  for (int step = 0; step < settings.steps; ++step) {
    FORETRAIN_TRY(const StepRecord record, executor.step(step));
    const bool with_ops = settings.ops == RecordOps::all || (settings.ops == RecordOps::first && step == 0);
    if (auto written = append_line(settings.out, to_json(record, with_ops)); !written) return written;
  }
  return {};
}

} // namespace foretrain
