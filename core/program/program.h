#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/program/pass.h"
#include "core/program/ranks.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/prediction.h"

/// The Program: what every rank does in one step, in the order in which it does it. Replay, SimGrid and the executor
/// interpret the same value.
///
/// Its parts, from small to large:
/// - an `Op` is a compute segment or a transfer on a named stream, with the buffers it reads and writes;
/// - a `Block` is one layer (or the embedding, or the head) as op lists per pass, shared by all equal layers;
/// - a `Chunk` is the list of blocks of one model chunk on one stage, with the collectives between them;
/// - an `Instruction` runs one pass of a chunk for one micro-batch (a slot), or starts or ends a transfer;
/// - a `Role` is a pipeline stage: all its ranks do the same instructions.
namespace foretrain {

/// Streams of one rank. Ops of a stream run in issue order; streams run beside each other.
enum class Stream {
  compute,
  tp,           ///< tensor-parallel collectives
  cp,           ///< context-parallel transfers
  ep,           ///< expert dispatch and combine
  gradients,    ///< data-parallel reduction
  parameters,   ///< data-parallel parameter gathers
  p2p_forward,  ///< pipeline transfers of activations
  p2p_backward, ///< pipeline transfers of gradients
  host,         ///< copies to and from host memory
};
inline constexpr int kStreams = 9;

enum class OpKind {
  compute,
  collective,
  host_sync, ///< the host waits for the device (dropless token counts)
  copy,      ///< to or from host memory
};

/// What a compute op does: the executor has one function for each.
enum class Segment {
  none,
  embedding,
  norm,
  qkv,
  rope,
  attention,
  attention_out,
  mla_down,
  mla_up,
  ffn_up,
  activation,
  ffn_down,
  router,
  permute,
  expert_up,
  expert_activation,
  expert_down,
  unpermute,
  shared_up,
  shared_activation,
  shared_down,
  residual,
  head,
  loss,
  mtp_projection,
  optimizer,
  zero_gradients,
  gradient_norm,
  linear_mixer,
};

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, ring_exchange };

/// A unit of work with a known cost model.
enum class KernelKind {
  gemm,         ///< C[m,n] += A[m,k] B[k,n], `batch` times
  grouped_gemm, ///< `batch` groups of m rows each (tokens per expert)
  attention_forward,
  attention_backward,
  memory, ///< bound by memory traffic: `bytes`
};

enum class GemmRole { forward, input_gradient, weight_gradient };

struct Kernel {
  KernelKind kind = KernelKind::memory;
  GemmRole role = GemmRole::forward;
  DType dtype = DType::bf16;
  std::int64_t m = 0;     ///< rows; attention: query tokens per sequence on this rank
  std::int64_t n = 0;     ///< columns; attention: key tokens a query block meets (whole sequence)
  std::int64_t k = 0;     ///< inner width; attention: head width of queries and keys
  std::int64_t batch = 1; ///< groups of a grouped GEMM; attention: sequences
  int heads = 0;          ///< attention: query heads on this rank; memory: of scores, which are large
  int kv_heads = 0;       ///< attention: key and value heads on this rank
  int v_dim = 0;          ///< attention: head width of values
  int parts = 0;    ///< attention: deterministic FlashAttention-2, its backward in so many parts of the keys; 0: not
  double flop = 0;  ///< executed, causal mask already applied
  double bytes = 0; ///< memory traffic, read and written
  bool operator==(const Kernel&) const = default;
};

/// How long a buffer lives and whose it is.
enum class BufferScope {
  block,       ///< one instance per block and micro-batch
  input,       ///< x: the block's input, written by the block before (or the receive)
  output,      ///< y: the block's output, freed by the block after (or the send)
  grad_output, ///< dy: gradient of the output, written by the block after (or the receive)
  grad_input,  ///< dx: gradient of the input, freed by the block before (or the send)
};

struct Buffer {
  std::string name;
  BufferScope scope = BufferScope::block;
  MemoryPart part = MemoryPart::activations;
  DType dtype = DType::bf16;
  Bytes bytes;
  std::vector<std::int64_t> shape; ///< on this rank
  bool operator==(const Buffer&) const = default;
};

