#include "executor/interpreter.h"

#include <algorithm>
#include <chrono>

#include <c10/core/GradMode.h>

#include "core/base/check.h"
#include "core/program/context.h"
#include "executor/counter.h"
#include "executor/kernels/tensor_kernels.h"
#include "executor/tokens.h"

namespace foretrain {
namespace {

using at::Tensor;

at::ScalarType scalar_type(DType type) {
  switch (type) {
  case DType::fp64:
    return at::kDouble;
  case DType::fp32:
    return at::kFloat;
  case DType::bf16:
    return at::kBFloat16;
  case DType::fp16:
    return at::kHalf;
  case DType::int64:
    return at::kLong;
  case DType::int8:
    return at::kChar;
  case DType::fp8:
  case DType::fp4:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only precisions that LibTorch multiplies on the CPU");
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_gradient(Pass pass) {
  return pass == Pass::backward || pass == Pass::input;
}

int find_scope(const Block& block, BufferScope scope) {
  for (std::size_t i = 0; i < block.buffers.size(); ++i)
    if (block.buffers[i].scope == scope) return static_cast<int>(i);
  return -1;
}

Tensor take(BlockState& state, BufferScope scope) {
  const int index = find_scope(*state.block, scope);
  FORETRAIN_CHECK(index >= 0, "only the model's ends lack a border");
  return std::exchange(state.buffers[static_cast<std::size_t>(index)], Tensor());
}

void give(BlockState& state, BufferScope scope, Tensor tensor) {
  const int index = find_scope(*state.block, scope);
  FORETRAIN_CHECK(index >= 0, "only the model's ends lack a border");
  state.buffers[static_cast<std::size_t>(index)] = std::move(tensor);
}

/// The layer of a block of several that a buffer is of; those at the block's border count as the first one's.
std::size_t layer_of(const Buffer& buffer, const BlockState& state) {
  const std::size_t slash = buffer.name.find('/');
  return state.block->layers == 1 || slash == std::string::npos ? 0 : std::stoul(buffer.name.substr(0, slash));
}

} // namespace

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

Rank::Rank(const Plan& plan, const Program& program, int rank, Device& device, Communicator& communicator,
           RankOptions options)
    : plan_(plan), program_(program), rank_(rank),
      role_(program.roles[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))]), device_(device),
      communicator_(communicator), options_(std::move(options)),
      type_(scalar_type(activation_dtype(plan.job.precision))),
      parameters_(plan, program, rank, options_.seed,
                  {type_, type_ == at::kBFloat16 ? scalar_type(plan.job.gradient) : type_, device.place()}),
      host_{{}, {}, true}, optimizer_(plan.job.optimizer, options_.optimizer, parameters_, device,
                                      plan.layout.offload.optimizer ? &host_ : nullptr) {
  for (int member = 0; member < plan.layout.cp; ++member) positions_.push_back(token_positions(plan, member));
  const ModelSpec& m = plan.model;
  if (m.learned_positions == 0)
    turns_ = kernels::rope_turns(positions_[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::cp))],
                                 m.latent ? m.latent->qk_rope_head_dim : m.head_dim,
                                 type_ == at::kDouble ? at::kDouble : at::kFloat)
                 .to(device_.place());
}

Result<StepRecord> Rank::step(int index) {
  const c10::NoGradGuard no_gradients;
  step_ = index;
  const double origin = seconds();
  record_ = StepRecord{};
  record_.step = index;
  record_.rank = rank_;
  record_.began = wall_seconds();
  norm_taken_ = false;
  norm_.reset();
  loss_ = 0;
  contexts_.clear();
  marks_.clear();
  if (options_.take_peak) (void)options_.take_peak();
  if (options_.take_reserved) (void)options_.take_reserved();
  host_.restart_peak();
  try {
    device_.start_clock();
    communicator_.start_clock();
    for (int i = 0; i < static_cast<int>(role_.instructions.size()); ++i) {
      run(i);
      if (options_.take_peak) record_.peaks.push_back(options_.take_peak());
    }
    device_.synchronize();
    record_.seconds = seconds() - origin;
    communicator_.check(); // a peer that was lost meanwhile: what the device has is not to be believed
    read_times();
    read_results();
  } catch (const std::exception& error) {
    const char* behind =
        device_.queues() ? " (the last op that was issued; the device may have been at one before)" : "";
    return fail_environment("rank " + std::to_string(rank_) + ", step " + std::to_string(index),
                            to_string(place_) + behind + ": " + error.what());
  }
  if (!record_.peaks.empty()) record_.peak_bytes = *std::max_element(record_.peaks.begin(), record_.peaks.end());
  if (options_.take_reserved) record_.peak_reserved_bytes = options_.take_reserved();
  if (options_.take_peak && plan_.layout.offload.optimizer) record_.host_peak_bytes = host_.peak.load();
  for (const auto& [key, states] : states_)
    for (const BlockState& state : states)
      record_.live_buffers += static_cast<int>(std::count_if(state.buffers.begin(), state.buffers.end(),
                                                             [](const Tensor& tensor) { return tensor.defined(); }));
  record_.live_buffers += static_cast<int>(incoming_.size() + outgoing_.size());
  return std::move(record_);
}

