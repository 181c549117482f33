#include <algorithm>
#include <limits>

#include "executor/kernels/tensor_kernels.h"

/// The model's ends: tables and loss.
namespace foretrain::kernels::tensors {
namespace {

/// Which of some numbers of rows or columns are here, and where; those that are not count as 0.
struct Here {
  Tensor mine; ///< bool
  Tensor place;
};
Here here(const Tensor& ids, std::int64_t first, std::int64_t count) {
  const Tensor place = ids - first;
  return {place.ge(0).logical_and_(place.lt(count)), place.clamp(0, std::max<std::int64_t>(0, count - 1))};
}

/// Calls `visit(first, rows)` for pieces of the rows that are small enough.
template <class Visit> void for_each_piece(const Tensor& logits, const Limits& limits, Visit&& visit) {
  const std::int64_t rows = logits.size(0);
  const std::int64_t most = std::max<std::int64_t>(1, limits.logits / std::max<std::int64_t>(1, logits.size(1)));
  for (std::int64_t first = 0; first < rows; first += most) visit(first, std::min(most, rows - first));
}

/// In place where the logits are as wide as sums are: what comes back is `logits` then.
Tensor exponentials(const Tensor& logits, const Tensor& maximum, bool in_place) {
  Tensor work = logits.scalar_type() == at::kBFloat16 ? logits.to(at::kFloat) : in_place ? logits : logits.clone();
  return work.sub_(maximum.unsqueeze(1)).exp_();
}

} // namespace

void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows) {
  const Here which = here(ids, first, table.size(0));
  at::index_select_out(rows, table, 0, which.place);
  rows.masked_fill_(which.mine.logical_not().unsqueeze(1), 0);
}

void add_rows(const Tensor& ids, const Tensor& table, Tensor& rows) {
  rows.add_(table.index_select(0, ids));
}

void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable) {
  const Here which = here(ids, first, dtable.size(0));
  const Tensor rows = drows.to(dtable.scalar_type()).masked_fill(which.mine.logical_not().unsqueeze(1), 0);
  // Accumulates by sorted index: the order of sums does not change from run to run.
  dtable.index_put_({which.place}, rows, /*accumulate=*/true);
}

void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum) {
  if (vocabulary.valid == 0)
    maximum.fill_(-std::numeric_limits<double>::infinity());
  else
    maximum.copy_(logits.narrow(1, 0, vocabulary.valid).amax(-1));
}

void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums, const Limits& limits) {
  if (vocabulary.valid == 0) {
    sums.zero_();
    return;
  }
  const Tensor valid = logits.narrow(1, 0, vocabulary.valid);
  for_each_piece(logits, limits, [&](std::int64_t first, std::int64_t rows) {
    sums.select(0, 0)
        .narrow(0, first, rows)
        .copy_(exponentials(valid.narrow(0, first, rows), maximum.narrow(0, first, rows), false).sum(-1));
  });
  const Here which = here(targets, vocabulary.first, vocabulary.valid);
  const Tensor target = wide(valid.gather(1, which.place.unsqueeze(1)).squeeze(1)) - maximum;
  sums.select(0, 1).copy_(target.masked_fill(which.mine.logical_not(), 0));
}

void loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                   const Vocabulary& vocabulary, double scale, LossSum& loss, const Limits& limits) {
  const Tensor nothing = targets.eq(kNoTarget);
  const Tensor losses = sums.select(0, 0).to(at::kDouble).log().sub_(sums.select(0, 1));
  const Tensor sum = losses.masked_fill(nothing, 0).sum().unsqueeze(0);
  if (loss.device.defined())
    loss.device.add_(sum);
  else
    loss.device = sum;

  const std::int64_t valid = vocabulary.valid;
  logits.narrow(1, valid, logits.size(1) - valid).zero_();
  if (valid == 0) return;
  const Tensor factors = sums.select(0, 0).reciprocal().mul_(scale).masked_fill_(nothing, 0);
  const Here which = here(targets, vocabulary.first, valid);
  const Tensor ones = at::zeros_like(factors).masked_fill_(which.mine, -scale);
  for_each_piece(logits, limits, [&](std::int64_t first, std::int64_t rows) {
    const auto part = [&](const Tensor& whole) { return whole.narrow(0, first, rows); };
    const Tensor columns = part(logits).narrow(1, 0, valid);
    Tensor work = exponentials(columns, part(maximum), true);
    work.mul_(part(factors).unsqueeze(1));
    work.scatter_add_(1, part(which.place).unsqueeze(1), part(ones).unsqueeze(1)); // one element of each row
    if (!work.is_alias_of(columns)) columns.copy_(work);
  });
}

void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums) {
  loss_sums(logits, maximum, targets, vocabulary, sums, {});
}

void loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                   const Vocabulary& vocabulary, double scale, LossSum& loss) {
  loss_gradient(logits, maximum, sums, targets, vocabulary, scale, loss, {});
}

} // namespace foretrain::kernels::tensors
