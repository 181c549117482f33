#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/program/check.h"

namespace foretrain::check_detail {

/// Collects problems; a broken Program can have one per instruction, a few tell enough.
class Report {
public:
  void add(ProblemKind kind, int stage, int instruction, std::string text) {
    if (problems_.size() < kMost) problems_.push_back({kind, stage, instruction, std::move(text)});
  }
  [[nodiscard]] bool clean() const { return problems_.empty(); }
  [[nodiscard]] std::vector<Problem> take() { return std::move(problems_); }

private:
  static constexpr std::size_t kMost = 50;
  std::vector<Problem> problems_;
};

/// What a transfer carries: the activation that chunk `depth` reads, or the gradient of the one that it wrote.
struct Message {
  Pass pass = Pass::forward;
  int depth = 0; ///< of the chunk that gets it
  int micro_batch = 0;
  bool operator==(const Message&) const = default;
};
[[nodiscard]] Message message_of(const Program& program, const Role& role, const Instruction& transfer);
[[nodiscard]] std::string describe(const Message& message);
/// "forward of micro-batch 3 on chunk 1".
[[nodiscard]] std::string describe(const Instruction& instruction);

[[nodiscard]] inline bool is_transfer(InstructionKind kind) {
  return kind == InstructionKind::send || kind == InstructionKind::receive;
}
[[nodiscard]] inline bool crosses_stages(Group group) {
  return group == Group::pp || group == Group::embedding || group == Group::world;
}

void check_structure(const Program& program, Report& report);
void check_order(const Program& program, const Role& role, Report& report);
void check_pairing(const Program& program, Report& report);
void check_batches(const Role& role, Report& report);
void check_groups(const Program& program, Report& report);
void check_memory(const Program& program, Report& report);
/// Runs all roles with rendezvous transfers and no durations. Needs a Program that passed the others.
void check_progress(const Program& program, Report& report);

} // namespace foretrain::check_detail
