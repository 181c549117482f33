#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/kernels.h"
#include "executor/kernels/types.h"

namespace foretrain::kernels {
namespace {

template <class T> T* row_of(const Tensor& rows, std::int64_t row) {
  return rows.data_ptr<T>() + row * rows.stride(0);
}

/// dgate and dup from σ(gate), which stands where dgate goes: silu'(x) = σ(x) (1 + x (1 − σ(x))).
template <class T> void gated_backward(const Tensor& up, const Tensor& dhidden, Tensor& dup) {
  using S = Sum<T>;
  const std::int64_t width = up.size(1) / 2;
  for (std::int64_t row = 0; row < up.size(0); ++row) {
    const T* gate = row_of<T>(up, row);
    const T* value = gate + width;
    const T* dh = row_of<T>(dhidden, row);
    T* dgate = row_of<T>(dup, row);
    T* dvalue = dgate + width;
    for (std::int64_t i = 0; i < width; ++i) {
      const S sigmoid = S(dgate[i]);
      const S g = S(gate[i]);
      dgate[i] = T(S(dh[i]) * S(value[i]) * sigmoid * (S(1) + g * (S(1) - sigmoid)));
      dvalue[i] = T(S(dh[i]) * g * sigmoid);
    }
  }
}

template <class T> void gather_rows(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows) {
  const std::int64_t width = table.size(1);
  const std::int64_t* id = ids.data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    T* to = row_of<T>(rows, row);
    const std::int64_t here = id[row] - first;
    if (here < 0 || here >= table.size(0))
      std::fill(to, to + width, T(0));
    else
      std::copy(row_of<T>(table, here), row_of<T>(table, here) + width, to);
  }
}

template <class T> void scatter_rows(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable) {
  using S = Sum<T>;
  const std::int64_t width = dtable.size(1);
  const std::int64_t* id = ids.data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    const std::int64_t here = id[row] - first;
    if (here < 0 || here >= dtable.size(0)) continue;
    const T* from = row_of<T>(drows, row);
    S* to = row_of<S>(dtable, here);
    for (std::int64_t i = 0; i < width; ++i) to[i] += S(from[i]);
  }
}

template <class T> void row_maximum(const Tensor& logits, std::int64_t valid, Tensor& maximum) {
  using S = Sum<T>;
  S* top = maximum.data_ptr<S>();
  for (std::int64_t row = 0; row < logits.size(0); ++row) {
    const T* line = row_of<T>(logits, row);
    top[row] = largest_of<S>(valid, [&](std::int64_t i) { return S(line[i]); }); // −∞ where all columns are padding
  }
}

/// exp(logit − maximum) of rows first … into `work`, which may be the logits themselves.
template <class T> void exponentials(const Tensor& logits, const Tensor& maximum, std::int64_t first, Tensor work) {
  using S = Sum<T>;
  const S* top = maximum.data_ptr<S>() + first;
  for (std::int64_t row = 0; row < work.size(0); ++row) {
    const T* from = row_of<T>(logits, first + row);
    S* to = row_of<S>(work, row);
    for (std::int64_t i = 0; i < work.size(1); ++i) to[i] = S(from[i]) - top[row];
  }
  work.exp_();
}

template <class T>
void row_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
              Tensor& sums) {
  using S = Sum<T>;
  const std::int64_t rows = logits.size(0);
  const std::int64_t at_once = loss_rows(rows, logits.size(1));
  const Tensor work = at::empty({at_once * logits.size(1)}, maximum.options());
  S* sum = sums.data_ptr<S>();
  S* target = sum + rows;
  const S* top = maximum.data_ptr<S>();
  const std::int64_t* ids = targets.data_ptr<std::int64_t>();
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows - first);
    const Tensor part = work.narrow(0, 0, count * vocabulary.valid).view({count, vocabulary.valid});
    exponentials<T>(logits, maximum, first, part);
    for (std::int64_t row = 0; row < count; ++row) {
      const S* line = row_of<S>(part, row);
      sum[first + row] = add_up<S>(vocabulary.valid, [&](std::int64_t i) { return line[i]; });
      const std::int64_t here = ids[first + row] - vocabulary.first;
      const bool mine = here >= 0 && here < vocabulary.valid;
      target[first + row] = mine ? S(row_of<T>(logits, first + row)[here]) - top[first + row] : S(0);
    }
  }
}

