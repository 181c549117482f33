#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/spec/plan.h"

namespace foretrain {

/// Which part of a whole parameter a tensor-parallel rank holds: some rows (in pieces) and some columns. A parameter of
/// one dimension has one column.
struct Slice {
  struct Rows {
    std::int64_t first = 0; ///< in the whole tensor
    std::int64_t count = 0;
    bool operator==(const Rows&) const = default;
  };
  std::vector<Rows> rows;
  std::int64_t first_column = 0;
  std::int64_t columns = 1;
  std::int64_t whole_columns = 1;
  bool operator==(const Slice&) const = default;
};

/// The name without what stands before the last '/': a block of several layers numbers them.
[[nodiscard]] std::string base_name(const std::string& name);

/// Degrees and coordinates that cut parameters.
struct SlicePlace {
  int tp = 1;
  int tp_index = 0;
  int ep = 1;
  int ep_index = 0;
  int etp = 1;
  int etp_index = 0;
};

/// Queries, keys and values are split each by its heads, a gated up projection in both halves, tables by rows, and
/// row-split weights (attention_out, ffn_down) by columns. Experts are split over ep and each of them over etp as a
/// feed-forward is over tp; their matrices count as one below another.
[[nodiscard]] Slice slice_of(const Parameter& parameter, const ModelSpec& model, const SlicePlace& place);

/// Rows of the whole parameter: of all experts together.
[[nodiscard]] std::int64_t rows_of(const Parameter& parameter);

/// The same without the rows that tables are padded by.
[[nodiscard]] std::int64_t unpadded_rows_of(const Parameter& parameter, const ModelSpec& model);

/// Name of a parameter in the whole model: "embedding", "layers.3.qkv". A tied output table is "embedding".
[[nodiscard]] std::string global_name(const Parameter& parameter, int layer, bool tied);

/// Values before the first step, in the order of the local tensor: matrices uniform with deviation 1/√columns, norm
/// weights 1, biases 0, rows past the vocabulary 0.
[[nodiscard]] std::vector<double> initial_values(const std::string& global_name, const Parameter& parameter,
                                                 const Slice& slice, const ModelSpec& model, std::uint64_t seed);

} // namespace foretrain
