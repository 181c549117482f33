#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "executor/kernels/kernel_set.h"

/// Norms of queries and keys against LibTorch's autograd of the plain formula, on one rank and split over several.
namespace foretrain::kernels {
namespace {

/// ‖a − b‖ / ‖b‖ in double: rounding of sums of some hundred terms.
constexpr double kRounding = 1e-12;
/// The same in bfloat16, whose values have eight bits: outputs and gradients are rounded once, 2^-9 at most.
constexpr double kHalfRounding = 1.0 / 256;

struct Normed {
  std::int64_t rows = 0;
  std::int64_t query = 0;
  std::int64_t kv = 0;
  std::int64_t width = 0;
  std::int64_t ranks = 1;
  bool keys = false;     ///< the keys are normed, else the queries
  bool over_all = false; ///< over all heads, else over each
  bool layer = false;    ///< LayerNorm

  [[nodiscard]] std::int64_t heads() const { return keys ? kv : query; }
  [[nodiscard]] std::int64_t columns() const { return heads() * width; }
  [[nodiscard]] std::int64_t group() const { return over_all ? columns() : width; }
  [[nodiscard]] bool split() const { return over_all && ranks > 1; }
  /// Of one rank.
  [[nodiscard]] HeadNormShape shape() const {
    const std::int64_t own = columns() / ranks;
    return {keys ? query / ranks * width : 0, own, over_all ? own : width, group()};
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(rows) + " rows, " + std::to_string(query) + "/" + std::to_string(kv) + " heads of " +
           std::to_string(width) + (keys ? ", keys" : ", queries") + (over_all ? ", over all" : ", over each") +
           (layer ? ", LayerNorm" : "") + ", ranks " + std::to_string(ranks);
  }
};

std::vector<Normed> grid() {
  std::vector<Normed> list;
  for (const std::int64_t rows : {1, 5})
    for (const auto& [query, kv] : {std::pair{1, 1}, {4, 4}, {4, 2}, {8, 2}})
      for (const std::int64_t width : {4, 8, 19}) // of the sums' eight lanes: less, one, two and a rest
        for (const std::int64_t ranks : {1, 2})
          for (const bool keys : {false, true})
            for (const bool over_all : {false, true})
              for (const bool layer : {false, true}) {
                const Normed one{rows, query, kv, width, ranks, keys, over_all, layer};
                if (kv % ranks == 0 && !(one.split() && layer)) list.push_back(one);
              }
  return list;
}

/// Of all ranks together.
struct Whole {
  Tensor mixed, weight, bias, dy, y, dmixed, dweight, dbias;
};

Whole by_autograd(const Normed& c) {
  Whole w;
  w.mixed = at::randn({c.rows, (c.query + 2 * c.kv) * c.width}, at::kDouble).requires_grad_(true);
  w.weight = at::randn({c.group()}, at::kDouble).requires_grad_(true);
  w.bias = at::randn({c.group()}, at::kDouble).requires_grad_(true);
  w.dy = at::randn({c.rows, c.columns()}, at::kDouble);
  const std::int64_t first = c.keys ? c.query * c.width : 0;
  const Tensor x = w.mixed.narrow(1, first, c.columns()).reshape({c.rows, -1, c.group()});
  const Tensor centred = c.layer ? x - x.mean(-1, true) : x;
  Tensor y = centred / (centred.square().mean(-1, true) + kNormEpsilon).sqrt() * w.weight;
  if (c.layer) y = y + w.bias;
  w.y = y.reshape({c.rows, -1});
  w.y.backward(w.dy);
  w.dmixed = w.mixed.grad().narrow(1, first, c.columns());
  w.dweight = w.weight.grad();
  if (c.layer) w.dbias = w.bias.grad();
  return w;
}

/// This rank's heads of rows of [Q | K | V].
Tensor own_heads(const Tensor& mixed, const Normed& c, std::int64_t rank) {
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (const std::int64_t heads : {c.query, c.kv, c.kv}) {
    const std::int64_t own = heads * c.width / c.ranks;
    parts.push_back(mixed.narrow(1, first + rank * own, own));
    first += heads * c.width;
  }
  return at::cat(parts, 1);
}

/// One rank's tensors, in the precision that the kernels work in.
struct Part {
  Tensor mixed, weight, bias, dy, y, statistics, input, dmixed, dweight, dbias;
};

constexpr double kOther = 7; ///< what stands in columns that are not the norm's

Part part_of(const Whole& w, const Normed& c, std::int64_t rank, at::ScalarType type) {
  const HeadNormShape s = c.shape();
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto own = [&](const Tensor& vector) { return c.split() ? vector.narrow(0, rank * s.group, s.group) : vector; };
  Part p;
  p.mixed = own_heads(w.mixed, c, rank).to(type);
  p.weight = own(w.weight).to(type).contiguous();
  p.bias = own(w.bias).to(type).contiguous();
  p.dy = w.dy.narrow(1, rank * s.columns, s.columns).to(type).contiguous();
  p.y = at::empty_like(p.dy);
  p.input = at::empty_like(p.dy);
  p.statistics = at::empty({c.layer ? 2 : 1, c.rows * s.groups()}, wide);
  p.dmixed = at::full_like(p.mixed, kOther);
  p.dweight = at::ones({s.group}, wide); // a gradient is added, never overwritten
  p.dbias = at::ones({s.group}, wide);
  return p;
}

/// All ranks, with the sums over them where a norm needs them.
std::vector<Part> by_kernels(const KernelSet& set, const Whole& w, const Normed& c, at::ScalarType type) {
  const HeadNormShape s = c.shape();
  std::vector<Part> parts;
  for (std::int64_t rank = 0; rank < c.ranks; ++rank) parts.push_back(part_of(w, c, rank, type));
  Tensor squares = at::zeros({1, c.rows}, parts.front().statistics.options());
  Tensor products = at::zeros_like(squares);
  Tensor own = at::empty_like(squares);
  for (Part& p : parts) {
    set.head_squares(p.mixed, s, own);
    squares.add_(own);
  }
  for (Part& p : parts) {
    set.head_norm(p.mixed, p.weight, c.layer ? &p.bias : nullptr, c.split() ? &squares : nullptr, s, p.y, p.statistics,
                  p.input);
    set.head_products(p.input, c.over_all ? p.weight : p.weight.repeat({s.groups()}), p.dy, own);
    products.add_(own);
  }
  for (Part& p : parts)
    set.head_norm_backward(p.input, p.statistics, p.weight, p.dy, c.split() ? &products : nullptr, s, p.dmixed,
                           p.dweight, c.layer ? &p.dbias : nullptr);
  return parts;
}

void expect_same(const Tensor& got, const Tensor& expected, double bound, const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_LE((got.to(at::kDouble) - expected).norm().item<double>(), bound * expected.norm().item<double>()) << what;
}

void compare(const KernelSet& set, const Normed& c, at::ScalarType type, double bound) {
  SCOPED_TRACE(c.text());
  const Whole w = by_autograd(c);
  const c10::NoGradGuard guard;
  const HeadNormShape s = c.shape();
  const auto own = [&](const Part& p) { return p.dmixed.narrow(1, s.first, s.columns); };
  std::vector<Tensor> ys, dmixed, dweights, dbiases;
  for (const Part& p : by_kernels(set, w, c, type)) {
    EXPECT_TRUE(p.input.equal(p.mixed.narrow(1, s.first, s.columns))) << "the input is kept as it is";
    EXPECT_EQ(p.dmixed.ne(kOther).sum().item<std::int64_t>(), own(p).ne(kOther).sum().item<std::int64_t>())
        << "other columns are left alone";
    ys.push_back(p.y);
    dmixed.push_back(own(p));
    dweights.push_back(p.dweight - 1);
    dbiases.push_back(p.dbias - 1);
  }
  const auto joined = [&](const std::vector<Tensor>& list) {
    return c.split() ? at::cat(list) : at::stack(list).sum(0);
  };
  expect_same(at::cat(ys, 1), w.y, bound, "y");
  expect_same(at::cat(dmixed, 1), w.dmixed, bound, "dmixed");
  expect_same(joined(dweights), w.dweight, bound, "dweight");
  if (c.layer) expect_same(joined(dbiases), w.dbias, bound, "dbias");
}

class HeadNormKernels : public testing::TestWithParam<const KernelSet*> {
protected:
  void SetUp() override { at::manual_seed(13); }
};

TEST_P(HeadNormKernels, EqualAutograd) {
  ASSERT_GT(grid().size(), 200U);
  for (const Normed& c : grid()) compare(*GetParam(), c, at::kDouble, kRounding);
}

// Inputs are rounded too, and a norm over two values of nearly one length is all rounding: heads of 32 here.
TEST_P(HeadNormKernels, HalfPrecisionIsWithinItsRounding) {
  for (const std::int64_t ranks : {1, 2})
    for (const bool over_all : {false, true})
      compare(*GetParam(), {16, 4, 2, 32, ranks, false, over_all, false}, at::kBFloat16, 4 * kHalfRounding);
}

INSTANTIATE_TEST_SUITE_P(All, HeadNormKernels, testing::Values(&host_kernels(), &tensor_kernels()),
                         [](const auto& one) { return one.param == &host_kernels() ? "host" : "tensors"; });

} // namespace
} // namespace foretrain::kernels
