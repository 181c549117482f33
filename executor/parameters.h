#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "core/program/program.h"
#include "core/spec/plan.h"

namespace foretrain {

/// One parameter on one rank. Weight and gradient are views of the rank's two flat buffers.
struct ParameterEntry {
  std::string name; ///< in the whole model
  const Parameter* spec = nullptr;
  at::Tensor weight;
  at::Tensor gradient;
  std::int64_t elements = 0;
  std::int64_t owned_first = 0; ///< with sharded state: the elements that this rank updates, of the flattened tensor
  std::int64_t owned_count = 0;
  bool tied_copy = false; ///< of a table whose original is on the first stage
  bool counted = true;    ///< this rank adds it to the global norm (others hold the same elements too)

  [[nodiscard]] at::Tensor owned(const at::Tensor& of) const { return of.view(-1).narrow(0, owned_first, owned_count); }
};

/// All parameters of a rank, in the order of chunks, blocks and the blocks' own lists; so the parameters of consecutive
/// blocks lie together.
class ParameterTable {
public:
  /// Allocates and fills with the initial values of `seed`.
  ParameterTable(const Plan& plan, const Program& program, int rank, std::uint64_t seed, at::ScalarType type);

  [[nodiscard]] std::vector<ParameterEntry>& entries() { return entries_; }
  [[nodiscard]] const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Parameter `index` of the block at `position` of `chunk`.
  [[nodiscard]] ParameterEntry& at(int chunk, int position, int index);
  /// The output table where the head has none of its own: the embedding's.
  [[nodiscard]] ParameterEntry& table();

  /// Entries first … end − 1 in table order.
  struct Range {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Range all() const { return {0, entries_.size()}; }
  /// Those of the blocks at `positions` (consecutive) of a chunk.
  [[nodiscard]] Range of_blocks(int chunk, const std::vector<int>& positions) const;
  /// Their gradients as one view.
  [[nodiscard]] at::Tensor gradients(const Range& range) const;
  [[nodiscard]] at::Tensor& gradients() { return gradients_; }

  /// The ranges that ranks of the shard group own, padded to one length per parameter and packed rank by rank:
  /// [ranks · part]. `weights`: of weights, else of gradients.
  [[nodiscard]] at::Tensor pack_shards(const Range& range, bool weights) const;
  void unpack_shards(const Range& range, bool weights, const at::Tensor& packed);
  /// The same for this rank's own shard: [part].
  [[nodiscard]] at::Tensor pack_owned(const Range& range, bool weights) const;
  void unpack_owned(const Range& range, bool weights, const at::Tensor& packed);
  [[nodiscard]] int shards() const { return shards_; }

private:
  [[nodiscard]] std::int64_t part(const ParameterEntry& entry) const {
    return (entry.elements + shards_ - 1) / shards_;
  }
  [[nodiscard]] std::int64_t packed_size(const Range& range) const;
  void copy_shard(const Range& range, bool weights, int shard, at::Tensor packed, bool into) const;

  int shards_ = 1;
  int shard_ = 0;
  at::Tensor weights_;
  at::Tensor gradients_;
  std::vector<ParameterEntry> entries_;
  std::vector<std::vector<Range>> blocks_; ///< per chunk and position
};

} // namespace foretrain
