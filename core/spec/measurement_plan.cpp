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

// ---- what is not compared at all ----

MaybeSkip check_trust(const Measurement& row) {
  if (row.doubtful) return Skip{SkipReason::doubtful, "marked in the collection"};
  for (const std::string_view wording : {"LOW consistency", "LOW reproducibility", "use only the ratios"})
    if (contains(row.notes, wording)) return Skip{SkipReason::reduced_information, std::string(wording)};
  if (contains(row.model, "LoRA") && !extra(row, "lora")) return Skip{SkipReason::fine_tuning, row.model};
  if (contains(row.model, "SFT") && !extra(row, "packed")) return Skip{SkipReason::fine_tuning, row.model};
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
  job.gradient_accumulation_fusion = extra_flag(row, "gradient_fusion");
  if (const std::string* optimizer = extra(row, "optimizer")) {
    if (*optimizer == "muon")
      job.optimizer.kind = OptimizerKind::muon;
    else if (*optimizer != "adam" && *optimizer != "adamw")
      return Skip{SkipReason::unsupported_optimizer, *optimizer};
  }
  if (const std::string* loss = extra(row, "cross_entropy"))
    job.cross_entropy = *loss == "fused"      ? CrossEntropy::fused
                        : *loss == "plain"    ? CrossEntropy::plain
                        : *loss == "compiled" ? CrossEntropy::compiled
                        : *loss == "gathered" ? CrossEntropy::gathered
                                              : CrossEntropy::vocab_parallel;
  // Context parallelism runs in fused kernels alone: a run that had it had them.
  if (const std::string* attention = extra(row, "attention"))
    job.attention = *attention == "flash" || row.cp.value_or(1) > 1 ? AttentionKernel::flash
                    : *attention == "eager"                         ? AttentionKernel::eager
                                                                    : AttentionKernel::unfused;
  job.dropout = row.dropout.value_or(0);
  if (const std::string* text = extra(row, "capacity_factor")) {
    double factor = 0;
    const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), factor);
    if (code != std::errc() || end != text->data() + text->size() || factor <= 0)
      return Skip{SkipReason::unsupported_feature, "capacity_factor " + *text};
    job.routing.capacity_factor = factor;
  }
  job.expandable_segments = extra_flag(row, "expandable_segments").value_or(false);
  if (const std::string* norm = extra(row, "norm_kernel"))
    job.norm = *norm == "unfused" ? NormKernel::unfused : NormKernel::fused;
  job.deterministic = extra_flag(row, "deterministic").value_or(false);
  job.compiled = extra_flag(row, "compiled").value_or(false);
  job.quantised_weights = is_low_precision(*parsed) && extra_flag(row, "quantised_weights").value_or(false);
  if (const std::string* moments = extra(row, "moments"))
    job.optimizer.moments = *moments == "bf16" ? DType::bf16 : DType::fp32;
  return set_adapters(row, job);
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

/// A run shares its machine with others, or waits for something else, where the middle half of its steps spreads over
/// more than a tenth of their median: what it says of a step is no better known. Sources that state quartiles only.
bool is_unsteady(const Measurement& row) {
  constexpr double kMostSpread = 0.1;
  const std::string* low = extra(row, "step_time_p25");
  const std::string* high = extra(row, "step_time_p75");
  if (!low || !high || !row.step_time) return false;
  const auto number = [](const std::string& text) {
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && end == text.data() + text.size() ? value : 0;
  };
  return number(*high) - number(*low) > kMostSpread * row.step_time->value;
}

MaybeSkip set_figures(const Measurement& row, MeasuredPlan& measured) {
  measured.out_of_memory = contains(row.outcome, "OOM");
  const auto time = measured_step_time(row);
  const bool derived = time_is_derived_from_flop(row);
  measured.unsteady = !measured.out_of_memory && !derived && is_unsteady(row);
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
