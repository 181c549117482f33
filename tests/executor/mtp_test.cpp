#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/names.h"
#include "tests/executor/fixtures.h"

/// Multi-token prediction: layouts against one process. What it computes is compared in model_test.
namespace foretrain {
namespace {

using namespace executor_fixtures;

std::vector<LayoutCase> cases() {
  const ModelSpec apart = with_mtp(llama_like());
  const ModelSpec tied = with_mtp(llama_like(true));
  const ModelSpec deepseek = deepseek_mtp_like();
  std::vector<LayoutCase> list = {
      layout_case("tp2", apart, [](Layout& l) { l.tp = 2; }),
      layout_case("tp2_sp_tied", tied, [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }),
      layout_case("pp2", apart, [](Layout& l) { l.pp = 2; }),
      layout_case("pp2_tied", tied, [](Layout& l) { l.pp = 2; }),
      layout_case("pp2_zb_h1", apart, [](Layout& l) { l.pp = 2, l.schedule.kind = "zb-h1"; }),
      layout_case("pp2_interleaved", apart,
                  [](Layout& l) {
                    l.pp = 2, l.schedule = {"interleaved", 2};
                  }),
      layout_case("cp2_ring", apart, [](Layout& l) { l.cp = 2; }),
      layout_case("cp2_ulysses", tied, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::ulysses; }),
      layout_case("ep2", deepseek, [](Layout& l) { l.dp_shard = l.ep = 2; }),
      layout_case("tp2_sp_pp2_ep2", deepseek, [](Layout& l) { l.tp = l.pp = l.ep = 2, l.sequence_parallel = true; }),
      layout_case("recomputed", deepseek, [](Layout& l) { l.recompute.kind = RecomputeKind::full; }),
      layout_case("recomputed_by_module", deepseek,
                  [](Layout& l) {
                    l.recompute.kind = RecomputeKind::selective;
                    l.recompute.modules = {RecomputeModule::core_attention, RecomputeModule::layernorm,
                                           RecomputeModule::mla_up, RecomputeModule::moe};
                  }),
  };
  for (const ShardingKind kind : {ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters})
    for (const int stages : {1, 2})
      for (const ModelSpec& model : {apart, tied})
        list.push_back(layout_case(std::string(id_of(kind)) + "_pp" + std::to_string(stages) +
                                       (model.tied_embeddings ? "_tied" : ""),
                                   model, [&](Layout& l) { l.dp_shard = 2, l.pp = stages, l.sharding.kind = kind; }));
  return list;
}

class MtpTest : public testing::TestWithParam<LayoutCase> {};

TEST_P(MtpTest, EqualsOneProcess) {
  expect_equal_to_one_process(plan_of(GetParam().model, GetParam().layout), kSteps);
}

INSTANTIATE_TEST_SUITE_P(All, MtpTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<LayoutCase>& one) { return one.param.name; });

TEST(Mtp, ItsLossIsReportedApartAndIsEqualToo) {
  const ModelSpec model = with_mtp(llama_like());
  const auto loss_of = [&](int stages) {
    Layout layout;
    layout.sharding.kind = ShardingKind::none;
    layout.pp = stages;
    double sum = 0;
    const RunOutcome outcome = run_threads(plan_of(model, layout), 1);
    for (const StepRecord& record : outcome.records.front()) sum += record.mtp_loss.value();
    return sum;
  };
  const double whole = loss_of(1);
  EXPECT_GT(whole, 3) << "near the logarithm of a vocabulary of 51, for 7 of 8 tokens";
  EXPECT_NEAR(loss_of(2) / whole, 1, Bounds{}.loss);
}

} // namespace
} // namespace foretrain
