#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

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

/// Profiles of stages by what they depend on, for one thread. Layouts of a study share most of their stages: blocks are
/// lowered and timed once per (degrees, micro-batch, recomputation …), stages once per (blocks, sharding, layer counts).
class StageCache {
public:
  explicit StageCache(const StudyContext& study) : study_(study) {}

  /// The mesh of this layout.
  const Mesh& mesh_of(const Layout& layout);
  /// Profile of one stage. `layers`: layers of each chunk in depth order; `micro_batches` of the step.
  const StageProfile& stage(const Layout& layout, const Mesh& mesh, const std::vector<int>& layers, int stage,
                            int micro_batches, bool split_backward);

private:
  using Key = std::vector<std::int64_t>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  /// Blocks of one set of degrees, with their times.
  struct Blocks {
    LayerContext context;
    Program program; ///< holds the blocks; its roles are scratch
    std::vector<BlockKey> keys;
    BlockTimes times;
    int index_of(const BlockKey& key, const StudyContext& study);
  };
  Blocks& blocks_of(const Layout& layout, const Mesh& mesh, bool split_backward);
  StageProfile build(Blocks& blocks, const Layout& layout, const Mesh& mesh, const std::vector<int>& layers, int stage,
                     int micro_batches, bool split_backward);

  const StudyContext& study_;
  std::unordered_map<Key, std::unique_ptr<Blocks>, KeyHash> blocks_;
  std::unordered_map<Key, StageProfile, KeyHash> stages_;
  Key scratch_;
  Layout mesh_layout_;
  Mesh mesh_;
  bool has_mesh_ = false;
  Key blocks_key_;
  Blocks* last_blocks_ = nullptr;
};

[[nodiscard]] StudyContext make_study_context(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                              const Semantics& semantics, CostModel cost);

} // namespace foretrain
