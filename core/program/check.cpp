#include "core/program/check.h"

#include <array>

#include <fmt/format.h>

#include "core/program/check_detail.h"
#include "core/program/names.h"

namespace foretrain {
namespace check_detail {

Message message_of(const Program& program, const Role& role, const Instruction& transfer) {
  const int depth = role.chunks[static_cast<std::size_t>(transfer.chunk)].depth;
  const bool forward = transfer.pass == Pass::forward;
  const bool sends = transfer.kind != InstructionKind::receive && transfer.kind != InstructionKind::wait_receive;
  (void)program;
  return {transfer.pass, sends ? depth + (forward ? 1 : -1) : depth, transfer.micro_batch};
}

std::string describe(const Message& message) {
  return fmt::format("{} of micro-batch {} for depth {}", message.pass == Pass::forward ? "activation" : "gradient",
                     message.micro_batch, message.depth);
}

std::string describe(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::step) return fmt::format("step op {}", instruction.step);
  const std::string_view what = instruction.kind == InstructionKind::slot ? "" : id_of(instruction.kind);
  return fmt::format("{}{}{} of micro-batch {} on chunk {}", what, what.empty() ? "" : " ", id_of(instruction.pass),
                     instruction.micro_batch, instruction.chunk);
}

namespace {

/// The messages that a stage sends or receives in one pass, in order.
std::vector<Message> messages(const Program& program, const Role& role, InstructionKind kind, Pass pass) {
  std::vector<Message> list;
  for (const Instruction& instruction : role.instructions)
    if (instruction.kind == kind && instruction.pass == pass) list.push_back(message_of(program, role, instruction));
  return list;
}

} // namespace

void check_pairing(const Program& program, Report& report) {
  for (const Role& role : program.roles)
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const int to = (role.stage + (pass == Pass::forward ? 1 : program.stages - 1)) % program.stages;
      const auto sent = messages(program, role, InstructionKind::send, pass);
      const auto received =
          messages(program, program.roles[static_cast<std::size_t>(to)], InstructionKind::receive, pass);
      std::size_t same = 0;
      while (same < sent.size() && same < received.size() && sent[same] == received[same]) ++same;
      if (same == sent.size() && same == received.size()) continue;
      const std::string has = same < sent.size() ? describe(sent[same]) : "nothing more";
      const std::string wants = same < received.size() ? describe(received[same]) : "nothing more";
      report.add(ProblemKind::pairing, role.stage, -1,
                 fmt::format("transfer {} from stage {} to stage {}: {} is sent, {} is received", same, role.stage, to,
                             has, wants));
    }
}

void check_batches(const Role& role, Report& report) {
  int open = -1;
  int highest = -1;
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const Instruction& instruction = role.instructions[i];
    if (!is_transfer(instruction.kind)) {
      open = -1;
      continue;
    }
    if (instruction.batch >= 0 && instruction.batch != open) {
      if (instruction.batch <= highest)
        report.add(
            ProblemKind::batch, role.stage, static_cast<int>(i),
            fmt::format("{} is issued apart from the rest of batch {}", describe(instruction), instruction.batch));
      highest = std::max(highest, instruction.batch);
    }
    open = instruction.batch;
  }
}

namespace {

/// Collectives of a stage that other stages take part in, in issue order.
std::vector<const Op*> shared_collectives(const Role& role, bool with_embedding) {
  std::vector<const Op*> list;
  for (const Instruction& instruction : role.instructions) {
    if (instruction.kind != InstructionKind::step) continue;
    const Op& op = role.step[static_cast<std::size_t>(instruction.step)];
    if (op.kind == OpKind::collective && crosses_stages(op.group) && (with_embedding || op.group != Group::embedding))
      list.push_back(&op);
  }
  return list;
}

bool same_collective(const Op& a, const Op& b) {
  return a.group == b.group && a.collective == b.collective && a.bytes == b.bytes && a.dtype == b.dtype;
}

} // namespace

void check_groups(const Program& program, Report& report) {
  const int last = program.stages - 1;
  for (const Role& role : program.roles) {
    const bool end = role.stage == 0 || role.stage == last;
    for (const Op& op : role.step)
      if (op.kind == OpKind::collective && op.group == Group::embedding && !end)
        report.add(ProblemKind::group, role.stage, -1,
                   "a collective of the first and last stage is issued by another one");
    const auto first = shared_collectives(program.roles.front(), end);
    const auto here = shared_collectives(role, end);
    std::size_t same = 0;
    while (same < first.size() && same < here.size() && same_collective(*first[same], *here[same])) ++same;
    if (same == first.size() && same == here.size()) continue;
    const auto name = [same](const std::vector<const Op*>& list) {
      return same < list.size() ? fmt::format("{} over {}", id_of(list[same]->collective), id_of(list[same]->group))
                                : std::string("nothing more");
    };
    report.add(ProblemKind::group, role.stage, -1,
               fmt::format("collective {} across stages is {} on stage 0, {} on stage {}", same, name(first),
                           name(here), role.stage));
  }
}

} // namespace check_detail

std::string_view id_of(ProblemKind kind) {
  switch (kind) {
  case ProblemKind::structure:
    return "structure";
  case ProblemKind::order:
    return "order";
  case ProblemKind::pairing:
    return "pairing";
  case ProblemKind::batch:
    return "batch";
  case ProblemKind::deadlock:
    return "deadlock";
  case ProblemKind::memory:
    return "memory";
  case ProblemKind::group:
    return "group";
  }
  return "";
}

std::vector<Problem> check(const Program& program) {
  using namespace check_detail;
  Report report;
  check_structure(program, report);
  if (!report.clean()) return report.take();
  for (const Role& role : program.roles) check_order(program, role, report);
  check_pairing(program, report);
  for (const Role& role : program.roles) check_batches(role, report);
  check_groups(program, report);
  if (report.clean()) check_progress(program, report);
  check_memory(program, report);
  return report.take();
}

} // namespace foretrain
