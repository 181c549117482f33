#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/lower.h"
#include "core/program/memory.h"
#include "core/spec/calibration.h"
#include "core/spec/presets.h"
#include "planner/rules/rule.h"
#include "planner/search.h"
#include "tests/support/places.h"

/// What the cases share: plans from presets, their verdict, memory and prediction. Sources of the cases: docs/cases.md.
namespace foretrain::cases {

inline DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

inline Plan plan_of(ModelSpec model, const std::string& cluster, int devices, int sequence, std::int64_t global_batch,
                    const std::string& semantics = "megatron-core") {
  Plan plan;
  plan.model = std::move(model);
  plan.cluster = load_cluster(data(), cluster, devices).value();
  plan.job.sequence_length = sequence;
  plan.job.global_batch = global_batch;
  plan.job.semantics = semantics;
  return plan;
}
inline Plan plan_of(const std::string& model, const std::string& cluster, int devices, int sequence,
                    std::int64_t global_batch, const std::string& semantics = "megatron-core") {
  return plan_of(data().model(model).value(), cluster, devices, sequence, global_batch, semantics);
}

inline Semantics semantics_of(const Plan& plan) {
  return data().semantics(plan.job.semantics).value();
}

/// Ids of the rules that reject the plan.
inline std::vector<std::string> rules_against(const Plan& plan, const Semantics& semantics) {
  std::vector<std::string> ids;
  const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, device_count(plan.cluster)};
  for (const Rejection& rejection : all_rejections(input)) ids.push_back(rejection.rule);
  return ids;
}
inline std::vector<std::string> rules_against(const Plan& plan) {
  return rules_against(plan, semantics_of(plan));
}

inline bool is_legal(const Plan& plan) {
  return rules_against(plan).empty();
}

inline Rejection rejection_of(const Plan& plan, const Semantics& semantics) {
  const RuleInput input{plan.model, plan.cluster, plan.job, semantics, plan.layout, device_count(plan.cluster)};
  return first_rejection(input).value_or(Rejection{});
}

inline Program lowered(const Plan& plan) {
  return lower(plan, semantics_of(plan));
}

inline StageMemory memory_of(const Plan& plan, int stage = 0) {
  const Program program = lowered(plan);
  return stage_memory(program, program.roles[static_cast<std::size_t>(stage)]);
}

inline Bytes part(const StageMemory& memory, MemoryPart which) {
  return memory.parts[static_cast<std::size_t>(which)];
}

/// Parameters, gradients, master weights and moments.
inline Bytes state_of(const StageMemory& memory) {
  return part(memory, MemoryPart::parameters) + part(memory, MemoryPart::gradients) + part(memory, MemoryPart::master) +
         part(memory, MemoryPart::moments);
}

/// What the allocator holds beyond model state at the peak: live parameters aside, the part that users forget.
inline Bytes beyond_state(const StageMemory& memory) {
  return memory.allocated - state_of(memory);
}

inline Result<Prediction> predicted(const Plan& plan, Engine engine = Engine::slots) {
  const Semantics semantics = semantics_of(plan);
  const auto calibration = load_calibration(data().root, plan.cluster.device);
  if (!calibration) return tl::unexpected(calibration.error());
  return predict(plan, semantics, *calibration, engine, "", data().root.string());
}

inline double gib(Bytes bytes) {
  return static_cast<double>(bytes.value) / kGiB;
}
inline double gb(Bytes bytes) {
  return static_cast<double>(bytes.value) / 1e9;
}

} // namespace foretrain::cases
