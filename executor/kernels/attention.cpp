#include <cmath>
#include <limits>

#include "executor/kernels/kernels.h"

namespace foretrain::kernels {
namespace {

/// cos and sin of position · base^(−2i/width), [length, 1, width/2].
struct Turns {
  Tensor cosine;
  Tensor sine;
};

Turns turns_of(const Heads& heads, const at::TensorOptions& options) {
  const auto exact = options.dtype(at::kDouble);
  const Tensor steps = at::arange(0, heads.width, 2, exact) * (-std::log(kRopeBase) / static_cast<double>(heads.width));
  const Tensor angles = at::outer(at::arange(heads.length, exact), steps.exp()).unsqueeze(1);
  return {angles.cos().to(options.dtype()), angles.sin().to(options.dtype())};
}

/// Turns the heads of `from` by `direction` times their positions into `to`.
void turn(const Tensor& from, std::int64_t count, const Heads& heads, const Turns& turns, double direction, Tensor to) {
  const std::int64_t half = heads.width / 2;
  const Tensor in = from.reshape({-1, heads.length, count, heads.width});
  Tensor out = to.view({-1, heads.length, count, heads.width});
  const Tensor first = in.narrow(-1, 0, half);
  const Tensor second = in.narrow(-1, half, half);
  const Tensor sine = turns.sine * direction;
  out.narrow(-1, 0, half).copy_(first * turns.cosine - second * sine);
  out.narrow(-1, half, half).copy_(second * turns.cosine + first * sine);
}

/// [rows, count · width] → [sequences, kv heads, query heads per kv head · length, width]: the query heads that share
/// keys lie one after another, so that one product serves them all and keys are never expanded.
Tensor grouped(const Tensor& rows, const Heads& heads, std::int64_t count) {
  const std::int64_t each = count / heads.kv;
  return rows.view({-1, heads.length, heads.kv, each, heads.width})
      .permute({0, 2, 3, 1, 4})
      .reshape({-1, heads.kv, each * heads.length, heads.width});
}

void ungroup(const Tensor& from, const Heads& heads, std::int64_t count, Tensor to) {
  const std::int64_t each = count / heads.kv;
  to.view({-1, heads.length, heads.kv, each, heads.width})
      .copy_(from.view({-1, heads.kv, each, heads.length, heads.width}).permute({0, 3, 1, 2, 4}));
}

/// True where a query must not see a key, for the query heads of one key head: [each · length, length].
Tensor hidden_keys(const Heads& heads, const at::Device& device) {
  const Tensor position = at::arange(heads.length, at::TensorOptions().dtype(at::kLong).device(device));
  const Tensor distance = position.unsqueeze(1) - position.unsqueeze(0);
  Tensor hidden = distance.lt(0);
  if (heads.window > 0) hidden = hidden.logical_or(distance.ge(heads.window));
  return hidden.repeat({heads.query / heads.kv, 1});
}

Tensor scaled_scores(const Tensor& q, const Tensor& k, const Heads& heads) {
  Tensor scores = at::matmul(q, k.transpose(-1, -2)).mul_(1 / std::sqrt(static_cast<double>(heads.width)));
  return scores.masked_fill_(hidden_keys(heads, q.device()), -std::numeric_limits<double>::infinity());
}

/// [sequences, kv, each · length] ↔ [rows, query heads].
Tensor statistics_by_rows(const Tensor& grouped_statistics, const Heads& heads) {
  return grouped_statistics.view({-1, heads.query, heads.length}).transpose(1, 2).reshape({-1, heads.query});
}
Tensor statistics_by_heads(const Tensor& rows, const Heads& heads) {
  return rows.view({-1, heads.length, heads.query})
      .transpose(1, 2)
      .reshape({-1, heads.kv, heads.query / heads.kv * heads.length});
}

} // namespace

void rope(const Tensor& qkv, const Heads& heads, bool rotary, Tensor& q, Tensor& k, Tensor& v) {
  const std::int64_t wide = heads.query * heads.width;
  const std::int64_t narrow = heads.kv * heads.width;
  v.copy_(qkv.narrow(-1, wide + narrow, narrow));
  if (!rotary) {
    q.copy_(qkv.narrow(-1, 0, wide));
    k.copy_(qkv.narrow(-1, wide, narrow));
    return;
  }
  const Turns turns = turns_of(heads, qkv.options());
  turn(qkv.narrow(-1, 0, wide), heads.query, heads, turns, 1, q);
  turn(qkv.narrow(-1, wide, narrow), heads.kv, heads, turns, 1, k);
}

void rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Heads& heads, bool rotary,
                   Tensor& dqkv) {
  const std::int64_t wide = heads.query * heads.width;
  const std::int64_t narrow = heads.kv * heads.width;
  dqkv.narrow(-1, wide + narrow, narrow).copy_(dv);
  if (!rotary) {
    dqkv.narrow(-1, 0, wide).copy_(dq);
    dqkv.narrow(-1, wide, narrow).copy_(dk);
    return;
  }
  const Turns turns = turns_of(heads, dq.options());
  Tensor turned = at::empty_like(dq);
  turn(dq, heads.query, heads, turns, -1, turned);
  dqkv.narrow(-1, 0, wide).copy_(turned);
  turned = at::empty_like(dk);
  turn(dk, heads.kv, heads, turns, -1, turned);
  dqkv.narrow(-1, wide, narrow).copy_(turned);
}

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Heads& heads, Tensor& out, Tensor& logsumexp) {
  Tensor scores = scaled_scores(grouped(q, heads, heads.query), grouped(k, heads, heads.kv), heads);
  const Tensor statistics = at::logsumexp(scores, {-1});
  const Tensor probabilities = scores.sub_(statistics.unsqueeze(-1)).exp_();
  ungroup(at::matmul(probabilities, grouped(v, heads, heads.kv)), heads, heads.query, out);
  logsumexp.copy_(statistics_by_rows(statistics, heads));
}

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& logsumexp,
                        const Tensor& dout, const Heads& heads, Tensor& dq, Tensor& dk, Tensor& dv) {
  const Tensor queries = grouped(q, heads, heads.query);
  const Tensor keys = grouped(k, heads, heads.kv);
  const Tensor gradient = grouped(dout, heads, heads.query);
  const Tensor statistics = statistics_by_heads(logsumexp.to(q.scalar_type()), heads);
  const Tensor probabilities = scaled_scores(queries, keys, heads).sub_(statistics.unsqueeze(-1)).exp_();
  ungroup(at::matmul(probabilities.transpose(-1, -2), gradient), heads, heads.kv, dv);
  const Tensor row = (gradient * grouped(out, heads, heads.query)).sum(-1, true);
  Tensor dscores = at::matmul(gradient, grouped(v, heads, heads.kv).transpose(-1, -2));
  dscores.sub_(row).mul_(probabilities).mul_(1 / std::sqrt(static_cast<double>(heads.width)));
  ungroup(at::matmul(dscores, keys), heads, heads.query, dq);
  ungroup(at::matmul(dscores.transpose(-1, -2), queries), heads, heads.kv, dk);
}

} // namespace foretrain::kernels
