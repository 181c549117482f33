#include "executor/kernels/kernels.h"
#include "executor/kernels/norm_row.h"

namespace foretrain::kernels {
namespace {

template <class T>
void norm_rows(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics) {
  using S = Sum<T>;
  const std::int64_t rows = x.size(0);
  const std::int64_t width = x.size(1);
  const T* w = weight.data_ptr<T>();
  const T* b = bias ? bias->data_ptr<T>() : nullptr;
  S* first = statistics.data_ptr<S>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x.data_ptr<T>() + row * width;
    const S mean = b ? mean_of<T>(in, width) : S(0);
    const S scale = inverse_deviation<S>(squares_of<T>(in, width, mean), width);
    if (b) first[row] = mean;
    first[b ? rows + row : row] = scale;
    write_normed<T>(in, w, b, width, mean, scale, y.data_ptr<T>() + row * width);
  }
}

struct NormGradients {
  const Tensor& x;
  const Tensor& statistics;
  const Tensor& weight;
  const Tensor& dy;
  const Tensor* residual;
  Tensor& dx;
  Tensor& dweight;
  Tensor* dbias;
};

template <class T> void norm_backward_rows(const NormGradients& n) {
  using S = Sum<T>;
  const std::int64_t rows = n.x.size(0);
  const std::int64_t width = n.x.size(1);
  const T* w = n.weight.data_ptr<T>();
  const S* statistics = n.statistics.data_ptr<S>();
  S* dw = n.dweight.data_ptr<S>();
  S* db = n.dbias ? n.dbias->data_ptr<S>() : nullptr;
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = n.x.data_ptr<T>() + row * width;
    const T* g = n.dy.data_ptr<T>() + row * n.dy.stride(0);
    const T* added = n.residual ? n.residual->data_ptr<T>() + row * width : nullptr;
    const S mean = db ? statistics[row] : S(0);
    const S scale = statistics[db ? rows + row : row];
    const S along = products_of<T>(in, g, w, width, mean) * scale / S(width);
    const S level = db ? level_of<T>(g, w, width) : S(0);
    add_norm_gradients<T>(in, g, width, mean, scale, dw, db);
    NormGradient<T>{in, g, w, added, width, mean, scale, along, level}.write(n.dx.data_ptr<T>() + row * width);
  }
}

/// Adds the sums of columns.
template <class T> void add_columns(const Tensor& rows, Tensor& sums) {
  using S = Sum<T>;
  const std::int64_t width = rows.size(1);
  S* to = sums.data_ptr<S>();
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const T* from = rows.data_ptr<T>() + row * width;
    for (std::int64_t i = 0; i < width; ++i) to[i] += S(from[i]);
  }
}

} // namespace

void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics) {
  with_type(x.scalar_type(), [&](auto value) { norm_rows<decltype(value)>(x, weight, bias, y, statistics); });
}

void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias) {
  with_type(x.scalar_type(), [&](auto value) {
    norm_backward_rows<decltype(value)>({x, statistics, weight, dy, residual, dx, dweight, dbias});
  });
}

void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y) {
  if (bias)
    at::addmm_out(y, *bias, x, weight.t());
  else
    at::mm_out(y, x, weight.t());
}

void linear_input_gradient(const Tensor& dy, const Tensor& weight, Tensor& dx) {
  at::mm_out(dx, dy, weight);
}

void add_product(const Tensor& dy, const Tensor& x, Tensor dweight) {
  if (dweight.scalar_type() == x.scalar_type())
    dweight.addmm_(dy.t(), x);
  else
    dweight.add_(at::mm(dy.t(), x)); // a half precision product, added in single precision
}

void add_bias_gradient(const Tensor& dy, Tensor& dbias) {
  with_type(dy.scalar_type(), [&](auto value) { add_columns<decltype(value)>(dy, dbias); });
}

void linear_weight_gradient(const Tensor& x, const Tensor& dy, Tensor& dweight, Tensor* dbias) {
  add_product(dy, x, dweight);
  if (dbias) add_bias_gradient(dy, *dbias);
}

} // namespace foretrain::kernels
