#include "simulator/launches.h"

#include <algorithm>

namespace foretrain {

double launches(const Block& block, Pass pass) {
  // Kernels of TransformerEngine's layers: 12 to 18 forward, twice that backward; 60 to 120 in both passes of a layer
  // of experts against 37 to 53. Ends: a norm, a product and a loss, or a lookup.
  constexpr double kExperts = 2;
  constexpr double kEnd = 0.5;
  // Latent attention: four linear modules, two norms and a rotary embedding in parts where a dense layer has one of its
  // five modules (Megatron-LM core/transformer/multi_latent_attention.py).
  constexpr double kLatent = 0.8;
  // A round of ring attention: an exchange, halves of keys and values copied, a kernel of attention, sums and output
  // corrected, 5 kernels forward (TransformerEngine attention/dot_product_attention/context_parallel.py).
  constexpr double kRound = 0.3;
  // An operator of its own that Python does not see: 5 to 10 us of a layer's 1.6 ms.
  constexpr double kFill = 0.005;
  // One that Python calls, 20 us: what scores take beyond the fused softmax and its dropout.
  constexpr double kOperator = 0.025;
  constexpr int kOfFused = 2;
  if (block.ops(pass).empty()) return 0;
  double again = 0; // ops of the forward that are run once more
  bool experts = false;
  bool latent = false;
  double rounds = 0;
  double fills = 0;
  double operators = 0;
  for (const Op& op : block.ops(pass)) {
    if (op.pass == Pass::recompute) again += 1;
    experts = experts || op.segment == Segment::router;
    fills += op.fills;
    const auto over_scores = std::count_if(op.kernels.begin(), op.kernels.end(), [](const Kernel& kernel) {
      return kernel.kind == KernelKind::memory && kernel.heads > 0;
    });
    operators += std::max(0.0, static_cast<double>(over_scores) - kOfFused);
    latent = latent || op.segment == Segment::mla_up;
    if (op.kind == OpKind::collective && op.collective == Collective::ring_exchange && op.group != Group::tp)
      rounds += 1;
  }
  const double whole = std::max<double>(1, static_cast<double>(block.forward.size()));
  const double passes = (pass == Pass::backward ? 2 : 1) + again / whole;
  const double beside = kRound * rounds + kFill * fills + kOperator * operators;
  const double layer = (experts ? kExperts : 1) + (latent ? kLatent : 0);
  switch (block.kind) {
  case BlockKind::layer:
    return passes * block.layers * layer + beside;
  case BlockKind::mtp:
    return passes * block.layers * (layer + kEnd) + beside;
  case BlockKind::embedding:
  case BlockKind::head:
    return passes * kEnd + beside;
  }
  return 0;
}

double restart_seconds(const Semantics& semantics) {
  const bool megatron_core =
      semantics.family == SemanticsFamily::megatron &&
      std::find(semantics.schedules.begin(), semantics.schedules.end(), "interleaved") != semantics.schedules.end();
  return megatron_core ? kRestart * semantics.host_per_layer.value : 0;
}

} // namespace foretrain
