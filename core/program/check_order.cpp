#include <array>

#include <fmt/format.h>

#include "core/program/check_detail.h"
#include "core/program/names.h"

namespace foretrain::check_detail {
namespace {

/// What one stage has done so far, per chunk and micro-batch.
class Done {
public:
  Done(std::size_t chunks, int micro_batches)
      : micro_batches_(micro_batches), flags_(chunks * static_cast<std::size_t>(micro_batches)) {}
  enum What { forward, backward, weight, received, waited, sent, released };
  /// Of a transfer, forward and backward are apart.
  [[nodiscard]] bool has(const Instruction& of, What what, Pass pass = Pass::forward) const {
    return (flags_[place(of)] >> bit(what, pass) & 1U) != 0;
  }
  void set(const Instruction& of, What what, Pass pass = Pass::forward) { flags_[place(of)] |= 1U << bit(what, pass); }

private:
  [[nodiscard]] std::size_t place(const Instruction& of) const {
    return static_cast<std::size_t>(of.chunk * micro_batches_ + of.micro_batch);
  }
  static unsigned bit(What what, Pass pass) {
    return static_cast<unsigned>(what) * 2 + (pass == Pass::forward ? 0U : 1U);
  }
  int micro_batches_;
  std::vector<unsigned> flags_;
};

class OrderCheck {
public:
  OrderCheck(const Program& program, const Role& role, Report& report)
      : program_(program), role_(role), report_(report), done_(role.chunks.size(), program.micro_batches) {}

  void run() {
    for (at_ = 0; at_ < role_.instructions.size(); ++at_) step(role_.instructions[at_]);
    at_ = role_.instructions.size();
    for (const Instruction& instruction : role_.instructions) finish(instruction);
  }

private:
  void bad(const Instruction& instruction, const std::string& text) {
    const int place = at_ < role_.instructions.size() ? static_cast<int>(at_) : -1;
    report_.add(ProblemKind::order, role_.stage, place, describe(instruction) + ": " + text);
  }
  [[nodiscard]] int depth(const Instruction& of) const {
    return role_.chunks[static_cast<std::size_t>(of.chunk)].depth;
  }
  [[nodiscard]] bool deepest(const Instruction& of) const {
    return depth(of) == program_.stages * static_cast<int>(role_.chunks.size()) - 1;
  }

  void step(const Instruction& i) {
    switch (i.kind) {
    case InstructionKind::slot:
      return slot(i);
    case InstructionKind::receive:
      if (done_.has(i, Done::received, i.pass)) bad(i, "it was received before");
      return done_.set(i, Done::received, i.pass);
    case InstructionKind::wait_receive:
      if (!done_.has(i, Done::received, i.pass)) bad(i, "nothing was posted");
      if (done_.has(i, Done::waited, i.pass)) bad(i, "it was waited for before");
      return done_.set(i, Done::waited, i.pass);
    case InstructionKind::send:
      if (!done_.has(i, i.pass == Pass::forward ? Done::forward : Done::backward)) bad(i, "what it sends is not there");
      if (done_.has(i, Done::sent, i.pass)) bad(i, "it was sent before");
      return done_.set(i, Done::sent, i.pass);
    case InstructionKind::wait_send:
    case InstructionKind::release_send:
      if (!done_.has(i, Done::sent, i.pass)) bad(i, "nothing was sent");
      if (done_.has(i, Done::released, i.pass)) bad(i, "its buffer was freed before");
      return done_.set(i, Done::released, i.pass);
    case InstructionKind::step:
      return step_op(i);
    }
  }

  void slot(const Instruction& i) {
    if (stepped_ > 0) bad(i, "it runs after the step's end began");
    switch (i.pass) {
    case Pass::forward:
      if (depth(i) > 0 && !done_.has(i, Done::waited, Pass::forward)) bad(i, "its activation was not waited for");
      return done_.set(i, Done::forward);
    case Pass::backward:
    case Pass::input:
      if (!done_.has(i, Done::forward)) bad(i, "its forward has not run");
      if (!deepest(i) && !done_.has(i, Done::waited, Pass::backward)) bad(i, "its gradient was not waited for");
      return done_.set(i, Done::backward);
    case Pass::weight:
      if (!done_.has(i, Done::backward)) bad(i, "its input gradients were not computed");
      return done_.set(i, Done::weight);
    case Pass::recompute:
    case Pass::step:
      return;
    }
  }

  void step_op(const Instruction& i) {
    if (i.step != stepped_) bad(i, "ops of the step's end run out of order");
    stepped_ = i.step + 1;
  }

  /// What must have happened by the end.
  void finish(const Instruction& i) {
    if (i.kind == InstructionKind::receive && !done_.has(i, Done::waited, i.pass)) bad(i, "it is never waited for");
    if (i.kind == InstructionKind::send && !done_.has(i, Done::released, i.pass)) bad(i, "its buffer is never freed");
    if (i.kind != InstructionKind::slot) return;
    if (i.pass == Pass::forward && !deepest(i) && !done_.has(i, Done::sent, Pass::forward))
      bad(i, "its activation is never sent");
    const bool gradient = i.pass == Pass::backward || i.pass == Pass::input;
    if (gradient && depth(i) > 0 && !done_.has(i, Done::sent, Pass::backward)) bad(i, "its gradient is never sent");
  }

  const Program& program_;
  const Role& role_;
  Report& report_;
  Done done_;
  std::size_t at_ = 0;
  int stepped_ = 0;
};

} // namespace

void check_order(const Program& program, const Role& role, Report& report) {
  OrderCheck(program, role, report).run();
}

} // namespace foretrain::check_detail