struct Op {
  OpKind kind = OpKind::compute;
  Segment segment = Segment::none;
  Pass pass = Pass::forward;
  Stream stream = Stream::compute;
  TimePart part = TimePart::compute; ///< where its time is booked when it is on the critical path
  std::vector<Kernel> kernels;
  std::vector<int> reads; ///< buffers of the block
  std::vector<int> writes;
  std::vector<int> allocates; ///< of `writes`, those that are not live yet: allocated when the op is issued (derived)
  std::vector<int> frees;     ///< freed when the op is issued and its scratch is gone (derived)
  std::vector<int> waits;     ///< of `reads`, those that another stream writes (derived)
  std::vector<int> weights;   ///< parameters of the block that are read
  std::vector<int> weight_gradients; ///< parameters of the block whose gradient is added to
  int fills = 0;                     ///< new tensors that are filled before they are written (deterministic algorithms)
  Bytes scratch;                     ///< highest transient inside the op beyond reads and writes
  // Transfers
  Collective collective = Collective::all_reduce;
  Group group = Group::tp;
  DType dtype = DType::bf16;
  bool maximum = false; ///< all-reduce: takes the largest instead of the sum
  Bytes bytes;    ///< all-gather, reduce-scatter, all-reduce: the whole tensor; all-to-all: sent per rank, own share
                  ///< included; ring exchange: sent to the next rank per round; copy: moved
  int rounds = 1; ///< ring exchange: rounds
  int deduplicated = 0; ///< de-duplicated dispatch: experts that a token visits; a node then gets one copy of it
  bool operator==(const Op&) const = default;
};

/// How a parameter lies on a rank.
struct Parameter {
  std::string name;                ///< global name with the layer left out: "qkv", "ffn_up"
  std::vector<std::int64_t> shape; ///< whole tensor
  std::vector<std::int64_t> local; ///< on this rank, before data-parallel sharding
  bool expert = false;             ///< replicated over Group::expert_data instead of Group::data
  bool replicated_tp = false;      ///< every tensor-parallel rank holds it (norms, router)
  bool quantised = false;          ///< of a linear layer whose products run in 8 or 4 bits
  bool frozen = false;             ///< not trained: no gradient, no optimizer state
  bool partial_tp = false; ///< of those on every tp rank: each has a part of the gradient, from its own tokens under
                           ///< sequence parallelism or from its own heads; summed over tp at the step's end
  [[nodiscard]] std::int64_t local_elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : local) product *= extent;
    return product;
  }
  bool operator==(const Parameter&) const = default;
};

enum class BlockKind { embedding, layer, head, mtp };

/// One layer, the embedding or the head, as op lists. Equal layers share a block.
struct Block {
  BlockKind kind = BlockKind::layer;
  int layers = 1;   ///< model layers inside (several when one checkpoint spans them)
  std::string name; ///< "attention+dense", "attention+moe (recomputed)", "head" …
  std::vector<Buffer> buffers;
  std::vector<Parameter> parameters;
  std::vector<Op> forward;
  std::vector<Op> backward; ///< whole backward, recomputation included; empty when split
  std::vector<Op> input;    ///< split backward: I, recomputation included; empty when whole
  std::vector<Op> weight;   ///< split backward: W; empty when whole
  // Derived by `finish_block`, one entry per op list: memory as a fold over issue order.
  struct Memory {
    Bytes net;  ///< allocated minus freed
    Bytes peak; ///< highest above the start
    int peak_op = 0;
    bool operator==(const Memory&) const = default;
  };
  Memory forward_memory, backward_memory, input_memory, weight_memory;
  [[nodiscard]] const std::vector<Op>& ops(Pass pass) const;
  [[nodiscard]] const Memory& memory(Pass pass) const;
  bool operator==(const Block&) const = default;
};

/// Sequential composition: the peak of a then b.
[[nodiscard]] Block::Memory then(const Block::Memory& a, const Block::Memory& b);

/// When a collective between blocks runs.
enum class When { every, first_micro_batch, last_micro_batch };

