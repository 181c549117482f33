#include <fmt/format.h>

#include "core/program/check_detail.h"
#include "core/program/memory.h"
#include "core/program/names.h"

namespace foretrain::check_detail {
namespace {

/// Allocations and frees of a block over a micro-batch: what it makes it frees once, what it is given it frees once,
/// what it hands on stays.
void check_block(const Program& program, std::size_t index, Report& report) {
  const Block& block = program.blocks[index];
  std::vector<bool> live(block.buffers.size(), false);
  const auto bad = [&](std::size_t buffer, std::string_view text) {
    report.add(ProblemKind::memory, -1, -1,
               fmt::format("block {} ({}): buffer '{}' {}", index, block.name, block.buffers[buffer].name, text));
  };
  const auto given = [&](std::size_t b) {
    return block.buffers[b].scope == BufferScope::input || block.buffers[b].scope == BufferScope::grad_output;
  };
  const auto handed_on = [&](std::size_t b) {
    return block.buffers[b].scope == BufferScope::output || block.buffers[b].scope == BufferScope::grad_input;
  };
  std::vector<bool> touched(block.buffers.size(), false);
  for (std::size_t b = 0; b < live.size(); ++b) live[b] = given(b);
  for (const auto* list : {&block.forward, &block.backward, &block.input, &block.weight})
    for (const Op& op : *list) {
      for (const int buffer : op.allocates) {
        const auto b = static_cast<std::size_t>(buffer);
        if (live[b]) bad(b, "is allocated while it is live");
        live[b] = true;
      }
      for (const auto* buffers : {&op.reads, &op.writes})
        for (const int buffer : *buffers) {
          const auto b = static_cast<std::size_t>(buffer);
          touched[b] = true;
          if (!live[b]) bad(b, "is used while it is not live");
        }
      for (const int buffer : op.frees) {
        const auto b = static_cast<std::size_t>(buffer);
        if (!live[b]) bad(b, "is freed twice");
        live[b] = false;
      }
    }
  for (std::size_t b = 0; b < live.size(); ++b)
    if (touched[b] && live[b] != handed_on(b)) bad(b, handed_on(b) ? "is not handed on" : "is never freed");
}

} // namespace

void check_memory(const Program& program, Report& report) {
  for (std::size_t block = 0; block < program.blocks.size(); ++block) check_block(program, block, report);
  for (const Role& role : program.roles) {
    Bytes persistent;
    for (const Persistent& entry : role.persistent) persistent += entry.bytes;
    const std::vector<MemoryPoint> points = memory_timeline(program, role);
    for (const MemoryPoint& point : points)
      if (point.held < persistent) {
        report.add(
            ProblemKind::memory, role.stage, point.instruction,
            fmt::format("{} bytes fewer are held than what stays for the whole step", (persistent - point.held).value));
        break;
      }
    if (!points.empty() && points.back().held > persistent)
      report.add(ProblemKind::memory, role.stage, -1,
                 fmt::format("{} bytes are never freed", (points.back().held - persistent).value));
  }
}

} // namespace foretrain::check_detail
