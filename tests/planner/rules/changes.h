#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/spec/names.h"
#include "tests/cases/cases.h"

/// Proposals of rejections, applied: "tp 4, dp 2", "schedule 1f1b, chunks 1", "recompute.modules [layernorm]".
namespace foretrain::rules_changes {

template <class Enum, std::size_t Count> bool set_named(Enum& member, const std::string& name) {
  for (std::size_t i = 0; i < Count; ++i)
    if (id_of(static_cast<Enum>(i)) == name) {
      member = static_cast<Enum>(i);
      return true;
    }
  return false;
}

/// Names between brackets, separated by blanks.
inline std::vector<std::string> listed(std::string text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return {};
  std::istringstream stream(text.substr(1, text.size() - 2));
  std::vector<std::string> names;
  for (std::string name; stream >> name;) names.push_back(name);
  return names;
}

template <class Enum, std::size_t Count> bool set_list(std::vector<Enum>& list, const std::string& text) {
  list.clear();
  for (const std::string& name : listed(text)) {
    list.emplace_back();
    if (!set_named<Enum, Count>(list.back(), name)) return false;
  }
  return !list.empty();
}

inline bool apply_one(const std::string& key, const std::string& value, Plan& plan) {
  Layout& l = plan.layout;
  JobSpec& job = plan.job;
  const bool number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  const std::int64_t n = number ? std::stoll(value) : 0;
  const auto degree = [&](int& member) {
    member = static_cast<int>(n);
    return n >= 1;
  };
  if (key == "tp") return degree(l.tp);
  if (key == "pp") return degree(l.pp);
  if (key == "cp") return degree(l.cp);
  if (key == "ep") return degree(l.ep);
  if (key == "etp") return degree(l.etp);
  if (key == "dp") {
    l.dp_replicate = 1;
    return degree(l.dp_shard);
  }
  if (key == "dp_shard") return degree(l.dp_shard);
  if (key == "dp_replicate") return degree(l.dp_replicate);
  if (key == "micro_batch") return degree(l.micro_batch);
  if (key == "chunks") return degree(l.schedule.chunks);
  if (key == "group") return degree(l.schedule.group);
  if (key == "ulysses") return degree(l.context_parallel.ulysses);
  if (key == "sequence_length") return degree(job.sequence_length);
  if (key == "global_batch" || key == "micro-batches") {
    job.global_batch = key == "global_batch" ? n : n * l.micro_batch * l.dp();
    return n >= 1;
  }
  if (key == "recompute.count") {
    l.recompute.count = static_cast<int>(n);
    return n >= 1;
  }
  if (key == "layers_per_stage" && value == "[]") {
    l.layers_per_stage.clear();
    return true;
  }
  if (key == "schedule") {
    l.schedule.kind = value;
    if (value != "interleaved") l.schedule.group = 0; // a key of that kind
    return true;
  }
  if (key == "sequence_parallel" || key == "offload.optimizer" || key == "overlap.p2p" || key == "overlap.tp" ||
      key == "overlap.moe") {
    bool& member = key == "sequence_parallel"   ? l.sequence_parallel
                   : key == "offload.optimizer" ? l.offload.optimizer
                   : key == "overlap.p2p"       ? l.overlap.p2p
                   : key == "overlap.tp"        ? l.overlap.tp
                                                : l.overlap.moe;
    member = value == "true";
    return value == "true" || value == "false";
  }
  if (key == "sharding") return set_named<ShardingKind, 4>(l.sharding.kind, value);
  if (key == "context_parallel") return set_named<ContextKind, 4>(l.context_parallel.kind, value);
  if (key == "expert_dispatch") return set_named<DispatchKind, 3>(l.expert_dispatch.kind, value);
  if (key == "semantics") {
    job.semantics = value;
    return true;
  }
  if (key == "attention") {
    job.attention = AttentionKernel::flash;
    return value == "flash";
  }
  if (key == "precision") return set_named<Precision, 9>(job.precision, value);
  if (key == "optimizer") return set_named<OptimizerKind, 6>(job.optimizer.kind, value);
  if (key == "recompute") {
    l.recompute = {};
    return set_named<RecomputeKind, 4>(l.recompute.kind, value);
  }
  if (key == "recompute.modules") return set_list<RecomputeModule, 6>(l.recompute.modules, value);
  if (key == "gradient_accumulation_fusion") {
    job.gradient_accumulation_fusion.reset();
    if (value == "false") job.gradient_accumulation_fusion = false;
    return value == "false" || value == "none";
  }
  if (key == "lora" && value == "none") {
    job.lora.reset();
    return true;
  }
  if (key == "lora.targets" && job.lora) {
    job.lora->targets.clear();
    for (const std::string& name : listed(value))
      job.lora->targets.push_back(name == "qkv" ? AdapterTarget::qkv : AdapterTarget::attention_out);
    return !job.lora->targets.empty();
  }
  return false;
}

/// False: not a change that is known.
inline bool apply(const std::string& change, Plan& plan) {
  std::istringstream parts(change);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t from = part.find_first_not_of(' ');
    const std::size_t blank = part.find(' ', from);
    if (from == std::string::npos || blank == std::string::npos) return false;
    if (!apply_one(part.substr(from, blank - from), part.substr(blank + 1), plan)) return false;
  }
  return true;
}

} // namespace foretrain::rules_changes