void Rank::run(int index) {
  const Instruction& instruction = role_.instructions[static_cast<std::size_t>(index)];
  const Key key{instruction.pass != Pass::forward, instruction.chunk, instruction.micro_batch};
  if (instruction.kind == InstructionKind::slot) return run_slot(index);
  begin(place_of(role_, index));
  switch (instruction.kind) {
  case InstructionKind::slot:
    break;
  case InstructionKind::receive:
    start_receive(instruction);
    break;
  case InstructionKind::send:
    start_send(instruction);
    break;
  case InstructionKind::wait_receive:
    incoming_.at(key).transfer->wait();
    incoming_.at(key).transfer.reset();
    break;
  case InstructionKind::wait_send:
  case InstructionKind::release_send:
    outgoing_.at(key).transfer->wait();
    outgoing_.erase(key);
    break;
  case InstructionKind::step:
    run_step_op(role_.step[static_cast<std::size_t>(instruction.step)]);
    break;
  }
  finish();
}

/// One number per transfer of a step: what the receiving chunk gets, for which micro-batch, in which direction.
int Rank::tag(const Instruction& instruction, bool sends) const {
  const bool gradient = instruction.pass != Pass::forward;
  int depth = role_.chunks[static_cast<std::size_t>(instruction.chunk)].depth;
  if (sends) depth += gradient ? -1 : 1;
  return 2 * (depth * program_.micro_batches + instruction.micro_batch) + (gradient ? 1 : 0);
}

void Rank::start_receive(const Instruction& instruction) {
  const int peer = (role_.stage + instruction.peer + program_.stages) % program_.stages;
  Moving moving;
  const std::int64_t rows =
      role_.boundary.value / static_cast<std::int64_t>(at::elementSize(type_)) / plan_.model.hidden;
  moving.tensor = at::empty({rows, plan_.model.hidden}, options_of(type_));
  moving.transfer = communicator_.start_receive(Group::pp, peer, moving.tensor, tag(instruction, false));
  moved_ = bytes_of(moving.tensor);
  incoming_[Key{instruction.pass != Pass::forward, instruction.chunk, instruction.micro_batch}] = std::move(moving);
}

void Rank::start_send(const Instruction& instruction) {
  const int peer = (role_.stage + instruction.peer + program_.stages) % program_.stages;
  Moving& moving = outgoing_.at(Key{instruction.pass != Pass::forward, instruction.chunk, instruction.micro_batch});
  moving.transfer = communicator_.start_send(Group::pp, peer, moving.tensor, tag(instruction, true));
  moved_ = bytes_of(moving.tensor);
}

std::vector<BlockState>& Rank::states_of(const Instruction& slot) {
  std::vector<BlockState>& states = states_[{slot.chunk, slot.micro_batch}];
  if (!states.empty()) return states;
  const Chunk& chunk = role_.chunks[static_cast<std::size_t>(slot.chunk)];
  for (std::size_t i = 0; i < chunk.blocks.size(); ++i) {
    BlockState state;
    state.block = &program_.blocks[static_cast<std::size_t>(chunk.blocks[i])];
    state.chunk = slot.chunk;
    state.position = static_cast<int>(i);
    state.layer = chunk.layers[i];
    state.buffers.resize(state.block->buffers.size());
    state.routing.resize(static_cast<std::size_t>(state.block->layers));
    states.push_back(std::move(state));
  }
  return states;
}

