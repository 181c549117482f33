#include "core/base/json.h"

#include <array>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Renaming a file over it would do away with the device, the pipe or the link.
TEST(Json, WritingGoesThroughLinksAndIntoWhatIsNoFile) {
  const auto folder = std::filesystem::temp_directory_path() / "foretrain_json_links";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "elsewhere");
  ASSERT_TRUE(write_text_file(folder / "elsewhere/a.json", "{}"));
  std::filesystem::create_symlink("elsewhere/a.json", folder / "link.json");
  ASSERT_TRUE(write_text_file(folder / "link.json", "[]"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.json"));
  EXPECT_EQ(*read_text_file(folder / "elsewhere/a.json"), "[]");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_text_file(pipe, "through"));
  std::array<char, 16> read{};
  EXPECT_EQ(::read(reader, read.data(), read.size()), 7);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::create_symlink("/dev/full", folder / "full"); // never the device itself, should this fail
  const auto full = write_text_file(folder / "full", "{}");
  ASSERT_FALSE(full);
  EXPECT_NE(to_string(full.error()).find("No space left"), std::string::npos) << to_string(full.error());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "full"));
  std::filesystem::remove_all(folder);
}

TEST(Json, ANumberThatIsTooLargeIsNamed) {
  const auto parsed = parse_json(R"({"layers": 1e400})", "x.json");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(to_string(parsed.error()), "x.json: not valid JSON: number overflow parsing '1e400'");
}

} // namespace
} // namespace foretrain
