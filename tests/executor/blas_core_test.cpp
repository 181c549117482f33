#include "executor/blas_core.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(BlasCore, LeavesKernelsOfThisTimeAlone) {
  for (const char* name : {"SkylakeX", "Haswell", "Zen", "Cooperlake", ""})
    EXPECT_FALSE(better_blas_core(name)) << name;
}

TEST(BlasCore, KnowsBetterThanTheOldestKernelsWhereTheProcessorDoes) {
  const auto better = better_blas_core("Prescott");
#if defined(__x86_64__)
  const bool has_vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  const bool has_vectors = false;
#endif
  ASSERT_EQ(better.has_value(), has_vectors);
  EXPECT_TRUE(!better || *better == "SKYLAKEX" || *better == "HASWELL") << better.value_or("");
}

TEST(BlasCore, IsUnknownWithoutOpenBlas) {
  EXPECT_EQ(blas_core(), ""); // these tests link no LibTorch
}

} // namespace
} // namespace foretrain
