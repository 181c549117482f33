#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/names.h"
#include "tests/executor/fixtures.h"
#include "tests/executor/tensor_device.h"

/// Norms of queries and keys: layouts against one process. What they compute is compared in model_test.
namespace foretrain {
namespace {

using namespace executor_fixtures;

Layout tensor_parallel(bool sequence_parallel) {
  Layout l;
  l.sharding.kind = ShardingKind::none;
  l.tp = 2;
  l.sequence_parallel = sequence_parallel;
  return l;
}

/// The same for every model, whose name is appended.
void add_layouts(std::vector<LayoutCase>& list, const ModelSpec& model) {
  const auto add = [&](const std::string& name, const std::function<void(Layout&)>& change) {
    list.push_back(layout_case(name + "_" + model.name.substr(5), model, change));
  };
  if (!model.moe) add("tp2", [](Layout& l) { l.tp = 2; }); // experts are routed under sequence parallelism only
  add("tp2_sp", [](Layout& l) { l.tp = 2, l.sequence_parallel = true; });
  add("tp2_sp_micro_batch_2", [](Layout& l) { l.tp = l.micro_batch = 2, l.sequence_parallel = true; });
  add("pp2", [](Layout& l) { l.pp = 2; });
  add("dp2", [](Layout& l) { l.dp_shard = 2; });
  add("tp2_sp_pp2_zb_h1", [](Layout& l) {
    l.tp = l.pp = 2;
    l.sequence_parallel = true;
    l.schedule.kind = "zb-h1";
  });
  for (const ShardingKind kind : {ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters}) {
    const std::string id(id_of(kind));
    add(id, [&](Layout& l) { l.dp_shard = 2, l.sharding.kind = kind; });
    add(id + "_tp2_sp", [&](Layout& l) {
      l.tp = l.dp_shard = 2;
      l.sequence_parallel = true;
      l.sharding.kind = kind;
    });
    if (!model.moe) add(id + "_tp2", [&](Layout& l) { l.tp = l.dp_shard = 2, l.sharding.kind = kind; });
  }
  for (const ContextKind kind : {ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses}) {
    const std::string id = kind == ContextKind::all_gather ? "gather" : std::string(id_of(kind));
    add("cp2_" + id, [&](Layout& l) { l.cp = 2, l.context_parallel.kind = kind; });
  }
  add("tp2_sp_cp2_ring", [](Layout& l) { l.tp = l.cp = 2, l.sequence_parallel = true; });
  add("recomputed", [](Layout& l) {
    l.tp = 2;
    l.sequence_parallel = true;
    l.recompute.kind = RecomputeKind::full;
  });
  for (const RecomputeModule module : {RecomputeModule::layernorm, RecomputeModule::core_attention}) {
    const std::string id = module == RecomputeModule::layernorm ? "layernorm" : "core_attention";
    add("recomputed_" + id, [&](Layout& l) {
      l.tp = 2;
      l.sequence_parallel = true;
      l.recompute.kind = RecomputeKind::selective;
      l.recompute.modules = {module};
    });
  }
}

std::vector<LayoutCase> cases() {
  std::vector<LayoutCase> list;
  ModelSpec wide = qwen3_like();
  wide.name = "tiny-wide";
  wide.qk_norm = QkNorm::full_width;
  ModelSpec layer_norm = qwen3_like();
  layer_norm.name = "tiny-layer-norm";
  layer_norm.norm = NormKind::layer;
  for (const ModelSpec& model : {qwen3_like(), olmoe_like()}) add_layouts(list, model);
  list.push_back(layout_case("tp2_wide", wide, [](Layout& l) { l.tp = 2; }));
  list.push_back(layout_case("tp2_zero3_wide", wide, [](Layout& l) {
    l.tp = l.dp_shard = 2;
    l.sharding.kind = ShardingKind::parameters;
  }));
  list.push_back(layout_case("tp2_layer_norm", layer_norm, [](Layout& l) { l.tp = 2; }));
  list.push_back(layout_case("tp2_sp_layer_norm", layer_norm, [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }));
  list.push_back(layout_case("ep2_olmoe", olmoe_like(), [](Layout& l) { l.dp_shard = l.ep = 2; }));
  list.push_back(layout_case("tp2_sp_ep2_olmoe", olmoe_like(), [](Layout& l) {
    l.tp = l.ep = 2;
    l.sequence_parallel = true;
  }));
  list.push_back(layout_case("tp2_sp_mtp", with_mtp(qwen3_like()), [](Layout& l) {
    l.tp = 2;
    l.sequence_parallel = true;
  }));
  return list;
}

class QueryKeyNormTest : public testing::TestWithParam<LayoutCase> {};

TEST_P(QueryKeyNormTest, EqualsOneProcess) {
  expect_equal_to_one_process(plan_of(GetParam().model, GetParam().layout), kSteps);
}

TEST_P(QueryKeyNormTest, DoesWhatTheProgramSays) {
  expect_ops_of_program(plan_of(GetParam().model, GetParam().layout));
}

INSTANTIATE_TEST_SUITE_P(All, QueryKeyNormTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<LayoutCase>& one) { return one.param.name; });

// bfloat16: the four numbers of a norm's gradient add up terms of both signs over tokens and heads, so what is 3 to 4 %
// of other gradients (`Precisions` of layouts_test) was measured as 6 to 9 % of theirs.
TEST(QueryKeyNorm, LowerPrecisionsAreWithinTheirRounding) {
  for (const QkNorm norm : {QkNorm::per_head, QkNorm::full_width})
    for (const bool sp : {false, true}) {
      ModelSpec model = qwen3_like();
      model.qk_norm = norm;
      Plan plan = plan_of(model, tensor_parallel(sp));
      plan.job.precision = Precision::fp32;
      expect_equal_to_one_process(plan, kSteps, {1e-5, 1e-5});
      plan.job.precision = Precision::bf16;
      expect_equal_to_one_process(plan, 1, {1e-2, 0.15});
    }
}

// With the kernels of devices, over ranks.
TEST(QueryKeyNorm, OnTensorsEqualsTheHostsLoops) {
  Besides besides;
  besides.device = &tensor_device;
  for (const QkNorm norm : {QkNorm::per_head, QkNorm::full_width})
    for (const bool sp : {false, true}) {
      ModelSpec model = qwen3_like();
      model.qk_norm = norm;
      expect_equal_to_one_process(plan_of(model, tensor_parallel(sp)), kSteps, {}, besides);
    }
}

} // namespace
} // namespace foretrain
