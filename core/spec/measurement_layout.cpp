#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "core/spec/measurement_parts.h"

/// The layout of a measured row.
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

MaybeSkip set_micro_batch(const Measurement& row, int dp, Layout& layout) {
  if (row.micro_batch.value_or(0) > 0) {
    layout.micro_batch = *row.micro_batch;
    return std::nullopt;
  }
  const auto accumulation = extra_number(row, "accumulation");
  if (!accumulation || *accumulation == 0) return missing("micro_batch_seqs");
  const std::int64_t parts = std::int64_t{1} * dp * *accumulation;
  if (*row.global_batch % parts != 0)
    return Skip{SkipReason::inconsistent, fmt::format("batch {} in {} micro-batches", *row.global_batch, parts)};
  layout.micro_batch = static_cast<int>(*row.global_batch / parts);
  return std::nullopt;
}

MaybeSkip set_degrees(const Measurement& row, const ModelSpec& model, Layout& layout) {
  if (!row.tp || *row.tp == 0) return missing("tp");
  if (!row.pp || *row.pp == 0) return missing("pp");
  layout.tp = *row.tp;
  layout.pp = *row.pp;
  layout.cp = std::max(1, row.cp.value_or(1));
  const std::int64_t cell = std::int64_t{1} * layout.tp * layout.pp * layout.cp;
  if (*row.devices % cell != 0)
    return Skip{SkipReason::inconsistent, fmt::format("{} devices, tp*pp*cp {}", *row.devices, cell)};
  const int dp = static_cast<int>(*row.devices / cell);
  if (row.dp && *row.dp != dp) return Skip{SkipReason::inconsistent, fmt::format("dp {}, devices say {}", *row.dp, dp)};
  layout.dp_shard = dp;
  if (auto skip = set_micro_batch(row, dp, layout)) return skip;
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
    if (const auto group = extra_number(row, "micro_batch_group"); group && *group != layout.pp)
      layout.schedule.group = *group;
  }
  return std::nullopt;
}

/// Groups of the interleaved schedule that are as many micro-batches as stages divide the step; where they do not and
/// the row tells no other size, it had one.
MaybeSkip check_groups(const Measurement& row, const Layout& layout) {
  if (layout.schedule.chunks < 2) return std::nullopt;
  const std::int64_t micro_batches = *row.global_batch / (std::int64_t{layout.micro_batch} * layout.dp());
  const std::int64_t group = layout.schedule.group == 0 ? layout.pp : layout.schedule.group;
  const std::int64_t rest = micro_batches % group;
  if (group >= layout.pp && group <= micro_batches && (rest == 0 || rest >= layout.pp)) return std::nullopt;
  if (layout.schedule.group == 0)
    return Skip{SkipReason::unsupported_schedule, "micro-batches in groups of another size than the stages"};
  return Skip{SkipReason::inconsistent, fmt::format("{} micro-batches in groups of {}", micro_batches, group)};
}

/// Layers of a cut in which embedding and head count as a layer each (Megatron's
/// account_for_embedding_in_pipeline_split and …_loss_…): as even as it goes, what is left over to chunks in the
/// middle.
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
  const bool uneven =
      layout.schedule.chunks > 1 && semantics.interleaved_needs_even_layers && model.layers % chunks != 0;
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
  if (kind == names.sharding.end()) // with a number: "FSDP2 shard 64", "FSDP=128 + DP", "FSDP 128 x DP 2",
                                    // "Megatron-FSDP (shard group 64)"
    kind = names.sharding.find(plain.substr(0, plain.find_last_not_of(" 0123456789") + 1));
  if (kind == names.sharding.end()) return Skip{SkipReason::unsupported_sharding, row.sharding};
  if (kind->second == "optimizer")
    layout.sharding.kind = ShardingKind::optimizer;
  else if (kind->second == "gradients")
    layout.sharding.kind = ShardingKind::gradients;
  else if (kind->second == "parameters")
    layout.sharding.kind = ShardingKind::parameters;
  if (layout.sharding.kind != ShardingKind::parameters) return std::nullopt;
  const auto size =
      number_in(row.sharding,
                std::min({row.sharding.find_first_of("=("), row.sharding.find("shard "), row.sharding.find("FSDP ")}));
  if (!size || *size == 0 || contains(row.sharding, "zero3")) return std::nullopt;
  if (dp % *size != 0) return Skip{SkipReason::inconsistent, fmt::format("sharded over {} of {} replicas", *size, dp)};
  if (*size * layout.cp == 1) { // replicas of one rank each hold everything
    layout.sharding.kind = ShardingKind::none;
    return std::nullopt;
  }
  layout.dp_shard = *size;
  layout.dp_replicate = dp / *size;
  return std::nullopt;
}

/// "full", "full uniform 2", "full block 21": method and count of Megatron's full recomputation.
MaybeSkip set_full_recompute(const std::string& text, RecomputeChoice& choice) {
  choice.kind = RecomputeKind::full;
  std::istringstream words(text);
  std::string full, method, count;
  words >> full >> method >> count;
  if (method.empty()) return std::nullopt;
  if (method != "uniform" && method != "block") return Skip{SkipReason::unsupported_recompute, text};
  choice.method = method == "block" ? RecomputeMethod::block : RecomputeMethod::uniform;
  if (count.empty()) return std::nullopt;
  const auto layers = whole(count);
  if (!layers || *layers == 0) return Skip{SkipReason::unsupported_recompute, text};
  choice.count = *layers;
  return std::nullopt;
}

/// "none", "full", "full uniform 1", "selective", "selective [layernorm moe_act]".
MaybeSkip set_recompute(const Measurement& row, const Semantics& semantics, Layout& layout) {
  RecomputeChoice choice;
  if (row.recompute.empty()) return missing("recompute");
  if (row.recompute.rfind("full", 0) == 0) {
    if (auto skip = set_full_recompute(row.recompute, choice)) return skip;
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
  layout.overlap.dp_gradients = semantics.dp_gradient_overlap && extra_flag(row, "overlap_gradients").value_or(true);
  layout.overlap.dp_parameters = semantics.dp_parameter_overlap && extra_flag(row, "overlap_parameters").value_or(true);
  layout.overlap.p2p = extra_flag(row, "overlap_transfers").value_or(true);
  layout.overlap.tp = semantics.tp_overlap && layout.sequence_parallel && extra_flag(row, "overlap_tp").value_or(false);
  layout.overlap.moe = false; // dispatch beside another micro-batch is not modelled: compared without
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

} // namespace

MaybeSkip set_layout(const Measurement& row, const MeasuredNames& names, const ModelSpec& model,
                     const Semantics& semantics, Layout& layout) {
  if (auto skip = set_degrees(row, model, layout)) return skip;
  if (auto skip = set_schedule(row, names, layout)) return skip;
  if (auto skip = set_stages(row, model, semantics, layout)) return skip;
  if (auto skip = set_sharding(row, names, layout)) return skip;
  if (auto skip = set_recompute(row, semantics, layout)) return skip;
  set_kinds_and_overlap(row, semantics, layout);
  if (auto skip = check_groups(row, layout)) return skip;
  return check_expressible(row, semantics, layout);
}

} // namespace foretrain
