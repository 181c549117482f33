#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/names.h"
#include "tests/executor/fixtures.h"

namespace foretrain {
namespace {

using namespace executor_fixtures;

struct Case {
  std::string name;
  ModelSpec model;
  Layout layout;
  std::function<void(Plan&)> change = {};
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

template <class Change> Layout layout(Change&& change) {
  Layout l;
  l.sharding.kind = ShardingKind::none;
  change(l);
  return l;
}

std::vector<Case> cases() {
  const ModelSpec llama = llama_like();
  const ModelSpec tied = llama_like(true);
  const ModelSpec gpt = gpt_like();
  const Layout tp2 = layout([](Layout& l) { l.tp = 2; });
  const Layout sp2 = layout([](Layout& l) {
    l.tp = 2;
    l.sequence_parallel = true;
  });
  const Layout pp2 = layout([](Layout& l) { l.pp = 2; });
  const Layout dp2 = layout([](Layout& l) { l.dp_shard = 2; });
  const Layout zero1 = layout([](Layout& l) {
    l.dp_shard = 2;
    l.sharding.kind = ShardingKind::optimizer;
  });
  std::vector<Case> list = {
      {"tp2", llama, tp2},
      {"tp2_sp", llama, sp2},
      {"pp2", llama, pp2},
      {"dp2", llama, dp2},
      {"dp2_sharded", llama, zero1},
      {"tp2_tied", tied, tp2},
      {"tp2_sp_tied", tied, sp2},
      {"pp2_tied", tied, pp2},
      {"dp2_tied", tied, dp2},
      {"dp2_sharded_tied", tied, zero1},
      {"tp2_gpt", gpt, tp2},
      {"tp2_sp_gpt", gpt, sp2},
      {"pp2_gpt", gpt, pp2},
      {"dp2_gpt", gpt, dp2},
      {"dp2_sharded_gpt", gpt, zero1},
  };
  list.push_back({"dp2_replicated", llama, layout([](Layout& l) {
                    l.dp_replicate = 2;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"dp2_sharded_no_overlap", llama, zero1, [](Plan& plan) {
                    plan.layout.overlap.dp_gradients = false;
                    plan.layout.overlap.dp_parameters = false;
                  }});
  list.push_back({"dp2_sgd", llama, zero1, [](Plan& plan) { plan.job.optimizer.kind = OptimizerKind::sgd; }});
  list.push_back({"tp2_window", llama, tp2, [](Plan& plan) { plan.model.window = SlidingWindow{3, 2, {}}; }});
  list.push_back({"tp2_micro_batch_2", llama, sp2, [](Plan& plan) { plan.layout.micro_batch = 2; }});
  list.push_back({"pp2_gpipe", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule.kind = "gpipe";
                  })});
  list.push_back({"pp2_uneven", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.layers_per_stage = {3, 1};
                  })});
  const auto on_host = [](Layout l) {
    l.offload.optimizer = true;
    return l;
  };
  list.push_back({"alone_on_host", llama, on_host(layout([](Layout&) {}))});
  list.push_back({"dp2_on_host", gpt, on_host(dp2)});
  list.push_back({"dp2_sharded_on_host", llama, on_host(zero1)});
  list.push_back({"dp2_gradients_on_host", tied, on_host(layout([](Layout& l) {
                    l.dp_shard = 2;
                    l.sharding.kind = ShardingKind::gradients;
                  }))});
  list.push_back({"pp2_zero3_on_host", llama, on_host(layout([](Layout& l) {
                    l.pp = l.dp_shard = 2;
                    l.sharding.kind = ShardingKind::parameters;
                  }))});
  list.push_back({"tp2_sp_dp2_sharded", tied, layout([](Layout& l) {
                    l.tp = l.dp_shard = 2;
                    l.sequence_parallel = true;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"pp2_dp2_sharded_tied", tied, layout([](Layout& l) {
                    l.pp = l.dp_shard = 2;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"tp2_sp_pp2_tied", tied, layout([](Layout& l) {
                    l.tp = l.pp = 2;
                    l.sequence_parallel = true;
                  })});
  list.push_back({"pp2_interleaved", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule = {"interleaved", 2};
                  })});
  list.push_back({"pp2_interleaved_groups", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule = {"interleaved", 2, 3};
                  }),
                  [](Plan& plan) { plan.job.global_batch = 5; }}); // three micro-batches, then two
  list.push_back({"pp2_zero_bubble", tied, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule.kind = "zb-h1";
                  })});
  const auto sharded = [](ShardingKind kind, int shard, int replicate) {
    return layout([=](Layout& l) {
      l.dp_shard = shard;
      l.dp_replicate = replicate;
      l.sharding.kind = kind;
    });
  };
  list.push_back({"zero2", llama, sharded(ShardingKind::gradients, 2, 1)});
  list.push_back({"zero2_tied", tied, sharded(ShardingKind::gradients, 2, 1)});
  list.push_back({"zero3", llama, sharded(ShardingKind::parameters, 2, 1)});
  list.push_back({"zero3_tied", tied, sharded(ShardingKind::parameters, 2, 1)});
  list.push_back({"zero3_gpt", gpt, sharded(ShardingKind::parameters, 2, 1)});
  list.push_back({"zero1_hsdp", llama, sharded(ShardingKind::optimizer, 2, 2)});
  list.push_back({"zero3_hsdp", llama, sharded(ShardingKind::parameters, 2, 2)});
  list.push_back({"zero2_tp2_sp_lion", llama, layout([](Layout& l) {
                    l.tp = l.dp_shard = 2;
                    l.sequence_parallel = true;
                    l.sharding.kind = ShardingKind::gradients;
                  }),
                  [](Plan& plan) { plan.job.optimizer.kind = OptimizerKind::lion; }});
  list.push_back({"zero3_pp2_zero_bubble_tied", tied, layout([](Layout& l) {
                    l.pp = l.dp_shard = 2;
                    l.schedule.kind = "zb-h1";
                    l.sharding.kind = ShardingKind::parameters;
                  })});
  for (const ContextKind kind : {ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses}) {
    const std::string name(id_of(kind));
    const auto with = [&](auto&& change) {
      return layout([&](Layout& l) {
        l.cp = 2;
        l.context_parallel.kind = kind;
        change(l);
      });
    };
    const std::string id = name == "all-gather" ? "gather" : name;
    list.push_back({"cp2_" + id, llama, with([](Layout&) {})});
    list.push_back({"cp2_" + id + "_gpt_micro_batch_2", gpt, with([](Layout& l) { l.micro_batch = 2; })});
    list.push_back({"cp2_" + id + "_window", llama, with([](Layout&) {}), [](Plan& plan) {
                      plan.model.window = SlidingWindow{3, 2, {}};
                    }});
    list.push_back({"cp2_" + id + "_recomputed", llama, with([](Layout& l) {
                      l.recompute.kind = RecomputeKind::selective;
                      l.recompute.modules = {RecomputeModule::core_attention};
                    })});
    list.push_back(
        {"cp2_" + id + "_zero3", llama, with([](Layout& l) { l.sharding.kind = ShardingKind::parameters; })});
  }
  const ModelSpec mixtral = mixtral_like();
  const auto experts = [](auto&& change) {
    return layout([&](Layout& l) {
      l.dp_shard = 2;
      change(l);
    });
  };
  list.push_back({"moe_dp2", mixtral, experts([](Layout&) {})});
  list.push_back({"moe_ep2", mixtral, experts([](Layout& l) { l.ep = 2; })});
  list.push_back({"moe_ep2_gather", mixtral, experts([](Layout& l) {
                    l.ep = 2;
                    l.expert_dispatch.kind = DispatchKind::all_gather;
                  })});
  list.push_back({"moe_etp2", mixtral, experts([](Layout& l) { l.etp = 2; })});
  list.push_back({"moe_etp2_gather", mixtral, experts([](Layout& l) {
                    l.etp = 2;
                    l.expert_dispatch.kind = DispatchKind::all_gather;
                  })});
  list.push_back({"moe_ep2_etp2", mixtral, experts([](Layout& l) {
                    l.dp_shard = 4;
                    l.ep = l.etp = 2;
                  })});
  list.push_back({"moe_ep2_tp2_sp", mixtral, layout([](Layout& l) {
                    l.tp = l.ep = 2;
                    l.sequence_parallel = true;
                  })});
  list.push_back({"moe_ep2_cp2", mixtral, layout([](Layout& l) { l.cp = l.ep = 2; })});
  list.push_back({"moe_ep2_zero3", mixtral, experts([](Layout& l) {
                    l.dp_shard = 4;
                    l.ep = 2;
                    l.sharding.kind = ShardingKind::parameters;
                  })});
  list.push_back({"moe_ep2_zero1_replicated", mixtral, experts([](Layout& l) {
                    l.dp_replicate = 2;
                    l.ep = 2;
                    l.sharding.kind = ShardingKind::optimizer;
                  })});
  list.push_back({"moe_ep2_pp2_zero_bubble", mixtral, experts([](Layout& l) {
                    l.ep = l.pp = 2;
                    l.schedule.kind = "zb-h1";
                  })});
  list.push_back({"moe_ep2_recomputed", mixtral, experts([](Layout& l) {
                    l.ep = 2;
                    l.recompute.kind = RecomputeKind::selective;
                    l.recompute.modules = {RecomputeModule::moe};
                  })});
  list.push_back({"moe_ep2_recomputed_full", mixtral, experts([](Layout& l) {
                    l.ep = 2;
                    l.recompute.kind = RecomputeKind::full;
                    l.recompute.count = 2;
                  })});
  const ModelSpec deepseek = deepseek_like();
  list.push_back({"mla_tp2", deepseek, tp2});
  list.push_back({"mla_tp2_sp", deepseek, sp2});
  list.push_back({"mla_pp2", deepseek, pp2});
  list.push_back({"mla_cp2_ring", deepseek, layout([](Layout& l) { l.cp = 2; })});
  list.push_back({"mla_cp2_ulysses", deepseek, layout([](Layout& l) {
                    l.cp = 2;
                    l.context_parallel.kind = ContextKind::ulysses;
                  })});
  list.push_back({"mla_recomputed", deepseek, layout([](Layout& l) {
                    l.tp = 2;
                    l.recompute.kind = RecomputeKind::selective;
                    l.recompute.modules = {RecomputeModule::layernorm, RecomputeModule::mla_up};
                  })});
  list.push_back({"cp4_ring", llama, layout([](Layout& l) { l.cp = 4; })});
  list.push_back({"pp2_zb_h2", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.schedule.kind = "zb-h2";
                  })});
  list.push_back({"recompute_full", llama, layout([](Layout& l) {
                    l.pp = 2;
                    l.recompute.kind = RecomputeKind::full;
                  })});
  list.push_back({"recompute_full_spans", gpt, layout([](Layout& l) {
                    l.tp = 2;
                    l.recompute.kind = RecomputeKind::full;
                    l.recompute.count = 2;
                  })});
  list.push_back({"recompute_selective", llama, layout([](Layout& l) {
                    l.tp = 2;
                    l.sequence_parallel = true;
                    l.recompute.kind = RecomputeKind::selective;
                    l.recompute.modules = {RecomputeModule::core_attention, RecomputeModule::layernorm,
                                           RecomputeModule::activation};
                  })});
  return list;
}

