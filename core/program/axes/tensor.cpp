#include "core/program/axes/tensor.h"

namespace foretrain::tensor {
namespace {

Bytes whole(const LayerContext& c, std::int64_t width) { return Bytes(c.tokens * width * c.width); }

int gather(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  const LayerContext& c = b.context();
  if (!c.sp) return shard;
  const DType type = b.at(shard).dtype;
  const MemoryPart part = c.semantics->gathers_before_saving ? MemoryPart::activations : MemoryPart::temporaries;
  const bool low = c.low.active && type == c.low.type;
  const int gathered = low ? b.quantised(name, {c.tokens, width}, MemoryPart::temporaries)
                           : b.buffer(name, c.dtype, {c.tokens, width}, part);
  const Bytes bytes = low ? b.at(gathered).bytes : whole(c, width);
  b.collective(Collective::all_gather, Group::tp, bytes, {shard}, {gathered}).dtype = type;
  return gathered;
}

int reduce(BlockBuilder& b, int partial, const std::string& name, std::int64_t width) {
  const LayerContext& c = b.context();
  if (!c.tp_split) return partial;
  if (!c.sp) {
    b.collective(Collective::all_reduce, Group::tp, whole(c, width), {partial}, {partial});
    return partial;
  }
  const int share = b.temporary(name, {c.tokens_sp, width});
  b.collective(Collective::reduce_scatter, Group::tp, whole(c, width), {partial}, {share});
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
  return reduce(b, partial, name + ".share", width);
}
int enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width, bool low) {
  const LayerContext& c = b.context();
  if (low && c.sp && c.low.keeps_input) {
    const int quantised = b.quantised("d" + name + ".quantised", {c.tokens_sp, width}, MemoryPart::temporaries);
    const double bytes = static_cast<double>(c.width) * c.low.passes + c.low.activation;
    b.compute(Segment::residual, {grad_shard}, {quantised},
              {traffic(c, bytes * static_cast<double>(c.tokens_sp) * static_cast<double>(width))});
    grad_shard = quantised;
  }
  return gather(b, grad_shard, "d" + name + ".gathered", width);
}
int leave_backward(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width) {
  return reduce(b, grad_partial, "d" + name + ".share", width);
}

} // namespace foretrain::tensor
