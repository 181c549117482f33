#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "core/program/check_detail.h"
#include "core/program/names.h"

namespace foretrain::check_detail {
namespace {

/// A batch of transfers on one stream of a stage. A stream takes up its next batch when all of this one is done.
struct Batch {
  int number = -1;
  std::vector<std::size_t> messages;
  std::size_t open = 0; ///< not yet done
};

/// The sends, or the receives, of one pass on one stage, in issue order. Sends and receives go through different halves
/// of a port (and channels of their own in an executor): with one queue for both, the receive that an interleaved
/// schedule posts ahead would hold up the send that its neighbour waits for.
struct TransferStream {
  bool sends = false;
  std::deque<Batch> batches;
};

/// A message's two ends: it is done when both stages have taken it up.
struct Ends {
  TransferStream* sender = nullptr;
  TransferStream* receiver = nullptr;
  bool done = false;
};

class Run {
public:
  Run(const Program& program, Report& report) : program_(program), report_(report) {
    const std::size_t chunks = program.roles.front().chunks.size();
    depths_ = static_cast<std::size_t>(program.stages) * chunks;
    ends_.resize(2 * depths_ * static_cast<std::size_t>(program.micro_batches));
    streams_.resize(program.roles.size());
    next_.resize(program.roles.size(), 0);
    for (std::vector<int>& arrivals : arrivals_) arrivals.assign(program.roles.size(), 0);
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (const Role& role : program_.roles) moved = advance(role) || moved;
    }
    for (const Role& role : program_.roles) {
      const std::size_t at = next_[static_cast<std::size_t>(role.stage)];
      if (at == role.instructions.size()) continue;
      report_.add(ProblemKind::deadlock, role.stage, static_cast<int>(at),
                  fmt::format("it waits forever at {}", describe(role.instructions[at])));
    }
  }

private:
  [[nodiscard]] std::size_t index_of(const Message& message) const {
    const std::size_t pass = message.pass == Pass::forward ? 0 : 1;
    return (pass * depths_ + static_cast<std::size_t>(message.depth)) *
               static_cast<std::size_t>(program_.micro_batches) +
           static_cast<std::size_t>(message.micro_batch);
  }

  bool advance(const Role& role) {
    std::size_t& at = next_[static_cast<std::size_t>(role.stage)];
    const std::size_t before = at;
    while (at < role.instructions.size() && execute(role, role.instructions[at])) ++at;
    return at != before;
  }

  /// False: it has to wait.
  bool execute(const Role& role, const Instruction& instruction) {
    switch (instruction.kind) {
    case InstructionKind::slot:
      return true;
    case InstructionKind::send:
    case InstructionKind::receive:
      post(role, instruction);
      return true;
    case InstructionKind::wait_send:
    case InstructionKind::release_send: // what is sent is freed: it must have gone
    case InstructionKind::wait_receive:
      return ends_[index_of(message_of(program_, role, instruction))].done;
    case InstructionKind::step:
      return meet(role, instruction);
    }
    return true;
  }

  void post(const Role& role, const Instruction& instruction) {
    const bool sends = instruction.kind == InstructionKind::send;
    const std::size_t lane = (instruction.pass == Pass::forward ? 0U : 2U) + (sends ? 0U : 1U);
    TransferStream& stream = streams_[static_cast<std::size_t>(role.stage)][lane];
    stream.sends = sends;
    const std::size_t message = index_of(message_of(program_, role, instruction));
    const bool joins =
        !stream.batches.empty() && instruction.batch >= 0 && stream.batches.back().number == instruction.batch;
    if (!joins) stream.batches.push_back({instruction.batch, {}, 0});
    Batch& batch = stream.batches.back();
    batch.messages.push_back(message);
    ++batch.open;
    if (stream.batches.size() == 1) take_up(stream, message);
  }

  /// One end of a message is at the front of its stream. What this completes lets further batches move up.
  void take_up(TransferStream& stream, std::size_t first) {
    std::vector<std::pair<TransferStream*, std::size_t>> work = {{&stream, first}};
    while (!work.empty()) {
      const auto [at, message] = work.back();
      work.pop_back();
      Ends& ends = ends_[message];
      (at->sends ? ends.sender : ends.receiver) = at;
      if (!ends.sender || !ends.receiver || ends.done) continue;
      ends.done = true;
      for (TransferStream* side : {ends.sender, ends.receiver}) {
        if (--side->batches.front().open > 0) continue;
        side->batches.pop_front();
        if (side->batches.empty()) continue;
        for (const std::size_t next : side->batches.front().messages) work.emplace_back(side, next);
      }
    }
  }

  /// Collectives across stages: everyone who takes part has come to it.
  bool meet(const Role& role, const Instruction& instruction) {
    const Op& op = role.step[static_cast<std::size_t>(instruction.step)];
    if (op.kind != OpKind::collective || !crosses_stages(op.group)) return true;
    std::vector<int>& arrivals = arrivals_[static_cast<std::size_t>(op.group)];
    const auto stage = static_cast<std::size_t>(role.stage);
    // A stage that waits is asked again and again; it arrives once.
    const auto place = static_cast<int>(next_[stage]) + 1;
    if (arrived_at_.size() < program_.roles.size()) arrived_at_.resize(program_.roles.size(), 0);
    if (arrived_at_[stage] != place) {
      arrived_at_[stage] = place;
      ++arrivals[stage];
    }
    for (std::size_t other = 0; other < arrivals.size(); ++other) {
      const bool member = op.group != Group::embedding || other == 0 || other + 1 == arrivals.size();
      if (member && arrivals[other] < arrivals[stage]) return false;
    }
    return true;
  }

  const Program& program_;
  Report& report_;
  std::size_t depths_ = 0;
  std::vector<Ends> ends_;
  std::vector<std::array<TransferStream, 4>> streams_; ///< per stage: forward sends and receives, backward ones
  std::vector<std::size_t> next_;                      ///< per stage: instruction
  std::vector<int> arrived_at_;                        ///< per stage: instruction + 1 of the last arrival
  std::array<std::vector<int>, kGroups> arrivals_;     ///< per group and stage
};

} // namespace

void check_progress(const Program& program, Report& report) {
  Run(program, report).run();
}

} // namespace foretrain::check_detail
