#include "planner/remedies.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/shortage.h"
#include "core/spec/names.h"

namespace foretrain {
namespace {

struct Change {
  std::string text;
  Layout layout;
  int times = 1; ///< devices over those that there are
};

/// dp × `from` ranks as dp / k and `from` · k.
template <class Member> void traded(std::vector<Change>& list, const Layout& base, const char* name, Member member) {
  for (int k = 2; k <= base.dp_shard; k *= 2) {
    if (base.dp_shard % k != 0) break;
    Change change{"", base};
    Layout& l = change.layout;
    l.*member *= k;
    l.dp_shard /= k;
    if (l.tp > 1 && base.tp == 1) l.sequence_parallel = true;
    change.text = fmt::format("{} {}, dp {}", name, l.*member, l.dp());
    list.push_back(std::move(change));
  }
}

/// The same dimension changed more and more: of each list the first that fits counts.
std::vector<std::vector<Change>> single_changes(const RuleInput& in) {
  const Layout& base = in.layout;
  std::vector<std::vector<Change>> lists(7);
  for (const int k : {2, 4, 8, 16, 32, 64})
    if (base.micro_batch % k == 0) {
      Change change{fmt::format("micro_batch {}", base.micro_batch / k), base};
      change.layout.micro_batch /= k;
      lists[0].push_back(std::move(change));
    }
  if (base.recompute.kind != RecomputeKind::full || base.recompute.count) {
    Change change{"recompute full", base};
    change.layout.recompute = {};
    change.layout.recompute.kind = RecomputeKind::full;
    lists[1].push_back(std::move(change));
  }
  for (const ShardingKind kind : {ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters})
    if (kind > base.sharding.kind) {
      Change change{fmt::format("sharding {}", id_of(kind)), base};
      change.layout.sharding = {kind, std::nullopt};
      lists[2].push_back(std::move(change));
    }
  traded(lists[3], base, "tp", &Layout::tp);
  traded(lists[4], base, "pp", &Layout::pp);
  traded(lists[5], base, "cp", &Layout::cp);
  if (!base.offload.optimizer) {
    Change change{"offload.optimizer true", base};
    change.layout.offload.optimizer = true;
    lists[6].push_back(std::move(change));
  }
  return lists;
}

/// A change of degrees with the smallest micro-batch and whole layers recomputed besides; false: of something else.
bool spare(Change& change, const Layout& base) {
  Layout& l = change.layout;
  if (l.dp_shard == base.dp_shard) return false;
  l.micro_batch = 1;
  l.recompute = {};
  l.recompute.kind = RecomputeKind::full;
  change.text += ", micro_batch 1, recompute full";
  return true;
}

class Judge {
public:
  Judge(Evaluator::Worker& worker, const RuleInput& input, Bytes capacity)
      : worker_(worker), in_(input), capacity_(capacity) {}

  /// Seconds of the step; nothing when it is not legal or does not fit.
  [[nodiscard]] std::optional<double> seconds(const Change& change) {
    const RuleInput changed{in_.model, in_.cluster, in_.job, in_.semantics, change.layout, in_.devices * change.times};
    if (first_rejection(changed)) return std::nullopt;
    const Evaluation evaluation = worker_.evaluate(change.layout);
    if (Bytes(evaluation.device_bytes) > capacity_) return std::nullopt;
    return evaluation.step_seconds;
  }

private:
  Evaluator::Worker& worker_;
  const RuleInput& in_;
  Bytes capacity_;
};

/// Everything that spares memory without other degrees: the smallest micro-batch, whole layers recomputed, as much
/// sharded as may be.
std::vector<Change> joint_changes(const RuleInput& in) {
  std::vector<Change> list;
  const auto& kinds = in.semantics.sharding;
  for (const ShardingKind kind :
       {ShardingKind::parameters, ShardingKind::gradients, ShardingKind::optimizer, ShardingKind::none}) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    Change change{fmt::format("micro_batch 1, recompute full, sharding {}", id_of(kind)), in.layout};
    change.layout.micro_batch = 1;
    change.layout.recompute = {};
    change.layout.recompute.kind = RecomputeKind::full;
    change.layout.sharding = {kind, std::nullopt};
    list.push_back(std::move(change));
  }
  return list;
}

/// The same with more devices, as replicas that share state or as stages.
std::vector<Change> larger(const RuleInput& in, std::vector<Change> changes) {
  std::vector<Change> list;
  for (int k = 2; k <= 1024; k *= 2)
    for (const Change& change : changes) {
      if (std::int64_t{in.devices} * k > kMostDevices) continue;
      Change wider{"", change.layout, k};
      wider.layout.dp_shard *= k;
      wider.text = fmt::format("{} devices: dp {}, {}", in.devices * k, wider.layout.dp(), change.text);
      list.push_back(std::move(wider));
      Change deeper{"", change.layout, k};
      deeper.layout.pp *= k;
      deeper.text = fmt::format("{} devices: pp {}, {}", in.devices * k, deeper.layout.pp, change.text);
      list.push_back(std::move(deeper));
    }
  return list;
}

} // namespace

Rejection memory_rejection(std::string_view rule, const Evaluation& slots, Bytes capacity) {
  Rejection rejection;
  rejection.rule = rule;
  rejection.needed = static_cast<double>(slots.device_bytes);
  rejection.available = static_cast<double>(capacity.value);
  rejection.reason =
      fmt::format("stage {} {}", slots.worst_stage, shortage(Bytes(slots.device_bytes), "the device", capacity));
  if (rule == kModelState) rejection.reason += " (for model state alone)";
  if (rule == kActivations) rejection.reason += " (for model state and activations at least)";
  return rejection;
}

std::vector<std::string> remedies(const Evaluator& evaluator, const RuleInput& input) {
  Evaluator::Worker worker = evaluator.worker();
  return remedies(evaluator, worker, input);
}

std::vector<std::string> remedies(const Evaluator& evaluator, Evaluator::Worker& worker, const RuleInput& input) {
  constexpr std::size_t kMost = 3;
  const std::optional<Bytes> capacity = evaluator.capacity();
  if (!capacity) return {};
  Judge judge(worker, input, *capacity);
  std::vector<std::vector<Change>> lists = single_changes(input);
  std::vector<std::string> texts;
  for (const bool spared : {false, true}) {
    std::vector<std::pair<double, std::string>> fitting;
    for (std::vector<Change>& list : lists)
      for (Change& change : list) {
        if (spared && !spare(change, input.layout)) break;
        const auto seconds = judge.seconds(change);
        if (!seconds) continue;
        fitting.emplace_back(*seconds, change.text);
        break;
      }
    std::stable_sort(fitting.begin(), fitting.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [seconds, text] : fitting)
      if (texts.size() < kMost && std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(std::move(text));
  }
  if (!texts.empty()) return texts;
  std::vector<Change> joint = joint_changes(input);
  std::vector<Change> more = larger(input, joint);
  for (std::vector<Change>* list : {&joint, &more})
    for (Change& change : *list)
      if (judge.seconds(change)) return {std::move(change.text)};
  return {};
}

} // namespace foretrain
