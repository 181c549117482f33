#include "core/base/units.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Divisible = requires(A a, B b) {
  a / b;
};

static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Seconds>);
static_assert(!Addable<Bytes, int>);
static_assert(Divisible<Bytes, BytesPerSecond>);
static_assert(!Divisible<Bytes, FlopPerSecond>);

TEST(Units, DividingASizeByARateGivesATime) {
  EXPECT_DOUBLE_EQ((Bytes(50'000'000'000) / BytesPerSecond(25e9)).value, 2.0);
  EXPECT_DOUBLE_EQ((Flop(2e12) / FlopPerSecond(1e12)).value, 2.0);
}

} // namespace
} // namespace foretrain
