#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "core/program/program.h"
#include "simulator/block_time.h"

namespace foretrain {

/// What one slot of a chain took: from the end of the slot before to its own end on the compute stream.
struct ChainSlot {
  double seconds = 0;
  double outstanding = 0; ///< by how much transfers issued until its end outlast it, were nothing to follow
  double compute = 0;     ///< of its compute stream, undisturbed, the host's waits not among it
  TimeParts parts{};      ///< add up to `seconds`
};

/// Slots of one chunk one after the other on a rank of its own: blocks as units of the compute stream, the collectives
/// between them on the streams of gradients and parameters, which run on from one slot into the next.
class SlotChain {
public:
  SlotChain(const CostModel& cost, const Mesh& mesh, const HostFloor& host) : cost_(cost), mesh_(mesh), host_(host) {}

  /// Times are those of the Program's blocks; `between` are the chunk's collectives that run in this slot.
  /// `prefetched`: those that need not wait for a block are done before the slot comes.
  void add(const Chunk& chunk, Pass pass, const BlockTimes& times, const std::vector<const ChunkOp*>& between,
           bool prefetched = false);
  [[nodiscard]] std::vector<ChainSlot> run();
  [[nodiscard]] Evidence evidence() const { return evidence_; } ///< worst of the collectives

private:
  struct Unit {
    const BlockTime* block = nullptr;
    const Load* load = nullptr; ///< of a transfer
    double seconds = 0;         ///< of a compute op between blocks
    std::size_t slot = 0;
    int position = -1;     ///< of a block, in the chain
    int needed_at = -1;    ///< transfer: block that waits for it
    int starts_with = -1;  ///< only once this block has begun
    int starts_after = -1; ///< only once this block is done
  };
  struct Place {
    int missing = 0; ///< transfers that it waits for
    bool begun = false;
    bool done = false;
  };
  static constexpr std::size_t kQueues = 3; ///< compute, gradients, parameters

  void issue(const ChunkOp& op, int first, bool prefetched);
  const Load& load(const Op& op);
  bool start(std::size_t queue);
  [[nodiscard]] bool ready(std::size_t queue) const;
  void finish(std::size_t queue);
  bool go_on();
  bool again(ChainSlot& slot);
  void remember(const ChainSlot& slot);
  void repeat_passage(ChainSlot& slot);
  [[nodiscard]] const Load* begins_with_block() const;
  void pass_block(ChainSlot& slot);
  void book(ChainSlot& slot, double step) const;

  const CostModel& cost_;
  const Mesh& mesh_;
  const HostFloor& host_;
  Evidence evidence_ = Evidence::measured;
  std::deque<Load> loads_;
  std::vector<std::pair<const Op*, const Load*>> known_; ///< the last ones asked for
  std::array<std::vector<Unit>, kQueues> queues_;
  std::array<std::size_t, kQueues> next_{};
  std::array<bool, kQueues> running_{};
  std::vector<Place> places_;
  std::vector<std::size_t> last_; ///< of each slot: units of the compute queue until its end
  RankStreams streams_;
  double now_ = 0;
  double began_ = 0;        ///< the block that runs
  std::size_t stretch_ = 0; ///< of its stretches, the next
  bool padding_ = false;    ///< its kernels are done, the host is not
  bool fresh_ = false;      ///< it has just begun
  /// The last block that ran through with the same transfers beside it: one like it takes as long.
  struct Passage {
    const BlockTime* block = nullptr; ///< null: none
    double seconds = 0;
    TimeParts parts{};
    RankStreams::Flows before, after;
    const Load* whole = nullptr; ///< one reduction began with the block and is done when it is
  };
  Passage passage_;      ///< under way, or done
  bool through_ = false; ///< it is done
  double passage_began_ = 0;
  TimeParts parts_before_{};
  double reduction_began_ = -1;     ///< the last one
  const Load* beginning_ = nullptr; ///< it began with the passage under way
};

} // namespace foretrain
