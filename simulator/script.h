#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/program/program.h"
#include "simulator/traffic.h"

/// A Program made ready for the rank machine: every distinct slot as a flat list of steps with durations, every
/// instruction as a reference to one. Built once per candidate, shared by all simulated ranks.
namespace foretrain {

/// Queues of one rank. Steps of a lane run in issue order. A pipeline stream is two lanes, since its sends and receives
/// go through different halves of a full-duplex port.
enum class Lane {
  compute,
  tp,
  cp,
  ep,
  gradients,
  parameters,
  host,
  send_forward,
  send_backward,
  receive_forward,
  receive_backward,
};
inline constexpr int kLanes = 11;
using LaneCounts = std::array<int, kLanes>;

[[nodiscard]] constexpr std::size_t at(Lane lane) {
  return static_cast<std::size_t>(lane);
}
[[nodiscard]] constexpr bool is_p2p(Lane lane) {
  return lane >= Lane::send_forward;
}
[[nodiscard]] Lane lane_of(Stream stream);
[[nodiscard]] std::string_view name_of(Lane lane);

enum class ScriptStepKind {
  local,      ///< lasts `seconds`; on the compute lane it slows down while transfers run
  collective, ///< starts when every simulated member of the group has come to it
  send,
  receive,
  gate, ///< takes no time; waits for its dependencies
  pad,  ///< lasts until `seconds` after the gate that began its block: what the host needs to launch it
};

/// `count` steps of `lane` must be done: counted from the start of the slot, or of the program in an instruction.
struct Dependency {
  Lane lane = Lane::compute;
  int count = 0;
  bool operator==(const Dependency&) const = default;
};

struct ScriptStep {
  ScriptStepKind kind = ScriptStepKind::local;
  Lane lane = Lane::compute;
  TimePart part = TimePart::compute;
  Group group = Group::tp;
  bool entry = false;  ///< waits for the dependencies of the instruction
  bool begins = false; ///< gate: a block begins
  int after = -1;      ///< compute steps of the slot that must be done first (0: all slots before); -1: does not wait
  int wire = -1;       ///< collective: index into Script::traffic
  double seconds = 0;  ///< local: work
  std::vector<Dependency> waits;
  const Op* op = nullptr; ///< the first op; null for gates and pipeline transfers
  int position = -1;      ///< block position
  int layer = -1;         ///< model layer, -1 embedding or head, kBetweenBlocks
  std::int64_t net = 0;   ///< bytes allocated minus freed by the ops of this step, in issue order
  std::int64_t peak = 0;  ///< highest above the start of the step
};

/// One distinct slot (or transfer, or op of the step's end).
struct ScriptSlot {
  std::vector<ScriptStep> steps;                ///< issue order
  std::array<std::vector<int>, kLanes> by_lane; ///< indices into `steps`
};

struct ScriptInstruction {
  int slot = 0;
  LaneCounts base{};             ///< steps of each lane issued before
  std::vector<Dependency> waits; ///< counted from the start of the program
  int wire = -1;                 ///< send, receive
  int peer = 0;                  ///< send, receive: stage offset
  std::int64_t net = 0;          ///< memory of transfers: boundary allocated at receive, freed after a send
};

struct RoleScript {
  std::vector<ScriptInstruction> instructions;
  std::array<std::vector<int>, kLanes> by_lane; ///< instructions that have steps on the lane
  LaneCounts total{};
  std::vector<Instruction> source; ///< the Program's instruction of each
};

struct Script {
  const Program* program = nullptr; ///< outlives the script
  std::vector<ScriptSlot> slots;
  std::vector<Traffic> traffic;
  std::vector<RoleScript> roles;
  std::array<bool, kGroups> groups_used{};
};

struct ScriptOptions {
  bool fuse = true; ///< merge runs of compute ops that nothing waits for; off for op-by-op timelines
};

/// The program must be checked (pairing, order, deadlock) and must outlive the script.
[[nodiscard]] Script build_script(const Program& program, const Durations& durations, ScriptOptions options = {});

} // namespace foretrain
