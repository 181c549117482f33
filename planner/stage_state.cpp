#include <algorithm>

#include "core/program/lower.h"
#include "planner/stage_cache.h"

/// What a stage holds and does besides its slots: parameters and their state, the step's end.
namespace foretrain {

const StageState& StageCache::state(int stage) {
  const Layout& l = *view_.layout;
  LongKey& key = scratch_key_;
  key.assign({l.tp, l.ep, l.etp, l.sequence_parallel ? 1 : 0, l.pp > 1 ? 1 : 0, stage == 0 ? 1 : 0,
              stage == l.pp - 1 ? 1 : 0, l.cp > 1 ? 1 : 0, data_});
  if (study_.model.moe) { // what experts receive follows the micro-batch
    key.push_back(l.cp);
    key.push_back(l.micro_batch);
  }
  if (study_.semantics.keeps_logits) {
    key.push_back(l.cp);
    key.push_back(l.micro_batch);
    key.push_back(view_.micro_batches > 1 ? 1 : 0);
  }
  for (int index = 0; index < l.schedule.chunks; ++index) {
    const Kind kind = kind_of(view_, index * l.pp + stage);
    for (const int value : {kind.layers, kind.ends, kind.first}) key.push_back(value);
  }
  const auto found = states_.find(key);
  if (found != states_.end()) return found->second;
  LongKey owned = key;
  return states_.emplace(std::move(owned), build_state(view_, stage)).first->second;
}

/// Parameters of a block do not depend on the micro-batch or on what is recomputed.
const std::vector<Parameter>& StageCache::parameters_of(const Base& base, const LayoutView& view, std::uint32_t id) {
  const Layout& l = *view.layout;
  Key key{l.tp,
          l.cp,
          l.ep,
          l.etp,
          l.sequence_parallel ? 1 : 0,
          l.pp > 1 ? 1 : 0,
          view.split_backward ? 1 : 0,
          static_cast<std::int32_t>(id)};
  const auto [entry, added] = parameters_.try_emplace(key);
  if (added) entry->second = lower_block(base, id, {}).parameters;
  return entry->second;
}

StageState StageCache::build_state(const LayoutView& view, int stage) {
  Layout plain = *view.layout;
  // Without experts and logits that stay nothing in it depends on the micro-batch.
  if (!study_.model.moe && !study_.semantics.keeps_logits) plain.micro_batch = 1;
  plain.recompute = {};
  Program program;
  program.mesh = *view.mesh;
  program.stages = plain.pp;
  program.micro_batches = view.micro_batches;
  program.split_backward = view.split_backward;
  Role role;
  role.stage = stage;
  std::vector<std::uint32_t> ids; // of the program's blocks
  for (int index = 0; index < plain.schedule.chunks; ++index) {
    Chunk chunk;
    chunk.index = index;
    chunk.depth = index * plain.pp + stage;
    const ChunkPlan plan = chunk_plan(study_.model, study_.shapes, plain, *view.layers, chunk.depth);
    chunk.layers = plan.layers;
    for (const BlockKey& block : plan.blocks) {
      const std::uint32_t id = block_id(block);
      const auto found = std::find(ids.begin(), ids.end(), id);
      chunk.blocks.push_back(static_cast<int>(found - ids.begin()));
      if (found != ids.end()) continue;
      ids.push_back(id);
      Block parameters;
      parameters.kind = block.kind;
      parameters.parameters = parameters_of(*base_, view, id);
      program.blocks.push_back(std::move(parameters));
    }
    role.chunks.push_back(std::move(chunk));
  }
  LayerContext context =
      make_context(study_.model, study_.job, study_.semantics, plain, study_.cluster.device, view.split_backward);
  data::add_step(context, program, role);
  data::add_persistent(context, program, role);
  StageState state;
  for (const Persistent& entry : role.persistent) state.persistent += entry.bytes;
  for (const Bytes peak : role.step_peak) state.step_peak = std::max(state.step_peak, peak);
  bool meets = false;
  for (const Op& op : role.step) {
    const Cost cost = op_cost(op, program.mesh, study_.cost, study_.host);
    if (cost.seconds > 0) state.evidence = std::max(state.evidence, cost.evidence);
    meets = meets || (op.kind == OpKind::collective && op.group == Group::world);
    if (!meets) state.step_before += cost.seconds;
    if (op.stream == Stream::compute) state.step_compute += cost.seconds;
    state.step_seconds += cost.seconds;
    state.step_parts[static_cast<std::size_t>(op.part)] += Seconds(cost.seconds);
  }
  state.outside = role.outside;
  return state;
}

} // namespace foretrain
