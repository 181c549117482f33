#include <cstdlib>
#include <cstring>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/executor/fixtures.h"
#include "tests/executor/matrix.h"

/// Every pair of options runs and equals one process; with FORETRAIN_MATRIX=triples every triple (ctest -C full).
namespace foretrain {
namespace {

using namespace executor_fixtures;

const Covering& covering() {
  static const Covering array = [] {
    const char* wanted = std::getenv("FORETRAIN_MATRIX");
    const std::size_t strength = wanted && std::strcmp(wanted, "triples") == 0 ? 3 : 2;
    return covering_array(strength);
  }();
  return array;
}

TEST(Matrix, PrintsWhatItCovers) {
  std::cout << covering().rows.size() << " plans cover " << covering().covered << " combinations; "
            << covering().impossible << " more are refused or need more than eight ranks\n";
  for (const Row& row : covering().rows) std::cout << "  " << name_of(row) << "\n";
  EXPECT_GT(covering().covered, 4 * covering().impossible) << "most combinations must run";
}

class MatrixTest : public testing::TestWithParam<Row> {};

TEST_P(MatrixTest, EqualsOneProcess) {
  expect_equal_to_one_process(plan_of(GetParam()), kSteps);
}

INSTANTIATE_TEST_SUITE_P(Pairs, MatrixTest, testing::ValuesIn(covering().rows),
                         [](const testing::TestParamInfo<Row>& one) { return name_of(one.param); });

} // namespace
} // namespace foretrain
