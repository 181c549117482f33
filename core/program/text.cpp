#include "core/program/text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"
#include "core/program/memory.h"
#include "core/program/names.h"
#include "core/spec/io.h"

namespace foretrain {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// "%3 %4".
std::string numbers(const std::vector<int>& list) {
  std::string text;
  for (const int number : list) text += fmt::format("{}%{}", text.empty() ? "" : " ", number);
  return text;
}

std::string kernel_text(const Kernel& k) {
  switch (k.kind) {
  case KernelKind::gemm:
    return fmt::format("gemm {} {}x{}x{}{}", id_of(k.dtype), k.m, k.n, k.k,
                       k.batch > 1 ? fmt::format(" *{}", k.batch) : "");
  case KernelKind::grouped_gemm:
    return fmt::format("grouped-gemm {} {}x{}x{} *{}", id_of(k.dtype), k.m, k.n, k.k, k.batch);
  case KernelKind::attention_forward:
  case KernelKind::attention_backward:
    return fmt::format("{} {}x{} heads {}/{} width {}/{} *{}{}", id_of(k.kind), k.m, k.n, k.heads, k.kv_heads, k.k,
                       k.v_dim, k.batch, k.parts > 0 ? fmt::format(" in {} parts", k.parts) : "");
  case KernelKind::memory:
    return fmt::format("memory {:.0f} B", k.bytes);
  }
  return "";
}

std::string transfer_text(const Op& op) {
  std::string text =
      fmt::format("{} over {} {} {} B", id_of(op.collective), id_of(op.group), id_of(op.dtype), op.bytes.value);
  if (op.maximum) text += " maximum";
  if (op.rounds > 1) text += fmt::format(" {} rounds", op.rounds);
  if (op.deduplicated > 0) text += fmt::format(" deduplicated {}", op.deduplicated);
  return text;
}

std::string op_text(const Op& op) {
  std::string text = op.segment == Segment::none ? std::string(id_of(op.kind)) : std::string(id_of(op.segment));
  if (op.kind == OpKind::collective) text = transfer_text(op);
  if (op.kind == OpKind::copy) text = fmt::format("copy {} B", op.bytes.value);
  if (op.pass == Pass::recompute) text += " (again)";
  if (op.stream != Stream::compute) text += fmt::format(" @{}", id_of(op.stream));
  const auto list = [&text](std::string_view name, const std::vector<int>& values) {
    if (!values.empty()) text += fmt::format("  {} {}", name, numbers(values));
  };
  list("reads", op.reads);
  list("writes", op.writes);
  list("new", op.allocates);
  list("waits", op.waits);
  list("frees", op.frees);
  if (!op.weights.empty()) text += fmt::format("  weights {}", fmt::join(op.weights, " "));
  if (!op.weight_gradients.empty()) text += fmt::format("  gradients {}", fmt::join(op.weight_gradients, " "));
  if (op.scratch.value > 0) text += fmt::format("  scratch {} B", op.scratch.value);
  for (const Kernel& kernel : op.kernels) text += fmt::format("  | {}", kernel_text(kernel));
  return text;
}

void add_ops(std::string& out, std::string_view pass, const std::vector<Op>& ops, const Block::Memory& memory) {
  if (ops.empty()) return;
  out += fmt::format("  {}: net {} B, peak {} B at op {}\n", pass, memory.net.value, memory.peak.value, memory.peak_op);
  for (std::size_t i = 0; i < ops.size(); ++i) out += fmt::format("    {} {}\n", i, op_text(ops[i]));
}

void add_block(std::string& out, std::size_t index, const Block& block) {
  out += fmt::format("\nblock {} {} \"{}\"\n", index, id_of(block.kind), block.name);
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const Parameter& p = block.parameters[i];
    out += fmt::format("  weight {} {} {} here {}{}{}{}\n", i, p.name, shape_text(p.shape), shape_text(p.local),
                       p.expert ? ", expert" : "", p.replicated_tp ? ", on every tp rank" : "",
                       p.partial_tp ? ", gradient in parts" : "");
  }
  for (std::size_t i = 0; i < block.buffers.size(); ++i) {
    const Buffer& b = block.buffers[i];
    out += fmt::format("  buffer %{} {} {} {} {} {} B, {}\n", i, b.name, id_of(b.scope), id_of(b.dtype),
                       shape_text(b.shape), b.bytes.value, id_of(b.part));
  }
  add_ops(out, "forward", block.forward, block.forward_memory);
  add_ops(out, "backward", block.backward, block.backward_memory);
  add_ops(out, "input", block.input, block.input_memory);
  add_ops(out, "weight", block.weight, block.weight_memory);
}

