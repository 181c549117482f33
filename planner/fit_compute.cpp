#include "planner/fit_compute.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/program/names.h"
#include "core/program/places.h"
#include "planner/least_squares.h"
#include "simulator/cost.h"

namespace foretrain {
namespace {

constexpr std::size_t kFewestOps = 4;

enum class Family { products, attention, memory, mixed };

Family family_of(const ProbedOp& op) {
  bool products = false;
  bool attention = false;
  bool memory = false;
  for (const Kernel& kernel : op.kernels) {
    products = products || kernel.kind == KernelKind::gemm;
    attention =
        attention || kernel.kind == KernelKind::attention_forward || kernel.kind == KernelKind::attention_backward;
    memory = memory || kernel.kind == KernelKind::memory;
    if (kernel.kind == KernelKind::grouped_gemm) return Family::mixed;
  }
  if (attention && !products) return Family::attention;
  if (products && !attention) return Family::products;
  return memory && !products && !attention ? Family::memory : Family::mixed;
}

double flop_of(const Kernel& kernel) {
  if (kernel.flop > 0) return kernel.flop;
  return 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k) *
         static_cast<double>(kernel.batch);
}

/// Seconds that the device's peak would take, by the dtype of the kernel.
Result<double> at_peak(const Kernel& kernel, const DeviceSpec& device) {
  const std::optional<FlopPerSecond>& peak = kernel.dtype == DType::fp64   ? device.fp64
                                             : kernel.dtype == DType::fp32 ? device.fp32
                                                                           : device.bf16;
  if (!peak || !(peak->value > 0))
    return fail("device '" + device.name + "'", "the peak of a precision that was probed is unknown",
                "state fp32, fp64 and bf16");
  return flop_of(kernel) / peak->value;
}

constexpr double kMostOfNominal = 4;

} // namespace

double share(double coefficient, double most) {
  constexpr double kLeast = 0.001;
  return coefficient > 0 ? std::clamp(1 / coefficient, kLeast, most) : 1.0;
}

Result<MemoryFit> fit_memory(const std::vector<ProbedOp>& ops) {
  std::vector<Sample<2>> samples;
  for (const ProbedOp& op : ops) {
    if (family_of(op) != Family::memory || !(op.seconds > 0)) continue;
    Sample<2> sample{{static_cast<double>(op.kernels.size()), 0}, op.seconds};
    for (const Kernel& kernel : op.kernels) sample.features[1] += kernel.bytes;
    if (sample.features[1] > 0) samples.push_back(sample);
  }
  if (samples.size() < kFewestOps) return fail("", "too few memory-bound ops were probed");
  const auto [launch, per_byte] = fit(samples);
  return MemoryFit{launch, per_byte};
}

namespace {

/// So much per kernel and so much per byte where the samples tell the two apart: sizes differ enough, and most lie
/// close to the line. Else the mean rate: an op that does its work only now and then (clipping) is right in the sum.
MemoryFit fit_operator(const std::vector<Sample<2>>& samples) {
  constexpr double kApart = 3;   // largest size over smallest
  constexpr double kClose = 0.3; // root of the mean squared relative error
  double bytes = 0;
  double seconds = 0;
  double least = samples.front().features[1];
  double most = least;
  for (const Sample<2>& sample : samples) {
    bytes += sample.features[1];
    seconds += sample.seconds;
    least = std::min(least, sample.features[1]);
    most = std::max(most, sample.features[1]);
  }
  const auto [launch, per_byte] = fit(samples);
  double squares = 0;
  for (const Sample<2>& sample : samples) {
    const double found = launch * sample.features[0] + per_byte * sample.features[1];
    squares += std::pow(found / sample.seconds - 1, 2);
  }
  const bool close = squares <= kClose * kClose * static_cast<double>(samples.size());
  return most >= kApart * least && close ? MemoryFit{launch, per_byte} : MemoryFit{0, seconds / bytes};
}

} // namespace

