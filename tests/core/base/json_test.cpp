#include "core/base/json.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(Json, AllowsComments) {
  const auto json = parse_json("{ // a comment\n \"tp\": 8 /* inner */ }", "plan.json");
  ASSERT_TRUE(json) << to_string(json.error());
  EXPECT_EQ((*json)["tp"], 8);
}

TEST(Json, NamesFileLineAndColumnOfASyntaxError) {
  const auto json = parse_json("{\n  \"tp\": 8,,\n}", "plan.json");
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().where.rfind("plan.json:2:", 0), 0U) << json.error().where;
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  for (const char* bad : {"", "   ", "{", "[1,", "{\"a\": NaN}", "{\"a\": 1e999}", "{\"a\":1,\"a\":2}", "\"\xff\""})
    EXPECT_FALSE(parse_json(bad, "x.json")) << bad;
}

TEST(Json, RefusesNestingThatWouldExhaustTheStack) {
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "x.json"));
  const std::string nested = std::string(100, '[') + std::string(100, ']');
  EXPECT_FALSE(parse_json(nested, "x.json"));
}

TEST(Json, FilesThatAreMissingOrDirectoriesAreNamed) {
  const auto missing = read_json_file("/nonexistent/plan.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(to_string(missing.error()).find("no such file"), std::string::npos);
  EXPECT_FALSE(read_json_file(std::filesystem::temp_directory_path()));
}

TEST(Json, WritingReplacesTheFileAndLeavesNoPart) {
  const auto folder = std::filesystem::temp_directory_path() / "foretrain_json_test";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_text_file(folder / "a.json", "{}"));
  ASSERT_TRUE(write_text_file(folder / "a.json", "{\"b\":1}"));
  EXPECT_EQ(*read_text_file(folder / "a.json"), "{\"b\":1}");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_FALSE(write_text_file(folder / "missing" / "a.json", "{}"));
  std::filesystem::remove_all(folder);
}

} // namespace
} // namespace foretrain
