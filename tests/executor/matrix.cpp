#include "tests/executor/matrix.h"

#include <algorithm>
#include <random>
#include <set>

#include "core/spec/names.h"
#include "core/spec/presets.h"
#include "executor/check.h"
#include "tests/executor/fixtures.h"
#include "tests/support/places.h"

namespace foretrain::executor_fixtures {
namespace {

constexpr int kMostRanks = 8;
constexpr int kAttempts = 200; ///< completions tried before a combination counts as impossible

using Choice = std::pair<std::size_t, std::size_t>; ///< factor, option
using Tuple = std::vector<Choice>;

Option schedule(const std::string& kind) {
  return {kind, [kind](Plan& p) {
            p.layout.pp = 2;
            p.layout.schedule.kind = kind;
            p.layout.schedule.chunks = kind == "interleaved" ? 2 : 1;
          }};
}

Option context(const std::string& name, ContextKind kind) {
  return {name, [kind](Plan& p) {
            p.layout.cp = 2;
            p.layout.context_parallel.kind = kind;
          }};
}

Option model(const std::string& name, const ModelSpec& spec) {
  return {name, [spec](Plan& p) {
            p.model = spec;
            if (p.model.learned_positions > 0) p.model.learned_positions = static_cast<int>(p.job.sequence_length);
          }};
}

bool runs(const Row& row) {
  static const Semantics semantics = DataFolder{test::source_folder() / "data"}.semantics("foretrain").value();
  const Plan plan = plan_of(row);
  if (plan.layout.world() > kMostRanks || plan.layout.ep * plan.layout.etp > plan.layout.world()) return false;
  return check_runnable(plan, semantics).empty();
}

bool has(const Row& row, const Tuple& tuple) {
  return std::all_of(tuple.begin(), tuple.end(), [&](const Choice& c) { return row[c.first] == c.second; });
}

/// All combinations of options of `strength` factors.
void tuples(const std::vector<Factor>& all, std::size_t strength, std::size_t from, Tuple& open,
            std::vector<Tuple>& list) {
  if (open.size() == strength) {
    list.push_back(open);
    return;
  }
  for (std::size_t factor = from; factor < all.size(); ++factor)
    for (std::size_t option = 0; option < all[factor].options.size(); ++option) {
      open.emplace_back(factor, option);
      tuples(all, strength, factor + 1, open, list);
      open.pop_back();
    }
}

} // namespace

std::vector<Factor> factors() {
  const auto sharding = [](ShardingKind kind) {
    return Option{std::string(id_of(kind)), [kind](Plan& p) { p.layout.sharding.kind = kind; }};
  };
  const auto selective = [](Plan& p) {
    p.layout.recompute.kind = RecomputeKind::selective;
    p.layout.recompute.modules = {RecomputeModule::core_attention, RecomputeModule::layernorm,
                                  RecomputeModule::activation};
  };
  const auto optimizer = [](OptimizerKind kind) {
    return Option{std::string(id_of(kind)), [kind](Plan& p) { p.job.optimizer.kind = kind; }};
  };
  return {
      {"model",
       {model("llama", llama_like()), model("tied", llama_like(true)), model("gpt", gpt_like()),
        model("mixtral", mixtral_like()), model("qwen3", qwen3_like()), model("olmoe", olmoe_like()),
        model("deepseek", deepseek_like()), model("mtp", deepseek_mtp_like())}},
      {"tensor",
       {{"tp1", [](Plan&) {}},
        {"tp2", [](Plan& p) { p.layout.tp = 2; }},
        {"tp2sp", [](Plan& p) { p.layout.tp = 2, p.layout.sequence_parallel = true; }}}},
      {"pipeline",
       {{"pp1", [](Plan&) {}},
        schedule("1f1b"),
        schedule("gpipe"),
        schedule("interleaved"),
        schedule("zb-h1"),
        schedule("zb-h2"),
        schedule("zb-1p"),
        schedule("zb-2p")}},
      {"data",
       {{"dp1", [](Plan&) {}},
        {"dp2", [](Plan& p) { p.layout.dp_shard = 2; }},
        {"replicate2", [](Plan& p) { p.layout.dp_replicate = 2; }}}},
      {"context",
       {{"cp1", [](Plan&) {}},
        context("gather", ContextKind::all_gather),
        context("ring", ContextKind::ring),
        context("ulysses", ContextKind::ulysses)}},
      {"experts",
       {{"ep1", [](Plan&) {}},
        {"ep2", [](Plan& p) { p.layout.ep = 2; }},
        {"ep2gather", [](Plan& p) { p.layout.ep = 2, p.layout.expert_dispatch.kind = DispatchKind::all_gather; }},
        {"etp2", [](Plan& p) { p.layout.etp = 2; }}}},
      {"sharding",
       {sharding(ShardingKind::none), sharding(ShardingKind::optimizer), sharding(ShardingKind::gradients),
        sharding(ShardingKind::parameters)}},
      {"recomputation",
       {{"kept", [](Plan&) {}},
        {"full", [](Plan& p) { p.layout.recompute.kind = RecomputeKind::full; }},
        {"selective", selective}}},
      {"optimizer", {optimizer(OptimizerKind::adamw), optimizer(OptimizerKind::lion), optimizer(OptimizerKind::sgd)}},
      {"state", {{"beside", [](Plan&) {}}, {"on-host", [](Plan& p) { p.layout.offload.optimizer = true; }}}},
  };
}

std::string name_of(const Row& row) {
  static const std::vector<Factor> all = factors();
  std::string name;
  for (std::size_t factor = 0; factor < row.size(); ++factor)
    name += (name.empty() ? "" : "_") + all[factor].options[row[factor]].name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Plan plan_of(const Row& row) {
  static const std::vector<Factor> all = factors();
  Plan plan = plan_of(llama_like(), Layout{});
  plan.job.sequence_length = 8;
  plan.job.global_batch = 8;
  for (std::size_t factor = 0; factor < row.size(); ++factor) all[factor].options[row[factor]].change(plan);
  plan.cluster.tiers.front().fanout = plan.layout.world();
  return plan;
}

Covering covering_array(std::size_t strength) {
  const std::vector<Factor> all = factors();
  std::vector<Tuple> open;
  Tuple start;
  tuples(all, strength, 0, start, open);
  std::mt19937 random(1); // the array is the same everywhere: only raw numbers are used
  Covering result;
  while (!open.empty()) {
    const Tuple wanted = open.front();
    Row best;
    std::size_t most = 0;
    for (int attempt = 0; attempt < kAttempts && (best.empty() || attempt < kAttempts / 8); ++attempt) {
      Row row(all.size());
      // The first attempts leave most factors alone, so that what can run at all is found.
      for (std::size_t factor = 0; factor < row.size(); ++factor)
        row[factor] = random() % 4 < static_cast<unsigned>(attempt % 4) ? random() % all[factor].options.size() : 0;
      for (const Choice& choice : wanted) row[choice.first] = choice.second;
      if (!runs(row)) continue;
      const auto count = static_cast<std::size_t>(
          std::count_if(open.begin(), open.end(), [&](const Tuple& tuple) { return has(row, tuple); }));
      if (count <= most) continue;
      most = count;
      best = row;
    }
    if (best.empty()) {
      ++result.impossible;
      open.erase(open.begin());
      continue;
    }
    result.covered += most;
    result.rows.push_back(best);
    open.erase(std::remove_if(open.begin(), open.end(), [&](const Tuple& tuple) { return has(best, tuple); }),
               open.end());
  }
  return result;
}

} // namespace foretrain::executor_fixtures
