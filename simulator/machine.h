#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/spec/prediction.h"
#include "simulator/script.h"
#include "simulator/world.h"

/// The rank machine: runs a Script on the simulated ranks of a World. Streams, waits, rates of compute and the booking
/// of time are here; how long a transfer takes is the network's.
namespace foretrain {

struct TransferRequest {
  int id = 0;
  const Traffic* traffic = nullptr;
  int instance = -1; ///< group transfers: index into World::instances
  int from = -1;     ///< pipeline transfers: simulated ranks
  int to = -1;
  Lane lane = Lane::tp;
};

/// What a network calls back.
class NetworkClient {
public:
  virtual ~NetworkClient() = default;
  virtual void on_time(std::uint64_t token) = 0;
  virtual void on_finished(int transfer) = 0;
};

/// Clock and links. Two implementations: private ports (replay), and SimGrid.
class Network {
public:
  virtual ~Network() = default;
  [[nodiscard]] virtual double now() const = 0;
  /// Calls `on_time(token)` once at that time, never from within this call.
  virtual void call_at(double when, std::uint64_t token) = 0;
  /// Calls `on_finished(request.id)` once, never from within this call.
  virtual void start(const TransferRequest& request) = 0;
  /// A running transfer goes on at this share of its undisturbed rate (compute beside it), until told otherwise.
  virtual void set_pace(int transfer, double pace) = 0;
  /// Runs until nothing is left to happen.
  virtual void run(NetworkClient& client) = 0;
};

struct MachineOptions {
  bool record = false; ///< keep start and end of every step of the first rank of each stage
  /// Ranks that share a processor. Durations are those of all of them computing at once: while some wait, the others
  /// compute faster, at most as many times.
  int ranks_per_processor = 1;
};

/// One executed step.
struct StepRecord {
  int instruction = 0;
  int step = 0;
  double start = 0;
  double end = 0;
};

struct RankRun {
  int rank = 0; ///< in the mesh
  int stage = 0;
  double begin = 0;                ///< post-validation: when its own part of the step began; else 0
  double finish = 0;               ///< when its last step ended
  double apart = 0;                ///< post-validation: seconds at the step's end in which it waited for other stages
  double span = 0;                 ///< from begin to finish without `apart`
  double compute = 0;              ///< seconds of its compute steps, undisturbed
  double slowed = 0;               ///< seconds that transfers beside compute cost it
  TimeParts parts{};               ///< adds up to the step
  std::vector<StepRecord> records; ///< in order of ending; only when recorded
};

struct MachineRun {
  double seconds = 0;         ///< the step: the longest span, which without post-validation is the last rank's end
  std::vector<RankRun> ranks; ///< as World::rank
  std::int64_t steps = 0;     ///< executed, over all ranks
  std::int64_t transfers = 0;
};

/// Error: a rank waits for something that never comes (the Program is not well formed), with rank and lane.
[[nodiscard]] Result<MachineRun> run_machine(const Script& script, const World& world, Network& network,
                                             MachineOptions options = {});

} // namespace foretrain
