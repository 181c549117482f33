#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/evaluate.h"
#include "planner/finish.h"
#include "planner/slot_costs.h"
#include "planner/stage_cache.h"
#include "simulator/launches.h"
#include "simulator/slot_memory.h"
#include "simulator/steady_replay.h"

/// What an evaluator's threads share, and what each has of its own: for the files that implement it.
namespace foretrain {

struct Evaluator::Shared {
  StudyContext study;
  double straggling = 0; ///< per second of compute
  mutable ScheduleTable orders;
  mutable SteadyTable steady;
  explicit Shared(StudyContext context);
};

struct Evaluator::Worker::Data {
  /// One layout's costs; several with the same setting are replayed side by side.
  struct Lane {
    std::vector<ChunkProfile> profiles; ///< by kind of chunk
    SlotCosts costs;
    std::vector<double> reduction; ///< per stage: by how much gradient reductions outlast its slots and slow them
    Evidence evidence = Evidence::measured;
  };
  std::shared_ptr<const Shared> shared;
  StageCache cache;
  std::array<Lane, kLanes> lanes;
  SteadyWorkspace steady_workspace;
  SlotMemories memories;
  // Of the layout apart from what is recomputed.
  Layout setting;
  bool has_setting = false;
  const Schedule* schedule = nullptr;
  ScheduleShape shape;
  bool blocking = false;
  bool apart = false; ///< no stage waits for another at the step's end
  std::vector<const StageState*> states;
  std::vector<std::uint32_t> kinds; ///< of chunk stage * chunks + index
  std::vector<int> kind_depths;     ///< of one chunk of each kind
  Bytes boundary;
  bool remembers = false;      ///< the order tells slots apart by what ran before them
  std::vector<Load> transfers; ///< from each stage to the next
  std::vector<double> p2p;
  std::vector<double> crowded;
  std::vector<int> layers;
  std::vector<const ChunkFloor*> chunks; ///< by kind of chunk
  double fragmentation = 0;
  std::vector<std::pair<Layout, SlotWeights>> weights;   ///< by the part of a layout that they follow
  std::vector<std::pair<int, Utilisation>> utilisations; ///< by tp, which pads the vocabulary
  const SteadyOrder* steady = nullptr;
  const SlotOrder* memory_order = nullptr; ///< its memory peak is that of the whole step

  explicit Data(std::shared_ptr<const Shared> s) : shared(std::move(s)), cache(shared->study) {}

  [[nodiscard]] bool split() const { return schedule->splits_backward(); }

  [[nodiscard]] const SlotWeights& weights_of(const Layout& layout);

  /// Points the cache at a layout.
  void select(const Layout& layout);

  /// Selects it and sorts its chunks and stages.
  void outline(const Layout& layout);

  /// Everything but what depends on recomputation.
  void set(const Layout& layout);

  /// Transfers between stages.
  void price_transfers();

  /// What the chunks of the layout that is outlined take at least under one recomputation; what follows is of these.
  void take_chunks(const RecomputeChoice& recompute);
  [[nodiscard]] double least_seconds();
  /// With the peaks of backwards, or what micro-batches in flight retain alone.
  [[nodiscard]] Least least_bytes(bool peaks);

  /// The highest tier that any rank crosses from `stage` to the next (the last: to the first).
  [[nodiscard]] int boundary_tier(int stage);

  /// Profiles of all chunks under one recomputation, and the costs of their slots.
  void fill(Lane& lane, const RecomputeChoice& recompute);

  /// Seconds that each stage computes in its slots, its host's waits among them.
  [[nodiscard]] std::vector<double> work_of_stages(const Lane& lane) const;
  /// Time of the slots by figures that hold while all ranks compute, where ranks that share a processor lend it while
  /// they wait: no less than all the work takes on all processors, nor than with a processor of one's own.
  [[nodiscard]] double on_shared_processors(double slots, const Lane& lane) const;
  /// Seconds that the busiest stage computes, its host's waits among them, over the whole step: what straggles.
  [[nodiscard]] double busiest(const Lane& lane) const;

  /// Memory of a chunk's slot with its own input; what else is in flight beside it, the order knows.
  [[nodiscard]] static SlotMemory slot_of(const ChunkProfile& chunk, Pass pass, Turn turn, Bytes in, Bytes out);

  void fill_memories(const Lane& lane);

  /// Device bytes of a stage: slots and step end above the persistent set, fragmentation, outside.
  [[nodiscard]] Bytes device_bytes(std::size_t stage) const;

  /// What the step's end waits for the host.
  [[nodiscard]] double host_step() const { return kStepLaunches * shared->study.host.per_layer; }

  /// What comes after all ranks have met at the step's end; nothing where stages do not meet.
  [[nodiscard]] double step_tail() const;

  [[nodiscard]] const Utilisation& utilisation();

  void evaluate(std::span<const RecomputeChoice> choices, std::span<Evaluation> into);
};

} // namespace foretrain
