// SPDX-License-Identifier: GPL-3.0-or-later
#include <array>
#include <cstdio>

#include <gtest/gtest.h>

#include "gui/model/numbers.h"
#include "gui/model/plan_text.h"
#include "gui/model/sensitivity.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

TEST(Numbers, TitlesNameTheirUnitOnce) {
  const auto title = [](const char* id) { return title_with_unit(*find_field(id)); };
  EXPECT_EQ(title("step_time_s"), "step s");
  EXPECT_EQ(title("compute_s"), "compute s");
  EXPECT_EQ(title("bubble_s"), "bubble s");
  EXPECT_EQ(title("memory_gib"), "mem GiB");
  EXPECT_EQ(title("tp"), "tp");
}

TEST(Numbers, HaveThreeDigitsAndTheirUnit) {
  EXPECT_EQ(short_number(1.2345), "1.23");
  EXPECT_EQ(short_number(12.345), "12.3");
  EXPECT_EQ(short_number(123.45), "123");
  EXPECT_EQ(short_number(12345), "12,345");
  EXPECT_EQ(short_number(0.012345), "0.0123");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999.6), "1,000");
  EXPECT_EQ(short_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(short_seconds(29.53), "29.5 s");
  EXPECT_EQ(short_bytes(75.9 * double(kGiB)), "75.9 GiB");
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(signed_percent(3.21), "+3.2 %");
  EXPECT_EQ(signed_percent(-0.01), "0 %");
}

TEST(ShellQuoting, IsReadBackByTheShell) {
  for (const std::string text : {"plain", "two words", "it's", "a\"b", "$HOME `x` \\ *", "tp <= 8 and (pp > 1)"}) {
    FILE* pipe = popen(("printf %s " + shell_quoted(text)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::array<char, 256> buffer{};
    const std::size_t read = fread(buffer.data(), 1, buffer.size(), pipe);
    pclose(pipe);
    EXPECT_EQ(std::string(buffer.data(), read), text);
  }
}

class CopiedCommand : public testing::Test {
protected:
  Session session{test::environment()};
  static std::string output_of(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return {};
    std::string text;
    std::array<char, 4096> buffer{};
    for (std::size_t read = 0; (read = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      text.append(buffer.data(), read);
    pclose(pipe);
    return text;
  }
};

TEST_F(CopiedCommand, PredictsTheRowAgain) {
  if (session.environment().command.empty()) GTEST_SKIP() << "the program foretrain is not built";
  session.set_results(test::made_up_results(4));
  const std::string text = output_of(predict_command(session, 0));
  EXPECT_NE(text.find("tp1 pp1"), std::string::npos) << text;
}

TEST_F(CopiedCommand, SearchesAgainWithTheFilter) {
  if (session.environment().command.empty()) GTEST_SKIP() << "the program foretrain is not built";
  session.open_study(test::small_document(), "open");
  ASSERT_TRUE(session.set_chip({Chip::Kind::column, "tp", "2|4"}));
  const std::string text = output_of(search_command(session));
  EXPECT_NE(text.find("tp"), std::string::npos) << text;
  EXPECT_NE(text.find("layouts"), std::string::npos) << text;
}

TEST(Details, SayWhatARowIsAndHowItStands) {
  Session session(test::environment());
  session.set_waiting(true);
  session.set_results(test::made_up_results(6));
  const auto lines = detail_lines(session, 1);
  ASSERT_GT(lines.size(), 10U);
  EXPECT_EQ(lines.front().name, "#2");
  const auto has = [&](const char* text) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const DetailLine& line) { return line.name.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(has("Against the best (#1)"));
  EXPECT_TRUE(has("Step time"));
  EXPECT_TRUE(has("80 % interval"));
  EXPECT_TRUE(detail_lines(session, 99).empty());
}

TEST(Csv, HasAHeadAndALinePerShownRow) {
  Session session(test::environment());
  session.set_results(test::made_up_results(10));
  const std::string csv = rows_csv(session, {"tp", "step_time_s"});
  EXPECT_TRUE(csv.starts_with("rank,tp,step_time_s\n1,1,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 11);
}

TEST(Sensitivity, FasterDevicesTakeLessTimeAndSmallerOnesDoNotFit) {
  const auto results = test::made_up_results(3);
  const std::vector<Layout> layouts = {results->rows[0].layout,
                                       results->rows[2].layout}; // 32 sequences are not 6 · n: illegal
  auto factors = factors_of(results->study);
  const auto before = rescaled(test::environment(), results->study, factors, layouts);
  ASSERT_TRUE(before) << to_string(before.error());
  factors[factors.size() - 3].value = 2; // compute
  factors.back().value = 0.01;           // memory size
  const auto after = rescaled(test::environment(), results->study, factors, layouts);
  ASSERT_TRUE(after);
  EXPECT_LT(after->front().step_seconds, before->front().step_seconds * 0.9);
  EXPECT_FALSE(after->front().fits);
  EXPECT_TRUE(after->front().legal);
  EXPECT_FALSE(after->back().legal);
}

} // namespace
} // namespace foretrain::gui
