#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "executor/kernels/tensor_kernels.h"

/// Attention in blocks of query rows over all heads at once. Query heads that share keys are rows of one product, so
/// that keys are never repeated: matrices are [sequences · kv heads, group · rows, …].
namespace foretrain::kernels::tensors {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Pass {
public:
  Pass(const AttentionInputs& in, const AttentionShape& shape, const Limits& limits)
      : shape_(shape), limits_(limits), queries_(static_cast<std::int64_t>(shape.query_positions.size())),
        keys_(static_cast<std::int64_t>(shape.key_positions.size())), sequences_(in.q.size(0) / queries_),
        group_(shape.query / shape.kv), scale_(1 / std::sqrt(static_cast<double>(in.q.size(1) / shape.query))),
        q_(of_queries(in.q)), k_(of_keys(in.k)), v_(of_keys(in.v)),
        query_positions_(placed(shape.query_positions, in.q.device())),
        key_positions_(placed(shape.key_positions, in.q.device())) {
    for (const std::int64_t position : shape.key_positions)
      highest_before_.push_back(highest_before_.empty() ? position : std::max(highest_before_.back(), position));
    lowest_after_ = shape.key_positions;
    for (std::size_t i = lowest_after_.size(); i-- > 1;)
      lowest_after_[i - 1] = std::min(lowest_after_[i - 1], lowest_after_[i]);
  }

  /// Brings what these keys give together with what earlier ones gave.
  void forward(Tensor& out, Tensor& logsumexp) {
    const Tensor all_out = of_queries(out);
    const Tensor kept_all = statistics(logsumexp);
    for_each_block([&](const Block& block) {
      Tensor scores = at::bmm(rows_of(q_, block), keys_of(k_, block).transpose(1, 2));
      hide(scores.mul_(scale_), block);
      const Tensor top = scores.amax(-1);
      const Tensor sees_none = top.eq(-kInfinity);
      const Tensor level = top.masked_fill(sees_none, 0);
      scores.sub_(level.unsqueeze(-1)).exp_();
      const Tensor here = scores.sum(-1).log_().add_(level); // −∞ where none is seen
      Tensor kept = kept_all.narrow(3, block.first, block.rows);
      const Tensor before = kept.reshape(here.sizes());
      const Tensor both = at::logaddexp(here, before);
      // A row that has seen no key at all keeps −∞, and its sum stays zero.
      const Tensor share = (before - both).exp_().masked_fill_(before.eq(-kInfinity), 0);
      scores.mul_((level - both).exp_().masked_fill_(sees_none, 0).unsqueeze(-1));
      const Tensor sum = at::bmm(scores, keys_of(v_, block)).add_(rows_of(all_out, block) * share.unsqueeze(-1));
      block_of(all_out, block).copy_(sum.view(block_of(all_out, block).sizes()));
      kept.copy_(both.view(kept.sizes()));
    });
  }

  void backward(const AttentionGradients& g, Tensor& dq, Tensor& dk, Tensor& dv) {
    const Tensor all_dout = of_queries(g.dout);
    const Tensor all_out = of_queries(g.out);
    const Tensor all_dq = of_queries(dq);
    const Tensor lse = statistics(g.logsumexp);
    Tensor sum_k = at::zeros_like(k_);
    Tensor sum_v = at::zeros_like(v_);
    for_each_block([&](const Block& block) {
      const Tensor q = rows_of(q_, block);
      const Tensor dout = wide(rows_of(all_dout, block));
      Tensor p = at::bmm(q, keys_of(k_, block).transpose(1, 2));
      hide(p.mul_(scale_), block);
      p.sub_(lse.narrow(3, block.first, block.rows).reshape({p.size(0), p.size(1), 1})).exp_();
      keys_of(sum_v, block).add_(at::bmm(p.transpose(1, 2), dout));
      Tensor ds = at::bmm(dout, keys_of(v_, block).transpose(1, 2)); // P (dP − D) scale, D = rowsum(dO ∘ O)
      ds.sub_((dout * wide(rows_of(all_out, block))).sum(-1, true)).mul_(p).mul_(scale_);
      const Tensor change = at::bmm(ds, keys_of(k_, block));
      Tensor there = block_of(all_dq, block);
      there.add_(change.view(there.sizes()));
      keys_of(sum_k, block).add_(at::bmm(ds.transpose(1, 2), q));
    });
    add_keys(sum_k, dk);
    add_keys(sum_v, dv);
  }

private:
  /// Query rows, and a range with all keys that any of them sees.
  struct Block {
    std::int64_t first = 0;
    std::int64_t rows = 0;
    std::int64_t keys_first = 0;
    std::int64_t keys = 0;
  };

