#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/program/axes/data.h"
#include "core/program/chunks.h"
#include "core/program/context.h"
#include "core/program/program.h"
#include "core/spec/calibration.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"
#include "planner/cache_key.h"
#include "simulator/cost.h"
#include "simulator/stage_profile.h"

namespace foretrain {

/// What all evaluations of a study share; immutable.
struct StudyContext {
  ModelSpec model;
  ClusterSpec cluster;
  JobSpec job;
  Semantics semantics;
  CostModel cost;
  HostFloor host;
  std::vector<int> fanouts;
  std::vector<LayerShape> shapes;
  bool uniform = true; ///< all layers are alike: chunks of equal length are equal wherever they lie
};
[[nodiscard]] StudyContext make_study_context(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                              const Semantics& semantics, CostModel cost);

/// What a block that is not recomputed as a whole can depend on: the modules that it has, or another way to choose.
[[nodiscard]] std::uint64_t choice_key(const RecomputeChoice& recompute, const std::vector<LayerShape>& shapes);

/// A layout with what follows from it alone.
struct LayoutView {
  const Layout* layout = nullptr;
  const Mesh* mesh = nullptr;
  const std::vector<int>* layers = nullptr; ///< of each chunk in depth order
  int micro_batches = 1;
  bool split_backward = false;
};

/// State of a stage that depends neither on the micro-batch nor on recomputation.
struct StageState {
  Bytes persistent; ///< without the kept input gradient
  Bytes outside;
  Bytes step_peak;
  double step_seconds = 0;
  double step_before = 0;  ///< of them, those before all ranks meet (the norm of gradients, which is summed over all)
  double step_compute = 0; ///< seconds of its compute stream
  TimeParts step_parts{};
  Evidence evidence = Evidence::measured;
};

/// What a chunk's slots take at least: its blocks one after the other, nothing between or beside them.
struct ChunkFloor {
  std::array<double, kPasses> seconds{}; ///< by pass
  double compute = 0;                    ///< seconds of its compute stream and of its host, for one micro-batch
  Bytes retained;                        ///< by a forward, boundaries aside
  Bytes backward_peak;                   ///< of a backward (I when split) above where it starts
};

/// Pieces of stages by what they depend on, for one thread. Layouts of a study share most of them: blocks are lowered
/// and timed once per (degrees, micro-batch, modules recomputed), collectives between blocks once per (degrees, layers,
/// sharding), state too; a chunk is then a sum of runs of equal blocks. The same calls as lower() make them, so that
/// both agree.
class StageCache {
public:
  explicit StageCache(const StudyContext& study) : study_(study) {}

  [[nodiscard]] const Mesh& mesh_of(const Layout& layout);
  /// Makes `view` the layout that the calls below speak of; it must outlive them. Its recomputation does not matter.
  void select(const LayoutView& view);
  [[nodiscard]] const StageState& state(int stage);
  /// Sorts the chunks of the layout by kind: chunks of one kind are equal under every recomputation. Returns how many
  /// kinds there are; `kinds` gets that of chunk `stage * chunks + index`.
  std::size_t sort_chunks(std::vector<std::uint32_t>& kinds);
  /// Profiles a kind of chunk, collectives between blocks included.
  void profile(std::size_t kind, const RecomputeChoice& recompute, ChunkProfile& into);
  /// What every (chunk, micro-batch) of the stage retains at least between its forward and its backward, whatever is
  /// recomputed: layers that are recomputed whole keep the least.
  [[nodiscard]] Bytes least_retained(int stage);
  /// What the slots of a kind of chunk take at least.
  [[nodiscard]] const ChunkFloor& floor(std::size_t kind, const RecomputeChoice& recompute);
  /// Bytes of an activation at a chunk boundary.
  [[nodiscard]] Bytes boundary();

private:
  using Key = CacheKey;
  using LongKey = std::vector<std::int32_t>; ///< grows with the chunks of a stage
  struct LongKeyHash {
    std::size_t operator()(const LongKey& key) const;
  };
  /// What is kept of a lowered block.
  struct TimedBlock {
    Block memory; ///< with its kind and its memory alone
    std::array<BlockTime, 4> times;
    data::Elements elements;
  };
  /// One context of blocks: degrees, micro-batch and switches, without recomputation.
  struct Base {
    LayerContext context;
    std::unordered_map<std::uint64_t, TimedBlock> blocks;          ///< by block and modules recomputed
    std::unordered_map<CacheKey, ChunkFloor, CacheKeyHash> floors; ///< by kind of chunk and recomputation
  };
  /// A chunk as runs of equal blocks.
  struct Run {
    std::uint32_t block = 0; ///< index into `block_keys_`
    int count = 0;
  };
  struct Runs {
    std::vector<Run> list;
    int blocks = 0;
  };
  /// A kind of chunk: what it depends on apart from the settings of the layout.
  struct Kind {
    int layers = 0;
    int ends = 0;        ///< 1: has the embedding, 2: has the head
    int first = 0;       ///< first model layer from which on layers are like its own
    bool begins = false; ///< the first chunk of the first stage
    int depth = 0;       ///< of one of them
    bool operator==(const Kind& other) const {
      return layers == other.layers && ends == other.ends && first == other.first && begins == other.begins;
    }
  };

  void trim();
  Base& base_of(const LayoutView& view);
  std::int32_t data_id(const LayoutView& view);
  std::uint32_t block_id(const BlockKey& key);
  [[nodiscard]] Kind kind_of(const LayoutView& view, int depth);
  [[nodiscard]] int first_like(int first, int layers);
  static void add_kind(Key& key, const Kind& kind);
  const Runs& runs_of(const LayoutView& view, const Kind& kind, const RecomputeChoice& recompute);
  Block lower_block(const Base& base, std::uint32_t id, const RecomputeChoice& recompute) const;
  const TimedBlock& block_of(Base& base, const LayoutView& view, std::uint32_t id, const RecomputeChoice& recompute);
  const std::vector<Parameter>& parameters_of(const Base& base, const LayoutView& view, std::uint32_t id);
  Role& role_of(const LayoutView& view, const Kind& kind, const Runs& runs, int span);
  StageState build_state(const LayoutView& view, int stage);

  const StudyContext& study_;
  std::unordered_map<Key, std::unique_ptr<Base>, CacheKeyHash> bases_;
  std::unordered_map<LongKey, StageState, LongKeyHash> states_;
  std::unordered_map<Key, Runs, CacheKeyHash> runs_;
  std::unordered_map<Key, Role, CacheKeyHash> roles_; ///< one chunk with the collectives between its blocks
  std::unordered_map<Key, std::vector<Parameter>, CacheKeyHash> parameters_;
  std::unordered_map<Key, std::int32_t, CacheKeyHash> data_ids_; ///< data-parallel settings by number
  std::vector<BlockKey> block_keys_;
  std::int32_t next_data_ = 0;
  LayoutView view_;
  Base* base_ = nullptr; ///< of view_
  std::int32_t data_ = -1;
  std::vector<int> starts_;       ///< of view_: model layer that each chunk begins with
  std::vector<int> alike_;        ///< first_like by layers and first; -1: not looked for yet
  std::vector<Kind> kinds_;       ///< of view_
  std::vector<KnownSlots> known_; ///< of each kind
  KnownSlots apart_;              ///< of a chunk cut into other blocks than without recomputation
  Program scratch_;               ///< what a chunk's profile reads of a program
  BlockTimes scratch_times_;
  LongKey scratch_key_;
  std::vector<std::pair<Layout, std::unique_ptr<const Mesh>>>
      meshes_; ///< of one set of degrees, by kind of context parallelism
};

} // namespace foretrain
