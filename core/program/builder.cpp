#include "core/program/builder.h"

#include <cmath>

#include "core/base/check.h"
#include "core/program/fills.h"
#include "core/program/layers/executor_scratch.h"

namespace foretrain {
namespace {

Bytes size_of(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return Bytes((elements * bits_of(dtype) + 7) / 8);
}

Stream stream_of(Group group) {
  switch (group) {
  case Group::tp:
    return Stream::tp;
  case Group::cp:
  case Group::cp_inner:
  case Group::cp_outer:
    return Stream::cp;
  case Group::ep:
  case Group::etp:
  case Group::ep_etp:
    return Stream::ep;
  case Group::data:
  case Group::shard:
  case Group::replicate:
  case Group::expert_data:
  case Group::expert_shard:
    return Stream::gradients;
  case Group::pp:
  case Group::embedding:
  case Group::world:
    return Stream::tp;
  }
  return Stream::tp;
}

TimePart part_of(Group group) {
  switch (group) {
  case Group::tp:
    return TimePart::tp;
  case Group::cp:
  case Group::cp_inner:
  case Group::cp_outer:
    return TimePart::cp;
  case Group::ep:
  case Group::etp:
  case Group::ep_etp:
    return TimePart::ep;
  case Group::data:
  case Group::shard:
  case Group::replicate:
  case Group::expert_data:
  case Group::expert_shard:
    return TimePart::dp;
  case Group::pp:
  case Group::embedding:
    return TimePart::pp;
  case Group::world:
    return TimePart::other;
  }
  return TimePart::other;
}

} // namespace

BlockBuilder::BlockBuilder(const LayerContext& context, BlockKind kind, std::string name) : context_(context) {
  block_.kind = kind;
  block_.name = std::move(name);
}

int BlockBuilder::buffer(const std::string& name, DType dtype, std::vector<std::int64_t> shape, MemoryPart part,
                         BufferScope scope) {
  const std::string full = prefix_ + name;
  for (std::size_t i = 0; i < block_.buffers.size(); ++i)
    if (block_.buffers[i].name == full) return static_cast<int>(i);
  Buffer buffer;
  buffer.name = full;
  buffer.scope = scope;
  buffer.part = part;
  buffer.dtype = dtype;
  buffer.bytes = size_of(dtype, shape);
  buffer.shape = std::move(shape);
  block_.buffers.push_back(std::move(buffer));
  return static_cast<int>(block_.buffers.size()) - 1;
}

int BlockBuilder::activation(const std::string& name, std::vector<std::int64_t> shape) {
  return buffer(name, context_.dtype, std::move(shape), MemoryPart::activations);
}
int BlockBuilder::temporary(const std::string& name, std::vector<std::int64_t> shape) {
  return buffer(name, context_.dtype, std::move(shape), MemoryPart::temporaries);
}

int BlockBuilder::quantised(const std::string& name, std::vector<std::int64_t> shape, MemoryPart part, int copies) {
  const int index = buffer(name, context_.low.type, std::move(shape), part);
  Buffer& made = block_.buffers[static_cast<std::size_t>(index)];
  double elements = copies;
  for (const std::int64_t extent : made.shape) elements *= static_cast<double>(extent);
  made.bytes = Bytes(std::llround(elements * context_.low.activation));
  return index;
}

int BlockBuilder::parameter(Parameter parameter) {
  parameter.frozen = context_.job->lora.has_value();
  return adapter(std::move(parameter));
}

int BlockBuilder::adapter(Parameter parameter) {
  parameter.name = prefix_ + parameter.name;
  if (parameter.replicated_tp && context_.sp) parameter.partial_tp = true;
  for (std::size_t i = 0; i < block_.parameters.size(); ++i)
    if (block_.parameters[i].name == parameter.name) return static_cast<int>(i);
  block_.parameters.push_back(std::move(parameter));
  return static_cast<int>(block_.parameters.size()) - 1;
}

std::vector<Op>& BlockBuilder::list() {
  return pass_ == Pass::forward ? block_.forward : block_.backward;
}

Op& BlockBuilder::compute(Segment segment, std::vector<int> reads, std::vector<int> writes,
                          std::vector<Kernel> kernels) {
  Op op;
  op.kind = OpKind::compute;
  op.segment = segment;
  op.pass = pass_;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.kernels = std::move(kernels);
  list().push_back(std::move(op));
  return list().back();
}

Op& BlockBuilder::collective(Collective kind, Group group, Bytes bytes, std::vector<int> reads,
                             std::vector<int> writes) {
  Op op;
  op.kind = OpKind::collective;
  op.pass = pass_;
  op.stream = stream_of(group);
  op.part = part_of(group);
  op.collective = kind;
  op.group = group;
  op.dtype = context_.dtype;
  op.bytes = bytes;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  list().push_back(std::move(op));
  return list().back();
}

int BlockBuilder::mark(const std::string& name) {
  const int empty = temporary(name, {0});
  list().back().writes.push_back(empty);
  return empty;
}

Op& BlockBuilder::host_sync() {
  Op op;
  op.kind = OpKind::host_sync;
  op.pass = pass_;
  op.part = TimePart::host;
  list().push_back(std::move(op));
  return list().back();
}

Block BlockBuilder::finish() {
  for (const Op& op : block_.backward) (op.pass == Pass::weight ? block_.weight : block_.input).push_back(op);
  if (context_.semantics->family == SemanticsFamily::foretrain) layers::set_executor_scratch(block_, context_);
  finish_block(block_, context_.split_backward);
  add_fills(context_, block_);
  return std::move(block_);
}

Kernel gemm(const LayerContext& context, std::int64_t m, std::int64_t n, std::int64_t k, GemmRole role, bool low) {
  Kernel kernel;
  kernel.kind = KernelKind::gemm;
  kernel.role = role;
  kernel.dtype = low ? context.low.type : context.dtype;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  const auto dm = static_cast<double>(m);
  const auto dn = static_cast<double>(n);
  const auto dk = static_cast<double>(k);
  const auto width = static_cast<double>(context.width);
  const double operand = low ? context.low.activation : width;
  const double weight = low ? context.low.weight : width;
  kernel.flop = 2 * dm * dn * dk;
  // A weight gradient reads both activations and reads and writes the fp32 accumulator of n × k.
  kernel.bytes = role == GemmRole::weight_gradient ? operand * (dm * dn + dm * dk) + 8 * dn * dk
                                                   : operand * dm * dk + weight * dk * dn + width * dm * dn;
  return kernel;
}

Kernel grouped_gemm(const LayerContext& context, std::int64_t groups, double rows, std::int64_t n, std::int64_t k,
                    GemmRole role, bool low) {
  Kernel kernel = gemm(context, static_cast<std::int64_t>(std::llround(rows)), n, k, role, low);
  kernel.kind = KernelKind::grouped_gemm;
  kernel.batch = groups;
  const auto g = static_cast<double>(groups);
  const auto dn = static_cast<double>(n);
  const auto dk = static_cast<double>(k);
  const auto width = static_cast<double>(context.width);
  const double operand = low ? context.low.activation : width;
  const double weight = low ? context.low.weight : width;
  kernel.flop = 2 * g * rows * dn * dk;
  kernel.bytes = role == GemmRole::weight_gradient ? g * (operand * rows * (dn + dk) + 8 * dn * dk)
                                                   : g * (operand * rows * dk + weight * dk * dn + width * rows * dn);
  return kernel;
}

Kernel traffic(const LayerContext& context, double bytes) {
  Kernel kernel;
  kernel.kind = KernelKind::memory;
  kernel.dtype = context.dtype;
  kernel.bytes = bytes;
  return kernel;
}

} // namespace foretrain