/// Blocks of a chunk with equal neighbours drawn together: "0 (embedding), 1 (layers 0-19)".
std::string blocks_text(const Program& program, const Chunk& chunk) {
  std::string text;
  for (std::size_t i = 0; i < chunk.blocks.size();) {
    std::size_t end = i + 1;
    while (end < chunk.blocks.size() && chunk.blocks[end] == chunk.blocks[i] && chunk.layers[i] >= 0) ++end;
    const Block& block = program.blocks[static_cast<std::size_t>(chunk.blocks[i])];
    const int last = chunk.layers[end - 1] + block.layers - 1;
    const std::string what = chunk.layers[i] < 0       ? std::string(id_of(block.kind))
                             : chunk.layers[i] == last ? fmt::format("layer {}", last)
                                                       : fmt::format("layers {}-{}", chunk.layers[i], last);
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", chunk.blocks[i], what);
    i = end;
  }
  return text;
}

std::string between_text(const ChunkOp& op) {
  std::string text = fmt::format("{} {} position {} ({}): {}", id_of(op.pass), op.before ? "before" : "after",
                                 op.position, id_of(op.when), op_text(op.op));
  if (op.needed_at >= 0) text += fmt::format("  needed at {}", op.needed_at);
  if (op.waits_for >= 0) text += fmt::format("  starts with {}", op.waits_for);
  if (op.allocates.value > 0) text += fmt::format("  allocates {} B", op.allocates.value);
  if (op.frees.value > 0) text += fmt::format("  frees {} B after {}", op.frees.value, op.freed_after);
  return text;
}

std::string instruction_text(const Instruction& i) {
  if (i.kind == InstructionKind::step) return fmt::format("step {}", i.step);
  if (i.kind == InstructionKind::slot) return fmt::format("{} {}.{}", id_of(i.pass), i.chunk, i.micro_batch);
  std::string text = fmt::format("{} {} {}.{} {}", id_of(i.kind), id_of(i.pass), i.chunk, i.micro_batch,
                                 i.peer > 0 ? "next" : "previous");
  if (i.batch >= 0) text += fmt::format(" batch {}", i.batch);
  return text;
}

void add_role(std::string& out, const Program& program, const Role& role) {
  out += fmt::format("\nrole {}: boundary {} B, outside the allocator {} B\n", role.stage, role.boundary.value,
                     role.outside.value);
  for (const Persistent& entry : role.persistent)
    out += fmt::format("  stays {} {} B, {}\n", entry.name, entry.bytes.value, id_of(entry.part));
  for (const Chunk& chunk : role.chunks) {
    out += fmt::format("  chunk {} depth {}: blocks {}\n", chunk.index, chunk.depth, blocks_text(program, chunk));
    for (const ChunkOp& op : chunk.between) out += fmt::format("    {}\n", between_text(op));
  }
  for (std::size_t i = 0; i < role.step.size(); ++i)
    out += fmt::format("  step {} {}{}\n", i, op_text(role.step[i]),
                       role.step_peak[i].value > 0 ? fmt::format("  peak {} B", role.step_peak[i].value) : "");
  const std::vector<MemoryPoint> points = memory_timeline(program, role);
  out += "  instructions (pass chunk.micro-batch; bytes held after, highest inside)\n";
  for (std::size_t i = 0; i < role.instructions.size(); ++i)
    out += fmt::format("    {} {}  {} {}\n", i, instruction_text(role.instructions[i]), points[i].held.value,
                       points[i].peak.value);
}

/// Which blocks a text about `role` shows.
std::vector<bool> shown_blocks(const Program& program, std::optional<int> role) {
  std::vector<bool> shown(program.blocks.size(), !role.has_value());
  for (const Role& other : program.roles)
    if (role == other.stage)
      for (const Chunk& chunk : other.chunks)
        for (const int block : chunk.blocks) shown[static_cast<std::size_t>(block)] = true;
  return shown;
}

} // namespace

std::string to_text(const Program& program, std::optional<int> role) {
  FORETRAIN_CHECK(!role || (*role >= 0 && *role < program.stages), "the role is one of the Program's");
  const Mesh& mesh = program.mesh;
  std::string out =
      fmt::format("program under {}: {} stages, {} micro-batches, {} backward, {} transfers, {}fragmentation {}\n",
                  program.semantics, program.stages, program.micro_batches, program.split_backward ? "split" : "whole",
                  program.blocking_p2p ? "blocking" : "overlapped", program.post_validation ? "post-validation, " : "",
                  program.fragmentation);
  out += fmt::format("mesh of {}: tp {} cp {} dp {} pp {} ep {} etp {}\n", mesh.world(), mesh.degree(Axis::tp),
                     mesh.degree(Axis::cp), mesh.degree(Axis::dp), mesh.degree(Axis::pp), mesh.ep(), mesh.etp());
  for (int g = 0; g < kGroups; ++g) {
    const auto group = static_cast<Group>(g);
    if (mesh.size(group) < 2) continue;
    out += fmt::format("group {}: {} ranks, {} per node, first {}\n", id_of(group), mesh.size(group),
                       mesh.shape(group).per_node(), fmt::join(mesh.members(group, 0), " "));
  }
  const std::vector<bool> shown = shown_blocks(program, role);
  for (std::size_t i = 0; i < program.blocks.size(); ++i)
    if (shown[i]) add_block(out, i, program.blocks[i]);
  for (const Role& each : program.roles)
    if (!role || each.stage == *role) add_role(out, program, each);
  return out;
}

} // namespace foretrain
