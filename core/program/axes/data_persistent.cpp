#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/program/axes/data_detail.h"
#include "core/program/axes/expert.h"
#include "core/program/layers/ends.h"
#include "core/program/state.h"

namespace foretrain::data {

using namespace detail;

namespace {

/// One cached half-precision gradient per distinct weight shape (TransformerEngine module/base.py, get_dummy_wgrad).
/// The head is not one of its layers; an expert weight counts as one matrix.
Bytes dummy_weight_gradients(const LayerContext& c, const Program& program, const Role& role) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Chunk& chunk : role.chunks)
    for (const int index : chunk.blocks) {
      const Block& block = program.blocks[static_cast<std::size_t>(index)];
      if (block.kind != BlockKind::layer && block.kind != BlockKind::mtp) continue;
      for (const Parameter& parameter : block.parameters) {
        if (parameter.frozen || parameter.local.size() < 2 || parameter.name.find(".adapter") != std::string::npos ||
            parameter.name.find("router") != std::string::npos || parameter.name.find("embedding") != std::string::npos)
          continue;
        const std::vector<std::int64_t> matrix(parameter.local.end() - 2, parameter.local.end());
        if (std::find(shapes.begin(), shapes.end(), matrix) == shapes.end()) shapes.push_back(matrix);
      }
    }
  std::int64_t bytes = 0;
  for (const auto& shape : shapes) bytes += shape[0] * shape[1] * c.width;
  return Bytes(bytes);
}

/// Communicators that a rank of this layout opens.
int communicators(const Mesh& mesh) {
  int count = 0;
  for (const Group group :
       {Group::tp, Group::cp, Group::pp, Group::ep, Group::etp, Group::data, Group::expert_data, Group::embedding})
    if (mesh.size(group) > 1) ++count;
  return count;
}

/// Workspaces as fitted on devices of compute capability 9 and later: TransformerEngine's is 28 MiB smaller before
/// (cpp_extensions/gemm.py: 32 MiB, else 4 MiB).
Bytes workspace_of(const LayerContext& c, Bytes fitted) {
  constexpr Bytes kSmaller(28 * kMiB);
  return c.large_workspaces || !c.semantics->dummy_weight_gradients
             ? fitted
             : Bytes(std::max<std::int64_t>(0, fitted.value - kSmaller.value));
}

} // namespace

StateBytes detail::state_of_role(const LayerContext& c, const Program& program, const Role& role) {
  StateBytes state;
  for (const Chunk& chunk : role.chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters)
        state += state_bytes(parameter, program.mesh.size(parameter.expert ? Group::expert_shard : Group::shard),
                             *c.job, *c.semantics, c.low, c.layout.sharding, c.layout.offload.optimizer);
  return state;
}

void add_persistent(const LayerContext& c, const Program& program, Role& role) {
  const Semantics& s = *c.semantics;
  const StateBytes state = state_of_role(c, program, role);
  const auto add = [&role](std::string name, MemoryPart part, Bytes bytes) {
    if (bytes.value > 0) role.persistent.push_back({std::move(name), part, bytes});
  };
  add("parameters", MemoryPart::parameters, state.parameters);
  add("gradients", MemoryPart::gradients, state.gradients - state.step_gradients);
  add("master weights", MemoryPart::master, state.master);
  add("moments", MemoryPart::moments, state.moments);
  if (c.layout.sharding.kind == ShardingKind::parameters && !reshards(c)) {
    const Elements total = elements_of_role(program, role);
    add("unsharded parameters", MemoryPart::parameters,
        gathered_bytes(c, total.dense + total.expert, total.quantised_dense + total.quantised_expert));
    add("unsharded gradients", MemoryPart::gradients,
        Bytes((total.trained_dense() + total.trained_expert()) * bits_of(gradient_dtype(c)) / 8));
  }
  if (c.low.active && c.low.cached_weights && !c.job->quantised_weights) {
    const Elements total = elements_of_role(program, role);
    add("quantised weights", MemoryPart::parameters,
        Bytes(std::llround(c.low.weight * c.low.directions *
                           static_cast<double>(total.quantised_dense + total.quantised_expert))));
  }
  if (s.dummy_weight_gradients && c.gradient_sum == 0)
    add("cached weight gradients", MemoryPart::temporaries, dummy_weight_gradients(c, program, role));
  const bool has_head = role.stage == program.stages - 1;
  add("workspaces", MemoryPart::temporaries, workspace_of(c, has_head ? s.workspace_head : s.workspace));
  if (has_head && program.stages > 1 && s.keeps_input_gradient)
    add("input gradient of the micro-batch before", MemoryPart::temporaries, role.boundary);
  if (has_head && s.keeps_logits && program.micro_batches > 1) {
    const std::int64_t columns =
        layers::cross_entropy_of(c) == CrossEntropy::gathered ? c.vocab_padded : c.vocab_padded / c.layout.tp;
    add("logits of the micro-batch before", MemoryPart::logits, Bytes(c.width * c.tokens * columns));
  }
  if (c.model->moe) {
    const double rows = static_cast<double>(expert::sizes_of(c).received * c.model->hidden * c.width);
    add("unexplained part of mixture-of-experts runs", MemoryPart::temporaries,
        Bytes(std::llround(s.moe_copies * rows)));
  }
  const bool zero = s.family == SemanticsFamily::zero && c.layout.sharding.kind != ShardingKind::none;
  if (zero) {
    add("reduce bucket", MemoryPart::buckets,
        Bytes(s.reduce_bucket * c.width * (c.layout.overlap.dp_gradients ? 2 : 1)));
    add("gather bucket", MemoryPart::buckets, Bytes(s.gather_bucket * c.width));
  }
  role.outside = s.context + s.communicator * communicators(program.mesh);
}

Bytes host_memory(const LayerContext& c, const Program& program, const Role& role) {
  if (!c.layout.offload.optimizer) return Bytes(0);
  const Bytes state = state_of_role(c, program, role).host;
  const auto gradients =
      std::find_if(role.step.begin(), role.step.end(), [](const Op& op) { return op.kind == OpKind::copy; });
  FORETRAIN_CHECK(gradients != role.step.end(), "an optimizer on the host gets the gradients");
  return state + gradients->bytes + executor_piece(c, program, role);
}

} // namespace foretrain::data
