#include "core/base/csv.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

std::vector<std::vector<std::string>> fields(std::string_view text) {
  const auto records = parse_csv(text, "a.csv");
  EXPECT_TRUE(records) << (records ? "" : to_string(records.error()));
  std::vector<std::vector<std::string>> result;
  if (records)
    for (const CsvRecord& record : *records) result.push_back(record.fields);
  return result;
}

std::string problem(std::string_view text) {
  const auto records = parse_csv(text, "a.csv");
  return records ? "" : to_string(records.error());
}

using Rows = std::vector<std::vector<std::string>>;

// The cases of RFC 4180 section 2.
TEST(Csv, ReadsPlainAndEmptyFields) {
  EXPECT_EQ(fields("a,b\r\n1,\r\n,2\r\n"), (Rows{{"a", "b"}, {"1", ""}, {"", "2"}}));
  EXPECT_EQ(fields("a,b\n1,2"), (Rows{{"a", "b"}, {"1", "2"}}));
}

TEST(Csv, ReadsQuotedFieldsWithCommasQuotesAndLineBreaks) {
  EXPECT_EQ(fields("a,b\r\n\"x,\"\"y\"\"\",\"1\r\n2\"\r\n"), (Rows{{"a", "b"}, {"x,\"y\"", "1\r\n2"}}));
  EXPECT_EQ(fields("\"\",\"\""), (Rows{{"", ""}}));
}

TEST(Csv, PassesOverTheByteOrderMarkAndEmptyLines) {
  EXPECT_EQ(fields("\xef\xbb\xbf"
                   "a\n\n1\n\n"),
            (Rows{{"a"}, {"1"}}));
}

TEST(Csv, TellsTheLineOnWhichARecordStarts) {
  const auto records = parse_csv("a,b\n\"1\n2\",3\n4,5\n", "a.csv").value();
  EXPECT_EQ(records[1].line, 2);
  EXPECT_EQ(records[2].line, 4);
}

TEST(Csv, RefusesWhatIsNotCsvWithTheLine) {
  EXPECT_EQ(problem("a,b\n1,2\n3,\"4\n5"), "a.csv:3: a quote is not closed");
  EXPECT_EQ(problem("a,b\n1,2,3\n"), "a.csv:2: 3 columns, the header has 2");
  EXPECT_EQ(problem("a,b\n1\n"), "a.csv:2: 1 columns, the header has 2");
  EXPECT_EQ(problem("a\n\"b\"c\n"), "a.csv:2: text after a closing quote");
  EXPECT_NE(problem("a\nb\"c\n").find("a.csv:2"), std::string::npos);
  EXPECT_NE(problem(std::string_view("a\n\0\x01", 4)).find("a.csv:2: control character 0x00"), std::string::npos);
  EXPECT_NE(problem("a\n\"\x7f\"").find("control character"), std::string::npos);
  EXPECT_NE(problem("").find("empty"), std::string::npos);
  EXPECT_NE(problem("\r\n\n").find("empty"), std::string::npos);
}

} // namespace
} // namespace foretrain