Plan plan_for(const Case& c) {
  Plan plan = plan_of(c.model, c.layout);
  if (c.change) c.change(plan);
  return plan;
}

class LayoutTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutTest, LossGradientsAndWeightsEqualOneProcess) {
  expect_equal_to_one_process(plan_for(GetParam()), kSteps);
}

TEST_P(LayoutTest, DoesWhatTheProgramSaysInItsOrderMovesItsBytesAndFreesEveryBuffer) {
  expect_ops_of_program(plan_for(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, LayoutTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

/// Layouts of a sample, in other precisions than the matrix.
std::vector<Layout> sample() {
  return {layout([](Layout& l) { l.tp = 2, l.sequence_parallel = true; }), layout([](Layout& l) { l.pp = 2; }),
          layout([](Layout& l) { l.cp = 2; }),
          layout([](Layout& l) { l.dp_shard = 2, l.sharding.kind = ShardingKind::parameters; })};
}

TEST(Precisions, SinglePrecisionEqualsOneProcess) {
  // Sums in another order, five AdamW steps: 6e-8 to 2e-7 were measured, norm-wise.
  for (const Layout& l : sample()) {
    Plan plan = plan_of(llama_like(), l);
    plan.job.precision = Precision::fp32;
    expect_equal_to_one_process(plan, kSteps, {1e-5, 1e-5});
  }
}

TEST(Precisions, HalfPrecisionStaysWithinItsRounding) {
  // bfloat16 rounds to 2^-9 = 0.2 %; a gradient passes some twenty roundings of activations, in another order. One
  // step: after it AdamW has turned roundings of small gradients into differences of weights.
  for (const Layout& l : sample()) {
    Plan plan = plan_of(llama_like(), l);
    plan.job.precision = Precision::bf16;
    expect_equal_to_one_process(plan, 1, {1e-2, 5e-2});
  }
}

/// The router's own choice: one process and ranks that hold other tokens send them to the same experts.
TEST(Routing, OfTheRouterIsEqualInEveryLayout) {
  OptimizerOptions optimizer;
  for (const DispatchKind kind : {DispatchKind::all_to_all, DispatchKind::all_gather}) {
    Plan plan = plan_of(mixtral_like(), layout([&](Layout& l) {
                          l.dp_shard = l.ep = 2;
                          l.expert_dispatch.kind = kind;
                        }));
    const RunOutcome split = run_threads(plan, kSteps, optimizer, false);
    plan.layout = layout([](Layout&) {});
    const RunOutcome whole = run_threads(plan, kSteps, optimizer, false);
    for (std::size_t step = 0; step < kSteps; ++step)
      EXPECT_NEAR(split.losses[step] / whole.losses[step], 1, Bounds{}.loss) << "step " << step;
    for (const auto& [name, weight] : whole.weights)
      EXPECT_LT(distance(split.weights.at(name), weight), Bounds{}.tensors) << name;
  }
}

TEST(Rank, TwoRunsGiveTheSameBits) {
  const Plan plan = plan_of(llama_like(), layout([](Layout& l) {
                              l.tp = 2;
                              l.dp_shard = 2;
                              l.sharding.kind = ShardingKind::optimizer;
                            }));
  const RunOutcome first = run_threads(plan, kSteps);
  const RunOutcome second = run_threads(plan, kSteps);
  EXPECT_EQ(first.losses, second.losses);
  for (const auto& [name, weight] : first.weights) EXPECT_TRUE(at::equal(weight, second.weights.at(name))) << name;
}

TEST(Rank, LearnsTheStridesOfItsSequences) {
  Plan plan = plan_of(llama_like(), layout([](Layout&) {}));
  plan.job.global_batch = 8;
  OptimizerOptions optimizer;
  optimizer.learning_rate = 1e-2;
  const RunOutcome outcome = run_threads(plan, 40, optimizer);
  EXPECT_LT(outcome.losses.back(), 0.75 * outcome.losses.front());
}

} // namespace
} // namespace foretrain
