#pragma once

#include <algorithm>

#include "core/base/describe.h"
#include "core/spec/cluster.h"
#include "core/spec/layout.h"

/// How a layout is read and written. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<Axis> {
  static constexpr std::array names = {std::pair{Axis::tp, "tp"}, std::pair{Axis::cp, "cp"}, std::pair{Axis::dp, "dp"},
                                       std::pair{Axis::pp, "pp"}};
};
template <> struct EnumNames<ShardingKind> {
  static constexpr std::array names = {
      std::pair{ShardingKind::none, "none"}, std::pair{ShardingKind::optimizer, "optimizer"},
      std::pair{ShardingKind::gradients, "gradients"}, std::pair{ShardingKind::parameters, "parameters"}};
};
template <> struct EnumNames<ContextKind> {
  static constexpr std::array names = {std::pair{ContextKind::all_gather, "all-gather"},
                                       std::pair{ContextKind::ring, "ring"}, std::pair{ContextKind::ulysses, "ulysses"},
                                       std::pair{ContextKind::ulysses_ring, "ulysses-ring"}};
};
template <> struct EnumNames<DispatchKind> {
  static constexpr std::array names = {std::pair{DispatchKind::all_gather, "all-gather"},
                                       std::pair{DispatchKind::all_to_all, "all-to-all"},
                                       std::pair{DispatchKind::deduplicated, "deduplicated"}};
};
template <> struct EnumNames<RecomputeKind> {
  static constexpr std::array names = {std::pair{RecomputeKind::none, "none"}, std::pair{RecomputeKind::full, "full"},
                                       std::pair{RecomputeKind::selective, "selective"},
                                       std::pair{RecomputeKind::operators, "operators"}};
};
template <> struct EnumNames<RecomputeMethod> {
  static constexpr std::array names = {std::pair{RecomputeMethod::uniform, "uniform"},
                                       std::pair{RecomputeMethod::block, "block"}};
};
template <> struct EnumNames<RecomputeModule> {
  static constexpr std::array names = {std::pair{RecomputeModule::core_attention, "core-attention"},
                                       std::pair{RecomputeModule::layernorm, "layernorm"},
                                       std::pair{RecomputeModule::activation, "activation"},
                                       std::pair{RecomputeModule::mla_up, "mla-up"},
                                       std::pair{RecomputeModule::mlp, "mlp"},
                                       std::pair{RecomputeModule::moe, "moe"}};
};

inline constexpr double kMostDegree = kMostDevices;
inline constexpr double kMostMicroBatch = 1e6;
inline constexpr double kMostChunks = 1e4;
inline constexpr double kMostGroup = 1e6;

template <> struct Described<ShardingChoice> {
  using T = ShardingChoice;
  static constexpr const char* name = "sharding";
  static constexpr const char* doc = "State that data-parallel ranks split among them.";
  static constexpr auto members = std::tuple{
      optional("kind", &T::kind, "none = replicas, optimizer = ZeRO-1, gradients = ZeRO-2, parameters = ZeRO-3."),
      optional("reshard_after_forward", &T::reshard_after_forward,
               "Free gathered parameters after the forward pass; left out = as the semantics do.")
          .only_for("parameters")};
};

template <> struct Described<ScheduleChoice> {
  using T = ScheduleChoice;
  static constexpr const char* name = "schedule";
  static constexpr const char* doc = "Order of micro-batches in the pipeline.";
  static std::vector<std::string> kinds() { return {kScheduleKinds.begin(), kScheduleKinds.end()}; }
  static constexpr auto members = std::tuple{optional("kind", &T::kind, "Which schedule."),
                                             optional("chunks", &T::chunks, "Model chunks per stage (virtual stages).")
                                                 .between(1, kMostChunks)
                                                 .only_for("interleaved"),
                                             optional("group", &T::group,
                                                      "Micro-batches that a chunk runs before the next one takes over; "
                                                      "0 = as many as stages.")
                                                 .between(0, kMostGroup)
                                                 .only_for("interleaved")};
};

template <> struct Described<ContextChoice> {
  using T = ContextChoice;
  static constexpr const char* name = "context_parallel";
  static constexpr const char* doc = "How attention sees the whole sequence when it is split.";
  static constexpr auto members = std::tuple{
      optional("kind", &T::kind, "Gathered keys and values, a ring, all-to-all over heads, or that inside a ring."),
      optional("ulysses", &T::ulysses, "Degree of the inner all-to-all; divides `cp`.")
          .between(1, kMostDegree)
          .only_for("ulysses-ring")};
};

template <> struct Described<DispatchChoice> {
  using T = DispatchChoice;
  static constexpr const char* name = "expert_dispatch";
  static constexpr const char* doc = "How tokens reach their experts.";
  static constexpr auto members =
      std::tuple{optional("kind", &T::kind, "Everybody gets all, one copy per expert, or one copy per node.")};
};