std::vector<OperatorModel> fit_operators(const std::vector<ProbedOp>& ops) {
  std::map<std::pair<Segment, bool>, std::vector<Sample<2>>> by_kind;
  for (const ProbedOp& op : ops) {
    if (op.segment == Segment::none || family_of(op) != Family::memory || !(op.seconds > 0)) continue;
    Sample<2> sample{{static_cast<double>(op.kernels.size()), 0}, op.seconds};
    for (const Kernel& kernel : op.kernels) sample.features[1] += kernel.bytes;
    if (sample.features[1] > 0) by_kind[{op.segment, works_on_gradients(op.pass)}].push_back(sample);
  }
  constexpr double kMost = 1e15; // where the time does not grow with the bytes
  std::vector<OperatorModel> found;
  for (const auto& [kind, samples] : by_kind) {
    if (samples.size() < kFewestOps) continue;
    const auto [launch, per_byte] = fit_operator(samples);
    found.push_back({std::string(id_of(kind.first)), kind.second,
                     BytesPerSecond(per_byte > 1 / kMost ? 1 / per_byte : kMost), Seconds(launch)});
  }
  return found;
}

namespace {

/// Time of products at the device's peak, by role, and what of it is divided by the tokens: a processor's library packs
/// each weight anew, however few tokens meet it.
struct ProductSample {
  double kernels = 0;
  std::array<double, 3> ideal{}; ///< forward, gradient of inputs, gradient of weights
  std::array<double, 3> by_tokens{};
  double seconds = 0;
};
constexpr std::size_t kForward = 0;
constexpr std::size_t kInput = 1;
constexpr std::size_t kWeight = 2;

Result<std::vector<ProductSample>> product_samples(const Probes& probes, const DeviceSpec& device,
                                                   const MemoryFit& memory) {
  std::vector<ProductSample> samples;
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::products || !(op.seconds > 0)) continue;
    ProductSample sample;
    sample.seconds = op.seconds;
    for (const Kernel& kernel : op.kernels) {
      if (kernel.kind == KernelKind::memory) {
        sample.seconds -= memory.launch + memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double ideal, at_peak(kernel, device));
      const std::size_t role = kernel.role == GemmRole::forward          ? kForward
                               : kernel.role == GemmRole::input_gradient ? kInput
                                                                         : kWeight;
      sample.kernels += 1;
      sample.ideal[role] += ideal;
      sample.by_tokens[role] += ideal / static_cast<double>(std::max<std::int64_t>(1, kernel.m));
    }
    if (sample.seconds > op.seconds / 2) samples.push_back(sample);
  }
  if (samples.size() < kFewestOps) return fail("", "too few matrix products were probed");
  return samples;
}

/// Whether the numbers of tokens lie far enough apart to tell what a weight takes from what a token takes; runs of one
/// job do not.
bool tokens_differ(const std::vector<ProductSample>& products) {
  constexpr double kApart = 1.5;
  const auto tokens = [](const ProductSample& s) {
    return (s.ideal[kForward] + s.ideal[kInput] + s.ideal[kWeight]) /
           (s.by_tokens[kForward] + s.by_tokens[kInput] + s.by_tokens[kWeight]);
  };
  const auto [least, most] =
      std::minmax_element(products.begin(), products.end(),
                          [&](const ProductSample& a, const ProductSample& b) { return tokens(a) < tokens(b); });
  return tokens(*most) >= kApart * tokens(*least);
}

/// One for all roles, each at its own rate, so that rates and tokens are found in turns.
double half_tokens_of(const std::vector<ProductSample>& products) {
  constexpr int kTurns = 20;
  constexpr double kMost = 1e4;
  std::array<double, 3> relative = {1, 1, 1}; // time of a role's FLOP to that of forward's
  double half = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<Sample<5>> samples; // kernels, the roles, all roles by their tokens
    for (const ProductSample& s : products) {
      Sample<5> sample{{s.kernels, s.ideal[kForward], s.ideal[kInput], s.ideal[kWeight], 0}, s.seconds};
      for (std::size_t role = 0; role < relative.size(); ++role)
        sample.features[4] += relative[role] * s.by_tokens[role];
      samples.push_back(sample);
    }
    const auto [per_kernel, forward, input, weight, tokens] = fit(samples);
    if (!(forward > 0)) return 0;
    half = std::min(kMost, tokens / forward);
    if (input > 0) relative[kInput] = input / forward;
    if (weight > 0) relative[kWeight] = weight / forward;
  }
  return half;
}

} // namespace

