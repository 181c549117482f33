#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

namespace foretrain::kernels {
namespace {

/// The rows of one query head (of one sequence) in a block, and the keys that any of them sees.
struct Tile {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t first = 0; ///< query rows of the sequence
  std::int64_t rows = 0;
  std::int64_t keys_first = 0;
  std::int64_t keys = 0;
};

bool sees(std::int64_t query, std::int64_t key, std::int64_t window) {
  return key <= query && (window == 0 || query - key < window);
}

/// Calls `visit(tile)` for every head and block of query rows that sees a key.
template <class Visit> void for_each_tile(const AttentionShape& shape, std::int64_t sequences, Visit&& visit) {
  const auto queries = static_cast<std::int64_t>(shape.query_positions.size());
  const auto keys = static_cast<std::int64_t>(shape.key_positions.size());
  for (std::int64_t first = 0; first < queries; first += kQueryBlock) {
    Tile tile;
    tile.first = first;
    tile.rows = std::min(kQueryBlock, queries - first);
    const auto begin = shape.query_positions.begin() + first;
    const std::int64_t highest = *std::max_element(begin, begin + tile.rows);
    const std::int64_t lowest = *std::min_element(begin, begin + tile.rows);
    std::int64_t end = 0;
    tile.keys_first = keys;
    for (std::int64_t key = 0; key < keys; ++key) {
      const std::int64_t position = shape.key_positions[static_cast<std::size_t>(key)];
      if (position > highest || (shape.window > 0 && position <= lowest - shape.window)) continue;
      tile.keys_first = std::min(tile.keys_first, key);
      end = key + 1;
    }
    tile.keys = end - tile.keys_first;
    if (tile.keys <= 0) continue;
    for (tile.sequence = 0; tile.sequence < sequences; ++tile.sequence)
      for (tile.head = 0; tile.head < shape.query; ++tile.head) visit(tile);
  }
}

/// Views of one head: [rows, width] inside rows of `heads` heads.
Tensor head_rows(const Tensor& rows, std::int64_t length, std::int64_t heads, std::int64_t sequence, std::int64_t head,
                 std::int64_t first, std::int64_t count) {
  const std::int64_t width = rows.size(1) / heads;
  return rows.narrow(0, sequence * length + first, count).narrow(1, head * width, width);
}

template <class T> class Pass {
public:
  Pass(const AttentionShape& shape, const AttentionInputs& in)
      : shape_(shape), in_(in), queries_(static_cast<std::int64_t>(shape.query_positions.size())),
        keys_(static_cast<std::int64_t>(shape.key_positions.size())), sequences_(in.q.size(0) / queries_),
        ascending_(std::is_sorted(shape.key_positions.begin(), shape.key_positions.end())),
        scale_(T(1 / std::sqrt(static_cast<double>(in.q.size(1) / shape.query)))) {}

  void forward(Tensor& out, Tensor& logsumexp) {
    Tensor scores = workspace();
    for_each_tile(shape_, sequences_, [&](const Tile& tile) {
      Tensor part = tile_of(scores, tile);
      at::mm_out(part, query_rows(in_.q, tile), key_rows(in_.k, tile).t());
      Tensor merged = query_rows(out, tile);
      merge(tile, part, merged, logsumexp);
      merged.addmm_(part, key_rows(in_.v, tile));
    });
  }

  void backward(const AttentionGradients& g, Tensor& dq, Tensor& dk, Tensor& dv) {
    Tensor scores = workspace();
    Tensor gradients = workspace();
    for_each_tile(shape_, sequences_, [&](const Tile& tile) {
      Tensor probabilities = tile_of(scores, tile);
      Tensor dscores = tile_of(gradients, tile);
      const Tensor q = query_rows(in_.q, tile);
      const Tensor k = key_rows(in_.k, tile);
      const Tensor dout = query_rows(g.dout, tile);
      at::mm_out(probabilities, q, k.t());
      subtract_statistics(tile, probabilities, g.logsumexp);
      probabilities.exp_();
      at::mm_out(dscores, dout, key_rows(in_.v, tile).t());
      key_rows(dv, tile).addmm_(probabilities.t(), dout);
      finish_scores(tile, probabilities, dscores, query_rows(g.out, tile), dout);
      query_rows(dq, tile).addmm_(dscores, k);
      key_rows(dk, tile).addmm_(dscores.t(), q);
    });
  }

private:
  [[nodiscard]] Tensor workspace() const {
    return at::empty({std::min(kQueryBlock, queries_) * keys_}, in_.q.options());
  }
  [[nodiscard]] static Tensor tile_of(const Tensor& workspace, const Tile& tile) {
    return workspace.narrow(0, 0, tile.rows * tile.keys).view({tile.rows, tile.keys});
  }
  [[nodiscard]] Tensor query_rows(const Tensor& rows, const Tile& tile) const {
    return head_rows(rows, queries_, shape_.query, tile.sequence, tile.head, tile.first, tile.rows);
  }
  [[nodiscard]] Tensor key_rows(const Tensor& rows, const Tile& tile) const {
    const std::int64_t each = shape_.query / shape_.kv;
    return head_rows(rows, keys_, shape_.kv, tile.sequence, tile.head / each, tile.keys_first, tile.keys);
  }
  [[nodiscard]] T* statistic(const Tensor& logsumexp, const Tile& tile, std::int64_t row) const {
    return logsumexp.data_ptr<T>() + (tile.sequence * queries_ + tile.first + row) * shape_.query + tile.head;
  }

  /// Scales a row of scores and hides keys; the largest that is left.
  T mask_row(const Tile& tile, std::int64_t row, T* scores) const {
    constexpr T kHidden = -std::numeric_limits<T>::infinity();
    const std::int64_t query = shape_.query_positions[static_cast<std::size_t>(tile.first + row)];
    const std::int64_t* keys = shape_.key_positions.data() + tile.keys_first;
    if (!ascending_) {
      T largest = kHidden;
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        scores[j] = sees(query, keys[j], shape_.window) ? scores[j] * scale_ : kHidden;
        largest = std::max(largest, scores[j]);
      }
      return largest;
    }
    // What the query sees is one run of the keys: no comparison for each.
    const std::int64_t* end = std::upper_bound(keys, keys + tile.keys, query);
    const std::int64_t* begin = shape_.window == 0 ? keys : std::upper_bound(keys, end, query - shape_.window);
    std::fill(scores, scores + (begin - keys), kHidden);
    std::fill(scores + (end - keys), scores + tile.keys, kHidden);
    T* seen = scores + (begin - keys);
    const std::int64_t count = end - begin;
    for (std::int64_t j = 0; j < count; ++j) seen[j] *= scale_;
    return largest_of<T>(count, [seen](std::int64_t j) { return seen[j]; });
  }