  /// Views [sequences, kv heads, group, queries, width] of rows of heads.
  [[nodiscard]] Tensor of_queries(const Tensor& rows) const {
    return rows.view({sequences_, queries_, shape_.kv, group_, rows.size(1) / shape_.query}).permute({0, 2, 3, 1, 4});
  }
  [[nodiscard]] Tensor statistics(const Tensor& logsumexp) const {
    return logsumexp.view({sequences_, queries_, shape_.kv, group_}).permute({0, 2, 3, 1});
  }
  /// Copies [sequences · kv heads, keys, width], in single precision at least.
  [[nodiscard]] Tensor of_keys(const Tensor& rows) const {
    const std::int64_t width = rows.size(1) / shape_.kv;
    return wide(rows)
        .view({sequences_, keys_, shape_.kv, width})
        .transpose(1, 2)
        .reshape({sequences_ * shape_.kv, keys_, width});
  }
  void add_keys(const Tensor& sum, Tensor& rows) const {
    const std::int64_t width = sum.size(2);
    rows.view({sequences_, keys_, shape_.kv, width})
        .add_(sum.view({sequences_, shape_.kv, keys_, width}).transpose(1, 2));
  }
  [[nodiscard]] static Tensor block_of(const Tensor& view, const Block& block) {
    return view.narrow(3, block.first, block.rows);
  }
  [[nodiscard]] Tensor rows_of(const Tensor& view, const Block& block) const {
    return wide(block_of(view, block).reshape({sequences_ * shape_.kv, group_ * block.rows, view.size(4)}));
  }
  [[nodiscard]] static Tensor keys_of(const Tensor& keys, const Block& block) {
    return keys.narrow(1, block.keys_first, block.keys);
  }

  /// −∞ where a query does not see a key.
  void hide(Tensor scores, const Block& block) const {
    const Tensor distance = query_positions_.narrow(0, block.first, block.rows).unsqueeze(1) -
                            key_positions_.narrow(0, block.keys_first, block.keys).unsqueeze(0);
    Tensor hidden = distance.lt(0);
    if (shape_.window > 0) hidden.logical_or_(distance.ge(shape_.window));
    scores.view({scores.size(0), group_, block.rows, block.keys}).masked_fill_(hidden, -kInfinity);
  }

  /// Calls `visit(block)` for the blocks that see a key.
  template <class Visit> void for_each_block(Visit&& visit) const {
    const std::int64_t most = std::max<std::int64_t>(1, limits_.scores / (sequences_ * shape_.query * keys_));
    for (std::int64_t first = 0; first < queries_; first += most) {
      Block block;
      block.first = first;
      block.rows = std::min(most, queries_ - first);
      const auto begin = shape_.query_positions.begin() + first;
      const auto [lowest, highest] = std::minmax_element(begin, begin + block.rows);
      // Both lists rise: from the first key that is not too old to the last that is not too new.
      const auto index = [](const std::vector<std::int64_t>& list, std::int64_t position) {
        return std::upper_bound(list.begin(), list.end(), position) - list.begin();
      };
      block.keys_first = shape_.window > 0 ? index(highest_before_, *lowest - shape_.window) : 0;
      block.keys = index(lowest_after_, *highest) - block.keys_first;
      if (block.keys > 0) visit(block);
    }
  }

  const AttentionShape& shape_;
  Limits limits_;
  std::int64_t queries_;
  std::int64_t keys_;
  std::int64_t sequences_;
  std::int64_t group_;
  double scale_;
  Tensor q_; ///< a view
  Tensor k_;
  Tensor v_;
  Tensor query_positions_;
  Tensor key_positions_;
  std::vector<std::int64_t> highest_before_; ///< of the positions of keys up to this one
  std::vector<std::int64_t> lowest_after_;   ///< of the positions of keys from this one on
};

} // namespace

void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp,
               const Limits& limits) {
  Pass(in, shape, limits).forward(out, logsumexp);
}

void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv, const Limits& limits) {
  Pass(in, shape, limits).backward(g, dq, dk, dv);
}

void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp) {
  attention(in, shape, out, logsumexp, {});
}

void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv) {
  attention_backward(in, g, shape, dq, dk, dv, {});
}

} // namespace foretrain::kernels::tensors
