#pragma once

#include <vector>

#include "core/program/context.h"
#include "core/program/program.h"

/// Data parallelism: when gradients are reduced and parameters gathered, in which buckets, and what that holds in
/// memory.
namespace foretrain::data {

/// Parameters of a set of blocks by the group over which they are replicated.
struct Elements {
  std::int64_t dense = 0;
  std::int64_t expert = 0;
  std::int64_t tp_partial = 0;       ///< part of `dense` that is trained and whose gradient tp ranks have in parts
  std::int64_t frozen_dense = 0;     ///< part of `dense` that is not trained
  std::int64_t frozen_expert = 0;    ///< part of `expert` that is not trained
  std::int64_t quantised_dense = 0;  ///< part of `dense` that products read in 8 or 4 bits
  std::int64_t quantised_expert = 0; ///< the same of `expert`
  [[nodiscard]] std::int64_t trained_dense() const { return dense - frozen_dense; }
  [[nodiscard]] std::int64_t trained_expert() const { return expert - frozen_expert; }
  Elements& operator+=(const Elements& other);
  bool operator==(const Elements&) const = default;
};
[[nodiscard]] Elements elements_of(const Block& block);
/// A parameter of each sort that is there, with these sums together: all that the collectives depend on.
[[nodiscard]] std::vector<Parameter> stand_ins(const Elements& elements);

/// Parameters of a block whose gradients one pass over it adds to, in ascending order: a split backward adds to those
/// of norms with the gradient of their input (their op does both), to all others apart.
[[nodiscard]] std::vector<int> gradients_written(const Block& block, Pass pass);

/// Our own executor's receive buffer while the gradients of the blocks at `positions` are reduced into shards; nothing
/// under other semantics.
[[nodiscard]] Bytes reduction_temporary(const LayerContext& context, const Program& program, const Chunk& chunk,
                                        const std::vector<int>& positions, bool expert);

/// Our own executor's norm and optimizer work on pieces of parameters and hold one of them; nothing under other
/// semantics.
[[nodiscard]] Bytes executor_piece(const LayerContext& context, const Program& program, const Role& role);

/// Adds the collectives between blocks to a chunk of `role`: bucketed reductions in the last micro-batch's backward, or
/// per block and micro-batch for sharded gradients and parameters; gathers before use.
void add_collectives(const LayerContext& context, const Program& program, Role& role, Chunk& chunk);

/// Adds the ops of the step's end (what did not overlap, tied and replicated gradients, norm, optimizer) and their
/// transient memory.
void add_step(const LayerContext& context, const Program& program, Role& role);

/// Model state, buffers and workspaces that stay for the whole step.
void add_persistent(const LayerContext& context, const Program& program, Role& role);

/// Peak of a rank's memory on the host where the optimizer is there: its state, the gradients while it works, and,
/// under our own semantics, the piece that it works on. Else nothing.
[[nodiscard]] Bytes host_memory(const LayerContext& context, const Program& program, const Role& role);

} // namespace foretrain::data
