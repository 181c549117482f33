#include "executor/communicators/nccl.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "core/program/lower.h"
#include "core/spec/io.h"

/// What can be said of the NCCL communicator without a device: it links, and it says that there is none.
namespace foretrain {
namespace {

TEST(Nccl, SaysThatThereIsNoDevice) {
  const DataFolder data{FORETRAIN_SOURCE_DIR "/data"};
  const auto json = parse_json(R"({"model": {"name": "tiny", "layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2,
      "head_dim": 4, "ffn": 24, "vocab": 51}, "cluster": "cpu-host", "job": {"sequence_length": 8, "global_batch": 2,
      "precision": "fp32", "semantics": "foretrain"}, "layout": {"tp": 2, "sharding": "none"}})",
                               "plan");
  ASSERT_TRUE(json);
  const auto plan = plan_from(*json, "plan", data);
  ASSERT_TRUE(plan) << to_string(plan.error());
  const Program program = lower(*plan, *data.semantics("foretrain"));
  NcclOptions options;
  options.device = 4096; // more than any machine has
  const auto connected = connect_nccl(program, 0, c10::make_intrusive<c10d::HashStore>(), options);
  ASSERT_FALSE(connected);
  EXPECT_NE(to_string(connected.error()).find("CUDA"), std::string::npos) << to_string(connected.error());
}

} // namespace
} // namespace foretrain
