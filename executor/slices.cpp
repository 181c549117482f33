#include "executor/slices.h"

#include <algorithm>
#include <cmath>

#include "executor/counter.h"

namespace foretrain {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_table(const std::string& base) {
  return base == "embedding" || base == "head";
}

} // namespace

std::string base_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

std::int64_t rows_of(const Parameter& parameter) {
  std::int64_t rows = 1;
  const std::size_t leading = std::max<std::size_t>(1, parameter.shape.size() - 1);
  for (std::size_t i = 0; i < leading; ++i) rows *= parameter.shape[i];
  return rows;
}

namespace {

/// Experts of this rank, each split like a feed-forward.
std::vector<Slice::Rows> expert_rows(const Parameter& parameter, const ModelSpec& model, const SlicePlace& place) {
  const bool up = base_name(parameter.name) == "expert_up";
  const std::int64_t whole = parameter.shape[1];
  std::vector<Slice::Rows> rows;
  for (std::int64_t expert = 0; expert < parameter.local[0]; ++expert) {
    const std::int64_t first = (place.ep_index * parameter.local[0] + expert) * whole;
    const std::int64_t count = parameter.local[1];
    if (!up) {
      rows.push_back({first, count});
    } else if (!model.gated) {
      rows.push_back({first + place.etp_index * count, count});
    } else {
      rows.push_back({first + place.etp_index * count / 2, count / 2});
      rows.push_back({first + whole / 2 + place.etp_index * count / 2, count / 2});
    }
  }
  return rows;
}

} // namespace

Slice slice_of(const Parameter& parameter, const ModelSpec& model, const SlicePlace& place) {
  const std::string base = base_name(parameter.name);
  Slice slice;
  if (parameter.shape.size() > 1) {
    slice.columns = parameter.local.back();
    slice.whole_columns = parameter.shape.back();
    if (slice.columns != slice.whole_columns)
      slice.first_column = slice.columns * (parameter.expert ? place.etp_index : place.tp_index);
  }
  if (parameter.expert) {
    slice.rows = expert_rows(parameter, model, place);
    return slice;
  }
  const std::int64_t index = place.tp_index;
  if (base == "qkv" || base == "qkv.bias") {
    const std::int64_t width = model.head_dim;
    const std::int64_t query = model.heads / place.tp * width;
    const std::int64_t kv = model.kv_heads / place.tp * width;
    const std::int64_t keys = model.heads * width;
    const std::int64_t values = keys + model.kv_heads * width;
    slice.rows = {{index * query, query}, {keys + index * kv, kv}, {values + index * kv, kv}};
    return slice;
  }
  if (model.gated && (base == "ffn_up" || base == "ffn_up.bias" || base == "shared_up")) {
    const std::int64_t half = parameter.local[0] / 2;
    slice.rows = {{index * half, half}, {parameter.shape[0] / 2 + index * half, half}};
    return slice;
  }
  const bool split = parameter.shape[0] != parameter.local[0];
  slice.rows = {{split ? index * parameter.local[0] : 0, parameter.local[0]}};
  return slice;
}

std::int64_t unpadded_rows_of(const Parameter& parameter, const ModelSpec& model) {
  return is_table(base_name(parameter.name)) ? model.vocab : rows_of(parameter);
}

std::string global_name(const Parameter& parameter, int layer, bool tied) {
  const std::size_t slash = parameter.name.rfind('/');
  const std::string base = base_name(parameter.name);
  if (layer < 0) return tied && base == "head" ? "embedding" : base;
  const std::string before = slash == std::string::npos ? "" : parameter.name.substr(0, slash);
  if (before == "mtp") return base == "embedding" ? base : "layers." + std::to_string(layer) + ".mtp." + base;
  const int inside = before.empty() ? 0 : std::stoi(before);
  return "layers." + std::to_string(layer + inside) + "." + base;
}

std::vector<double> initial_values(const std::string& global_name, const Parameter& parameter, const Slice& slice,
                                   const ModelSpec& model, std::uint64_t seed) {
  const auto elements = static_cast<std::size_t>(parameter.local_elements());
  if (parameter.shape.size() == 1) return std::vector<double>(elements, ends_with(parameter.name, ".bias") ? 0.0 : 1.0);
  const std::uint64_t name = counter::hash(global_name);
  const double scale = std::sqrt(3.0 / static_cast<double>(slice.whole_columns));
  const std::int64_t rows = unpadded_rows_of(parameter, model);
  std::vector<double> values;
  values.reserve(elements);
  for (const Slice::Rows& piece : slice.rows)
    for (std::int64_t row = piece.first; row < piece.first + piece.count; ++row)
      for (std::int64_t column = slice.first_column; column < slice.first_column + slice.columns; ++column)
        values.push_back(row < rows ? scale * counter::uniform(seed, name, row * slice.whole_columns + column) : 0.0);
  return values;
}

} // namespace foretrain
