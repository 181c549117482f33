#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "core/program/program.h"
#include "core/spec/plan.h"
#include "executor/slices.h"

namespace foretrain {

/// One parameter on one rank. `weight` and `gradient` are resolved at use: with sharded parameters (gradients) they are
/// there only while their block runs.
struct ParameterEntry {
  std::string name; ///< in the whole model
  const Parameter* spec = nullptr;
  at::Tensor weight;
  at::Tensor gradient; ///< added to in place; wider than the weight under bf16
  std::int64_t elements = 0;
  std::int64_t owned_first = 0; ///< with sharded state: the elements that this rank updates, of the flattened tensor
  std::int64_t owned_count = 0;
  at::Tensor owned_weight;   ///< [owned_count], always there
  at::Tensor owned_gradient; ///< [owned_count], always there
  bool tied_copy = false;    ///< of the input table, whose original is on the first stage
  bool counted = true;       ///< this rank adds it to the global norm (others hold the same elements too)
};

/// All parameters of a rank, in the order of chunks, blocks and the blocks' own lists. With sharded state a rank owns
/// the same elements of each parameter whatever transfer moves it, so that tied copies on other stages are cut alike.
/// A parameter's storage is padded to a multiple of its ranks: collectives work in place.
class ParameterTable {
public:
  struct Storage {
    at::ScalarType weights = at::kDouble;
    at::ScalarType gradients = at::kDouble;
    at::Device device = at::kCPU;
  };
  /// Allocates and fills with the initial values of `seed`: computed on the host, the same bits on every device.
  ParameterTable(const Plan& plan, const Program& program, int rank, std::uint64_t seed, const Storage& storage);

  [[nodiscard]] std::vector<ParameterEntry>& entries() { return entries_; }
  [[nodiscard]] const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Parameter `index` of the block at `position` of `chunk`.
  [[nodiscard]] ParameterEntry& at(int chunk, int position, int index);
  /// The input table: the embedding's, or the last stage's copy of it.
  [[nodiscard]] ParameterEntry& table();
  /// The output table: the head's, or where it is tied the input table.
  [[nodiscard]] ParameterEntry& output_table();

  /// Entries of the blocks at `positions` of a chunk: the experts' or the others. A block without a table that it reads
  /// counts that of another block where each has weights of its own for a while.
  [[nodiscard]] std::vector<ParameterEntry*> of_blocks(int chunk, const std::vector<int>& positions, bool experts);
  [[nodiscard]] std::vector<ParameterEntry*> all(bool experts);
  /// Those of a block whose gradients one pass over it adds to.
  [[nodiscard]] std::vector<ParameterEntry*> written_by(int chunk, int position, Pass pass, bool experts);
  /// Gradients of `entries` with as few tensors as their storage allows.
  [[nodiscard]] std::vector<at::Tensor> gradient_runs(const std::vector<ParameterEntry*>& entries) const;

  /// The whole of a parameter with its padding, one row per rank that owns a part: [shards, part].
  [[nodiscard]] at::Tensor by_shards(const ParameterEntry& entry, bool weight) const;
  /// This rank's row of it, as it is stored (a part of `by_shards`, or apart from it): [1, part].
  [[nodiscard]] at::Tensor own_shard(const ParameterEntry& entry, bool weight) const;

  /// Whole weights of a block with sharded parameters, to be gathered into; until `close_weights`.
  void open_weights(int chunk, int position);
  void close_weights(int chunk, int position);
  /// Zeros for the gradients of one pass over a block with sharded gradients; `close_gradients` adds this rank's part
  /// to what it keeps.
  void open_gradients(int chunk, int position, Pass pass);
  void close_gradients(int chunk, int position, Pass pass);

  void zero_gradients();
  void scale_gradients(double factor);
  /// By a number that is where the gradients are: [1].
  void scale_gradients(const at::Tensor& factor);
  [[nodiscard]] at::ScalarType gradient_type() const { return storage_.gradients; }

private:
  struct OpenWeight {
    int chunk = 0;
    int position = 0;
    at::Tensor whole; ///< with padding
  };
  struct Place { ///< of an entry in the persistent buffers, and its ranks
    std::int64_t weight = 0;
    std::int64_t gradient = 0;
    std::int64_t part = 0;
    int shards = 1;
    int shard = 0;
    bool weight_apart = false; ///< only this rank's part is kept; the whole exists while its block runs
    bool gradient_apart = false;
    std::vector<OpenWeight> weight_blocks; ///< of the blocks that have it open
    at::Tensor gradient_block;             ///< while open: the whole with padding
  };
  struct Span {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] std::vector<std::size_t> of_block(int chunk, int position) const;
  [[nodiscard]] std::vector<std::size_t> written(int chunk, int position, Pass pass) const;
  [[nodiscard]] std::size_t table_index() const;
  [[nodiscard]] std::size_t output_table_index() const;
  /// Tables that a block reads and another block of the stage holds.
  [[nodiscard]] std::vector<std::size_t> borrowed(const Block& block) const;
  void bind_open_weight(std::size_t index);
  void place_entry(ParameterEntry& entry, Place& place, std::int64_t& weights, std::int64_t& gradients) const;
  void bind(std::size_t index);
  void fill(std::size_t index, const Plan& plan, const Program& program, int rank, std::uint64_t seed);

  bool gathers_ = false; ///< each block has weights of its own for a while
  bool reduces_ = false; ///< and gradients
  Storage storage_;
  at::Tensor weights_;   ///< whole tensors, or this rank's parts
  at::Tensor gradients_; ///< the same
  std::vector<ParameterEntry> entries_;
  std::vector<Place> places_;
  std::vector<std::vector<Span>> blocks_;        ///< per chunk and position
  std::vector<std::vector<const Block*>> specs_; ///< the same
};

/// Where the coordinates of a rank put its slice of each parameter.
[[nodiscard]] SlicePlace slice_place(const Plan& plan, const Mesh& mesh, int rank);

} // namespace foretrain
