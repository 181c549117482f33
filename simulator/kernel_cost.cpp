#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "simulator/cost.h"

namespace foretrain {
namespace {

/// Tiles that the libraries choose from on tensor-core devices (rows, columns).
constexpr std::array<std::array<std::int64_t, 2>, 3> kTiles = {{{128, 256}, {256, 128}, {128, 128}}};
constexpr std::int64_t kQueryBlock = 128;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The product as it runs. Kernels carry the tokens in `m` for every role; a weight gradient sums over them.
struct Product {
  std::int64_t rows, columns, inner;
};
Product product_of(const Kernel& kernel) {
  if (kernel.role == GemmRole::weight_gradient) return {kernel.n, kernel.k, kernel.m};
  return {kernel.m, kernel.n, kernel.k};
}

/// Useful share of all tile slots in all waves, best tile: rows · columns / (tile · waves · processors).
double occupancy(const Product& product, std::int64_t batch, int processors) {
  double best = 0;
  const double useful =
      static_cast<double>(product.rows) * static_cast<double>(product.columns) * static_cast<double>(batch);
  for (const auto& tile : kTiles) {
    const std::int64_t tiles = divide_up(product.rows, tile[0]) * divide_up(product.columns, tile[1]) * batch;
    const std::int64_t waves = divide_up(tiles, processors);
    const double slots = static_cast<double>(tile[0] * tile[1]) * static_cast<double>(waves * processors);
    best = std::max(best, useful / slots);
  }
  return best;
}

double flop_of(const Kernel& kernel) {
  if (kernel.flop > 0) return kernel.flop;
  return 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k) *
         static_cast<double>(kernel.batch);
}

/// Whether a batched 16-bit product runs on tensor cores: its rows start at multiples of 16 bytes (NVIDIA Matrix
/// Multiplication Background User's Guide, "Tensor Core Requirements"). Heads of unfused attention lie beside each
/// other, so that their width decides; others are padded by who makes them.
bool aligned(const Kernel& kernel) {
  constexpr std::int64_t kElements = 8;
  const bool half = kernel.dtype == DType::bf16 || kernel.dtype == DType::fp16;
  return kernel.batch == 1 || !half || (kernel.n % kElements == 0 && kernel.k % kElements == 0);
}

double role_factor(const GemmModel& gemm, GemmRole role) {
  switch (role) {
  case GemmRole::forward:
    return 1;
  case GemmRole::input_gradient:
    return gemm.input_gradient;
  case GemmRole::weight_gradient:
    return gemm.weight_gradient;
  }
  return 1;
}

/// Attention runs in 16 bits also under fp8 recipes.
DType attention_dtype(DType type) {
  switch (type) {
  case DType::fp8:
  case DType::fp4:
  case DType::int8:
  case DType::int64:
    return DType::bf16;
  case DType::fp64:
  case DType::fp32:
  case DType::bf16:
  case DType::fp16:
    return type;
  }
  return type;
}

/// Useful share of the waves in which deterministic FlashAttention-2 runs its backward, one block a processor.
double waves(const Kernel& kernel, int processors) {
  const std::int64_t pairs = std::max<std::int64_t>(1, kernel.heads * kernel.batch);
  const std::int64_t blocks = pairs * std::max<std::int64_t>(kernel.parts, divide_up(processors, pairs));
  return static_cast<double>(blocks) / static_cast<double>(divide_up(blocks, processors) * processors);
}

double attention_efficiency(const AttentionModel& model, std::int64_t head_dim, bool forward) {
  const auto value = [forward](const AttentionPoint& point) { return forward ? point.forward : point.backward; };
  const std::vector<AttentionPoint>& points = model.heads;
  const auto width = static_cast<double>(head_dim);
  if (width <= points.front().head_dim) return value(points.front());
  for (std::size_t i = 1; i < points.size(); ++i) {
    if (width > points[i].head_dim) continue;
    const double share = (width - points[i - 1].head_dim) / (points[i].head_dim - points[i - 1].head_dim);
    return value(points[i - 1]) + (value(points[i]) - value(points[i - 1])) * share;
  }
  return value(points.back());
}

} // namespace

double attention_length(const Kernel& kernel) {
  const double forward = kernel.flop / (kernel.kind == KernelKind::attention_forward ? 1.0 : 2.5);
  const double keys = forward / (2.0 * static_cast<double>(kernel.batch) * std::max(1, kernel.heads) *
                                 static_cast<double>(kernel.m) * static_cast<double>(kernel.k + kernel.v_dim));
  return std::max(1.0, 2 * keys);
}

