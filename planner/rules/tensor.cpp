#include <fmt/format.h>

#include "planner/rules/all.h"

namespace foretrain {
namespace {

bool kv_fits(const RuleInput& in, std::int64_t tp) {
  const std::int64_t kv = in.model.kv_heads;
  return kv % tp == 0 || (in.semantics.kv_replication && tp % kv == 0);
}

std::optional<Rejection> heads(const RuleInput& in) {
  const int tp = in.layout.tp;
  if (in.model.heads % tp == 0) return std::nullopt;
  return reject(fmt::format("{} attention heads cannot be split over tp {}", in.model.heads, tp), tp, in.model.heads,
                nearest_values("tp", tp, in.model.heads,
                               [&](std::int64_t t) { return in.model.heads % t == 0 && kv_fits(in, t); }));
}

std::optional<Rejection> kv_heads(const RuleInput& in) {
  const int tp = in.layout.tp;
  if (in.model.latent || kv_fits(in, tp)) return std::nullopt;
  return reject(fmt::format("{} key-value heads cannot be split over tp {}{}", in.model.kv_heads, tp,
                            in.semantics.kv_replication ? "" : " (" + in.semantics.name + " does not replicate them)"),
                tp, in.model.kv_heads, nearest_values("tp", tp, in.model.heads, [&](std::int64_t t) {
                  return in.model.heads % t == 0 && kv_fits(in, t);
                }));
}

std::optional<Rejection> widths(const RuleInput& in) {
  const int tp = in.layout.tp;
  const std::int64_t shared = in.model.moe ? in.model.moe->shared_ffn : 0;
  for (const std::int64_t width : {static_cast<std::int64_t>(in.model.ffn), shared})
    if (width % tp != 0)
      return reject(fmt::format("a feed-forward of width {} cannot be split over tp {}", width, tp), tp,
                    static_cast<double>(width), nearest_values("tp", tp, in.model.heads, [&](std::int64_t t) {
                      return width % t == 0 && in.model.heads % t == 0;
                    }));
  return std::nullopt;
}

std::optional<Rejection> sequence_parallel(const RuleInput& in) {
  const Layout& l = in.layout;
  if (l.sequence_parallel && l.tp == 1)
    return reject("sequence parallelism splits over tp, which is 1; at least 2 are needed", 2, 1,
                  {"sequence_parallel false", "tp 2"});
  if (l.sequence_parallel && !in.semantics.sequence_parallel)
    return lacks(in.semantics.name + " has no sequence parallelism", {"sequence_parallel false"});
  if (!l.sequence_parallel && l.tp > 1 && in.semantics.sequence_parallel_always)
    return reject(fmt::format("{} always splits the sequence over tp {}; unsplit needs tp 1", in.semantics.name, l.tp),
                  l.tp, 1, {"sequence_parallel true", "tp 1"});
  if (!l.sequence_parallel) return std::nullopt;
  const std::int64_t tokens = std::int64_t{in.job.sequence_length} / l.cp;
  if (tokens % l.tp == 0) return std::nullopt;
  return reject(fmt::format("{} tokens per sequence and cp rank cannot be split over tp {}", tokens, l.tp), l.tp,
                static_cast<double>(tokens),
                {in.semantics.sequence_parallel_always ? "tp 1, sequence_parallel false" : "sequence_parallel false"});
}

} // namespace

void add_tensor_rules(RuleList& list) {
  list.push_back(make_rule("heads-tp", "tp divides the attention heads.", heads, RuleScope::degrees));
  list.push_back(make_rule("kv-heads-tp", "tp divides the key-value heads, or the framework replicates them.", kv_heads,
                           RuleScope::degrees));
  list.push_back(make_rule("ffn-tp", "tp divides the feed-forward widths.", widths, RuleScope::degrees));
  list.push_back(make_rule("sequence-parallel", "Sequence parallelism goes with tp > 1 and splits the tokens evenly.",
                           sequence_parallel, RuleScope::sequence_parallel));
}

} // namespace foretrain