template <> struct Described<RecomputeChoice> {
  using T = RecomputeChoice;
  static constexpr const char* name = "recompute";
  static constexpr const char* doc = "Activations that are computed again in the backward pass.";
  static constexpr auto members = std::tuple{
      optional("kind", &T::kind,
               "none, whole layers (full), parts of layers (selective), or all but what a policy keeps (operators)."),
      optional("method", &T::method, "uniform: a checkpoint every `count` layers; block: the first `count` of a stage.")
          .only_for("full"),
      optional("count", &T::count, "Layers; left out = 1 for uniform, all for block.").between(1, 1e5).only_for("full"),
      optional("modules", &T::modules, "Parts that are computed again, each once.").only_for("selective")};
  static Result<void> check(const T& recompute, const Where& where) {
    if (recompute.kind == RecomputeKind::selective && recompute.modules.empty())
      return fail(where.at("modules").text(), "selective recomputation without modules",
                  hint_for("", enum_ids<RecomputeModule>()));
    for (std::size_t i = 1; i < recompute.modules.size(); ++i)
      if (recompute.modules[i - 1] >= recompute.modules[i])
        return fail(where.at("modules").at(std::to_string(i)).text(),
                    fmt::format("'{}' stands twice or out of order", name_of(recompute.modules[i])),
                    "in this order: " + join(enum_ids<RecomputeModule>(), ", "));
    return {};
  }
};

template <> struct Described<OffloadChoice> {
  using T = OffloadChoice;
  static constexpr const char* name = "offload";
  static constexpr const char* doc = "What lives on the host.";
  static constexpr auto members =
      std::tuple{optional("optimizer", &T::optimizer, "Optimizer state and step on the host.")};
};

template <> struct Described<OverlapChoice> {
  using T = OverlapChoice;
  static constexpr const char* name = "overlap";
  static constexpr const char* doc = "What runs beside compute.";
  static constexpr auto members =
      std::tuple{optional("tp", &T::tp, "Tensor-parallel collectives pipelined with their matrix product."),
                 optional("dp_gradients", &T::dp_gradients, "Gradient reduction during the last backward pass."),
                 optional("dp_parameters", &T::dp_parameters, "Parameter gather during the next forward pass."),
                 optional("p2p", &T::p2p, "Pipeline transfers, where the schedule allows it."),
                 optional("moe", &T::moe, "Expert all-to-all beside compute of another micro-batch.")};
};

namespace detail {
template <class Owner, class Field> constexpr auto degree(const char* key, Field Owner::*pointer, const char* doc) {
  return optional(key, pointer, doc).between(1, kMostDegree);
}
} // namespace detail

template <> struct Described<Layout> {
  using T = Layout;
  static constexpr const char* name = "layout";
  static constexpr const char* doc =
      "How the job is cut: dp = dp_shard * dp_replicate, devices = tp * cp * dp * pp; experts fold over tp * cp * dp.";
  static constexpr auto members = std::tuple{
      detail::degree("tp", &T::tp, "Tensor-parallel degree."),
      detail::degree("pp", &T::pp, "Pipeline stages."),
      detail::degree("cp", &T::cp, "Context-parallel degree."),
      detail::degree("ep", &T::ep, "Expert-parallel degree."),
      detail::degree("etp", &T::etp, "Tensor-parallel degree of experts."),
      detail::degree("dp_shard", &T::dp_shard, "Data-parallel ranks that share sharded state."),
      detail::degree("dp_replicate", &T::dp_replicate, "Copies of that group."),
      optional("placement", &T::placement, "Order of the axes, innermost (neighbouring ranks) first."),
      optional("micro_batch", &T::micro_batch, "Sequences of a micro-batch.").between(1, kMostMicroBatch),
      optional("sequence_parallel", &T::sequence_parallel, "Norms and residuals split over tp; needs tp > 1."),
      optional("schedule", &T::schedule, "Pipeline schedule."),
      optional("layers_per_stage", &T::layers_per_stage,
               "Layers of each model chunk in depth order; empty = evenly split.")
          .between(0, 1e5),
      optional("sharding", &T::sharding, "Sharded state."),
      optional("context_parallel", &T::context_parallel, "Kind of context parallelism."),
      optional("expert_dispatch", &T::expert_dispatch, "Kind of expert dispatch."),
      optional("recompute", &T::recompute, "Recomputation."),
      optional("offload", &T::offload, "Offload."),
      optional("overlap", &T::overlap, "Overlap.")};
  static Result<void> check(const T& layout, const Where& where) {
    std::array<Axis, 4> axes = layout.placement;
    std::sort(axes.begin(), axes.end());
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i] != static_cast<Axis>(i))
        return fail(where.at("placement").text(), "each of tp, cp, dp, pp must stand once");
    double devices = 1;
    for (const int degree : {layout.tp, layout.pp, layout.cp, layout.dp_shard, layout.dp_replicate}) devices *= degree;
    if (devices > kMostDegree)
      return fail(where.text(), fmt::format("{:g} devices are more than {}", devices, kMostDevices));
    // The product of ep and etp divides the devices in any legal layout; here it only has to fit.
    if (static_cast<double>(layout.ep) * layout.etp > kMostDegree)
      return fail(where.at("ep").text(),
                  fmt::format("ep {} times etp {} is more than {}", layout.ep, layout.etp, kMostDevices));
    return {};
  }
};

} // namespace foretrain
