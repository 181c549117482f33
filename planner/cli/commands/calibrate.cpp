#include "planner/calibrate.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/program/lower.h"
#include "core/spec/io.h"
#include "planner/cli/child.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/inputs.h"
#include "planner/compare.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kWidths = 64; ///< of an attention head
constexpr int kVocab = 4096;
constexpr int kMostBusy = 16; ///< ranks at once: the machine is one, however large the cluster
constexpr int kWarmUp = 2;    ///< steps of a probe that are not measured

/// What probes are made of: sizes that keep the device busy for as long as its launches take and longer.
struct Sizes {
  std::vector<int> widths;
  std::vector<int> lengths;
  Precision precision = Precision::fp32;
  bool in_caches = false; ///< a processor: the weights of two layers would stay in its caches
};
Sizes sizes_of(const CalibrateOptions& options) {
  if (options.backend == "gloo")
    return options.quick ? Sizes{{256, 512}, {128, 256}, Precision::fp32, true}
                         : Sizes{{256, 512, 1024}, {128, 256, 512}, Precision::fp32, true};
  return options.quick ? Sizes{{1024, 2048}, {1024, 2048}, Precision::bf16}
                       : Sizes{{1024, 2048, 4096}, {1024, 2048, 4096}, Precision::bf16};
}

/// A plan whose ops are measured, or whose collectives are timed over sizes, or whose step is full of collectives.
enum class ProbeKind { ops, collectives, step };
struct Probe {
  std::string name;
  Plan plan;
  int steps = 1;
  ProbeKind kind = ProbeKind::ops;
};

/// So many that weights, gradients and optimizer state lie in memory and not in caches, as in a real step.
int layers_of(int hidden) {
  constexpr double kParameters = 30e6;
  constexpr double kPerLayer = 11.25; ///< squares of the hidden width, with half the key heads and 11/4 of it inside
  return std::max(2, static_cast<int>(kParameters / (kPerLayer * hidden * hidden)));
}

ModelSpec model_of(int hidden) {
  ModelSpec model;
  model.name = fmt::format("probe-{}", hidden);
  model.layers = 2;
  model.hidden = hidden;
  model.heads = hidden / kWidths;
  model.kv_heads = std::max(1, model.heads / 2);
  model.head_dim = kWidths;
  model.ffn = hidden * 11 / 4;
  model.vocab = kVocab;
  return model;
}

Probe probe_of(const ClusterSpec& cluster, Precision precision, int ranks, int hidden, int sequence, int tp,
               ProbeKind kind) {
  Probe probe;
  probe.kind = kind;
  probe.plan.model = model_of(hidden);
  if (tp > 1) probe.plan.model.kv_heads = probe.plan.model.heads; // tp divides both
  probe.plan.cluster = cluster;
  probe.plan.job.sequence_length = sequence;
  probe.plan.job.global_batch = ranks / tp;
  probe.plan.job.precision = precision;
  probe.plan.job.semantics = "foretrain";
  probe.plan.layout.tp = tp;
  probe.plan.layout.dp_shard = ranks / tp;
  probe.plan.layout.sharding.kind = ShardingKind::none;
  switch (kind) {
  case ProbeKind::ops:
    probe.name = fmt::format("hidden-{}-tokens-{}", hidden, sequence);
    break;
  case ProbeKind::collectives:
    probe.name = fmt::format("collectives-{}", tp);
    break;
  case ProbeKind::step:
    probe.plan.layout.sequence_parallel = tp > 1;
    if (tp == 1) probe.plan.layout.sharding.kind = ShardingKind::parameters;
    probe.plan.job.global_batch = 2 * probe.plan.layout.dp_shard;
    probe.name = fmt::format("{}-{}", tp > 1 ? "step" : "step-sharded", ranks);
    break;
  }
  return probe;
}

