#include <algorithm>
#include <charconv>
#include <sstream>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "core/spec/measurement_parts.h"

namespace foretrain {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The first number in a text: "FSDP2 shard 64" -> 64.
std::optional<int> number_in(const std::string& text, std::size_t from = 0) {
  const auto begin = text.find_first_of("0123456789", from);
  if (begin == std::string::npos) return std::nullopt;
  const auto end = text.find_first_not_of("0123456789", begin);
  return whole(std::string_view(text).substr(begin, end == std::string::npos ? end : end - begin));
}

// ---- what is not compared at all ----

MaybeSkip check_trust(const Measurement& row) {
  if (row.doubtful) return Skip{SkipReason::doubtful, "marked in the collection"};
  for (const std::string_view wording : {"LOW consistency", "LOW reproducibility", "low trust", "use only the ratios"})
    if (contains(row.notes, wording)) return Skip{SkipReason::reduced_information, std::string(wording)};
  if ((contains(row.model, "LoRA") && !extra(row, "lora")) || contains(row.model, "SFT")) return Skip{SkipReason::fine_tuning, row.model};
  for (const std::string_view wording : {"hybrid Mamba", "hybrid GDN", "hybrid SSM", "Mamba-Transformer"})
    if (contains(row.notes, wording)) return Skip{SkipReason::hybrid_model, row.model};
  // No semantics here describe activations that wait on the host.
  if (constexpr std::string_view kOffload = "fine-grained-activation-offloading"; contains(row.notes, kOffload))
    return Skip{SkipReason::unsupported_feature, std::string(kOffload)};
  const bool ran = row.outcome.empty() || row.outcome == "ok";
  if (!ran && !contains(row.outcome, "OOM")) return Skip{SkipReason::outcome, row.outcome};
  return std::nullopt;
}

// ---- job ----

bool is_eight_bit(Precision precision) {
  switch (precision) {
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
  case Precision::nvfp4: return true;
  case Precision::fp64:
  case Precision::fp32:
  case Precision::bf16:
  case Precision::fp16: return false;
  }
  return false;
}

/// "16 qkv attention-out": rank, then the layers.
MaybeSkip set_adapters(const Measurement& row, JobSpec& job) {
  const std::string* text = extra(row, "lora");
  if (!text) return std::nullopt;
  const std::map<std::string, AdapterTarget> names = {{"qkv", AdapterTarget::qkv},
                                                      {"attention-out", AdapterTarget::attention_out},
                                                      {"ffn-up", AdapterTarget::ffn_up},
                                                      {"ffn-down", AdapterTarget::ffn_down}};
  LoraChoice lora;
  lora.targets.clear();
  std::istringstream words(*text);
  words >> lora.rank;
  for (std::string word; words >> word;) {
    const auto target = names.find(word);
    if (target == names.end()) return Skip{SkipReason::fine_tuning, *text};
    lora.targets.push_back(target->second);
  }
  std::sort(lora.targets.begin(), lora.targets.end());
  if (lora.rank < 1 || lora.targets.empty()) return Skip{SkipReason::fine_tuning, *text};
  job.lora = std::move(lora);
  return std::nullopt;
}

MaybeSkip set_job(const Measurement& row, const MeasuredNames& names, const Semantics& semantics, JobSpec& job) {
  if (!row.sequence_length || *row.sequence_length == 0) return missing("seq_len");
  if (!row.global_batch || *row.global_batch == 0) return missing("global_batch_seqs");
  job.sequence_length = *row.sequence_length;
  job.global_batch = *row.global_batch;
  job.semantics = semantics.name;
  if (row.precision.empty()) return missing("precision");
  const auto precision = names.precisions.find(row.precision);
  if (precision == names.precisions.end()) return Skip{SkipReason::unsupported_precision, row.precision};
  const auto parsed = precision_from(precision->second, "precision");
  if (!parsed) return Skip{SkipReason::unsupported_precision, row.precision};
  if (std::find(semantics.precisions.begin(), semantics.precisions.end(), *parsed) == semantics.precisions.end())
    return Skip{SkipReason::unsupported_precision, row.precision + " of " + semantics.name};
  job.precision = *parsed;
  if (const std::string* gradient = extra(row, "gradient"))
    job.gradient = *gradient == "fp32" ? DType::fp32 : *gradient == "fp16" ? DType::fp16 : DType::bf16;
  if (const std::string* optimizer = extra(row, "optimizer");
      optimizer && *optimizer != "adam" && *optimizer != "adamw")
    return Skip{SkipReason::unsupported_optimizer, *optimizer};
  if (const std::string* loss = extra(row, "cross_entropy"))
    job.cross_entropy = *loss == "fused"      ? CrossEntropy::fused
                        : *loss == "plain"    ? CrossEntropy::plain
                        : *loss == "compiled" ? CrossEntropy::compiled
                        : *loss == "gathered" ? CrossEntropy::gathered
                                              : CrossEntropy::vocab_parallel;
  if (const std::string* attention = extra(row, "attention"))
    job.attention = *attention == "unfused" ? AttentionKernel::unfused : AttentionKernel::flash;
  job.dropout = row.dropout.value_or(0);
  job.expandable_segments = extra_flag(row, "expandable_segments").value_or(false);
  if (const std::string* norm = extra(row, "norm_kernel"))
    job.norm = *norm == "unfused" ? NormKernel::unfused : NormKernel::fused;
  job.deterministic = extra_flag(row, "deterministic").value_or(false);
  job.compiled = extra_flag(row, "compiled").value_or(false);
  job.quantised_weights = is_eight_bit(*parsed) && extra_flag(row, "quantised_weights").value_or(false);
  if (const std::string* moments = extra(row, "moments")) job.optimizer.moments = *moments == "bf16" ? DType::bf16 : DType::fp32;
  return set_adapters(row, job);
}

// ---- layout ----

MaybeSkip set_degrees(const Measurement& row, const ModelSpec& model, Layout& layout) {
  if (!row.tp || *row.tp == 0) return missing("tp");
  if (!row.pp || *row.pp == 0) return missing("pp");
  if (!row.micro_batch || *row.micro_batch == 0) return missing("micro_batch_seqs");
  layout.tp = *row.tp;
  layout.pp = *row.pp;
  layout.cp = std::max(1, row.cp.value_or(1));
  layout.micro_batch = *row.micro_batch;
  const std::int64_t cell = std::int64_t{1} * layout.tp * layout.pp * layout.cp;
  if (*row.devices % cell != 0)
    return Skip{SkipReason::inconsistent, fmt::format("{} devices, tp*pp*cp {}", *row.devices, cell)};
  const int dp = static_cast<int>(*row.devices / cell);
  if (row.dp && *row.dp != dp) return Skip{SkipReason::inconsistent, fmt::format("dp {}, devices say {}", *row.dp, dp)};
  layout.dp_shard = dp;
  if (model.moe) {
    if (!row.ep) return missing("ep");
    layout.ep = std::max(1, *row.ep);
    layout.etp = std::max(1, row.etp.value_or(1));
  }
  if (layout.tp > 1 && !row.sequence_parallel) return missing("sp");
  layout.sequence_parallel = layout.tp > 1 && *row.sequence_parallel;
  return std::nullopt;
}

MaybeSkip set_schedule(const Measurement& row, const MeasuredNames& names, Layout& layout) {
  layout.schedule = ScheduleChoice{};
  if (layout.pp == 1) return std::nullopt;
  const int chunks = std::max(1, row.chunks.value_or(1));
  if (row.schedule.empty()) {
    layout.schedule = ScheduleChoice{chunks > 1 ? "interleaved" : "1f1b", chunks};
    return std::nullopt;
  }
  const auto kind = names.schedules.find(row.schedule);
  if (kind == names.schedules.end()) return Skip{SkipReason::unsupported_schedule, row.schedule};
  layout.schedule.kind = kind->second;
  if (kind->second == "interleaved") {
    if (chunks < 2) return missing("vp");
    layout.schedule.chunks = chunks;
  }
  return std::nullopt;
}

/// Layers of a cut in which embedding and head count as a layer each (Megatron's account_for_embedding_in_pipeline_split
/// and …_loss_…): as even as it goes, what is left over to chunks in the middle.
std::vector<int> cut_with_ends(int layers, int chunks) {
  std::vector<int> cut(static_cast<std::size_t>(chunks), (layers + 2) / chunks);
  const int rest = (layers + 2) % chunks;
  for (int i = 0; i < rest; ++i) ++cut[static_cast<std::size_t>((chunks - rest) / 2 + i)];
  --cut.front();
  --cut.back();
  return cut;
}

MaybeSkip set_stages(const Measurement& row, const ModelSpec& model, const Semantics& semantics, Layout& layout) {
  if (const std::string* text = extra(row, "layers_per_stage"); text && layout.pp > 1) {
    std::istringstream words(*text);
    for (int layers = 0; words >> layers;) layout.layers_per_stage.push_back(layers);
    return std::nullopt;
  }
  const auto first = extra_number(row, "first_stage_layers");
  const auto last = extra_number(row, "last_stage_layers");
  if ((first || last) && layout.pp > 1 && layout.schedule.chunks == 1) {
    const int middle = layout.pp - (first ? 1 : 0) - (last ? 1 : 0);
    const int rest = model.layers - first.value_or(0) - last.value_or(0);
    if (middle <= 0 || rest < 0 || rest % middle != 0)
      return Skip{SkipReason::inconsistent, "layers of the first and last stage leave no even rest"};
    if (first) layout.layers_per_stage.push_back(*first);
    layout.layers_per_stage.insert(layout.layers_per_stage.end(), static_cast<std::size_t>(middle), rest / middle);
    if (last) layout.layers_per_stage.push_back(*last);
    return std::nullopt;
  }
  if (layout.pp == 1) return std::nullopt;
  const int chunks = layout.pp * layout.schedule.chunks;
  // A run that ran had a cut: where layers do not divide, embedding and head were counted.
  const bool uneven = layout.schedule.chunks > 1 && semantics.interleaved_needs_even_layers && model.layers % chunks != 0;
  if (uneven || extra_flag(row, "embedding_is_a_layer").value_or(false))
    layout.layers_per_stage = cut_with_ends(model.layers, chunks);
  return std::nullopt;
}

MaybeSkip set_sharding(const Measurement& row, const MeasuredNames& names, Layout& layout) {
  layout.sharding = ShardingChoice{ShardingKind::none, {}};
  const int dp = layout.dp_shard;
  const auto group = row.sharding.find("shard group");
  const std::string plain = row.sharding.substr(0, row.sharding.find_first_of(group == std::string::npos ? "=" : "("));
  if (row.sharding.empty()) {
    if (dp == 1) return std::nullopt;
    return missing("zero_stage_or_fsdp");
  }
  auto kind = names.sharding.find(row.sharding);
  if (kind ==
      names.sharding.end()) // with a number: "FSDP2 shard 64", "FSDP=128 + DP", "Megatron-FSDP (shard group 64)"
    kind = names.sharding.find(plain.substr(0, plain.find_last_not_of(" 0123456789") + 1));
  if (kind == names.sharding.end()) return Skip{SkipReason::unsupported_sharding, row.sharding};
  if (kind->second == "optimizer")
    layout.sharding.kind = ShardingKind::optimizer;
  else if (kind->second == "gradients")
    layout.sharding.kind = ShardingKind::gradients;
  else if (kind->second == "parameters")
    layout.sharding.kind = ShardingKind::parameters;
  if (layout.sharding.kind != ShardingKind::parameters) return std::nullopt;
  const auto size = number_in(row.sharding, std::min(row.sharding.find_first_of("=("), row.sharding.find("shard ")));
  if (!size || *size == 0 || contains(row.sharding, "zero3")) return std::nullopt;
  if (dp % *size != 0) return Skip{SkipReason::inconsistent, fmt::format("sharded over {} of {} replicas", *size, dp)};
  layout.dp_shard = *size;
  layout.dp_replicate = dp / *size;
  return std::nullopt;
}

/// "none", "full", "full uniform 1", "selective", "selective [layernorm moe_act]".
MaybeSkip set_recompute(const Measurement& row, const Semantics& semantics, Layout& layout) {
  RecomputeChoice choice;
  if (row.recompute.empty()) return missing("recompute");
  if (row.recompute.rfind("full", 0) == 0) {
    choice.kind = RecomputeKind::full;
  } else if (row.recompute.rfind("selective", 0) == 0) {
    const std::string* by = extra(row, "recompute_by");
    if (by && *by == "operators") {
      layout.recompute.kind = RecomputeKind::operators;
      return std::nullopt;
    }
    if (semantics.family != SemanticsFamily::megatron)
      return Skip{SkipReason::unsupported_recompute, row.recompute + " of " + row.framework};
    choice.kind = RecomputeKind::selective;
    const auto open = row.recompute.find('[');
    if (open == std::string::npos) {
      choice.modules = {RecomputeModule::core_attention}; // Megatron's default for selective
    } else {
      const std::map<std::string, RecomputeModule> modules = {{"core_attn", RecomputeModule::core_attention},
                                                              {"layernorm", RecomputeModule::layernorm},
                                                              {"moe_act", RecomputeModule::activation},
                                                              {"mla_up_proj", RecomputeModule::mla_up},
                                                              {"mlp", RecomputeModule::mlp},
                                                              {"moe", RecomputeModule::moe}};
      std::istringstream words(row.recompute.substr(open + 1, row.recompute.find(']') - open - 1));
      for (std::string word; words >> word;) {
        const auto module = modules.find(word);
        if (module == modules.end()) return Skip{SkipReason::unsupported_recompute, row.recompute};
        choice.modules.push_back(module->second);
      }
      std::sort(choice.modules.begin(), choice.modules.end());
    }
  } else if (row.recompute != "none") {
    return Skip{SkipReason::unsupported_recompute, row.recompute};
  }
  layout.recompute = std::move(choice);
  return std::nullopt;
}

template <class T> bool has(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void set_kinds_and_overlap(const Measurement& row, const Semantics& semantics, Layout& layout) {
  if (const std::string* kind = extra(row, "context_parallel"))
    layout.context_parallel.kind = *kind == "ulysses"      ? ContextKind::ulysses
                                   : *kind == "all-gather" ? ContextKind::all_gather
                                                           : ContextKind::ring;
  if (const std::string* kind = extra(row, "dispatch"))
    layout.expert_dispatch.kind = *kind == "all-gather"     ? DispatchKind::all_gather
                                  : *kind == "deduplicated" ? DispatchKind::deduplicated
                                                            : DispatchKind::all_to_all;
  // What the source leaves open is the first kind that the framework has.
  if (!extra(row, "context_parallel") && !semantics.context_parallel.empty() &&
      !has(semantics.context_parallel, layout.context_parallel.kind))
    layout.context_parallel.kind = semantics.context_parallel.front();
  if (!extra(row, "dispatch") && !semantics.dispatch.empty() && !has(semantics.dispatch, layout.expert_dispatch.kind))
    layout.expert_dispatch.kind = semantics.dispatch.front();
  layout.overlap.tp = semantics.tp_overlap && extra_flag(row, "overlap_tp").value_or(false);
  layout.overlap.dp_gradients = semantics.dp_gradient_overlap && extra_flag(row, "overlap_gradients").value_or(true);
  layout.overlap.dp_parameters = semantics.dp_parameter_overlap && extra_flag(row, "overlap_parameters").value_or(true);
  layout.overlap.moe = false; // dispatch beside another micro-batch is not modelled; the row is compared without it
}

/// A row of a feature that the semantics of its framework do not describe is not predicted with another one.
MaybeSkip check_expressible(const Measurement& row, const Semantics& semantics, const Layout& layout) {
  if (layout.pp > 1 && !has(semantics.schedules, layout.schedule.kind))
    return Skip{SkipReason::unsupported_schedule, layout.schedule.kind + " of " + semantics.name};
  if (!has(semantics.sharding, layout.sharding.kind))
    return Skip{SkipReason::unsupported_sharding, row.sharding + " of " + semantics.name};
  if (!has(semantics.recompute, layout.recompute.kind))
    return Skip{SkipReason::unsupported_recompute, row.recompute + " of " + semantics.name};
  if (layout.cp > 1 && !has(semantics.context_parallel, layout.context_parallel.kind))
    return Skip{SkipReason::unsupported_feature, "context parallelism of " + semantics.name};
  if (layout.ep > 1 && !has(semantics.dispatch, layout.expert_dispatch.kind))
    return Skip{SkipReason::unsupported_feature, "expert dispatch of " + semantics.name};
  return std::nullopt;
}

MaybeSkip set_layout(const Measurement& row, const MeasuredNames& names, const ModelSpec& model,
                     const Semantics& semantics, Layout& layout) {
  if (auto skip = set_degrees(row, model, layout)) return skip;
  if (auto skip = set_schedule(row, names, layout)) return skip;
  if (auto skip = set_stages(row, model, semantics, layout)) return skip;
  if (auto skip = set_sharding(row, names, layout)) return skip;
  if (auto skip = set_recompute(row, semantics, layout)) return skip;
  set_kinds_and_overlap(row, semantics, layout);
  // The groups of the interleaved schedule are as many micro-batches as stages here; a run can set another size.
  const std::int64_t micro_batches = *row.global_batch / (std::int64_t{layout.micro_batch} * layout.dp());
  if (layout.schedule.chunks > 1 && micro_batches % layout.pp != 0)
    return Skip{SkipReason::unsupported_schedule, "micro-batches in groups of another size than the stages"};
  return check_expressible(row, semantics, layout);
}

// ---- cluster ----

using ClusterOrSkip = tl::expected<ClusterSpec, Skip>;

/// The preset's node and network with the row's number of devices and, where the source states it, its network.
Result<ClusterOrSkip> cluster_of(const Measurement& row, const MeasuredNames::Machine& machine,
                                 const DataFolder& data) {
  const std::string* preset = extra(row, "cluster");
  FORETRAIN_TRY(ClusterSpec cluster, data.cluster(preset ? *preset : machine.cluster));
  FORETRAIN_TRY(cluster.device, data.device(machine.device));
  auto sized = resized(std::move(cluster), *row.devices);
  if (!sized) return ClusterOrSkip(tl::unexpect, Skip{SkipReason::inconsistent, sized.error().message});
  cluster = std::move(*sized);
  if (const std::string* network = extra(row, "network"); network && cluster.tiers.size() > 1) {
    const auto rate = parse_rate(*network);
    if (!rate) return fail("network", "'" + *network + "' is not a rate", "as \"50 GB/s\"");
    for (std::size_t i = 1; i < cluster.tiers.size(); ++i) cluster.tiers[i].link.bandwidth = *rate;
  }
  return ClusterOrSkip(std::move(cluster));
}

MaybeSkip set_figures(const Measurement& row, MeasuredPlan& measured) {
  measured.out_of_memory = contains(row.outcome, "OOM");
  const auto time = measured_step_time(row);
  const bool derived = time_is_derived_from_flop(row);
  if (!measured.out_of_memory && !derived) measured.step_time = time;
  if (row.peak_memory && row.peak_memory->value > 0) {
    measured.memory = row.peak_memory;
    measured.memory_kind = row.memory_kind;
    measured.memory_rank = row.memory_rank;
  }
  if (measured.step_time || measured.memory || measured.out_of_memory) return std::nullopt;
  if (derived) return Skip{SkipReason::time_from_mfu, ""};
  return Skip{SkipReason::nothing_measured, ""};
}

} // namespace

Result<tl::expected<MeasuredPlan, Skip>> plan_of(const Measurement& row, const MeasuredNames& names,
                                                 const DataFolder& data) {
  const auto skipped = [](Skip skip) { return tl::expected<MeasuredPlan, Skip>(tl::unexpect, std::move(skip)); };
  MeasuredPlan measured;
  if (auto skip = check_trust(row)) return skipped(*skip);
  if (auto skip = set_figures(row, measured)) return skipped(*skip);
  const auto machine = names.machines.find(row.device);
  if (machine == names.machines.end()) return skipped({SkipReason::unknown_device, row.device});
  const std::string* named = extra(row, "semantics");
  const auto framework = names.frameworks.find(row.framework);
  if (!named && framework == names.frameworks.end())
    return skipped({SkipReason::unknown_framework, row.framework.empty() ? "not stated" : row.framework});
  if (!row.devices || *row.devices == 0) return skipped(missing("n_gpus"));
  FORETRAIN_TRY(const Semantics semantics, data.semantics(named ? *named : framework->second));

  const std::string* preset = extra(row, "preset");
  const auto known = names.presets.find(row.model);
  if (preset || known != names.presets.end()) {
    FORETRAIN_TRY(measured.plan.model, data.model(preset ? *preset : known->second));
  }
  if (auto skip = set_model(row, measured.plan.model)) return skipped(*skip);
  if (auto skip = set_job(row, names, semantics, measured.plan.job)) return skipped(*skip);
  if (auto skip = set_layout(row, names, measured.plan.model, semantics, measured.plan.layout)) return skipped(*skip);
  FORETRAIN_TRY(ClusterOrSkip cluster, cluster_of(row, machine->second, data));
  if (!cluster) return skipped(cluster.error());
  measured.plan.cluster = std::move(*cluster);
  measured.notes = row.assumed;
  measured.memory_open = row.memory_open;
  return tl::expected<MeasuredPlan, Skip>(std::move(measured));
}

} // namespace foretrain