  /// Turns scores into probabilities under the statistics of all keys so far, and brings what earlier keys gave to
  /// them.
  void merge(const Tile& tile, Tensor scores, Tensor& out, Tensor& logsumexp) const {
    std::array<T, kQueryBlock> largest{};
    T* s = scores.data_ptr<T>();
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      T* line = s + row * tile.keys;
      T& top = largest[static_cast<std::size_t>(row)];
      top = mask_row(tile, row, line);
      if (!std::isinf(top))
        for (std::int64_t j = 0; j < tile.keys; ++j) line[j] -= top;
    }
    scores.exp_();
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      T* line = s + row * tile.keys;
      const T top = largest[static_cast<std::size_t>(row)];
      if (std::isinf(top)) continue; // sees none of these keys: its probabilities are zero already
      const T here = top + std::log(add_up<T>(tile.keys, [&](std::int64_t j) { return line[j]; }));
      T& kept = *statistic(logsumexp, tile, row);
      const T high = std::max(here, kept);
      const T both = high + std::log(std::exp(here - high) + std::exp(kept - high));
      const T factor = std::exp(top - both);
      const T before = std::exp(kept - both);
      for (std::int64_t j = 0; j < tile.keys; ++j) line[j] *= factor;
      T* sum = out.data_ptr<T>() + row * out.stride(0);
      for (std::int64_t i = 0; i < out.size(1); ++i) sum[i] *= before;
      kept = both;
    }
  }

  void subtract_statistics(const Tile& tile, Tensor& scores, const Tensor& logsumexp) const {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      T* line = scores.data_ptr<T>() + row * tile.keys;
      (void)mask_row(tile, row, line);
      const T all = *statistic(logsumexp, tile, row);
      for (std::int64_t j = 0; j < tile.keys; ++j) line[j] -= all;
    }
  }

  /// dS = P (dP − D) scale with D = rowsum(dO ∘ O).
  void finish_scores(const Tile& tile, const Tensor& probabilities, Tensor& dscores, const Tensor& out,
                     const Tensor& dout) const {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const T* o = out.data_ptr<T>() + row * out.stride(0);
      const T* g = dout.data_ptr<T>() + row * dout.stride(0);
      const T level = add_up<T>(out.size(1), [&](std::int64_t i) { return o[i] * g[i]; });
      const T* p = probabilities.data_ptr<T>() + row * tile.keys;
      T* d = dscores.data_ptr<T>() + row * tile.keys;
      for (std::int64_t j = 0; j < tile.keys; ++j) d[j] = p[j] * (d[j] - level) * scale_;
    }
  }

  const AttentionShape& shape_;
  const AttentionInputs& in_;
  std::int64_t queries_;
  std::int64_t keys_;
  std::int64_t sequences_;
  bool ascending_;
  T scale_;
};

/// Half precision runs in single precision, on copies.
bool is_half(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16;
}
AttentionInputs widened(const AttentionInputs& in) {
  return {in.q.to(at::kFloat), in.k.to(at::kFloat), in.v.to(at::kFloat)};
}

} // namespace

void attention_start(Tensor& out, Tensor& logsumexp) {
  out.zero_();
  logsumexp.fill_(-std::numeric_limits<double>::infinity());
}

void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp) {
  if (is_half(in.q)) {
    const AttentionInputs wide = widened(in);
    Tensor wide_out = out.to(at::kFloat);
    Pass<float>(shape, wide).forward(wide_out, logsumexp);
    out.copy_(wide_out);
    return;
  }
  with_type(in.q.scalar_type(), [&](auto value) {
    using T = decltype(value);
    if constexpr (!std::is_same_v<T, at::BFloat16>) Pass<T>(shape, in).forward(out, logsumexp);
  });
}

void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv) {
  if (is_half(in.q)) {
    const AttentionInputs wide = widened(in);
    const AttentionGradients wide_g{g.out.to(at::kFloat), g.logsumexp, g.dout.to(at::kFloat)};
    Tensor wide_dq = dq.to(at::kFloat);
    Tensor wide_dk = dk.to(at::kFloat);
    Tensor wide_dv = dv.to(at::kFloat);
    Pass<float>(shape, wide).backward(wide_g, wide_dq, wide_dk, wide_dv);
    dq.copy_(wide_dq);
    dk.copy_(wide_dk);
    dv.copy_(wide_dv);
    return;
  }
  with_type(in.q.scalar_type(), [&](auto value) {
    using T = decltype(value);
    if constexpr (!std::is_same_v<T, at::BFloat16>) Pass<T>(shape, in).backward(g, dq, dk, dv);
  });
}

} // namespace foretrain::kernels
