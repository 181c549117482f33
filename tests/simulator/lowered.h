#pragma once

#include <gtest/gtest.h>

#include "core/program/lower.h"
#include "core/spec/calibration.h"
#include "core/spec/presets.h"
#include "simulator/replay.h"
#include "tests/support/places.h"

/// Plans from presets, lowered, with the cost model of their cluster.
namespace foretrain::lowered {

inline DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

struct Case {
  Plan plan;
  Semantics semantics;
  Calibration calibration;
  CostNeeds needs;
  Program program;
};

inline Plan plan_of(const std::string& model, int devices, int sequence, int global_batch) {
  Plan plan;
  plan.model = data().model(model).value();
  plan.cluster = load_cluster(data(), "dgx-h100", devices).value();
  plan.job.sequence_length = sequence;
  plan.job.global_batch = global_batch;
  plan.layout.schedule.kind = "1f1b";
  return plan;
}

inline Case lower_case(Plan plan) {
  Case made;
  made.plan = std::move(plan);
  made.semantics = data().semantics(made.plan.job.semantics).value();
  made.calibration = load_calibration(data().root, made.plan.cluster.device).value();
  made.needs.precision = made.plan.job.precision;
  made.program = lower(made.plan, made.semantics);
  return made;
}

inline CostModel cost_of(const Case& c) {
  return CostModel::make(c.plan.cluster, c.calibration, c.needs).value();
}

} // namespace foretrain::lowered