SegmentContext& Rank::context_of(int micro_batch) {
  const auto found = contexts_.find(micro_batch);
  if (found != contexts_.end()) return found->second;
  const Layout& layout = plan_.layout;
  const std::int64_t length = plan_.job.sequence_length;
  SegmentContext context;
  context.plan = &plan_;
  context.tp_index = program_.mesh.coordinate(rank_, Axis::tp);
  context.cp_index = program_.mesh.coordinate(rank_, Axis::cp);
  context.ep_index = slice_place(plan_, program_.mesh, rank_).ep_index;
  context.positions = &positions_;
  context.forced_routing = options_.forced_routing;
  context.turns = turns_;
  context.kernel_set = &device_.kernels();
  const std::vector<std::int64_t>& own = positions_[static_cast<std::size_t>(context.cp_index)];
  const auto held = static_cast<std::int64_t>(own.size()); // tokens of a sequence on this rank
  context.tokens = held * layout.micro_batch;
  context.sequence_parallel = layout.sequence_parallel && layout.tp > 1;
  context.loss_scale = 1 / (static_cast<double>(plan_.job.global_batch) * static_cast<double>(length));
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> targets;
  std::vector<std::int64_t> later; ///< of multi-token prediction
  // The global batch is the same set of sequences in every layout.
  const std::int64_t replica = program_.mesh.coordinate(rank_, Axis::dp);
  const std::int64_t first =
      plan_.job.global_batch * step_ + (replica * program_.micro_batches + micro_batch) * layout.micro_batch;
  context.first_token = first * length;
  for (std::int64_t i = 0; i < layout.micro_batch; ++i) {
    const std::vector<std::int64_t> tokens = options_.tokens
                                                 ? options_.tokens(first + i, length)
                                                 : counter::tokens(options_.seed, first + i, length, plan_.model.vocab);
    for (std::int64_t row = 0; row < held; ++row) {
      const auto position = static_cast<std::size_t>(own[static_cast<std::size_t>(row)]);
      ids.push_back(tokens[position]);
      targets.push_back(tokens[position + 1]);
      // The last token's second successor is not of this sequence (arXiv:2412.19437, eq. 24).
      later.push_back(position + 2 < tokens.size() ? tokens[position + 2] : kernels::kNoTarget);
    }
  }
  context.ids = kernels::tensors::placed(ids, device_.place());
  context.targets = kernels::tensors::placed(targets, device_.place());
  if (plan_.model.mtp_layers > 0) context.mtp_targets = kernels::tensors::placed(later, device_.place());
  return contexts_.emplace(micro_batch, std::move(context)).first->second;
}

void Rank::bind_borders(const Instruction& slot, std::vector<BlockState>& states, int position) {
  const auto at = static_cast<std::size_t>(position);
  const bool gradient = is_gradient(slot.pass);
  if (slot.pass != Pass::forward && !gradient) return;
  const BufferScope to = gradient ? BufferScope::grad_output : BufferScope::input;
  if (find_scope(*states[at].block, to) < 0) return; // an end of the model
  const bool first = gradient ? at + 1 == states.size() : at == 0;
  if (!first) {
    BlockState& before = gradient ? states[at + 1] : states[at - 1];
    give(states[at], to, take(before, gradient ? BufferScope::grad_input : BufferScope::output));
    return;
  }
  const auto received = incoming_.find(Key{gradient, slot.chunk, slot.micro_batch});
  FORETRAIN_CHECK(received != incoming_.end() && !received->second.transfer, "a slot waits for its input");
  give(states[at], to, std::move(received->second.tensor));
  incoming_.erase(received);
}

/// What the last block of the slot wrote waits to be sent.
void Rank::hand_on(const Instruction& slot, std::vector<BlockState>& states) {
  const bool gradient = is_gradient(slot.pass);
  if (slot.pass != Pass::forward && !gradient) return;
  BlockState& last = gradient ? states.front() : states.back();
  const BufferScope from = gradient ? BufferScope::grad_input : BufferScope::output;
  if (find_scope(*last.block, from) < 0) return;
  outgoing_[Key{gradient, slot.chunk, slot.micro_batch}].tensor = take(last, from);
}

