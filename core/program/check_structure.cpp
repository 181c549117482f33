#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/program/check_detail.h"
#include "core/program/names.h"

namespace foretrain::check_detail {
namespace {

bool within(int value, std::size_t size) {
  return value >= 0 && value < static_cast<int>(size);
}

bool all_within(const std::vector<int>& values, std::size_t size) {
  return std::all_of(values.begin(), values.end(), [size](int value) { return within(value, size); });
}

void check_block(const Program& program, std::size_t index, Report& report) {
  const Block& block = program.blocks[index];
  const auto bad = [&](const std::string& text) {
    report.add(ProblemKind::structure, -1, -1, fmt::format("block {} ({}): {}", index, block.name, text));
  };
  if (program.split_backward ? !block.backward.empty() : !block.input.empty() || !block.weight.empty())
    bad("its backward is whole where the schedule splits it, or the other way round");
  for (const auto* list : {&block.forward, &block.backward, &block.input, &block.weight})
    for (const Op& op : *list) {
      for (const auto* buffers : {&op.reads, &op.writes, &op.allocates, &op.frees, &op.waits})
        if (!all_within(*buffers, block.buffers.size())) bad("an op names a buffer that is not there");
      for (const auto* parameters : {&op.weights, &op.weight_gradients})
        if (!all_within(*parameters, block.parameters.size())) bad("an op names a parameter that is not there");
      if (op.kind == OpKind::collective && crosses_stages(op.group))
        bad("a collective across stages stands inside a slot, where stages have no common order");
    }
}

void check_chunk(const Program& program, const Role& role, std::size_t index, Report& report) {
  const Chunk& chunk = role.chunks[index];
  const auto bad = [&](const std::string& text) {
    report.add(ProblemKind::structure, role.stage, -1, fmt::format("chunk {}: {}", index, text));
  };
  if (chunk.index != static_cast<int>(index) || chunk.depth != chunk.index * program.stages + role.stage)
    bad("its number or depth is wrong");
  if (!all_within(chunk.blocks, program.blocks.size())) bad("a block is not there");
  if (chunk.layers.size() != chunk.blocks.size()) bad("not every block has a layer");
  for (const ChunkOp& op : chunk.between) {
    if (!within(op.position, chunk.blocks.size())) bad("a collective stands at no block");
    for (const int position : {op.needed_at, op.waits_for, op.freed_after})
      if (position != -1 && !within(position, chunk.blocks.size())) bad("a collective is tied to no block");
    if (op.op.kind == OpKind::collective && crosses_stages(op.op.group))
      bad("a collective across stages stands inside a slot, where stages have no common order");
  }
}

bool slot_pass(const Program& program, Pass pass) {
  switch (pass) {
  case Pass::forward:
    return true;
  case Pass::backward:
    return !program.split_backward;
  case Pass::input:
  case Pass::weight:
    return program.split_backward;
  case Pass::recompute:
  case Pass::step:
    return false;
  }
  return false;
}

/// What is wrong with one instruction by itself; empty when nothing is.
std::string fault(const Program& program, const Role& role, const Instruction& instruction) {
  if (instruction.kind == InstructionKind::step)
    return within(instruction.step, role.step.size()) ? "" : "a step op that is not there";
  if (!within(instruction.chunk, role.chunks.size())) return "a chunk that is not there";
  if (instruction.micro_batch < 0 || instruction.micro_batch >= program.micro_batches)
    return "a micro-batch that is not there";
  if (instruction.kind == InstructionKind::slot)
    return slot_pass(program, instruction.pass) ? "" : "a pass that the schedule does not have";
  if (instruction.pass != Pass::forward && instruction.pass != Pass::backward) return "a transfer of no pass";
  const bool forward = instruction.pass == Pass::forward;
  const bool receives =
      instruction.kind == InstructionKind::receive || instruction.kind == InstructionKind::wait_receive;
  if (instruction.peer != (forward == receives ? -1 : 1)) return "a transfer with the wrong neighbour";
  const int depth = role.chunks[static_cast<std::size_t>(instruction.chunk)].depth;
  const int deepest = program.stages * static_cast<int>(role.chunks.size()) - 1;
  if (forward == receives ? depth == 0 : depth == deepest) return "a transfer beyond the end of the model";
  return "";
}

/// Every pass of every chunk and micro-batch once.
void check_completeness(const Program& program, const Role& role, Report& report) {
  const std::size_t per_pass = role.chunks.size() * static_cast<std::size_t>(program.micro_batches);
  std::array<std::vector<int>, 4> seen;
  for (std::vector<int>& list : seen) list.assign(per_pass, 0);
  std::vector<int> steps(role.step.size(), 0);
  for (const Instruction& instruction : role.instructions) {
    if (instruction.kind == InstructionKind::step) ++steps[static_cast<std::size_t>(instruction.step)];
    if (instruction.kind != InstructionKind::slot) continue;
    const int place = instruction.chunk * program.micro_batches + instruction.micro_batch;
    ++seen[static_cast<std::size_t>(instruction.pass)][static_cast<std::size_t>(place)];
  }
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::input, Pass::weight}) {
    const int expected = slot_pass(program, pass) ? 1 : 0;
    const std::vector<int>& counts = seen[static_cast<std::size_t>(pass)];
    for (std::size_t place = 0; place < counts.size(); ++place)
      if (counts[place] != expected)
        report.add(ProblemKind::structure, role.stage, -1,
                   fmt::format("{} of micro-batch {} on chunk {} runs {} times", id_of(pass),
                               place % static_cast<std::size_t>(program.micro_batches),
                               place / static_cast<std::size_t>(program.micro_batches), counts[place]));
  }
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (steps[i] != 1)
      report.add(ProblemKind::structure, role.stage, -1, fmt::format("step op {} runs {} times", i, steps[i]));
}

} // namespace

void check_structure(const Program& program, Report& report) {
  const auto bad = [&](const std::string& text) { report.add(ProblemKind::structure, -1, -1, text); };
  if (program.stages < 1 || program.micro_batches < 1 ||
      program.roles.size() != static_cast<std::size_t>(program.stages))
    return bad(fmt::format("{} roles for {} stages and {} micro-batches", program.roles.size(), program.stages,
                           program.micro_batches));
  for (std::size_t block = 0; block < program.blocks.size(); ++block) check_block(program, block, report);
  for (std::size_t stage = 0; stage < program.roles.size(); ++stage) {
    const Role& role = program.roles[stage];
    if (role.stage != static_cast<int>(stage)) bad(fmt::format("role {} says it is stage {}", stage, role.stage));
    if (role.chunks.size() != program.roles.front().chunks.size() || role.chunks.empty())
      return bad(fmt::format("stage {} has {} chunks", stage, role.chunks.size()));
    if (role.step_peak.size() != role.step.size()) bad(fmt::format("stage {}: not every step op has a peak", stage));
    for (std::size_t chunk = 0; chunk < role.chunks.size(); ++chunk) check_chunk(program, role, chunk, report);
    bool sound = true;
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      const std::string text = fault(program, role, role.instructions[i]);
      if (text.empty()) continue;
      sound = false;
      report.add(ProblemKind::structure, role.stage, static_cast<int>(i), text);
    }
    if (sound) check_completeness(program, role, report);
  }
}

} // namespace foretrain::check_detail
