#include "core/base/shortage.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(Shortage, FiguresThatReadAlikeSayWhatIsMissing) {
  EXPECT_EQ(shortage(Bytes(92LL << 30), "the device", Bytes(80LL << 30)), "needs 92.0 GiB, the device has 80.0 GiB");
  EXPECT_EQ(shortage(Bytes((80LL << 30) + (12LL << 20)), "the device", Bytes(80LL << 30)),
            "needs 80.0 GiB, the device has 80.0 GiB (12.0 MiB short)");
}

} // namespace
} // namespace foretrain