double CostModel::gemm_efficiency(DType dtype) const {
  const GemmModel& gemm = calibration_.gemm;
  switch (dtype) {
  case DType::fp8:
    return gemm.fp8.value_or(gemm.efficiency);
  case DType::fp4:
    return gemm.fp4.value_or(gemm.fp8.value_or(gemm.efficiency));
  case DType::fp64:
  case DType::fp32:
  case DType::bf16:
  case DType::fp16:
  case DType::int64:
  case DType::int8:
    return gemm.efficiency;
  }
  return gemm.efficiency;
}

double CostModel::grouped_half(GemmRole role) const {
  switch (role) {
  case GemmRole::forward:
    return calibration_.grouped.forward;
  case GemmRole::input_gradient:
    return calibration_.grouped.input_gradient;
  case GemmRole::weight_gradient:
    return calibration_.grouped.weight_gradient;
  }
  return 0;
}

double CostModel::gemm_seconds(const Kernel& kernel) const {
  const double flop = flop_of(kernel);
  if (!(flop > 0)) return 0;
  const bool grouped = kernel.kind == KernelKind::grouped_gemm;
  const DType runs_in = grouped || aligned(kernel) ? kernel.dtype : DType::fp32;
  const double peak = peak_[static_cast<std::size_t>(runs_in)];
  FORETRAIN_CHECK(peak > 0, "products run in a dtype that CostNeeds::precision asked for");
  const GemmModel& gemm = calibration_.gemm;
  double efficiency = gemm_efficiency(kernel.dtype) * role_factor(gemm, kernel.role);
  if (grouped) {
    // From the work, since a mean of tokens per expert need not be whole.
    const double tokens = flop / (2.0 * static_cast<double>(kernel.n * kernel.k * kernel.batch));
    const double half = grouped_half(kernel.role);
    if (tokens > 0) efficiency *= tokens / (tokens + half);
  } else {
    const auto tokens = static_cast<double>(kernel.m);
    efficiency *= tokens / (tokens + gemm.half_tokens);
    const Product product = product_of(kernel);
    const auto inner = static_cast<double>(product.inner);
    efficiency *=
        inner / (inner + gemm.half_k) * std::pow(occupancy(product, kernel.batch, gemm.multiprocessors), gemm.tail);
  }
  return gemm.overhead.value + std::max(flop / (peak * efficiency), kernel.bytes / memory_bandwidth_);
}

double CostModel::attention_seconds(const Kernel& kernel) const {
  if (!(kernel.flop > 0)) return 0;
  const AttentionModel& model = calibration_.attention;
  const double peak = peak_[static_cast<std::size_t>(attention_dtype(kernel.dtype))];
  FORETRAIN_CHECK(peak > 0, "attention runs in a dtype that the device has");
  const bool forward = kernel.kind == KernelKind::attention_forward;
  const double sequence = attention_length(kernel);
  const double blocks =
      static_cast<double>(kernel.batch * divide_up(kernel.m, kQueryBlock)) * std::max(1, kernel.heads);
  double efficiency = attention_efficiency(model, kernel.k, forward);
  if (kernel.parts > 0) efficiency *= model.flash_2 * (forward ? 1 : waves(kernel, calibration_.gemm.multiprocessors));
  const double ramp = (1 + model.half_sequence / sequence) * (1 + model.half_blocks / std::max(1.0, blocks));
  return model.overhead.value + std::max(kernel.flop * ramp / (peak * efficiency), kernel.bytes / memory_bandwidth_);
}

Cost CostModel::kernel(const Kernel& kernel) const {
  const double launch = calibration_.memory.launch.value;
  switch (kernel.kind) {
  case KernelKind::gemm:
    return {launch + gemm_seconds(kernel), calibration_.gemm.evidence};
  case KernelKind::grouped_gemm:
    return {launch + gemm_seconds(kernel), std::max(calibration_.gemm.evidence, calibration_.grouped.evidence)};
  case KernelKind::attention_forward:
  case KernelKind::attention_backward:
    return {launch + attention_seconds(kernel), calibration_.attention.evidence};
  case KernelKind::memory: {
    // Operators over whole scores are large: they move what is counted, without what a framework's small kernels lose.
    const double bandwidth = kernel.heads > 0 ? memory_bandwidth_ * calibration_.memory.streaming : memory_bandwidth_;
    return {launch + kernel.bytes / bandwidth, calibration_.memory.evidence};
  }
  }
  return {};
}

} // namespace foretrain
