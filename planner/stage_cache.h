#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/program/axes/data.h"
#include "core/program/chunks.h"
#include "core/program/context.h"
#include "core/program/program.h"
#include "core/spec/calibration.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"
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
  Bytes persistent;        ///< without the kept input gradient
  Bytes outside;
  Bytes step_peak;
  double step_seconds = 0;
  TimeParts step_parts{};
  Evidence evidence = Evidence::measured;
};

/// Pieces of stages by what they depend on, for one thread. Layouts of a study share most of them: blocks are lowered and
/// timed once per (degrees, micro-batch, modules recomputed), chunks once per (blocks, number of layers), state once per
/// (degrees, layers, sharding). The same calls as lower() make them, so that both agree.
class StageCache {
public:
  explicit StageCache(const StudyContext& study) : study_(study) {}

  [[nodiscard]] const Mesh& mesh_of(const Layout& layout);
  /// Makes `view` the layout that the calls below speak of; it must outlive them.
  void select(const LayoutView& view);
  [[nodiscard]] const StageState& state(int stage);
  /// Slots of a chunk, collectives between blocks included.
  [[nodiscard]] const ChunkProfile& chunk(int stage, int index);
  /// Bytes of an activation at a chunk boundary.
  [[nodiscard]] Bytes boundary();

private:
  using Key = std::vector<std::int32_t>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct TimedBlock {
    Block block;
    std::array<BlockTime, 4> times;
    data::Elements elements;
  };
  /// One context of blocks: degrees, micro-batch and switches, without recomputation.
  struct Base {
    LayerContext context;
    std::unordered_map<Key, std::unique_ptr<TimedBlock>, KeyHash> blocks;
    std::unordered_map<Key, ChunkProfile, KeyHash> chunks;
  };

  Base& base_of(const LayoutView& view);
  std::int32_t data_id(const LayoutView& view);
  const TimedBlock& block_of(Base& base, const LayoutView& view, const BlockKey& key);
  const std::vector<ChunkOp>& between_of(const LayerContext& context, const LayoutView& view, const Program& program, const Role& role, const Chunk& chunk);
  ChunkProfile build_chunk(Base& base, const LayoutView& view, int stage, int index);
  StageState build_state(const LayoutView& view, int stage);
  void add_chunk_key(Key& key, const LayoutView& view, int depth) const;

  const StudyContext& study_;
  std::unordered_map<Key, std::unique_ptr<Base>, KeyHash> bases_;
  std::unordered_map<Key, StageState, KeyHash> states_;
  std::unordered_map<Key, std::vector<ChunkOp>, KeyHash> between_; ///< collectives of chunks, micro-batch aside
  std::unordered_map<Key, std::int32_t, KeyHash> data_ids_; ///< data-parallel settings by number
  Key scratch_, base_key_, data_key_;
  Base* last_base_ = nullptr;
  std::int32_t last_data_ = -1;
  LayoutView view_;
  Base* base_ = nullptr; ///< of view_
  std::int32_t data_ = -1;
  std::int32_t modules_ = 0;
  Layout mesh_layout_;
  Mesh mesh_;
  bool has_mesh_ = false;
};

} // namespace foretrain
