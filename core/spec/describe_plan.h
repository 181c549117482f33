#pragma once

#include "core/base/describe.h"
#include "core/spec/describe_layout.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"

/// How search spaces are read and written, and the ids of predictions. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<Objective> {
  static constexpr std::array names = {
      std::pair{Objective::step_time, "step-time"}, std::pair{Objective::throughput, "throughput"},
      std::pair{Objective::memory_headroom, "memory-headroom"}, std::pair{Objective::cost, "cost"}};
};
template <> struct EnumNames<Evidence> {
  static constexpr std::array names = {
      std::pair{Evidence::measured, "measured"}, std::pair{Evidence::interpolated, "interpolated"},
      std::pair{Evidence::fitted, "fitted"}, std::pair{Evidence::datasheet, "datasheet"}};
};
template <> struct EnumNames<MemoryPart> {
  static constexpr std::array names = {std::pair{MemoryPart::parameters, "parameters"},
                                       std::pair{MemoryPart::gradients, "gradients"},
                                       std::pair{MemoryPart::master, "master"},
                                       std::pair{MemoryPart::moments, "moments"},
                                       std::pair{MemoryPart::activations, "activations"},
                                       std::pair{MemoryPart::logits, "logits"},
                                       std::pair{MemoryPart::temporaries, "temporaries"},
                                       std::pair{MemoryPart::buckets, "buckets"},
                                       std::pair{MemoryPart::communication, "communication"},
                                       std::pair{MemoryPart::context, "context"},
                                       std::pair{MemoryPart::fragmentation, "fragmentation"}};
  static_assert(names.size() == kMemoryParts);
};
template <> struct EnumNames<TimePart> {
  static constexpr std::array names = {
      std::pair{TimePart::compute, "compute"}, std::pair{TimePart::tp, "tp"},
      std::pair{TimePart::cp, "cp"},           std::pair{TimePart::ep, "ep"},
      std::pair{TimePart::pp, "pp"},           std::pair{TimePart::dp, "dp"},
      std::pair{TimePart::bubble, "bubble"},   std::pair{TimePart::optimizer, "optimizer"},
      std::pair{TimePart::host, "host"},       std::pair{TimePart::other, "other"}};
  static_assert(names.size() == kTimeParts);
};
template <> struct EnumNames<Verdict> {
  static constexpr std::array names = {std::pair{Verdict::fits, "fits"}, std::pair{Verdict::oom, "oom"},
                                       std::pair{Verdict::illegal, "illegal"}};
};
template <> struct EnumNames<Engine> {
  static constexpr std::array names = {std::pair{Engine::replay, "replay"}, std::pair{Engine::simgrid, "simgrid"},
                                       std::pair{Engine::slots, "slots"}};
};

template <> struct Described<SearchSpace> {
  using T = SearchSpace;
  static constexpr const char* name = "space";
  static constexpr const char* doc =
      "Values that a search may try. A list left out means every value that semantics and cluster allow.";
  static constexpr auto members = std::tuple{
      detail::degree("tp", &T::tp, "Tensor-parallel degrees."),
      detail::degree("pp", &T::pp, "Pipeline stages."),
      detail::degree("cp", &T::cp, "Context-parallel degrees."),
      detail::degree("ep", &T::ep, "Expert-parallel degrees."),
      detail::degree("etp", &T::etp, "Tensor-parallel degrees of experts."),
      detail::degree("dp_replicate", &T::dp_replicate, "Copies of the group that shares sharded state."),
      detail::degree("micro_batch", &T::micro_batch, "Sequences of a micro-batch."),
      optional("sequence_parallel", &T::sequence_parallel, "Sequence parallelism."),
      optional("schedules", &T::schedules, "Pipeline schedules."),
      optional("chunks", &T::chunks, "Model chunks per stage of the interleaved schedule.").between(1, kMostChunks),
      optional("groups", &T::groups,
               "Micro-batches that a chunk of the interleaved schedule runs in a row; 0 = as many as stages.")
          .between(0, kMostGroup),
      optional("sharding", &T::sharding, "Sharded state."),
      optional("context_parallel", &T::context_parallel, "Kinds of context parallelism."),
      optional("expert_dispatch", &T::expert_dispatch, "Kinds of expert dispatch."),
      optional("recompute", &T::recompute, "Kinds of recomputation."),
      optional("offload_optimizer", &T::offload_optimizer, "Optimizer state on the host."),
      optional("overlap_tp", &T::overlap_tp,
               "Tensor-parallel collectives in pieces beside their products (overlap.tp of a layout).")};
  static Result<void> check(const T& space, const Where& where) {
    const std::vector<std::string> kinds = Described<ScheduleChoice>::kinds();
    for (std::size_t i = 0; i < space.schedules.size(); ++i)
      if (std::find(kinds.begin(), kinds.end(), space.schedules[i]) == kinds.end())
        return fail(where.at("schedules").at(std::to_string(i)).text(),
                    fmt::format("'{}' is unknown", space.schedules[i]), hint_for(space.schedules[i], kinds));
    return {};
  }
};

} // namespace foretrain
