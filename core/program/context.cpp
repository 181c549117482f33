#include "core/program/context.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace foretrain {

DType activation_dtype(Precision precision) {
  switch (precision) {
  case Precision::fp64:
    return DType::fp64;
  case Precision::fp32:
    return DType::fp32;
  case Precision::fp16:
    return DType::fp16;
  case Precision::bf16:
  case Precision::fp8_delayed:
  case Precision::fp8_current:
  case Precision::fp8_blockwise:
  case Precision::mxfp8:
  case Precision::nvfp4:
    return DType::bf16;
  }
  return DType::bf16;
}

std::int64_t padded_vocab(const ModelSpec& model, const JobSpec& job, const Semantics& semantics, int tp) {
  const std::int64_t multiple = std::int64_t{std::max(1, semantics.vocab_multiple)} * tp;
  const std::int64_t rows = std::int64_t{model.vocab} + job.vocab_extra.value_or(semantics.vocab_extra);
  return (rows + multiple - 1) / multiple * multiple;
}

namespace {

/// Where the product of a weight gradient adds to the gradient buffer, autograd is given a cached gradient in its place
/// (`dummy_weight_gradients`); frameworks of Megatron's family without it write the gradient and add it in another
/// kernel (F.linear in bigscience-workshop/Megatron-DeepSpeed megatron/mpu/layers.py and Aleph-Alpha/scaling
/// core/nn/linear). Autograd adds a gradient to one of its own type, and keeps the first as it is; a wider sum
/// (DeepSpeed runtime/bf16_optimizer.py) takes a cast copy first, of every micro-batch. Megatron-Core without the
/// fusion adds each gradient as it comes, in one kernel of both types (core/distributed/distributed_data_parallel.py).
double gradient_sum_of(const JobSpec& job, const Semantics& semantics, const Layout& layout, std::int64_t width) {
  if (semantics.family != SemanticsFamily::megatron ||
      job.gradient_accumulation_fusion.value_or(semantics.dummy_weight_gradients))
    return 0;
  const std::int64_t sum = bits_of(job.gradient) / 8;
  if (semantics.dummy_weight_gradients) return static_cast<double>(2 * sum + width);
  if (sum > width) return static_cast<double>(width + sum + 3 * sum);
  return job.global_batch > std::int64_t{layout.micro_batch} * layout.dp() ? static_cast<double>(3 * width) : 0;
}

/// Where FlashAttention runs (it wants the batch first) it splits; elsewhere what the semantics say.
DeterministicAttention deterministic_attention(const JobSpec& job, const Semantics& semantics,
                                               const DeviceSpec& device) {
  if (!job.deterministic || job.attention != AttentionKernel::flash) return DeterministicAttention::no;
  const auto listed = [&](const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& architecture) {
      return device.architecture.rfind(architecture, 0) == 0; // "Blackwell" stands for "Blackwell Ultra" too
    });
  };
  if (listed(semantics.batch_first_when_deterministic)) return DeterministicAttention::split;
  if (listed(semantics.score_gradients_when_deterministic)) return DeterministicAttention::score_gradients;
  return DeterministicAttention::no;
}

} // namespace

LayerContext make_context(const ModelSpec& model, const JobSpec& job, const Semantics& semantics, const Layout& layout,
                          const DeviceSpec& device, bool split_backward) {
  LayerContext c;
  c.model = &model;
  c.job = &job;
  c.semantics = &semantics;
  c.layout = layout;
  c.tokens = std::int64_t{job.sequence_length} * layout.micro_batch / layout.cp;
  c.tp_split = layout.tp > 1;
  c.sp = c.tp_split && layout.sequence_parallel;
  c.tokens_sp = c.sp ? c.tokens / layout.tp : c.tokens;
  c.heads = std::max(1, model.heads / layout.tp);
  c.kv_heads = std::max(1, model.kv_heads / layout.tp);
  switch (layout.context_parallel.kind) {
  case ContextKind::all_gather:
  case ContextKind::ring:
    c.ring = layout.cp;
    break;
  case ContextKind::ulysses:
    c.ulysses = layout.cp;
    break;
  case ContextKind::ulysses_ring:
    c.ulysses = layout.context_parallel.ulysses;
    c.ring = layout.cp / layout.context_parallel.ulysses;
    break;
  }
  c.vocab_padded = padded_vocab(model, job, semantics, layout.tp);
  c.dtype = activation_dtype(job.precision);
  c.width = bits_of(c.dtype) / 8;
  c.split_backward = split_backward;
  c.deterministic = deterministic_attention(job, semantics, device);
  c.processors = device.multiprocessors.value_or(0);
  const bool orders = semantics.orders_attention_output && job.attention == AttentionKernel::flash;
  c.batch_first = (c.deterministic == DeterministicAttention::split || orders) && layout.micro_batch > 1;
  const std::array<std::string_view, 4> early = {"Volta", "Turing", "Ampere", "Ada"};
  c.large_workspaces = std::find(early.begin(), early.end(), device.architecture) == early.end();
  c.low = low_precision(job, semantics, device);
  c.gradient_sum = gradient_sum_of(job, semantics, layout, c.width);
  return c;
}

DType statistics_dtype(const LayerContext& context) {
  return context.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
}

double visible_pairs(const JobSpec& job, int window) {
  const auto of_length = [window](double s) {
    const double w = window > 0 ? std::min<double>(window, s) : s;
    return w * s - w * (w - 1) / 2;
  };
  const auto whole = static_cast<double>(job.sequence_length);
  if (job.packed.empty()) return of_length(whole);
  double pairs = 0;
  for (const LengthBin& bin : job.packed) pairs += bin.share * whole / bin.length * of_length(bin.length);
  return pairs;
}

} // namespace foretrain
