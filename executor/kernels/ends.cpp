#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/kernels.h"

namespace foretrain::kernels {
namespace {

/// Ids as rows of this rank's part, clamped, and which of them lie in it.
struct LocalIds {
  Tensor rows;
  Tensor here;
};

LocalIds local(const Tensor& ids, std::int64_t first, std::int64_t count) {
  const Tensor shifted = ids - first;
  const Tensor here = shifted.ge(0).logical_and(shifted.lt(count));
  return {shifted.clamp(0, std::max<std::int64_t>(0, count - 1)), here};
}

} // namespace

void activation(const Tensor& up, bool gated, Tensor& hidden) {
  if (!gated) {
    hidden.copy_(at::gelu(up));
    return;
  }
  const std::int64_t width = up.size(-1) / 2;
  at::mul_out(hidden, at::silu(up.narrow(-1, 0, width)), up.narrow(-1, width, width));
}

void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup) {
  if (!gated) {
    // d/dx x Φ(x) = Φ(x) + x φ(x)
    const Tensor cumulative = (up * std::sqrt(0.5)).erf_().add_(1).mul_(0.5);
    const Tensor density = up.square().mul_(-0.5).exp_().mul_(1 / std::sqrt(2 * std::acos(-1.0)));
    at::mul_out(dup, dhidden, cumulative + up * density);
    return;
  }
  const std::int64_t width = up.size(-1) / 2;
  const Tensor gate = up.narrow(-1, 0, width);
  const Tensor sigmoid = gate.sigmoid();
  // silu'(x) = σ(x) (1 + x (1 − σ(x)))
  const Tensor slope = sigmoid * (1 + gate * (1 - sigmoid));
  dup.narrow(-1, 0, width).copy_(dhidden * up.narrow(-1, width, width) * slope);
  dup.narrow(-1, width, width).copy_(dhidden * gate * sigmoid);
}

void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows) {
  const LocalIds at_rank = local(ids, first, table.size(0));
  at::index_select_out(rows, table, 0, at_rank.rows);
  rows.masked_fill_(at_rank.here.logical_not().unsqueeze(-1), 0);
}

void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable) {
  const LocalIds at_rank = local(ids, first, dtable.size(0));
  const Tensor chosen = at_rank.here.nonzero().squeeze(-1);
  dtable.index_add_(0, at_rank.rows.index_select(0, chosen), drows.index_select(0, chosen));
}

void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum) {
  if (vocabulary.valid == 0) { // this rank's part of the table is all padding
    maximum.fill_(-std::numeric_limits<double>::infinity());
    return;
  }
  maximum.copy_(std::get<0>(logits.narrow(-1, 0, vocabulary.valid).max(-1)));
}

void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums) {
  if (vocabulary.valid == 0) {
    sums.zero_();
    return;
  }
  const Tensor valid = logits.narrow(-1, 0, vocabulary.valid).to(maximum.scalar_type());
  sums.select(0, 0).copy_((valid - maximum.unsqueeze(-1)).exp_().sum(-1));
  const LocalIds target = local(targets, vocabulary.first, vocabulary.valid);
  const Tensor logit = valid.gather(-1, target.rows.unsqueeze(-1)).squeeze(-1) - maximum;
  sums.select(0, 1).copy_(logit.masked_fill(target.here.logical_not(), 0));
}

double loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     const Vocabulary& vocabulary, double scale) {
  const double loss = (sums.select(0, 0).log() - sums.select(0, 1)).sum().to(at::kDouble).item<double>();
  if (vocabulary.valid < logits.size(-1))
    logits.narrow(-1, vocabulary.valid, logits.size(-1) - vocabulary.valid).zero_();
  if (vocabulary.valid == 0) return loss;
  Tensor gradient = logits.narrow(-1, 0, vocabulary.valid);
  gradient.sub_(maximum.unsqueeze(-1)).exp_().mul_((scale / sums.select(0, 0)).unsqueeze(-1));
  const LocalIds target = local(targets, vocabulary.first, vocabulary.valid);
  const Tensor share = target.here.to(logits.scalar_type()).mul_(-scale).unsqueeze(-1);
  gradient.scatter_add_(-1, target.rows.unsqueeze(-1), share);
  return loss;
}

} // namespace foretrain::kernels
