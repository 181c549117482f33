#include "tests/executor/fixtures.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <sched.h>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "core/program/check.h"
#include "core/program/lower.h"
#include "core/program/names.h"
#include "core/spec/presets.h"
#include "executor/allocator.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/saver.h"
#include "executor/checkpoint/state.h"
#include "executor/communicators/gloo.h"
#include "executor/slices.h"
#include "tests/support/places.h"

namespace foretrain::executor_fixtures {
namespace {

using at::Tensor;

/// Replicas of one element must agree to rounding.
constexpr double kReplicas = 1e-12;

/// Puts what each rank owns of a parameter together, and checks that ranks that own the same elements agree.
class Assembly {
public:
  Assembly(const Plan& plan, const Mesh& mesh) : plan_(plan), mesh_(mesh) {}

  /// `owned`: the elements of the parameter that `rank` owns.
  void add(const ParameterEntry& entry, const Tensor& owned, int rank) {
    const std::lock_guard lock(mutex_);
    const Slice slice = slice_of(*entry.spec, plan_.model, slice_place(plan_, mesh_, rank));
    std::int64_t rows = rows_of(*entry.spec);
    const std::string base = base_name(entry.spec->name);
    if (base == "embedding" || base == "head") rows = plan_.model.vocab; // without padding
    Tensor& whole = whole_[entry.name];
    if (!whole.defined()) whole = at::full({rows, slice.whole_columns}, std::nan(""), at::kDouble);
    const Tensor flat = owned.to(at::kCPU, at::kDouble).contiguous();
    const double* from = flat.data_ptr<double>();
    double* to = whole.data_ptr<double>();
    std::int64_t index = 0;
    for (const Slice::Rows& piece : slice.rows)
      for (std::int64_t row = piece.first; row < piece.first + piece.count; ++row)
        for (std::int64_t column = 0; column < slice.columns; ++column, ++index) {
          const std::int64_t own = index - entry.owned_first;
          if (own < 0 || own >= entry.owned_count) continue;
          if (row >= rows) {
            EXPECT_EQ(from[own], 0) << entry.name << ": padding must stay zero";
            continue;
          }
          double& there = to[row * slice.whole_columns + slice.first_column + column];
          if (!std::isnan(there)) {
            EXPECT_NEAR(there, from[own], kReplicas) << entry.name << ": replicas differ";
          }
          there = from[own];
        }
  }
  [[nodiscard]] std::map<std::string, Tensor> take() {
    for (const auto& [name, whole] : whole_)
      EXPECT_FALSE(whole.isnan().any().item<bool>()) << name << " has elements that nobody owns";
    return std::move(whole_);
  }

private:
  const Plan& plan_;
  const Mesh& mesh_;
  std::mutex mutex_;
  std::map<std::string, Tensor> whole_;
};

/// First step; what a checkpoint or an export has is the rank's.
Result<int> restore_from(const Besides& besides, const Plan& plan, const Program& program, int rank, Rank& executor) {
  if (!besides.resume.empty()) {
    FORETRAIN_TRY(const Checkpoint checkpoint, read_checkpoint(besides.resume));
    if (auto same = check_same_training(checkpoint, plan, {0, 1, "synthetic"}); !same)
      return tl::unexpected<Error>(same.error());
    FORETRAIN_TRY(PieceSource source, open_shards(checkpoint));
    if (auto done = restore(source, plan, program.mesh, rank, checkpoint.state.steps, executor); !done)
      return tl::unexpected<Error>(done.error());
    return checkpoint.state.steps;
  }
  if (besides.weights.empty()) return 0;
  FORETRAIN_TRY(PieceSource source, open_hugging_face(besides.weights, plan.model));
  if (auto done = restore_weights(source, plan, program.mesh, rank, executor); !done)
    return tl::unexpected<Error>(done.error());
  return 0;
}

} // namespace

ModelSpec llama_like(bool tied) {
  ModelSpec m;
  m.name = "tiny-llama";
  m.layers = 4;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 24;
  m.vocab = 51;
  m.tied_embeddings = tied;
  return m;
}

ModelSpec gpt_like() {
  ModelSpec m = llama_like(true);
  m.name = "tiny-gpt";
  m.kv_heads = 4;
  m.gated = false;
  m.norm = NormKind::layer;
  m.learned_positions = 8;
  m.qkv_bias = m.out_bias = m.mlp_bias = true;
  return m;
}

Plan plan_of(const ModelSpec& model, const Layout& layout) {
  Plan plan;
  plan.model = model;
  plan.layout = layout;
  plan.cluster.name = "threads";
  TierSpec tier;
  tier.name = "process";
  tier.fanout = layout.world();
  plan.cluster.tiers = {tier};
  plan.job.sequence_length = 8;
  plan.job.global_batch = 4;
  plan.job.precision = Precision::fp64;
  plan.job.semantics = "foretrain";
  return plan;
}

Program lowered(const Plan& plan) {
  const auto semantics = DataFolder{test::source_folder() / "data"}.semantics("foretrain");
  EXPECT_TRUE(semantics) << to_string(semantics.error());
  Program program = lower(plan, *semantics);
  for (const Problem& problem : check(program)) ADD_FAILURE() << "the Program is wrong: " << problem.text;
  return program;
}

ModelSpec mixtral_like() {
  ModelSpec m = llama_like();
  m.name = "tiny-mixtral";
  m.moe = MoeSpec{};
  m.moe->experts = 4;
  m.moe->top_k = 2;
  m.moe->ffn = 12;
  m.moe->shared_ffn = 8;
  m.moe->every = 2;
  return m;
}

ModelSpec qwen3_like() {
  ModelSpec m = llama_like();
  m.name = "tiny-qwen3";
  m.qk_norm = QkNorm::per_head;
  return m;
}

ModelSpec olmoe_like() {
  ModelSpec m = mixtral_like();
  m.name = "tiny-olmoe";
  m.moe->shared_ffn = 0;
  m.moe->every = 1;
  m.qk_norm = QkNorm::full_width;
  return m;
}

ModelSpec deepseek_like() {
  ModelSpec m = llama_like();
  m.name = "tiny-deepseek";
  m.kv_heads = 4;
  m.latent = LatentAttention{10, 8, 4, 2, 6, 0, 0};
  return m;
}

ModelSpec with_mtp(ModelSpec model) {
  model.name += "-mtp";
  model.mtp_layers = 1;
  return model;
}

ModelSpec deepseek_mtp_like() {
  ModelSpec m = with_mtp(deepseek_like());
  m.moe = mixtral_like().moe;
  m.moe->every = 1;
  m.moe->first_dense = 1;
  return m;
}

RunOutcome run_threads(const Plan& plan, int steps, OptimizerOptions optimizer, bool forced_routing,
                       const Besides& besides) {
  static const bool counts = (install_counting_allocator(), true);
  EXPECT_TRUE(counts);
  const Program program = lowered(plan);
  const int world = program.mesh.world();
  RunOutcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(steps));
  outcome.gradient_norms.resize(static_cast<std::size_t>(steps));
  outcome.records.assign(static_cast<std::size_t>(steps), std::vector<StepRecord>(static_cast<std::size_t>(world)));
  std::vector<std::unique_ptr<Assembly>> gradients;
  for (int step = 0; step < steps; ++step) gradients.push_back(std::make_unique<Assembly>(plan, program.mesh));
  Assembly weights(plan, program.mesh);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  // They outlive every block; one list for all runs.
  static std::deque<AllocatorAccount> all_accounts;
  std::vector<AllocatorAccount*> accounts;
  for (int rank = 0; rank < world; ++rank) accounts.push_back(&all_accounts.emplace_back());
  const auto run_rank = [&](int rank) {
    // Small transfers otherwise wait for ticks of the scheduler; threads that Gloo starts inherit it.
    const sched_param parameter{};
    (void)sched_setscheduler(0, SCHED_BATCH, &parameter);
    auto communicator =
        besides.connect ? besides.connect(program, rank, store) : connect_gloo(program, rank, store, {});
    if (!communicator) {
      ADD_FAILURE() << to_string(communicator.error());
      return;
    }
    const auto give_up = [&](const Error& error) {
      const std::lock_guard lock(mutex);
      outcome.errors.push_back(to_string(error));
    };
    AllocatorAccount& account = *accounts[static_cast<std::size_t>(rank)];
    const AccountScope scope(&account);
    RankOptions options;
    options.optimizer = optimizer;
    options.forced_routing = forced_routing;
    std::int64_t highest = 0;
    options.take_peak = [&account, &highest] {
      const std::int64_t peak = std::max(std::exchange(highest, 0), account.peak.load());
      account.restart_peak();
      return peak;
    };
    options.before_clip = [&](int step, const ParameterTable& parameters) {
      const AccountScope not_the_ranks(nullptr);
      for (const ParameterEntry& entry : parameters.entries())
        gradients[static_cast<std::size_t>(step)]->add(entry, entry.owned_gradient, rank);
    };
    std::int64_t before = 0;
    options.around_op = [&](const Op& op, bool begins) {
      if (begins) {
        before = account.current.load();
        highest = std::max(highest, account.peak.load());
        account.restart_peak();
        return;
      }
      const std::int64_t taken = account.peak.load() - before;
      if (op.kind == OpKind::host_sync || taken == op.scratch.value) return; // counts of rows are a few integers
      const std::lock_guard lock(mutex);
      outcome.scratch[std::string(id_of(op.pass)) + " " + name_of(op)] = {op.scratch.value, taken};
    };
    options.tokens = besides.tokens;
    const std::unique_ptr<Device> device = besides.device ? besides.device() : host_device();
    device->enter();
    Rank executor(plan, program, rank, *device, **communicator, options);
    const auto first = restore_from(besides, plan, program, rank, executor);
    if (!first) return give_up(first.error());
    CheckpointSaver saver(besides.checkpoint, plan, program, rank, **communicator, executor,
                          [](const Json&) { return Result<void>{}; });
    for (int step = *first; step < steps; ++step) {
      auto record = executor.step(step);
      if (!record) return give_up(record.error());
      if (auto saved = saver.after_step({step + 1, options.seed, "synthetic"}, step + 1 == steps); !saved)
        return give_up(saved.error());
      const std::lock_guard lock(mutex);
      outcome.gradient_norms[static_cast<std::size_t>(step)] = record->gradient_norm;
      outcome.records[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)] = std::move(*record);
    }
    for (const ParameterEntry& entry : executor.parameters().entries()) weights.add(entry, entry.owned_weight, rank);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  // In the order of ranks, so that the same run has the same sum.
  for (std::size_t step = 0; step < outcome.losses.size(); ++step)
    for (const StepRecord& record : outcome.records[step]) outcome.losses[step] += record.loss;
  if (!outcome.errors.empty()) {
    if (!besides.may_fail) ADD_FAILURE() << outcome.errors.front();
    return outcome;
  }
  for (const auto& step : gradients) outcome.gradients.push_back(step->take());
  outcome.weights = weights.take();
  return outcome;
}

double distance(const Tensor& a, const Tensor& b) {
  const double whole = b.norm().item<double>();
  const double difference = (a - b).norm().item<double>();
  return whole > 0 ? difference / whole : difference;
}

void PrintTo(const LayoutCase& value, std::ostream* out) {
  *out << value.name;
}

LayoutCase layout_case(const std::string& name, const ModelSpec& model, const std::function<void(Layout&)>& change) {
  LayoutCase one{name, model, {}};
  one.layout.sharding.kind = ShardingKind::none;
  change(one.layout);
  return one;
}

} // namespace foretrain::executor_fixtures
