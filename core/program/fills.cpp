#include "core/program/fills.h"

#include "core/program/builder.h"

namespace foretrain {

void add_fills(const LayerContext& context, Block& block) {
  if (!context.job->deterministic || !context.semantics->fills_when_deterministic) return;
  for (std::vector<Op>* list : {&block.forward, &block.backward, &block.input, &block.weight})
    for (Op& op : *list) {
      if (op.kind != OpKind::compute || op.segment == Segment::residual || op.kernels.empty()) continue;
      Bytes bytes = op.scratch;
      for (const int buffer : op.allocates) bytes += block.buffers[static_cast<std::size_t>(buffer)].bytes;
      op.fills = static_cast<int>(op.allocates.size()) + (op.scratch.value > 0 ? 1 : 0);
      if (bytes.value > 0) op.kernels.push_back(traffic(context, static_cast<double>(bytes.value)));
    }
}

} // namespace foretrain
