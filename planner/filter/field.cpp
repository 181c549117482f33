#include "planner/filter/field.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "planner/evaluate.h"

namespace foretrain {
namespace {

double gib(Bytes bytes) {
  return static_cast<double>(bytes.value) / static_cast<double>(kGiB);
}

std::optional<double> step_seconds(const FieldRow& row) {
  if (row.prediction && row.prediction->step_time.value > 0) return row.prediction->step_time.value;
  if (row.slots) return row.slots->step_seconds;
  return std::nullopt;
}

std::optional<Bytes> device_bytes(const FieldRow& row) {
  if (row.prediction && !row.prediction->memory.empty()) {
    Bytes highest;
    for (const StageMemory& stage : row.prediction->memory) highest = std::max(highest, stage.device);
    return highest;
  }
  if (row.slots) return Bytes(row.slots->device_bytes);
  return std::nullopt;
}

double tokens_per_step(const FieldRow& row) {
  return static_cast<double>(row.job.sequence_length) * static_cast<double>(row.job.global_batch);
}

FieldValue known(std::optional<double> value) {
  return value ? FieldValue(*value) : FieldValue();
}

FieldValue positive(double value) {
  return value > 0 ? FieldValue(value) : FieldValue();
}

FieldValue part_seconds(const FieldRow& row, TimePart part) {
  if (!row.prediction || row.prediction->step_time.value <= 0) return {};
  return row.prediction->time[static_cast<std::size_t>(part)].value;
}

std::string recompute_text(const RecomputeChoice& recompute) {
  std::string text(recompute.modules.empty() ? id_of(recompute.kind) : "");
  if (recompute.kind == RecomputeKind::full && recompute.count)
    text += fmt::format(" {} {}", id_of(recompute.method), *recompute.count);
  for (std::size_t i = 0; i < recompute.modules.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : "+", id_of(recompute.modules[i]));
  return text;
}

template <class Enum, std::size_t n> std::vector<std::string> ids(const std::array<Enum, n>& values) {
  std::vector<std::string> list;
  for (const Enum value : values) list.emplace_back(id_of(value));
  return list;
}

std::vector<std::string> schedule_ids() {
  return {kScheduleKinds.begin(), kScheduleKinds.end()};
}

Field count_field(std::string_view id, std::string_view title, std::string_view help,
                  FieldValue (*get)(const FieldRow&)) {
  return {id, title, "", help, FieldKind::number, 0, false, Dimension::recompute, {}, get};
}

Field text_field(std::string_view id, std::string_view title, std::string_view help, std::vector<std::string> values,
                 FieldValue (*get)(const FieldRow&)) {
  return {id, title, "", help, FieldKind::text, 0, false, Dimension::recompute, std::move(values), get};
}

Field flag_field(std::string_view id, std::string_view title, std::string_view help,
                 FieldValue (*get)(const FieldRow&)) {
  return {id, title, "", help, FieldKind::flag, 0, false, Dimension::recompute, {}, get};
}

Field outcome_field(std::string_view id, std::string_view title, std::string_view unit, std::string_view help,
                    int decimals, FieldValue (*get)(const FieldRow&)) {
  return {id, title, unit, help, FieldKind::number, decimals, true, Dimension::recompute, {}, get};
}

using Row = const FieldRow&;

void add_layout(std::vector<Field>& list) {
  list.push_back(
      count_field("tp", "tp", "tensor-parallel degree", [](Row r) { return FieldValue(double(r.layout.tp)); }));
  list.push_back(count_field("pp", "pp", "pipeline stages", [](Row r) { return FieldValue(double(r.layout.pp)); }));
  list.push_back(
      count_field("cp", "cp", "context-parallel degree", [](Row r) { return FieldValue(double(r.layout.cp)); }));
  list.push_back(
      count_field("ep", "ep", "expert-parallel degree", [](Row r) { return FieldValue(double(r.layout.ep)); }));
  list.push_back(count_field("etp", "etp", "tensor-parallel degree of experts",
                             [](Row r) { return FieldValue(double(r.layout.etp)); }));
  list.push_back(count_field("dp", "dp", "data-parallel degree, shards times replicas",
                             [](Row r) { return FieldValue(double(r.layout.dp())); }));
  list.push_back(count_field("dp_shard", "shard", "data-parallel ranks that share state",
                             [](Row r) { return FieldValue(double(r.layout.dp_shard)); }));
  list.push_back(count_field("dp_replicate", "repl", "copies of the sharded state",
                             [](Row r) { return FieldValue(double(r.layout.dp_replicate)); }));
  list.push_back(
      count_field("gpus", "gpus", "devices of the layout", [](Row r) { return FieldValue(double(r.layout.world())); }));
  list.push_back(count_field("micro_batch", "mb", "sequences per micro-batch",
                             [](Row r) { return FieldValue(double(r.layout.micro_batch)); }));
  list.push_back(count_field("micro_batches", "mbs", "micro-batches per step", [](Row r) {
    const double sequences = double(r.layout.micro_batch) * double(r.layout.dp());
    return sequences > 0 ? FieldValue(double(r.job.global_batch) / sequences) : FieldValue();
  }));
  list.push_back(flag_field("sequence_parallel", "sp", "activations between tensor-parallel blocks are split too",
                            [](Row r) { return FieldValue(r.layout.sequence_parallel); }));
  list.push_back(flag_field("overlap_tp", "tp ov", "tensor-parallel collectives run in pieces beside their products",
                            [](Row r) { return FieldValue(r.layout.overlap.tp); }));
  list.push_back(text_field("schedule", "schedule", "pipeline schedule", schedule_ids(),
                            [](Row r) { return FieldValue(r.layout.schedule.kind); }));
  list.push_back(count_field("chunks", "vp", "model chunks per stage (virtual stages)",
                             [](Row r) { return FieldValue(double(r.layout.schedule.chunks)); }));
  list.push_back(count_field("group", "group",
                             "micro-batches that a chunk runs in a row, where they are not as many as stages",
                             [](Row r) { return positive(r.layout.schedule.group); }));
  list.push_back(text_field(
      "sharding", "sharding", "state that data-parallel ranks share",
      ids(std::array{ShardingKind::none, ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters}),
      [](Row r) { return FieldValue(std::string(id_of(r.layout.sharding.kind))); }));
  list.push_back(text_field(
      "context_parallel", "cp kind", "how context-parallel ranks attend to each other",
      ids(std::array{ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses, ContextKind::ulysses_ring}),
      [](Row r) {
        return r.layout.cp > 1 ? FieldValue(std::string(id_of(r.layout.context_parallel.kind))) : FieldValue();
      }));
  list.push_back(text_field(
      "dispatch", "dispatch", "how tokens reach their experts",
      ids(std::array{DispatchKind::all_gather, DispatchKind::all_to_all, DispatchKind::deduplicated}), [](Row r) {
        return r.layout.ep > 1 ? FieldValue(std::string(id_of(r.layout.expert_dispatch.kind))) : FieldValue();
      }));
  list.push_back(text_field(
      "recompute", "recompute", "activations computed again in the backward pass",
      ids(std::array{RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective, RecomputeKind::operators}),
      [](Row r) { return FieldValue(std::string(id_of(r.layout.recompute.kind))); }));
  list.push_back(text_field("recompute_detail", "recompute", "the same with method, count and modules", {},
                            [](Row r) { return FieldValue(recompute_text(r.layout.recompute)); }));
  list.push_back(flag_field("offload_optimizer", "offload", "optimizer state and step on the host",
                            [](Row r) { return FieldValue(r.layout.offload.optimizer); }));
}

void add_outcome(std::vector<Field>& list) {
  list.push_back(outcome_field("step_time_s", "step s", "s", "time of one optimizer step", 3,
                               [](Row r) { return known(step_seconds(r)); }));
  list.push_back(
      outcome_field("tokens_per_s_per_gpu", "tok/s/GPU", "tok/s", "tokens per second and device", 0, [](Row r) {
        const auto seconds = step_seconds(r);
        if (!seconds || *seconds <= 0) return FieldValue();
        return FieldValue(tokens_per_step(r) / (*seconds * double(r.layout.world())));
      }));
  list.push_back(
      outcome_field("tflops_per_gpu", "TFLOP/s", "TFLOP/s", "model FLOP per second and device", 0, [](Row r) {
        return positive(r.prediction ? r.prediction->model_tflops_per_device
                                     : (r.slots ? r.slots->tflops_per_device : 0));
      }));
  list.push_back(outcome_field("mfu_percent", "MFU %", "%", "model FLOP utilisation, Megatron's count", 1, [](Row r) {
    return positive(r.prediction ? r.prediction->mfu_percent : (r.slots ? r.slots->mfu_percent : 0));
  }));
  list.push_back(outcome_field("memory_gib", "mem GiB", "GiB", "device memory of the fullest stage", 1, [](Row r) {
    const auto bytes = device_bytes(r);
    return bytes ? FieldValue(gib(*bytes)) : FieldValue();
  }));
  list.push_back(
      outcome_field("headroom_gib", "free GiB", "GiB", "device memory left on the fullest stage", 1, [](Row r) {
        const auto bytes = device_bytes(r);
        const DeviceSpec& device = r.cluster.device;
        const auto capacity = device.usable_memory ? device.usable_memory : device.memory;
        return bytes && capacity ? FieldValue(gib(*capacity - *bytes)) : FieldValue();
      }));
  list.push_back(outcome_field("cost_per_mtoken", "cost/Mtok", "",
                               "price of a million tokens, in the cluster's currency", 3, [](Row r) {
                                 const auto seconds = step_seconds(r);
                                 if (!seconds || !r.cluster.cost_per_device_hour) return FieldValue();
                                 const double hours = *seconds / 3600 * double(r.layout.world());
                                 return FieldValue(hours * *r.cluster.cost_per_device_hour / tokens_per_step(r) * 1e6);
                               }));
  const auto part = [&list](std::string_view id, std::string_view help, FieldValue (*get)(Row)) {
    list.push_back(outcome_field(id, id, "s", help, 3, get));
  };
  part("compute_s", "compute on the critical path", [](Row r) { return part_seconds(r, TimePart::compute); });
  part("tp_s", "tensor-parallel communication on the critical path",
       [](Row r) { return part_seconds(r, TimePart::tp); });
  part("cp_s", "context-parallel communication on the critical path",
       [](Row r) { return part_seconds(r, TimePart::cp); });
  part("ep_s", "expert dispatch and combine on the critical path", [](Row r) { return part_seconds(r, TimePart::ep); });
  part("pp_s", "pipeline transfers on the critical path", [](Row r) { return part_seconds(r, TimePart::pp); });
  part("dp_s", "data-parallel communication on the critical path", [](Row r) { return part_seconds(r, TimePart::dp); });
  part("bubble_s", "waiting for other stages", [](Row r) { return part_seconds(r, TimePart::bubble); });
  part("optimizer_s", "optimizer step", [](Row r) { return part_seconds(r, TimePart::optimizer); });
  part("host_s", "waiting for the host to launch", [](Row r) { return part_seconds(r, TimePart::host); });
  part("other_s", "everything else, stragglers first of all", [](Row r) { return part_seconds(r, TimePart::other); });
  list.push_back({"engine", "engine", "", "what predicted the time", FieldKind::text, 0, true, Dimension::recompute,
                  ids(std::array{Engine::slots, Engine::replay, Engine::simgrid}), [](Row r) {
                    return r.prediction && !r.provisional ? FieldValue(std::string(id_of(r.prediction->engine)))
                                                          : FieldValue();
                  }});
  list.push_back({"verdict", "verdict", "", "whether the layout can run", FieldKind::text, 0, true,
                  Dimension::recompute, ids(std::array{Verdict::fits, Verdict::oom, Verdict::illegal}), [](Row r) {
                    return r.prediction ? FieldValue(std::string(id_of(r.prediction->verdict))) : FieldValue();
                  }});
}

Dimension dimension_of(std::string_view id) {
  for (const std::string_view degree : {"tp", "pp", "cp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "gpus"})
    if (id == degree) return Dimension::degrees;
  if (id == "context_parallel") return Dimension::context;
  if (id == "schedule" || id == "chunks" || id == "group") return Dimension::schedule;
  if (id == "sharding") return Dimension::sharding;
  if (id == "offload_optimizer") return Dimension::offload;
  if (id == "micro_batch" || id == "micro_batches") return Dimension::micro_batch;
  if (id == "sequence_parallel" || id == "overlap_tp") return Dimension::sequence_parallel;
  if (id == "dispatch") return Dimension::dispatch;
  return Dimension::recompute;
}

std::vector<Field> all_fields() {
  std::vector<Field> list;
  add_layout(list);
  for (Field& field : list) field.dimension = dimension_of(field.id);
  add_outcome(list);
  return list;
}

} // namespace

std::span<const Field> fields() {
  static const std::vector<Field> list = all_fields();
  return list;
}

const Field* find_field(std::string_view id) {
  const auto list = fields();
  const auto found = std::find_if(list.begin(), list.end(), [id](const Field& field) { return field.id == id; });
  return found == list.end() ? nullptr : &*found;
}

std::vector<std::string> field_ids() {
  std::vector<std::string> list;
  for (const Field& field : fields()) list.emplace_back(field.id);
  return list;
}

std::string format_value(const Field& field, const FieldValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.{}f}", *number, field.decimals);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "-";
}

std::string csv_value(const FieldValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  const auto* text = std::get_if<std::string>(&value);
  if (!text) return "";
  if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
  std::string quoted = "\"";
  for (const char c : *text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

} // namespace foretrain
