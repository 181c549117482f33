#include "core/base/text.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(Text, ParsesSizesWithBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("80 GiB"), Bytes(80LL << 30));
  EXPECT_EQ(parse_bytes("80GB"), Bytes(80'000'000'000));
  EXPECT_EQ(parse_bytes(" 1.5 KiB "), Bytes(1536));
}

TEST(Text, RefusesSizesWithoutAUnitNegativeOrNotFinite) {
  for (const char* bad : {"80", "", "GiB", "-1 GiB", "nan GiB", "inf B", "1e300 TiB", "80 Gib", "80 GiB x"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(Text, ParsesRatesInBitsAndBytes) {
  EXPECT_EQ(parse_rate("400 Gb/s"), BytesPerSecond(50e9));
  EXPECT_EQ(parse_rate("450 GB/s"), BytesPerSecond(450e9));
  EXPECT_EQ(parse_seconds("2 us"), Seconds(2e-6));
  EXPECT_EQ(parse_flop_rate("989 TFLOP/s"), FlopPerSecond(989e12));
}

TEST(Text, WhatIsFormattedParsesBackToTheSameValue) {
  for (const std::int64_t bytes : {0LL, 1LL, 1023LL, 1536LL, 80LL << 30, 143771LL << 20, 80'000'000'000LL})
    EXPECT_EQ(parse_bytes(format_bytes(Bytes(bytes))), Bytes(bytes)) << bytes;
  for (const double rate : {1.0, 3.35e12, 50e9, 535.5e9, 12.5e9, 1.0 / 3})
    EXPECT_EQ(parse_rate(format_rate(BytesPerSecond(rate))), BytesPerSecond(rate)) << rate;
  for (const double time : {0.0, 2e-6, 5e-6, 1.5e-3, 4.0, 1.0 / 3})
    EXPECT_EQ(parse_seconds(format_seconds(Seconds(time))), Seconds(time)) << time;
}

TEST(Text, NearestFindsATypoAndNothingForAnUnrelatedWord) {
  const std::vector<std::string> words = {"memory", "bandwidth", "latency"};
  EXPECT_EQ(nearest("memry", words), "memory");
  EXPECT_EQ(nearest("zzzzzz", words), std::nullopt);
}

TEST(Text, HintsNameASlipThenWhatHoldsTheWordThenWhatIsNear) {
  const std::vector<std::string> words = {"dgx-h100", "aws-p5-h100", "dgx-a100", "tp"};
  EXPECT_EQ(hint_for("dgx-h10", words).rfind("did you mean 'dgx-h100'? one of: dgx-h100", 0), 0U);
  EXPECT_EQ(hint_for("H100", words).rfind("did you mean 'dgx-h100', 'aws-p5-h100'?", 0), 0U);
  EXPECT_EQ(hint_for("dxg-a10", words).rfind("did you mean 'dgx-a100'?", 0), 0U);
  EXPECT_EQ(hint_for("p", words).rfind("did you mean 'tp'?", 0), 0U) << "one letter is a slip, not a part";
  EXPECT_EQ(hint_for("zzzzzzzz", words).rfind("one of: ", 0), 0U);
}

TEST(Text, PrettyKeepsThreeDigits) {
  EXPECT_EQ(pretty(Bytes(76LL << 30)), "76.0 GiB");
  EXPECT_EQ(pretty(Seconds(0.00312)), "3.12 ms");
  EXPECT_EQ(pretty(Seconds(123.4)), "123 s");
}

} // namespace
} // namespace foretrain
