#include <algorithm>
#include <string>

#include "core/program/layers/attention.h"
#include "core/program/layers/linear.h"

namespace foretrain::layers {
namespace {

/// Sizes of the core on this rank once Ulysses has traded tokens for heads.
struct CoreSizes {
  std::int64_t tokens; ///< query tokens, all sequences of the micro-batch
  std::int64_t heads;
  std::int64_t kv_heads;
  double flop; ///< forward, mask applied
};

CoreSizes sizes_of(const LayerContext& c, const AttentionWidths& w) {
  CoreSizes s{};
  s.tokens = c.tokens * c.ulysses;
  s.heads = std::max<std::int64_t>(1, w.heads / c.ulysses);
  s.kv_heads = std::max<std::int64_t>(1, w.kv_heads / c.ulysses);
  // Two matrix products of 2 FLOP per pair and width; the ring's ranks share the pairs evenly (zigzag order).
  s.flop = 2.0 * visible_pairs(*c.job, w.window) * (w.qk_dim + w.v_dim) * static_cast<double>(s.heads) *
           c.layout.micro_batch / c.ring;
  return s;
}

/// Parts of the keys that deterministic FlashAttention-2 takes at once: as many as fill the processors
/// (Dao-AILab/flash-attention csrc/flash_attn/src/flash_bwd_launch_template.h, gridDimx). 0: attention is another one.
int key_parts(const LayerContext& c, const CoreSizes& s) {
  if (c.deterministic != DeterministicAttention::split) return 0;
  const std::int64_t pairs = s.heads * c.layout.micro_batch;
  return static_cast<int>(std::max<std::int64_t>(1, (c.processors + pairs - 1) / pairs));
}

/// The attention kernel for 1/`parts` of the work, against `keys` keys per sequence.
Kernel core_kernel(const LayerContext& c, const AttentionWidths& w, KernelKind kind, int parts, std::int64_t keys) {
  const CoreSizes s = sizes_of(c, w);
  Kernel kernel;
  kernel.kind = kind;
  kernel.dtype = c.dtype;
  kernel.m = s.tokens / c.layout.micro_batch;
  kernel.n = keys;
  kernel.k = w.qk_dim;
  kernel.v_dim = w.v_dim;
  kernel.batch = c.layout.micro_batch;
  kernel.heads = static_cast<int>(s.heads);
  kernel.kv_heads = static_cast<int>(s.kv_heads);
  kernel.parts = key_parts(c, s);
  // Flash attention's backward runs five matrix products against two (one recomputes the scores).
  kernel.flop = s.flop / parts * (kind == KernelKind::attention_backward ? 2.5 : 1);
  const auto width = static_cast<double>(c.width);
  const double q = static_cast<double>(s.tokens * s.heads) * (w.qk_dim + w.v_dim);
  const double kv = static_cast<double>(keys * c.layout.micro_batch * s.kv_heads) * (w.qk_dim + w.v_dim);
  kernel.bytes = width * (q + kv) * (kind == KernelKind::attention_backward ? 3 : 1);
  return kernel;
}

/// One of the batched products of unfused attention, m × n over k for every head of every sequence; nothing of the
/// causal half is spared.
Kernel head_product(const LayerContext& c, std::int64_t heads, std::int64_t m, std::int64_t n, std::int64_t k) {
  Kernel kernel = gemm(c, m, n, k);
  kernel.batch = c.layout.micro_batch * heads;
  kernel.flop *= static_cast<double>(kernel.batch);
  kernel.bytes *= static_cast<double>(kernel.batch);
  return kernel;
}

/// Whether scale, mask and softmax are operators of their own: by choice, or where Megatron's fused kernel does not run
/// because the heads of a micro-batch on this rank are no multiple of 4 (Megatron-LM fused_softmax.py
/// is_kernel_available).
bool eager_scores(const LayerContext& c, const AttentionWidths& w) {
  constexpr std::int64_t kFusedHeads = 4;
  if (c.job->attention == AttentionKernel::eager) return true;
  if (c.job->attention != AttentionKernel::unfused || c.semantics->family != SemanticsFamily::megatron) return false;
  return sizes_of(c, w).heads * c.layout.micro_batch % kFusedHeads != 0;
}

/// Bytes per score that operators of their own move (Aleph-Alpha/scaling@78489292b core/nn/masked_softmax): cast to
/// fp32, mask in place, softmax, cast back. Backward: cast, softmax (two tensors read), mask, cast.
double eager_bytes(double width, bool forward) {
  constexpr double kWide = 4;
  const double casts = 2 * (width + kWide);
  return casts + (forward ? 4 : 5) * kWide;
}

/// Attention before fused kernels (Megatron-LM fused_softmax.py): products, and scale, mask and softmax in one kernel
/// that reads and writes the scores; with dropout one more, and a byte per score. Backward: two products per forward
/// one, the dropout's mask applied, and a softmax gradient that reads two such tensors and writes one.
std::vector<Kernel> unfused_kernels(const LayerContext& c, const AttentionWidths& w, KernelKind kind,
                                    std::int64_t keys) {
  const CoreSizes s = sizes_of(c, w);
  const std::int64_t queries = s.tokens / c.layout.micro_batch;
  const bool forward = kind == KernelKind::attention_forward;
  std::vector<Kernel> kernels;
  const int times = forward ? 1 : 2;
  for (int i = 0; i < times; ++i) {
    kernels.push_back(head_product(c, s.heads, queries, keys, i == 0 ? w.qk_dim : w.v_dim));
    kernels.push_back(head_product(c, s.heads, queries, i == 0 ? w.v_dim : w.qk_dim, keys));
  }
  const auto width = static_cast<double>(c.width);
  const double scores = static_cast<double>(s.tokens) * static_cast<double>(keys) * static_cast<double>(s.heads);
  const auto over_scores = [&](double bytes) {
    kernels.push_back(traffic(c, bytes * scores));
    kernels.back().heads = static_cast<int>(s.heads);
  };
  if (eager_scores(c, w)) {
    constexpr int kOperators = 4; // cast, mask, softmax, cast; backward in turn
    for (int i = 0; i < kOperators; ++i) over_scores(eager_bytes(width, forward) / kOperators);
  } else {
    over_scores((forward ? 2 : 3) * width);
  }
  if (c.job->dropout > 0) over_scores(2 * width + 1);
  // cap · tanh(score / cap) as three operators; backward reads the tanh's output too.
  if (c.model->attention_softcap > 0) over_scores((forward ? 6 : 7) * width);
  return kernels;
}

/// Gradients of the scores in memory, the masked half too: written by one kernel, read by the next
/// (NVIDIA/cudnn-frontend pull request 398: 2 bytes for each pair of a query and a key that deterministic backward
/// holds on Hopper).
Bytes score_gradients(const LayerContext& c, std::int64_t keys) {
  if (c.deterministic != DeterministicAttention::score_gradients) return Bytes(0);
  const std::int64_t heads = std::max<std::int64_t>(1, c.heads / c.ulysses);
  return Bytes(2 * c.tokens * c.ulysses * heads * keys);
}

/// The gradient of the queries in fp32, once for each part of the keys.
Bytes query_gradients(const LayerContext& c, const AttentionWidths& w) {
  const CoreSizes s = sizes_of(c, w);
  return Bytes(std::int64_t{4} * std::max(1, key_parts(c, s)) * s.tokens * s.heads * w.qk_dim);
}

std::vector<Kernel> core_kernels(const LayerContext& c, const AttentionWidths& w, KernelKind kind, int parts,
                                 std::int64_t keys) {
  if (c.job->attention != AttentionKernel::flash) return unfused_kernels(c, w, kind, keys);
  std::vector<Kernel> kernels = {core_kernel(c, w, kind, parts, keys)};
  if (kind == KernelKind::attention_backward && c.deterministic == DeterministicAttention::score_gradients)
    kernels.push_back(traffic(c, 2 * static_cast<double>(score_gradients(c, keys).value)));
  // Each part's gradient of the queries is cleared before and read after.
  if (kind == KernelKind::attention_backward && kernels.front().parts > 0)
    kernels.push_back(traffic(c, 2 * static_cast<double>(query_gradients(c, w).value)));
  return kernels;
}

std::int64_t kv_width(const LayerContext& c, const AttentionWidths& w) {
  return sizes_of(c, w).kv_heads * (w.qk_dim + w.v_dim);
}

Group ring_group(const LayerContext& c) {
  return c.layout.context_parallel.kind == ContextKind::ulysses_ring ? Group::cp_outer : Group::cp;
}

std::int64_t ring_keys(const LayerContext& c) {
  return std::int64_t{c.job->sequence_length} / c.ring;
}

std::vector<int> core_writes(const AttentionCore& core, int out) {
  std::vector<int> writes = {out, core.statistics};
  if (core.probabilities >= 0) writes.push_back(core.probabilities);
  return writes;
}

/// Attention in `ring` steps; the keys and values of the next step travel while this one computes.
void ring_forward(BlockBuilder& b, const AttentionCore& core, int out) {
  const LayerContext& c = b.context();
  const Bytes moved(sizes_of(c, core.widths).tokens * kv_width(c, core.widths) * c.width);
  std::vector<int> kv = {core.k, core.v};
  for (int step = 0; step < c.ring; ++step) {
    std::vector<int> next;
    if (step + 1 < c.ring) {
      next = {b.temporary("kv.step" + std::to_string(step + 1),
                          {sizes_of(c, core.widths).tokens, kv_width(c, core.widths)})};
      b.collective(Collective::ring_exchange, ring_group(c), moved, kv, next);
    }
    std::vector<int> reads = kv;
    reads.push_back(core.q);
    if (step > 0) reads.insert(reads.end(), {out, core.statistics}); // merges with what the earlier steps found
    b.compute(Segment::attention, reads, core_writes(core, out),
              core_kernels(c, core.widths, KernelKind::attention_forward, c.ring, ring_keys(c)));
    kv = next;
  }
}

void gather_forward(BlockBuilder& b, const AttentionCore& core, int out) {
  const LayerContext& c = b.context();
  const std::int64_t tokens = sizes_of(c, core.widths).tokens * c.ring;
  const int gathered = b.temporary("kv.gathered", {tokens, kv_width(c, core.widths)});
  b.collective(Collective::all_gather, ring_group(c), Bytes(tokens * kv_width(c, core.widths) * c.width),
               {core.k, core.v}, {gathered});
  b.compute(Segment::attention, {core.q, gathered}, core_writes(core, out),
            core_kernels(c, core.widths, KernelKind::attention_forward, 1, c.job->sequence_length));
}

struct CoreGradients {
  int dq, dk, dv;
};

CoreGradients declare_gradients(BlockBuilder& b, const AttentionCore& core) {
  const LayerContext& c = b.context();
  const CoreSizes s = sizes_of(c, core.widths);
  return {b.temporary("dq", {s.tokens, s.heads * core.widths.qk_dim}),
          b.temporary("dk", {s.tokens, s.kv_heads * core.widths.qk_dim}),
          b.temporary("dv", {s.tokens, s.kv_heads * core.widths.v_dim})};
}

std::vector<int> backward_reads(const AttentionCore& core, int out, int grad_out) {
  std::vector<int> reads = {core.q, out, core.statistics, grad_out};
  if (core.probabilities >= 0) reads.push_back(core.probabilities);
  return reads;
}

/// Eager operators hold the scores and their fp32 copy until the softmax has returned.
Bytes forward_scratch(const LayerContext& c, const AttentionCore& core) {
  if (!eager_scores(c, core.widths)) return Bytes(0);
  const CoreSizes s = sizes_of(c, core.widths);
  return Bytes((c.width + 4) * s.tokens * s.heads * c.job->sequence_length);
}

/// Flash backward accumulates dQ in fp32 and keeps one fp32 row sum per query; unfused holds the score gradients.
Bytes backward_scratch(const LayerContext& c, const AttentionCore& core) {
  const CoreSizes s = sizes_of(c, core.widths);
  const std::int64_t scores = s.tokens * s.heads * c.job->sequence_length;
  if (eager_scores(c, core.widths)) return Bytes(2 * 4 * scores); // in fp32
  if (core.probabilities >= 0) return Bytes(2 * c.width * scores);
  return query_gradients(c, core.widths) + Bytes(4 * s.tokens * s.heads) + score_gradients(c, c.job->sequence_length);
}

/// Keys and values travel again and their gradients with them, one hop behind; one more hop brings the gradients home.
void ring_backward(BlockBuilder& b, const AttentionCore& core, int out, int grad_out, const CoreGradients& g) {
  const LayerContext& c = b.context();
  const std::int64_t tokens = sizes_of(c, core.widths).tokens;
  const std::int64_t width = kv_width(c, core.widths);
  const Bytes moved(tokens * width * c.width);
  std::vector<int> kv = {core.k, core.v};
  int travelled = -1;
  for (int step = 0; step < c.ring; ++step) {
    const std::string suffix = std::to_string(step);
    std::vector<int> next;
    if (step + 1 < c.ring) {
      next = {b.temporary("kv.step" + std::to_string(step + 1), {tokens, width})};
      b.collective(Collective::ring_exchange, ring_group(c), moved, kv, next);
    }
    std::vector<int> reads = backward_reads(core, out, grad_out);
    reads.insert(reads.end(), kv.begin(), kv.end());
    if (step > 0) reads.push_back(g.dq);
    const int partial = b.temporary("dkv.step" + suffix, {tokens, width});
    b.compute(Segment::attention, reads, {g.dq, partial},
              core_kernels(c, core.widths, KernelKind::attention_backward, c.ring, ring_keys(c)))
        .scratch = backward_scratch(c, core);
    int sum = partial;
    if (travelled >= 0) {
      sum = travelled;
      b.compute(Segment::attention, {partial, travelled}, {travelled},
                {traffic(c, 3.0 * static_cast<double>(moved.value))});
    }
    const bool home = step + 1 == c.ring;
    if (home) {
      b.collective(Collective::ring_exchange, ring_group(c), moved, {sum}, {g.dk, g.dv});
    } else {
      travelled = b.temporary("dkv.travelled" + suffix, {tokens, width});
      b.collective(Collective::ring_exchange, ring_group(c), moved, {sum}, {travelled});
    }
    kv = next;
  }
}

void gather_backward(BlockBuilder& b, const AttentionCore& core, int out, int grad_out, const CoreGradients& g) {
  const LayerContext& c = b.context();
  const std::int64_t tokens = sizes_of(c, core.widths).tokens * c.ring;
  const std::int64_t width = kv_width(c, core.widths);
  const Bytes whole(tokens * width * c.width);
  const int gathered = b.temporary("kv.gathered", {tokens, width});
  const int partial = b.temporary("dkv.whole", {tokens, width});
  b.collective(Collective::all_gather, ring_group(c), whole, {core.k, core.v}, {gathered});
  std::vector<int> reads = backward_reads(core, out, grad_out);
  reads.push_back(gathered);
  b.compute(Segment::attention, reads, {g.dq, partial},
            core_kernels(c, core.widths, KernelKind::attention_backward, 1, c.job->sequence_length))
      .scratch = backward_scratch(c, core);
  b.collective(Collective::reduce_scatter, ring_group(c), whole, {partial}, {g.dk, g.dv});
}

} // namespace

AttentionCore declare_core(BlockBuilder& b, const AttentionWidths& widths) {
  const LayerContext& c = b.context();
  const CoreSizes s = sizes_of(c, widths);
  AttentionCore core;
  core.widths = widths;
  core.q = b.activation("q", {s.tokens, s.heads * widths.qk_dim});
  core.k = b.activation("k", {s.tokens, s.kv_heads * widths.qk_dim});
  core.v = b.activation("v", {s.tokens, s.kv_heads * widths.v_dim});
  core.out = b.activation("attention", {c.tokens, std::int64_t{widths.heads} * widths.v_dim});
  core.statistics = b.buffer("attention.logsumexp", statistics_dtype(c), {s.tokens, s.heads}, MemoryPart::activations);
  if (c.job->attention != AttentionKernel::flash) {
    // Softmax output; with dropout also its output and a one-byte mask (arXiv:2205.05198: 5·a·s² bytes). In eager
    // operators the softmax keeps its own in fp32, and the product its cast.
    const std::int64_t wide = eager_scores(c, widths) ? 4 : 0;
    const std::int64_t capped = c.model->attention_softcap > 0 ? c.width : 0; // the tanh's output
    const std::int64_t bytes = wide + c.width + capped + (c.job->dropout > 0 ? c.width + 1 : 0);
    core.probabilities = b.buffer("attention.probabilities", DType::int8,
                                  {s.tokens, s.heads, c.job->sequence_length, bytes}, MemoryPart::activations);
  }
  if (c.ulysses > 1) {
    core.pre_exchange = c.semantics->ulysses_keeps_output
                            ? b.activation("attention.by_heads", {s.tokens, s.heads * widths.v_dim})
                            : b.temporary("attention.by_heads", {s.tokens, s.heads * widths.v_dim});
  } else if (c.batch_first) {
    core.pre_exchange = b.activation("attention.batch_first", {s.tokens, s.heads * widths.v_dim});
  }
  return core;
}

void core_forward(BlockBuilder& b, const AttentionCore& core) {
  const LayerContext& c = b.context();
  const int out = core.pre_exchange >= 0 ? core.pre_exchange : core.out;
  if (c.ring == 1)
    b.compute(Segment::attention, {core.q, core.k, core.v}, core_writes(core, out),
              core_kernels(c, core.widths, KernelKind::attention_forward, 1, c.job->sequence_length))
        .scratch = forward_scratch(c, core);
  else if (c.layout.context_parallel.kind == ContextKind::all_gather)
    gather_forward(b, core, out);
  else
    ring_forward(b, core, out);
  if (c.ulysses > 1) {
    const AttentionWidths& w = core.widths;
    b.collective(Collective::all_to_all, c.ring > 1 ? Group::cp_inner : Group::cp,
                 Bytes(c.tokens * w.heads * w.v_dim * c.width), {out}, {core.out});
  } else if (out != core.out) { // back to the order of the rest
    const std::int64_t bytes = c.tokens * core.widths.heads * core.widths.v_dim * c.width;
    b.compute(Segment::attention, {out}, {core.out}, {traffic(c, 2 * static_cast<double>(bytes))});
  }
}

std::array<int, 3> core_backward(BlockBuilder& b, const AttentionCore& core, int grad_out) {
  const LayerContext& c = b.context();
  const AttentionWidths& w = core.widths;
  const CoreSizes s = sizes_of(c, w);
  const Group exchange = c.ring > 1 ? Group::cp_inner : Group::cp;
  int out = core.out;
  int grad = grad_out;
  if (c.ulysses > 1) {
    grad = b.temporary("dattention.by_heads", {s.tokens, s.heads * w.v_dim});
    b.collective(Collective::all_to_all, exchange, Bytes(c.tokens * w.heads * w.v_dim * c.width), {grad_out}, {grad});
    out = core.pre_exchange;
    if (!c.semantics->ulysses_keeps_output)
      b.collective(Collective::all_to_all, exchange, Bytes(c.tokens * w.heads * w.v_dim * c.width), {core.out}, {out});
  }
  if (c.ulysses == 1 && core.pre_exchange >= 0) out = core.pre_exchange;
  const CoreGradients g = declare_gradients(b, core);
  if (c.ring == 1) {
    std::vector<int> reads = backward_reads(core, out, grad);
    reads.insert(reads.end(), {core.k, core.v});
    b.compute(Segment::attention, reads, {g.dq, g.dk, g.dv},
              core_kernels(c, w, KernelKind::attention_backward, 1, c.job->sequence_length))
        .scratch = backward_scratch(c, core);
  } else if (c.layout.context_parallel.kind == ContextKind::all_gather)
    gather_backward(b, core, out, grad, g);
  else
    ring_backward(b, core, out, grad, g);
  if (c.ulysses == 1) return {g.dq, g.dk, g.dv};
  const int dq = b.temporary("dq.by_tokens", {c.tokens, std::int64_t{w.heads} * w.qk_dim});
  const int dk = b.temporary("dk.by_tokens", {c.tokens, std::int64_t{w.kv_heads} * w.qk_dim});
  const int dv = b.temporary("dv.by_tokens", {c.tokens, std::int64_t{w.kv_heads} * w.v_dim});
  const std::int64_t width = std::int64_t{w.heads} * w.qk_dim + std::int64_t{w.kv_heads} * (w.qk_dim + w.v_dim);
  b.collective(Collective::all_to_all, exchange, Bytes(c.tokens * width * c.width), {g.dq, g.dk, g.dv}, {dq, dk, dv});
  return {dq, dk, dv};
}

AttentionCore recompute_core(BlockBuilder& b, const AttentionCore& core) {
  const LayerContext& c = b.context();
  if (!recomputes(c, RecomputeModule::core_attention)) return core;
  const CoreSizes s = sizes_of(c, core.widths);
  AttentionCore again = core;
  again.out = b.temporary("attention.again", {c.tokens, std::int64_t{core.widths.heads} * core.widths.v_dim});
  if (core.pre_exchange >= 0)
    again.pre_exchange = b.temporary("attention.by_heads.again", {s.tokens, s.heads * core.widths.v_dim});
  recomputed(b, [&] { core_forward(b, again); });
  return again;
}

} // namespace foretrain::layers