std::vector<Probe> probes_of(const ClusterSpec& cluster, int ranks, const CalibrateOptions& options) {
  std::vector<Probe> list;
  const Sizes sizes = sizes_of(options);
  const auto add = [&](int hidden, int sequence, int tp, ProbeKind kind) {
    list.push_back(probe_of(cluster, sizes.precision, ranks, hidden, sequence, tp, kind));
    if (kind != ProbeKind::collectives) list.back().steps = options.steps;
  };
  for (const int hidden : sizes.widths)
    for (const int sequence : sizes.lengths) {
      // One rank for each processor: what ops take while several share one is as many times that, but for those that
      // the scheduler interrupts.
      list.push_back(probe_of(cluster, sizes.precision, std::max(1, ranks / cluster.ranks_per_processor), hidden,
                              sequence, 1, ProbeKind::ops));
      list.back().steps = options.steps;
      if (sizes.in_caches) list.back().plan.model.layers = layers_of(hidden);
    }
  constexpr int kStepWidth = 512;
  // Many small collectives, and few large ones: what a step adds to each, and to their time.
  if (sizes.in_caches && ranks > 1 && (kStepWidth / kWidths) % ranks == 0)
    for (const int tp : {ranks, 1}) {
      add(kStepWidth, 128, tp, ProbeKind::step);
      list.back().plan.model.layers = layers_of(kStepWidth);
    }
  for (int tp = 2; tp <= ranks; tp *= 2)
    if (ranks % tp == 0) add(kWidths * ranks, 64, tp, ProbeKind::collectives);
  return list;
}

bool complete(const MeasuredRun& run, const Probe& probe) {
  const auto ranks = static_cast<std::size_t>(probe.plan.layout.tp) * probe.plan.layout.dp_shard;
  if (!run.failure.empty() || run.ranks.size() != ranks) return false;
  if (probe.kind == ProbeKind::collectives) return !run.probes.empty();
  return std::all_of(run.ranks.begin(), run.ranks.end(), [](const MeasuredRank& rank) { return !rank.ops.empty(); });
}

/// Runs a probe, unless the folder holds its result already.
Result<MeasuredRun> run_probe(const Context& context, const fs::path& program, const Probe& probe,
                              const std::string& backend, const fs::path& work) {
  const fs::path folder = work / probe.name;
  const fs::path file = folder / "plan.json";
  const fs::path records = folder / "run.json";
  const std::string plan = to_json(probe.plan).dump(2) + "\n";
  if (const auto before = read_text_file(file); before && *before == plan)
    if (auto run = read_run(records); run && complete(*run, probe)) return run;
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) return fail_environment(folder.string(), "cannot be made: " + problem.message());
  if (auto written = write_text_file(file, plan); !written) return tl::unexpected<Error>(written.error());
  std::vector<std::string> words = {file.string(),
                                    "--steps",
                                    std::to_string(probe.steps),
                                    "--warmup",
                                    std::to_string(kWarmUp),
                                    "--ops",
                                    "none",
                                    "--out",
                                    records.string(),
                                    "--logs",
                                    folder.string(),
                                    "--data",
                                    context.data.root.string(),
                                    "--json",
                                    "--backend",
                                    backend};
  if (probe.kind == ProbeKind::collectives) words.emplace_back("--probe");
  FORETRAIN_TRY(const int code, run_child(program, words, {true, context.stop}));
  if (code == kInterrupted)
    return tl::unexpected<Error>(Error{Error::Kind::cancelled, "interrupted; the probes done so far are kept", "", ""});
  FORETRAIN_TRY(MeasuredRun run, read_run(records));
  if (complete(run, probe)) return run;
  return fail_environment(records.string(), fmt::format("the probe ended with code {}: {}", code, run.failure));
}

double step_seconds(const MeasuredRank& rank) {
  const std::size_t skipped = std::min<std::size_t>(kWarmUp, rank.step_seconds.size());
  return median_of({rank.step_seconds.begin() + static_cast<std::ptrdiff_t>(skipped), rank.step_seconds.end()});
}

