#pragma once

#include <cstdint>
#include <vector>

#include "core/program/axes/data.h"
#include "core/program/state.h"

/// Pieces that the files of data parallelism share.
namespace foretrain::data::detail {

[[nodiscard]] Op transfer(Collective kind, Group group, DType dtype, std::int64_t elements, Stream stream);
[[nodiscard]] DType gradient_dtype(const LayerContext& context);
/// A framework of Megatron's family that reduces after the backward alone sums whole gradients in fp32, also where the
/// optimizer's state is sharded (Aleph-Alpha/scaling@78489292b core/optimizer/allreduce.py).
[[nodiscard]] bool sums_whole_gradients(const LayerContext& context);
/// Gradient reduction of `elements` of one kind: all-reduce for replicas; with sharded state a reduce-scatter inside
/// the shard group, then an all-reduce of the shard over the replicas (HSDP).
[[nodiscard]] std::vector<Op> reductions(const LayerContext& context, const Mesh& mesh, std::int64_t elements,
                                         bool expert);
/// Bytes of gathered weights, those that lie quantised in their own type.
[[nodiscard]] Bytes gathered_bytes(const LayerContext& context, std::int64_t elements, std::int64_t quantised);
/// Gather of updated weights: those that are trained.
[[nodiscard]] std::vector<Op> trained_gathers(const LayerContext& context, const Mesh& mesh, const Elements& elements,
                                              bool expert);
/// Gather of sharded weights: all of them.
[[nodiscard]] std::vector<Op> gathers(const LayerContext& context, const Mesh& mesh, const Elements& elements,
                                      bool expert);
/// Parameters of all blocks of a stage.
[[nodiscard]] Elements elements_of_role(const Program& program, const Role& role);
/// State of all blocks of a stage.
[[nodiscard]] StateBytes state_of_role(const LayerContext& context, const Program& program, const Role& role);
/// Whether sharded parameters are freed after the forward.
[[nodiscard]] bool reshards(const LayerContext& context);

/// Sharded gradients as our own executor reduces them: per block and pass, in every micro-batch.
void executor_reduction(const LayerContext& context, const Program& program, Chunk& chunk);
/// Sharded parameters as our own executor gathers them for one pass.
void executor_gather(const LayerContext& context, const Program& program, Chunk& chunk, Pass pass);

} // namespace foretrain::data::detail
