#include "core/program/axes/tensor.h"

namespace foretrain::tensor {
namespace {

Bytes whole(const LayerContext& c, std::int64_t width) { return Bytes(c.tokens * width * c.width); }

int gather(BlockBuilder& b, int shard, const std::string& name, std::int64_t width) {
  const LayerContext& c = b.context();
  if (!c.sp) return shard;
  const int gathered = b.temporary(name, {c.tokens, width});
  b.collective(Collective::all_gather, Group::tp, whole(c, width), {shard}, {gathered});
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
int leave(BlockBuilder& b, int partial, const std::string& name, std::int64_t width) {
  return reduce(b, partial, name + ".share", width);
}
int enter_backward(BlockBuilder& b, int grad_shard, const std::string& name, std::int64_t width) {
  return gather(b, grad_shard, "d" + name + ".gathered", width);
}
int leave_backward(BlockBuilder& b, int grad_partial, const std::string& name, std::int64_t width) {
  return reduce(b, grad_partial, "d" + name + ".share", width);
}

} // namespace foretrain::tensor
