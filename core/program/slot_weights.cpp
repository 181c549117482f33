#include "core/program/slot_weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/program/blocks.h"
#include "core/program/context.h"
#include "core/program/flops.h"

namespace foretrain {
namespace {

/// Seconds of an op list's compute at the device's peaks.
double roofline(const std::vector<Op>& ops, double flop_per_second, double bytes_per_second) {
  double seconds = 0;
  for (const Op& op : ops)
    if (op.kind == OpKind::compute)
      for (const Kernel& kernel : op.kernels)
        seconds += std::max(kernel.flop / flop_per_second, kernel.bytes / bytes_per_second);
  return seconds;
}

int in_wholes(double value, double of) {
  constexpr double kMost = 64; // times as long, or as short
  const double share = std::clamp(value / of, 1 / kMost, kMost);
  return std::max(1, static_cast<int>(std::lround(share * SlotWeights::kWhole)));
}

} // namespace

Layout weighed_part(const Layout& layout) {
  Layout part;
  part.tp = layout.tp;
  part.cp = layout.cp;
  part.ep = layout.ep;
  part.etp = layout.etp;
  part.pp = 2;
  part.micro_batch = layout.micro_batch;
  part.sequence_parallel = layout.tp > 1;
  part.recompute = {};
  return part;
}

SlotWeights slot_weights(const ModelSpec& model, const JobSpec& job, const Semantics& semantics,
                         const DeviceSpec& device, const Layout& layout) {
  const auto peak = dense_peak(device, job.precision);
  if (!peak || !device.memory_bandwidth) return {};
  const Layout part = weighed_part(layout);
  const LayerContext context = make_context(model, job, semantics, part, device, true);
  std::vector<std::pair<LayerShape, int>> kinds;
  for (const LayerShape& shape : layer_shapes(model)) {
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == shape; });
    if (known == kinds.end())
      kinds.emplace_back(shape, 1);
    else
      ++known->second;
  }
  double forward = 0;
  double input = 0;
  double weight = 0;
  double retained = 0;
  double kept = 0;
  for (const auto& [shape, count] : kinds) {
    const Block block = make_layer(context, shape, false);
    const auto seconds = [&](const std::vector<Op>& ops) {
      return count * roofline(ops, peak->value, device.memory_bandwidth->value);
    };
    forward += seconds(block.forward);
    input += seconds(block.input);
    weight += seconds(block.weight);
    const auto after_forward = static_cast<double>(block.forward_memory.net.value);
    retained += count * after_forward;
    kept += count * (after_forward + static_cast<double>(block.input_memory.net.value));
  }
  if (forward <= 0 || retained <= 0) return {};
  SlotWeights weights;
  weights.input = in_wholes(input, forward);
  weights.weight = in_wholes(weight, forward);
  // Rounded up: what is retained is never more than is said.
  weights.kept = std::max(1, static_cast<int>(std::ceil(std::clamp(kept / retained, 0.0, 1.0) * SlotWeights::kWhole)));
  return weights;
}

} // namespace foretrain
