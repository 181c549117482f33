#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/program/host.h"
#include "core/program/lower.h"
#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/inputs.h"
#include "planner/cli/table.h"
#include "planner/cli/timeline.h"
#include "planner/explain.h"
#include "planner/search.h"

namespace foretrain::cli {
namespace {

std::string size_text(Bytes bytes) {
  const double mib = static_cast<double>(bytes.value) / (1024.0 * 1024);
  return mib < 100 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::optional<HostMemory> host_of(const LoadedPlan& loaded, const Prediction& prediction) {
  if (prediction.verdict == Verdict::illegal) return std::nullopt;
  return host_memory(loaded.plan, loaded.semantics, lower(loaded.plan, loaded.semantics));
}

Json host_json(const HostMemory& host, const ClusterSpec& cluster) {
  const auto most = [](const std::vector<Bytes>& ranks) { return std::max_element(ranks.begin(), ranks.end())->value; };
  return {{"rank", {{"optimizer_bytes", most(host.optimizer)}, {"checkpoint_copy_bytes", most(host.checkpoint_copy)}}},
          {"node",
           {{"optimizer_bytes", host.node_optimizer.value},
            {"checkpoint_copy_bytes", host.node_checkpoint_copy.value},
            {"available_bytes", cluster.host_memory ? Json(cluster.host_memory->value) : Json()}}}};
}

std::string host_text(const HostMemory& host, const ClusterSpec& cluster) {
  std::string text = "Host memory per machine: ";
  if (host.node_optimizer.value > 0) text += size_text(host.node_optimizer) + " for the optimizer, ";
  text += size_text(host.node_checkpoint_copy) + " while a checkpoint is written in the background";
  return cluster.host_memory ? text + "; it has " + size_text(*cluster.host_memory) : text;
}

std::string prediction_text(const Plan& plan, const Prediction& prediction, const std::optional<HostMemory>& host,
                            int width, bool color) {
  std::string text = wrapped(job_line(plan.model, plan.cluster, plan.job), width) + model_lines(plan.model, width);
  text += wrapped(describe(plan.layout), width) + "\n";
  text += summary_lines(prediction, width);
  if (!prediction.memory.empty())
    text += "\n" + bold("Memory per stage, GiB", color) + "\n" + memory_table(prediction, width);
  if (host) text += wrapped(host_text(*host, plan.cluster), width);
  if (prediction.step_time.value > 0) text += "\n" + bold("Step time", color) + "\n" + time_table(prediction, width);
  return text;
}

} // namespace

int run_predict(const Context& context, const PredictOptions& options) {
  const auto engine = engine_of(context, options.engine);
  if (!engine) return complain(engine.error());
  const auto loaded = load_plan(context, options.plan);
  if (!loaded) return complain(loaded.error());
  const auto prediction = predict(loaded->plan, loaded->semantics, loaded->calibration, *engine,
                                  context.worker.string(), context.data.root.string());
  if (!prediction) return complain(prediction.error());
  const int code = prediction->verdict == Verdict::fits ? kDone : kNothingFits;
  if (!options.trace.empty() && prediction->verdict != Verdict::illegal) {
    if (const auto written = write_trace(context, *loaded, *engine, options.trace); !written)
      return complain(written.error());
    if (!options.json) remark(fmt::format("timeline in {}: open it in Perfetto or chrome://tracing", options.trace));
  }
  const std::optional<HostMemory> host = host_of(*loaded, *prediction);
  if (options.json) {
    Json document = to_json(*prediction);
    document["host_memory"] = host ? host_json(*host, loaded->plan.cluster) : Json();
    document["model"] = model_document(loaded->plan.model);
    return print_and(document.dump(2) + "\n", code);
  }
  return print_and(prediction_text(loaded->plan, *prediction, host, context.width, context.color), code);
}

} // namespace foretrain::cli
