#include "planner/layouts.h"

#include <map>
#include <utility>

#include "planner/explain.h"
#include "planner/rules/rule.h"
#include "planner/twins.h"
#include "tests/planner/samples.h"

namespace foretrain {
namespace {

using namespace samples;

/// Pairs of legal layouts of one space that lower to the same Program: one layout under two names.
std::vector<std::string> twins(const Setting& s) {
  const Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, Objective::step_time, ""};
  const LayoutSpace space(study, s.semantics);
  const Evaluator evaluator = evaluator_of(s);
  Evaluator::Worker worker = evaluator.worker();
  std::map<std::pair<double, std::int64_t>, std::vector<Layout>> alike; // equal time and memory: worth a look
  for (std::size_t group = 0; group < space.groups(); ++group)
    space.visit_group(group, [&](const Layout& layout) {
      const auto weights = [&] { return worker.slot_weights(layout); };
      if (!is_legal(s, layout) || repeats_schedule(layout, s.plan.job, s.semantics.schedules, weights)) return true;
      const Evaluation evaluation = worker.evaluate(layout);
      alike[{evaluation.step_seconds, evaluation.device_bytes}].push_back(layout);
      return true;
    });
  std::vector<std::string> found;
  for (const auto& [figures, layouts] : alike) {
    std::vector<Program> programs;
    for (const Layout& layout : layouts)
      programs.push_back(lower({s.plan.model, s.plan.cluster, s.plan.job, layout}, s.semantics));
    for (std::size_t i = 0; i < programs.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (programs[i] == programs[j]) found.push_back(describe(layouts[j]) + " = " + describe(layouts[i]));
  }
  return found;
}

// Beside a layout with sequence parallelism stands the same one with overlap, where the framework has it.
TEST(Layouts, OverlapOfTensorParallelCollectivesIsADimensionWhereItIsAskedFor) {
  for (const std::string framework : {"megatron-core", "torchtitan", "composer"}) {
    const Setting s = setting_of("llama3-8b", "dgx-h100", 8, 4096, 64, framework);
    Study study{s.plan.model, s.plan.cluster, s.plan.job, {}, Objective::step_time, ""};
    const auto count = [&](std::vector<bool> values, auto&& wanted) {
      study.space.overlap_tp = std::move(values);
      const LayoutSpace space(study, s.semantics);
      std::int64_t found = 0;
      std::int64_t visited = 0;
      for (std::size_t group = 0; group < space.groups(); ++group) {
        std::int64_t index = 0;
        space.visit_group(group, [&](const Layout& layout) {
          if (++visited % 97 == 0) {
            EXPECT_EQ(space.at(std::vector{LayoutPosition{group, index}}).front(), layout);
          }
          ++index;
          found += wanted(layout) ? 1 : 0;
          return true;
        });
      }
      EXPECT_EQ(visited, space.size());
      return found;
    };
    const auto any = [](const Layout&) { return true; };
    const auto beside = [](const Layout& layout) { return layout.overlap.tp; };
    const auto split = [](const Layout& layout) { return layout.tp > 1 && layout.sequence_parallel; };
    const auto legal_beside = [&](const Layout& layout) { return layout.overlap.tp && is_legal(s, layout); };
    EXPECT_EQ(count({false}, beside), 0) << framework;
    const std::int64_t overlapped = count({}, beside);
    EXPECT_EQ(overlapped, s.semantics.tp_overlap ? count({false}, split) : 0) << framework;
    EXPECT_EQ(count({}, any), count({false}, any) + overlapped) << framework;
    EXPECT_EQ(count({true}, legal_beside), count({}, legal_beside)) << framework;
  }
}

TEST(Layouts, HaveOneNameEach) {
  for (const char* model : {"llama3-8b", "mixtral-8x7b"})
    for (const std::string framework :
         {"foretrain", "megatron-zb", "torchtitan", "deepspeed", "nanotron"}) { // one of a kind
      Setting s = setting_of(model, "dgx-h100", 8, 4096, 4, framework);
      s.plan.model.layers = 4;
      s.plan.cluster.tiers.front().fanout = 4;
      const std::vector<std::string> list = twins(s);
      for (const std::string& pair : list) ADD_FAILURE() << model << " under " << framework << ": " << pair;
    }
}

} // namespace
} // namespace foretrain
