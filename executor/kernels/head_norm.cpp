#include "executor/kernels/head_norm.h"

#include <algorithm>

#include "executor/kernels/norm_row.h"

namespace foretrain::kernels {
namespace {

template <class T> const T* data_or_null(const Tensor* tensor) {
  return tensor ? tensor->data_ptr<T>() : nullptr;
}

template <class T> void squares_of_rows(const Tensor& mixed, const HeadNormShape& s, Tensor& squares) {
  const T* from = mixed.data_ptr<T>() + s.first;
  for (std::int64_t row = 0; row < mixed.size(0); ++row)
    squares.data_ptr<Sum<T>>()[row] = squares_of<T>(from + row * mixed.size(1), s.columns, Sum<T>(0));
}

template <class T>
void norm_heads(const Tensor& mixed, const Tensor& weight, const Tensor* bias, const Tensor* squares,
                const HeadNormShape& s, Tensor& y, Tensor& statistics, Tensor& input) {
  using S = Sum<T>;
  const std::int64_t all = mixed.size(0) * s.groups();
  const T* w = weight.data_ptr<T>();
  const T* b = data_or_null<T>(bias);
  const S* sums = data_or_null<S>(squares);
  S* statistic = statistics.data_ptr<S>();
  T* kept = input.data_ptr<T>();
  T* out = y.data_ptr<T>();
  for (std::int64_t row = 0; row < mixed.size(0); ++row) {
    const T* from = mixed.data_ptr<T>() + row * mixed.size(1) + s.first;
    for (std::int64_t group = 0; group < s.groups(); ++group) {
      const std::int64_t index = row * s.groups() + group;
      const T* in = from + group * s.group;
      std::copy(in, in + s.group, kept + index * s.group);
      const S mean = b ? mean_of<T>(in, s.group) : S(0);
      const S scale = inverse_deviation<S>(sums ? sums[row] : squares_of<T>(in, s.group, mean), s.whole);
      if (b) statistic[index] = mean;
      statistic[b ? all + index : index] = scale;
      write_normed<T>(in, w, b, s.group, mean, scale, out + index * s.group);
    }
  }
}

template <class T>
void products_of_rows(const Tensor& input, const Tensor& weight, const Tensor& dy, Tensor& products) {
  const std::int64_t width = input.size(1);
  for (std::int64_t row = 0; row < input.size(0); ++row)
    products.data_ptr<Sum<T>>()[row] = products_of<T>(input.data_ptr<T>() + row * width, dy.data_ptr<T>() + row * width,
                                                      weight.data_ptr<T>(), width, Sum<T>(0));
}

struct HeadGradients {
  const Tensor& input;
  const Tensor& statistics;
  const Tensor& weight;
  const Tensor& dy;
  const Tensor* products;
  const HeadNormShape& shape;
  Tensor& dmixed;
  Tensor& dweight;
  Tensor* dbias;
};

template <class T> void norm_heads_backward(const HeadGradients& n) {
  using S = Sum<T>;
  const HeadNormShape& s = n.shape;
  const std::int64_t rows = n.input.size(0);
  const T* w = n.weight.data_ptr<T>();
  const S* sums = data_or_null<S>(n.products);
  const S* statistic = n.statistics.data_ptr<S>();
  S* dw = n.dweight.data_ptr<S>();
  S* db = n.dbias ? n.dbias->data_ptr<S>() : nullptr;
  for (std::int64_t row = 0; row < rows; ++row) {
    T* to = n.dmixed.data_ptr<T>() + row * n.dmixed.size(1) + s.first;
    for (std::int64_t group = 0; group < s.groups(); ++group) {
      const std::int64_t index = row * s.groups() + group;
      const T* in = n.input.data_ptr<T>() + index * s.group;
      const T* g = n.dy.data_ptr<T>() + index * s.group;
      const S mean = db ? statistic[index] : S(0);
      const S scale = statistic[db ? rows * s.groups() + index : index];
      const S along = (sums ? sums[row] : products_of<T>(in, g, w, s.group, mean)) * scale / S(s.whole);
      const S level = db ? level_of<T>(g, w, s.group) : S(0);
      add_norm_gradients<T>(in, g, s.group, mean, scale, dw, db);
      NormGradient<T>{in, g, w, nullptr, s.group, mean, scale, along, level}.write(to + group * s.group);
    }
  }
}

} // namespace

void head_squares(const Tensor& mixed, const HeadNormShape& shape, Tensor& squares) {
  with_type(mixed.scalar_type(), [&](auto value) { squares_of_rows<decltype(value)>(mixed, shape, squares); });
}

void head_norm(const Tensor& mixed, const Tensor& weight, const Tensor* bias, const Tensor* squares,
               const HeadNormShape& shape, Tensor& y, Tensor& statistics, Tensor& input) {
  with_type(mixed.scalar_type(), [&](auto value) {
    norm_heads<decltype(value)>(mixed, weight, bias, squares, shape, y, statistics, input);
  });
}

void head_products(const Tensor& input, const Tensor& weight, const Tensor& dy, Tensor& products) {
  with_type(input.scalar_type(), [&](auto value) { products_of_rows<decltype(value)>(input, weight, dy, products); });
}

void head_norm_backward(const Tensor& input, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                        const Tensor* products, const HeadNormShape& shape, Tensor& dmixed, Tensor& dweight,
                        Tensor* dbias) {
  with_type(input.scalar_type(), [&](auto value) {
    norm_heads_backward<decltype(value)>({input, statistics, weight, dy, products, shape, dmixed, dweight, dbias});
  });
}

} // namespace foretrain::kernels
