#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain {

enum class Axis { tp, cp, dp, pp };

enum class ShardingKind {
  none,       ///< data parallel replicas hold everything (ZeRO-0)
  optimizer,  ///< optimizer state is sharded (ZeRO-1, Megatron's distributed optimizer)
  gradients,  ///< gradients too (ZeRO-2)
  parameters, ///< parameters too (ZeRO-3, FSDP)
};

struct ShardingChoice {
  ShardingKind kind = ShardingKind::optimizer;
  std::optional<bool> reshard_after_forward; ///< parameters only; absent: the semantics decide
  bool operator==(const ShardingChoice&) const = default;
};

/// Pipeline schedules by id. The catalogue in core/program/schedules has one entry for each; a test compares the lists.
inline constexpr std::array<std::string_view, 7> kScheduleKinds = {"gpipe", "1f1b",  "interleaved", "zb-h1",
                                                                   "zb-h2", "zb-1p", "zb-2p"};

struct ScheduleChoice {
  std::string kind = "1f1b";
  int chunks = 1; ///< model chunks per stage (virtual stages); interleaved only
  int group =
      0; ///< micro-batches that a chunk runs before the next one takes over; 0: as many as stages; interleaved only
  bool operator==(const ScheduleChoice&) const = default;
};

enum class ContextKind {
  all_gather,   ///< keys and values gathered (Llama 3)
  ring,         ///< keys and values travel in a ring, overlapped
  ulysses,      ///< all-to-all between sequence and heads
  ulysses_ring, ///< all-to-all inside, ring outside
};

struct ContextChoice {
  ContextKind kind = ContextKind::ring;
  int ulysses = 1; ///< degree of the inner all-to-all; ulysses_ring only
  bool operator==(const ContextChoice&) const = default;
};

enum class DispatchKind {
  all_gather,   ///< every expert rank gets all tokens of the group
  all_to_all,   ///< a token goes to each of its experts
  deduplicated, ///< one copy per node (DeepEP)
};

struct DispatchChoice {
  DispatchKind kind = DispatchKind::all_to_all;
  bool operator==(const DispatchChoice&) const = default;
};

enum class RecomputeKind {
  none,
  full,
  selective, ///< whole modules
  operators, ///< all but the outputs of the operators that the framework's policy keeps
};
enum class RecomputeMethod {
  uniform, ///< a checkpoint every `count` layers, all layers recomputed
  block,   ///< the first `count` layers of each stage are recomputed
};
enum class RecomputeModule {
  core_attention, ///< softmax(QK)V between the projections
  layernorm,      ///< norm outputs, discarded and redone
  activation,     ///< the feed-forward's activation output (moe_act for experts)
  mla_up,         ///< MLA up projections
  mlp,            ///< the dense feed-forward
  moe,            ///< the whole MoE block
};

struct RecomputeChoice {
  RecomputeKind kind = RecomputeKind::none;
  RecomputeMethod method = RecomputeMethod::uniform; ///< full only
  std::optional<int> count;                          ///< full only; absent: uniform 1, block all layers
  std::vector<RecomputeModule> modules;              ///< selective only, sorted, no duplicates
  bool operator==(const RecomputeChoice&) const = default;
};

struct OffloadChoice {
  bool optimizer = false; ///< optimizer state and step on the host
  bool operator==(const OffloadChoice&) const = default;
};

/// What runs beside compute. A switch that the semantics cannot do is an error when it is on.
struct OverlapChoice {
  bool tp = false;           ///< tensor-parallel collectives pipelined with their GEMM (userbuffers, async TP)
  bool dp_gradients = true;  ///< gradient reduction during the last backward
  bool dp_parameters = true; ///< parameter gather during the next forward
  bool p2p = true;           ///< pipeline transfers beside compute where the schedule allows it
  bool moe = false;          ///< expert all-to-all beside compute of another micro-batch
  bool operator==(const OverlapChoice&) const = default;
};

/// How the job is cut. dp = dp_shard * dp_replicate; world = tp * cp * dp * pp. Experts fold over tp * cp * dp:
/// ep * etp divides it.
struct Layout {
  int tp = 1;
  int pp = 1;
  int cp = 1;
  int ep = 1;
  int etp = 1;
  int dp_shard = 1;
  int dp_replicate = 1;
  std::array<Axis, 4> placement = {Axis::tp, Axis::cp, Axis::dp, Axis::pp}; ///< innermost first
  int micro_batch = 1;                                                      ///< sequences
  bool sequence_parallel = false;                                           ///< with tp > 1 only
  ScheduleChoice schedule;
  std::vector<int> layers_per_stage; ///< per model chunk in depth order; empty = even
  ShardingChoice sharding;
  ContextChoice context_parallel;
  DispatchChoice expert_dispatch;
  RecomputeChoice recompute;
  OffloadChoice offload;
  OverlapChoice overlap;
  bool operator==(const Layout&) const = default;
  [[nodiscard]] int dp() const { return dp_shard * dp_replicate; }
  [[nodiscard]] int world() const { return tp * pp * cp * dp(); }
};

} // namespace foretrain