Result<void> add(const Context& context, const Probe& probe, const MeasuredRun& run, Probes& all) {
  all.collectives.insert(all.collectives.end(), run.probes.begin(), run.probes.end());
  if (probe.kind == ProbeKind::collectives) return {};
  FORETRAIN_TRY(const Semantics semantics, context.data.semantics(probe.plan.job.semantics));
  const Program program = lower(probe.plan, semantics);
  for (const MeasuredRank& rank : run.ranks) {
    if (probe.kind == ProbeKind::step)
      all.steps.push_back(step_of(program, program.roles.front(), all.ranks, step_seconds(rank)));
    else
      add_ops(program, program.roles.front(), rank, probe.plan.cluster.ranks_per_processor, all.ops);
  }
  const Json& machine = run.environment["machine"];
  const std::string where = run.environment.value("computes_on", "host");
  const std::string device =
      where != "host"
          ? where
          : fmt::format("{}, {} cores", machine.value("processor", "unknown processor"), machine.value("cores", 0));
  all.source = fmt::format("measured here: {}, {} ranks busy, LibTorch {}", device, all.ranks,
                           run.environment.value("torch", "?"));
  return {};
}

fs::path default_output(const Context& context, const std::string& device) {
  return context.user_data / "calibrations" / (device + ".json");
}

Result<Calibration> measured(const Context& context, const CalibrateOptions& options, const ClusterSpec& cluster,
                             const fs::path& work) {
  FORETRAIN_TRY(const fs::path program, executor_program());
  Probes all;
  all.ranks = std::min(device_count(cluster), kMostBusy);
  const std::vector<Probe> probes = probes_of(cluster, all.ranks, options);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    remark(fmt::format("probe {} of {}: {}", i + 1, probes.size(), probes[i].name));
    FORETRAIN_TRY(const MeasuredRun run, run_probe(context, program, probes[i], options.backend, work));
    if (auto added = add(context, probes[i], run, all); !added) return tl::unexpected<Error>(added.error());
  }
  return calibrate(all, cluster);
}

std::string text_of(const Calibration& c, const DeviceSpec& device, bool half, const std::string& file) {
  const auto& stated = half ? device.bf16 : device.fp32;
  const double peak = stated ? stated->value : 0;
  std::string text = fmt::format("products   {:.1f} GFLOP/s forward, {:.1f} backward, {:.1f} us each\n",
                                 peak * c.gemm.efficiency / 1e9, peak * c.gemm.efficiency * c.gemm.input_gradient / 1e9,
                                 (c.gemm.overhead.value + c.memory.launch.value) * 1e6);
  for (const AttentionPoint& point : c.attention.heads)
    text += fmt::format("attention  {:.1f} GFLOP/s forward, {:.1f} backward, head width {}\n",
                        peak * point.forward / 1e9, peak * point.backward / 1e9, point.head_dim);
  text += fmt::format("memory     {:.1f} GB/s, {:.1f} us per kernel\n",
                      device.memory_bandwidth->value * c.memory.efficiency / 1e9, c.memory.launch.value * 1e6);
  return text + fmt::format("{} tables of collectives\nwritten to {}\n", c.collectives.size(), file);
}

} // namespace

int run_calibrate(const Context& context, const CalibrateOptions& options) {
  if (!options.runs.empty()) return calibrate_from_runs(context, options);
  if (!options.of_runs.empty())
    return complain({Error::Kind::input, "names a run of a database, but no --runs names the database", "--run",
                     "foretrain calibrate --runs foretrain.db --run 3"});
  const auto cluster = load_cluster(context.data, options.cluster, 0);
  if (!cluster) return complain(cluster.error());
  if (context.user_data.empty() && (options.out.empty() || options.work.empty()))
    return complain({Error::Kind::input, "is needed where there is no home folder", "--out and --work", ""});
  const fs::path out = options.out.empty() ? default_output(context, cluster->device.name) : fs::path(options.out);
  const fs::path work =
      options.work.empty() ? context.user_data / "probes" / cluster->device.name : fs::path(options.work);
  const auto calibration = measured(context, options, *cluster, work);
  if (!calibration) return complain(calibration.error());
  std::error_code ignored;
  if (out.has_parent_path()) fs::create_directories(out.parent_path(), ignored);
  const std::string text = to_json(*calibration).dump(2) + "\n";
  if (const auto written = write_text_file(out, text); !written) return complain(written.error());
  if (!options.json)
    return print_and(text_of(*calibration, cluster->device, options.backend != "gloo", out.string()), kDone);
  return print_and(Json{{"file", out.string()}, {"calibration", to_json(*calibration)}}.dump(2) + "\n", kDone);
}

} // namespace foretrain::cli
