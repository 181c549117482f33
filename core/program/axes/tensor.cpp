#include "core/program/axes/tensor.h"

#include <utility>
#include <vector>

namespace foretrain::tensor {
namespace {

Bytes whole(const LayerContext& c, std::int64_t width) {
  return Bytes(c.tokens * width * c.width);
}

int declare_gathered(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  const LayerContext& c = b.context();
  const MemoryPart part = c.semantics->gathers_before_saving ? MemoryPart::activations : MemoryPart::temporaries;
  const bool low = c.low.active && b.at(shard).dtype == c.low.type;
  return low ? b.quantised(name, {c.tokens, width}, MemoryPart::temporaries)
             : b.buffer(name, c.dtype, {c.tokens, width}, part);
}

int gather(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  if (!b.context().sp) return shard;
  const int gathered = declare_gathered(b, shard, name, width);
  b.collective(Collective::all_gather, Group::tp, b.at(gathered).bytes, {shard}, {gathered}).dtype = b.at(shard).dtype;
  return gathered;
}

Entry begin(BlockBuilder& b, int shard, const std::string& name, std::int64_t width, bool pieces) {
  if (!pieces) return {shard, gather(b, shard, name, width), false};
  return {shard, declare_gathered(b, shard, name, width), true};
}

/// The gradient quantised, where the product that reads it runs in 8 or 4 bits.
int quantised_gradient(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low) {
  const LayerContext& c = b.context();
  if (!low || !c.sp || !c.low.keeps_input) return grad_shard;
  const int quantised = b.quantised("d" + name + ".quantised", {c.tokens_sp, width}, MemoryPart::temporaries);
  const double bytes = static_cast<double>(c.width) * c.low.passes + c.low.activation;
  b.compute(Segment::residual, {grad_shard}, {quantised},
            {traffic(c, bytes * static_cast<double>(c.tokens_sp) * static_cast<double>(width))});
  return quantised;
}

int reduce(BlockBuilder& b, int partial, const std::string& name, std::int64_t width, int after) {
  const LayerContext& c = b.context();
  if (!c.tp_split) return partial;
  std::vector<int> reads = {partial};
  if (after >= 0) reads.push_back(after);
  if (!c.sp) {
    b.collective(Collective::all_reduce, Group::tp, whole(c, width), std::move(reads), {partial});
    return partial;
  }
  const int share = b.temporary(name, {c.tokens_sp, width});
  b.collective(Collective::reduce_scatter, Group::tp, whole(c, width), std::move(reads), {share});
  return share;
}

} // namespace

int enter(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  return gather(b, shard, name + ".gathered", width);
}
int enter_again(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  const LayerContext& c = b.context();
  if (c.sp && c.semantics->gathers_before_saving && b.at(shard).dtype == c.dtype)
    return b.activation(name + ".gathered", {c.tokens, width});
  return enter(b, shard, name, width);
}
int leave(BlockBuilder& b, int partial, const std::string& name, std::int64_t width) {
  return reduce(b, partial, name + ".share", width, -1);
}
int enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low) {
  return gather(b, quantised_gradient(b, grad_shard, name, width, low), "d" + name + ".gathered", width);
}
int leave_backward(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width, int after) {
  return reduce(b, grad_partial, "d" + name + ".share", width, after);
}

bool in_pieces(const LayerContext& context) {
  return context.layout.overlap.tp && context.sp;
}
Entry begin_enter(BlockBuilder& b, int shard, const std::string& name, std::int64_t width, bool pieces) {
  return begin(b, shard, name + ".gathered", width, pieces);
}
Entry begin_enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low,
                           bool pieces) {
  return begin(b, quantised_gradient(b, grad_shard, name, width, low), "d" + name + ".gathered", width, pieces);
}
void gather_piece(BlockBuilder& b, const Entry& entry, bool first) {
  const LayerContext& c = b.context();
  const Bytes bytes(b.at(entry.whole).bytes.value / c.layout.tp);
  b.collective(Collective::ring_exchange, Group::tp, bytes, {first ? entry.shard : entry.whole}, {entry.whole}).dtype =
      b.at(entry.shard).dtype;
}
int declare_share(BlockBuilder& b, const std::string& name, std::int64_t width) {
  return b.temporary(name + ".share", {b.context().tokens_sp, width});
}
void reduce_piece(BlockBuilder& b, int partial, int share, std::int64_t width, bool first) {
  const Bytes bytes(whole(b.context(), width).value / kPiecesOfReduction);
  const std::vector<int> reads = first ? std::vector<int>{partial} : std::vector<int>{partial, share};
  b.collective(Collective::reduce_scatter, Group::tp, bytes, reads, {share});
}

} // namespace foretrain::tensor