void Rank::run_slot(int index) {
  const Instruction& slot = role_.instructions[static_cast<std::size_t>(index)];
  const Chunk& chunk = role_.chunks[static_cast<std::size_t>(slot.chunk)];
  std::vector<BlockState>& states = states_of(slot);
  const int count = static_cast<int>(states.size());
  // The order of for_each_op; besides, what lies between blocks is freed after the block that it names.
  const auto between = [&](int position, bool before) {
    for (std::size_t i = 0; i < chunk.between.size(); ++i) {
      const ChunkOp& entry = chunk.between[i];
      if (entry.position != position || entry.before != before || !runs_in(entry, slot)) continue;
      begin({index, entry.op.pass, slot.chunk, slot.micro_batch, position, kBetweenBlocks, name_of(entry.op)});
      run_between(slot, chunk, i);
      finish();
    }
  };
  for (int step = 0; step < count; ++step) {
    const int position = slot.pass == Pass::forward ? step : count - 1 - step;
    BlockState& state = states[static_cast<std::size_t>(position)];
    between(position, true);
    bind_borders(slot, states, position);
    for (const Op& op : state.block->ops(slot.pass)) {
      begin({index, op.pass, slot.chunk, slot.micro_batch, position, state.layer, name_of(op)});
      run_block_op(op, state);
      finish();
    }
    between(position, false);
    free_between(slot, chunk, position);
  }
  hand_on(slot, states);
  const Pass last = program_.split_backward ? Pass::weight : Pass::backward;
  if (slot.pass == last) {
    for (const BlockState& state : states)
      record_.live_buffers += static_cast<int>(std::count_if(state.buffers.begin(), state.buffers.end(),
                                                             [](const Tensor& tensor) { return tensor.defined(); }));
    states_.erase({slot.chunk, slot.micro_batch});
  }
}

bool Rank::runs_in(const ChunkOp& entry, const Instruction& slot) const {
  if (entry.pass != slot.pass) return false;
  switch (entry.when) {
  case When::every:
    return true;
  case When::first_micro_batch:
    return slot.micro_batch == 0;
  case When::last_micro_batch:
    return slot.micro_batch == program_.micro_batches - 1;
  }
  return false;
}

void Rank::run_block_op(const Op& op, BlockState& state) {
  if (plan_.model.moe && op.kind == OpKind::compute) count_rows(op, state, parameters_, context_of(place_.micro_batch));
  for (const int index : op.allocates) {
    const Buffer& buffer = state.block->buffers[static_cast<std::size_t>(index)];
    std::vector<std::int64_t> shape = buffer.shape;
    if (plan_.model.moe && !shape.empty()) shape.front() = rows_of(buffer, state.routing[layer_of(buffer, state)]);
    state.buffers[static_cast<std::size_t>(index)] = at::empty(shape, options_of(scalar_type(buffer.dtype)));
  }
  SegmentContext& context = context_of(place_.micro_batch); // made here, so that its tokens are no part of the op
  if (options_.around_op) options_.around_op(op, true);
  if (op.kind == OpKind::host_sync) {
    exchange_counts(op, state);
  } else if (op.kind == OpKind::compute) {
    run_segment(op, state, parameters_, context);
  } else {
    run_transfer(op, state);
  }
  if (options_.around_op) options_.around_op(op, false);
  for (const int index : op.frees) state.buffers[static_cast<std::size_t>(index)].reset();
}

void Rank::collective(const Op& op, Tensor& from, Tensor& to) {
  moved_ = std::max(bytes_of(from), bytes_of(to));
  switch (op.collective) {
  case Collective::all_reduce:
    communicator_.all_reduce(op.group, to,
                             op.maximum ? Communicator::Reduction::maximum : Communicator::Reduction::sum);
    return;
  case Collective::all_gather:
    communicator_.all_gather(op.group, from, to);
    return;
  case Collective::reduce_scatter:
    communicator_.reduce_scatter(op.group, from, to);
    return;
  case Collective::all_to_all:
  case Collective::broadcast:
  case Collective::ring_exchange:
    break;
  }
  FORETRAIN_CHECK(false, "check_runnable admits only collectives with code");
}

} // namespace foretrain