template <class T>
void softmax_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                      const Vocabulary& vocabulary, double scale) {
  using S = Sum<T>;
  const std::int64_t rows = logits.size(0);
  const std::int64_t at_once = loss_rows(rows, logits.size(1));
  constexpr bool in_place = std::is_same_v<T, S>;
  const Tensor work = in_place ? Tensor() : at::empty({at_once * logits.size(1)}, maximum.options());
  const S* sum = sums.data_ptr<S>();
  const std::int64_t* ids = targets.data_ptr<std::int64_t>();
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows - first);
    const Tensor part = in_place ? logits.narrow(0, first, count).narrow(1, 0, vocabulary.valid)
                                 : work.narrow(0, 0, count * vocabulary.valid).view({count, vocabulary.valid});
    exponentials<T>(logits, maximum, first, part);
    for (std::int64_t row = 0; row < count; ++row) {
      T* line = row_of<T>(logits, first + row);
      const S* value = row_of<S>(part, row);
      const bool counts = ids[first + row] != kNoTarget;
      const S factor = counts ? S(scale) / sum[first + row] : S(0);
      for (std::int64_t i = 0; i < vocabulary.valid; ++i) line[i] = T(value[i] * factor);
      std::fill(line + vocabulary.valid, line + logits.size(1), T(0));
      const std::int64_t here = ids[first + row] - vocabulary.first;
      if (here >= 0 && here < vocabulary.valid) line[here] = T(S(line[here]) - S(scale));
    }
  }
}

} // namespace

void activation(const Tensor& up, bool gated, Tensor& hidden) {
  if (!gated) {
    at::gelu_out(hidden, up);
    return;
  }
  const std::int64_t width = up.size(-1) / 2;
  at::silu_out(hidden, up.narrow(-1, 0, width));
  hidden.mul_(up.narrow(-1, width, width));
}

void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup) {
  if (!gated) {
    at::gelu_backward_out(dup, dhidden, up);
    return;
  }
  const std::int64_t width = up.size(-1) / 2;
  Tensor sigmoid = dup.narrow(-1, 0, width);
  at::sigmoid_out(sigmoid, up.narrow(-1, 0, width));
  with_type(up.scalar_type(), [&](auto value) { gated_backward<decltype(value)>(up, dhidden, dup); });
}

void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows) {
  with_type(table.scalar_type(), [&](auto value) { gather_rows<decltype(value)>(ids, table, first, rows); });
}

void add_rows(const Tensor& ids, const Tensor& table, Tensor& rows) {
  with_type(table.scalar_type(), [&](auto value) {
    using T = decltype(value);
    const std::int64_t* id = ids.data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const T* from = row_of<T>(table, id[row]);
      T* to = row_of<T>(rows, row);
      for (std::int64_t i = 0; i < table.size(1); ++i) to[i] = T(Sum<T>(to[i]) + Sum<T>(from[i]));
    }
  });
}

void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable) {
  with_type(drows.scalar_type(), [&](auto value) { scatter_rows<decltype(value)>(ids, drows, first, dtable); });
}

std::int64_t loss_rows(std::int64_t rows, std::int64_t columns) {
  return std::min(rows, std::max<std::int64_t>(1, kLossElements / std::max<std::int64_t>(1, columns)));
}

void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum) {
  with_type(logits.scalar_type(), [&](auto value) { row_maximum<decltype(value)>(logits, vocabulary.valid, maximum); });
}

void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums) {
  if (vocabulary.valid == 0) {
    sums.zero_();
    return;
  }
  with_type(logits.scalar_type(),
            [&](auto value) { row_sums<decltype(value)>(logits, maximum, targets, vocabulary, sums); });
}

double loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     const Vocabulary& vocabulary, double scale) {
  double loss = 0;
  const std::int64_t rows = logits.size(0);
  with_type(logits.scalar_type(), [&](auto value) {
    using S = Sum<decltype(value)>;
    const S* sum = sums.data_ptr<S>();
    const std::int64_t* ids = targets.data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < rows; ++row)
      if (ids[row] != kNoTarget) loss += std::log(static_cast<double>(sum[row])) - static_cast<double>(sum[rows + row]);
    softmax_gradient<decltype(value)>(logits, maximum, sums, targets, vocabulary, scale);
  });
  return loss;
}

} // namespace foretrain::kernels