Result<void> set_products(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory, GemmModel& gemm) {
  FORETRAIN_TRY(std::vector<ProductSample> products, product_samples(probes, device, memory));
  const bool both = std::any_of(products.begin(), products.end(), [](const ProductSample& sample) {
    return (sample.ideal[kInput] > 0) != (sample.ideal[kWeight] > 0);
  });
  if (!both) // every op computes both gradients
    for (ProductSample& sample : products) {
      sample.ideal[kInput] += std::exchange(sample.ideal[kWeight], 0);
      sample.by_tokens[kInput] += std::exchange(sample.by_tokens[kWeight], 0);
    }
  if (tokens_differ(products)) gemm.half_tokens = half_tokens_of(products);
  std::vector<Sample<4>> samples;
  for (const ProductSample& s : products) {
    const auto at = [&](std::size_t role) { return s.ideal[role] + gemm.half_tokens * s.by_tokens[role]; };
    samples.push_back({{s.kernels, at(kForward), at(kInput), at(kWeight)}, s.seconds});
  }
  const auto [per_kernel, forward, input, weight] = fit(samples);
  const auto relative = [forward](double to) { return to > 0 ? std::clamp(forward / to, 0.1, 2.0) : 1; };
  gemm.efficiency = share(forward, kMostOfNominal);
  gemm.input_gradient = relative(input);
  gemm.weight_gradient = relative(both ? weight : input);
  gemm.overhead = Seconds(std::max(0.0, per_kernel - memory.launch));
  gemm.tail = 0;
  gemm.half_k = 0;
  gemm.multiprocessors = 1;
  return {};
}

Result<void> set_attention(const Probes& probes, const DeviceSpec& device, const MemoryFit& memory,
                           AttentionModel& attention) {
  std::map<std::pair<int, bool>, std::vector<Sample<2>>> by_kind; // head width, forward: at peak, at peak / length
  for (const ProbedOp& op : probes.ops) {
    if (family_of(op) != Family::attention) continue;
    Sample<2> sample;
    sample.seconds = op.seconds;
    std::pair<int, bool> kind;
    for (const Kernel& kernel : op.kernels) {
      sample.seconds -= memory.launch;
      if (kernel.kind == KernelKind::memory) {
        sample.seconds -= memory.per_byte * kernel.bytes;
        continue;
      }
      FORETRAIN_TRY(const double seconds, at_peak(kernel, device));
      sample.features[0] += seconds;
      sample.features[1] += seconds / attention_length(kernel);
      kind = {static_cast<int>(kernel.k), kernel.kind == KernelKind::attention_forward};
    }
    if (sample.seconds > 0 && sample.features[0] > 0 && kind.first > 0) by_kind[kind].push_back(sample);
  }
  // One half_sequence for all: the mean of what each kind says.
  constexpr double kLongest = 1e6;
  double sum = 0;
  for (const auto& [kind, samples] : by_kind) {
    const auto [whole, by_length] = fit(samples);
    sum += whole > 0 ? std::min(by_length / whole, kLongest) : 0;
  }
  if (by_kind.empty()) return fail("", "no attention was probed");
  attention.half_sequence = sum / static_cast<double>(by_kind.size());
  const auto rate = [&](int width, bool forward) {
    std::vector<Sample<1>> samples;
    for (const Sample<2>& sample : by_kind[{width, forward}])
      samples.push_back({{sample.features[0] + attention.half_sequence * sample.features[1]}, sample.seconds});
    return samples.empty() ? 1.0 : share(fit(samples).front(), kMostOfNominal);
  };
  std::set<int> widths;
  for (const auto& [kind, samples] : by_kind) widths.insert(kind.first);
  for (const int width : widths)
    if (by_kind.count({width, true}) > 0) attention.heads.push_back({width, rate(width, true), rate(width, false)});
  if (attention.heads.empty()) return fail("", "no attention was probed");
  return {};
}

} // namespace foretrain