/// A data-parallel collective (or a host copy) tied to a place in a chunk.
struct ChunkOp {
  Pass pass = Pass::backward; ///< forward, backward (also stands for input or weight when split, see `pass_split`)
  int position = 0;           ///< block position in execution order of that pass
  bool before = false;        ///< issued before that block; else after it
  When when = When::every;
  Op op;              ///< reads and writes are empty; memory is in `allocates` and `frees`
  int needed_at = -1; ///< block position whose compute waits for it; -1: waited for at step end
  int waits_for = -1; ///< a prefetch: issued, but starts only once this block position has begun; -1: at once
  Bytes allocates;    ///< at issue
  Bytes frees;        ///< when the block at `freed_after` has run
  int freed_after = -1;
  MemoryPart memory_part = MemoryPart::buckets;
  std::vector<int> covers; ///< block positions whose parameters it reduces or gathers, in ascending order
  bool operator==(const ChunkOp&) const = default;
};

struct Chunk {
  int index = 0;           ///< chunk of the role
  int depth = 0;           ///< position in the model: chunk * stages + stage
  std::vector<int> blocks; ///< indices into Program::blocks, forward order
  std::vector<int> layers; ///< model layer of each block; -1 embedding, head
  std::vector<ChunkOp> between;
  bool operator==(const Chunk&) const = default;
};

enum class InstructionKind {
  slot,         ///< one pass of a chunk for one micro-batch
  receive,      ///< posts a receive; the slot that needs it waits for it
  send,         ///< starts a send
  wait_receive, ///< compute waits for it (blocking schedules)
  wait_send,    ///< compute waits, then the buffer is freed
  release_send, ///< the buffer of a send is freed once it is done; compute does not wait
  step,         ///< an op of the step's end: index into Role::step
};

struct Instruction {
  InstructionKind kind = InstructionKind::slot;
  Pass pass = Pass::forward; ///< slot: forward, backward, input, weight; transfers: forward or backward
  int chunk = 0;             ///< transfers: the chunk on this stage that sends or receives
  int micro_batch = 0;
  int peer = 0;   ///< transfers: stage offset in the pipeline, +1 or -1 (wraps)
  int batch = -1; ///< transfers issued as one batch share a number; -1 alone
  int step = -1;
  bool operator==(const Instruction&) const = default;
};

/// Memory that stays for the whole step.
struct Persistent {
  std::string name;
  MemoryPart part = MemoryPart::parameters;
  Bytes bytes;
  bool operator==(const Persistent&) const = default;
};

struct Role {
  int stage = 0;
  std::vector<Chunk> chunks;
  std::vector<Instruction> instructions;
  std::vector<Op> step;         ///< ops at the end of the step, in order
  std::vector<Bytes> step_peak; ///< transient of each step op above the persistent set
  std::vector<Persistent> persistent;
  Bytes outside;  ///< device memory outside the allocator: context, communicators
  Bytes boundary; ///< bytes of one activation at a chunk boundary on this rank
  bool operator==(const Role&) const = default;
};

struct Program {
  std::string semantics;
  Mesh mesh;
  int stages = 1;
  int micro_batches = 1;
  bool split_backward = false; ///< schedule uses I and W
  bool blocking_p2p = false;
  int boundary_parts = 1;       ///< in which tp ranks send what passes between stages (`boundary_parts`)
  bool post_validation = false; ///< no stage waits for another at the step's end (`post_validates`)
  std::vector<Block> blocks;
  std::vector<Role> roles;        ///< one per stage
  double fragmentation = 0;       ///< reserved = allocated * (1 + fragmentation)
  bool replays_allocator = false; ///< reserved memory by core/program/reserved.h instead
  bool operator==(const Program&) const = default;
};

/// Derives `waits`, `frees` and the memory folds of a block from reads and writes: straight-line liveness over forward
/// then backward (and forward, input, weight when `split`). A buffer read by a transfer lives until an op on the
/// compute stream waits for what the transfer wrote.
void finish_block(Block& block, bool split);

/// Calls `visit(op, block_position, model_layer)` for every op of a slot in issue order, chunk collectives included
/// (for these, block_position is the place and model_layer is kBetweenBlocks).
inline constexpr int kBetweenBlocks = -2;
template <class Visit>
void for_each_op(const Program& program, const Role& role, const Instruction& slot, Visit&& visit);

} // namespace foretrain

#include "core/program/for_each_op.h"
