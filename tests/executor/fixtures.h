#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/interpreter.h"

/// Tiny models, and runs of several ranks as threads of one process.
namespace foretrain::executor_fixtures {

/// RMSNorm, SwiGLU, rotary positions, grouped queries, an odd vocabulary (padded under tp 2).
[[nodiscard]] ModelSpec llama_like(bool tied = false);
/// LayerNorm, GELU, learned positions, biases everywhere, tied table.
[[nodiscard]] ModelSpec gpt_like();
/// fp64, AdamW, sequences of 8 tokens, global batch 4, micro-batch 1; the layout stays {}.
[[nodiscard]] Plan plan_of(const ModelSpec& model, const Layout& layout);
[[nodiscard]] Program lowered(const Plan& plan);

/// What a run of all ranks found.
struct RunOutcome {
  std::vector<double> losses;                                           ///< per step, of the global batch
  std::vector<double> gradient_norms;                                   ///< per step
  std::vector<std::map<std::string, at::Tensor>> gradients;             ///< per step, whole tensors by global name
  std::map<std::string, at::Tensor> weights;                            ///< after the last step
  std::vector<std::vector<StepRecord>> records;                         ///< per step and rank
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> scratch; ///< of ops that took other bytes than the
                                                                        ///< Program says: said, taken
  std::vector<std::string> errors; ///< of ranks that gave up; then weights are empty
};
using StorePointer = c10::intrusive_ptr<c10d::Store>;
using Connect =
    std::function<Result<std::unique_ptr<Communicator>>(const Program& program, int rank, const StorePointer& store)>;
/// What a run of threads does besides.
struct Besides {
  Connect connect;                                 ///< how ranks find each other; empty: by Gloo
  std::function<std::unique_ptr<Device>()> device; ///< what a rank computes on; empty: the host
  std::filesystem::path resume;  ///< a checkpoint that it goes on from; what the outcome says of earlier steps is empty
  std::filesystem::path weights; ///< under Hugging Face's names, to start from
  CheckpointOptions checkpoint;
  std::function<std::vector<std::int64_t>(std::int64_t sequence, std::int64_t count)> tokens;
  bool may_fail = false; ///< errors are the outcome's business
};
/// Runs `steps` steps (those before a checkpoint included) with one thread per rank over a HashStore.
[[nodiscard]] RunOutcome run_threads(const Plan& plan, int steps, OptimizerOptions optimizer = {},
                                     bool forced_routing = true, const Besides& besides = {});

/// A layout under test, and its name in the test's.
struct LayoutCase {
  std::string name;
  ModelSpec model;
  Layout layout;
};
void PrintTo(const LayoutCase& value, std::ostream* out);
/// Nothing sharded but what `change` shards.
[[nodiscard]] LayoutCase layout_case(const std::string& name, const ModelSpec& model,
                                     const std::function<void(Layout&)>& change);

/// Small experts in every second layer of `llama_like`, a shared one too.
[[nodiscard]] ModelSpec mixtral_like();
/// `llama_like` with norms of queries and keys over each head.
[[nodiscard]] ModelSpec qwen3_like();
/// Such norms over all heads, and experts in every layer.
[[nodiscard]] ModelSpec olmoe_like();
/// Latent attention.
[[nodiscard]] ModelSpec deepseek_like();
/// The same with experts in all layers but the first, and a layer that predicts one more token.
[[nodiscard]] ModelSpec deepseek_mtp_like();
/// `model` with such a layer.
[[nodiscard]] ModelSpec with_mtp(ModelSpec model);

inline constexpr int kSteps = 5;
/// Runs a plan, and the same model and job in one process without pipeline, splits, sharding and recomputation: losses,
/// gradients of every step and weights after the last one must be equal to rounding.
/// Relative: of losses, and norm-wise of each tensor.
struct Bounds {
  double loss = 1e-12;    ///< the same sums in another order, in double; losses are means of numbers near 4
  double tensors = 1e-10; ///< after as many optimizer steps; measured 1e-15 to 1e-13
};
/// `besides` is for the plan as it is; the one process computes on the host.
void expect_equal_to_one_process(const Plan& plan, int steps, const Bounds& bounds = {}, const Besides& besides = {});
/// Two steps: every rank records the ops of its Program in their order, with the bytes of each transfer, and no buffer
/// outlives its slot.
void expect_ops_of_program(const Plan& plan);

/// ‖a − b‖ / ‖b‖, the absolute norm where b is zero.
[[nodiscard]] double distance(const at::Tensor& a, const at::Tensor& b);

} // namespace foretrain::executor_fixtures
