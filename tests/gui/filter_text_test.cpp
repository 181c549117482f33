// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include "gui/model/filter_text.h"

namespace foretrain::gui {
namespace {

std::string expression(const char* field, const char* text) {
  const auto result = column_expression(*find_field(field), text);
  return result ? *result : "error: " + result.error().message;
}

TEST(ColumnFilter, ReadsWhatPeopleTypeUnderATitle) {
  EXPECT_EQ(expression("tp", "8"), "(tp == 8)");
  EXPECT_EQ(expression("tp", ">4"), "(tp > 4)");
  EXPECT_EQ(expression("tp", " <= 2 "), "(tp <= 2)");
  EXPECT_EQ(expression("tp", "2~8"), "((tp >= 2 and tp <= 8))");
  EXPECT_EQ(expression("tp", "~8"), "(tp <= 8)");
  EXPECT_EQ(expression("tp", "1|8"), "(tp == 1 or tp == 8)");
  EXPECT_EQ(expression("tp", "<>4"), "(tp != 4)");
  EXPECT_EQ(expression("schedule", "inter"), "(schedule in [\"interleaved\"])");
  EXPECT_EQ(expression("schedule", "/^zb/"), "(schedule in [\"zb-h1\", \"zb-h2\", \"zb-1p\", \"zb-2p\"])");
  EXPECT_EQ(expression("sequence_parallel", "no"), "(not sequence_parallel)");
}

TEST(ColumnFilter, GivesExpressionsThatTheLanguageReads) {
  for (const auto& [field, text] : {std::pair("tp", "2~8"),
                                    {"schedule", "1f1b|zb"},
                                    {"schedule", "<>gpipe"},
                                    {"memory_gib", "<70 GiB"},
                                    {"step_time_s", ">900 ms"},
                                    {"sequence_parallel", "yes"},
                                    {"recompute_detail", "block 5"}})
    EXPECT_TRUE(chip_filter({Chip::Kind::column, field, text})) << field << " " << text;
}

TEST(ColumnFilter, SaysWhatDoesNotRead) {
  EXPECT_EQ(expression("tp", ">x"), "error: 'x' is no number");
  EXPECT_EQ(expression("tp", "~"), "error: '~' is no range");
  EXPECT_EQ(expression("schedule", "quick"), "error: 'quick' matches none of its values");
  EXPECT_EQ(expression("schedule", "/(/"), "error: '/(/' is no regular expression");
  EXPECT_EQ(expression("tp", "1|"), "error: a value is missing beside '|'");
}

TEST(Chips, JoinToOneExpression) {
  const std::vector<Chip> chips = {{Chip::Kind::expression, "", "tp == 8 or pp == 2"},
                                   {Chip::Kind::column, "pp", "2~8"},
                                   {Chip::Kind::expression, "", "tp <"}};
  EXPECT_EQ(joined_expression(chips), "(tp == 8 or pp == 2) and ((pp >= 2 and pp <= 8))");
}

TEST(Completion, OffersFieldsThenValuesOfTheFieldBefore) {
  const auto fields = completions("step", 4);
  EXPECT_NE(std::find(fields.begin(), fields.end(), "step_time_s"), fields.end());
  const auto values = completions("schedule == zb", 14);
  EXPECT_EQ(values, (std::vector<std::string>{"zb-h1", "zb-h2", "zb-1p", "zb-2p"}));
}

} // namespace
} // namespace foretrain::gui
