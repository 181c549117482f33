#include "executor/token_file.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/executor/folder.h"

namespace foretrain {
namespace {

using namespace test;

std::string packed(const std::vector<std::uint32_t>& tokens, int bytes) {
  std::string text;
  for (const std::uint32_t token : tokens)
    for (int byte = 0; byte < bytes; ++byte) text += static_cast<char>(token >> (8 * byte) & 0xffU);
  return text;
}

TEST(TokenFile, SequencesFollowEachOtherAndShareTheBorder) {
  const TestFolder folder;
  for (const int bytes : {2, 4}) {
    write_file(folder / "t", packed({1, 2, 3, 4, 5, 6, 500, 8}, bytes)); // seven inputs: two sequences of three
    const auto file = TokenFile::open(folder / "t", bytes, 3);
    ASSERT_TRUE(file) << to_string(file.error());
    EXPECT_EQ(file->sequences(), 2);
    EXPECT_EQ(*file->sequence(0, 501), (std::vector<std::int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(*file->sequence(1, 501), (std::vector<std::int64_t>{4, 5, 6, 500}));
    EXPECT_EQ(*file->sequence(2, 501), *file->sequence(0, 501)) << "from the beginning again";
    const auto outside = file->sequence(1, 500);
    ASSERT_FALSE(outside);
    EXPECT_NE(to_string(outside.error()).find("token 500 at place 6"), std::string::npos) << to_string(outside.error());
    EXPECT_EQ(file->describe(), (Json{{"tokens", 8}, {"bytes", bytes}}));
  }
}

TEST(TokenFile, TheWideTypeHoldsLargeTokens) {
  const TestFolder folder;
  write_file(folder / "t", packed({70'000, 4'294'967'295U}, 4));
  const auto file = TokenFile::open(folder / "t", 4, 1);
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->sequence(0, std::int64_t{1} << 33), (std::vector<std::int64_t>{70'000, 4'294'967'295}));
}

TEST(TokenFile, SaysWhyAFileIsNoUse) {
  const TestFolder folder;
  const auto complaint = [&](const std::string& bytes, int width, std::int64_t length) {
    write_file(folder / "t", bytes);
    const auto file = TokenFile::open(folder / "t", width, length);
    return file ? "nothing" : to_string(file.error());
  };
  EXPECT_NE(complaint("123", 2, 1).find("3 bytes, no whole number of tokens of 2"), std::string::npos);
  EXPECT_NE(complaint("1234", 2, 2).find("has 2 tokens; a sequence takes 3"), std::string::npos);
  EXPECT_NE(complaint("", 4, 1).find("has 0 tokens"), std::string::npos);
  EXPECT_EQ(complaint("123456", 2, 2), "nothing");
  EXPECT_FALSE(TokenFile::open(folder / "missing", 2, 1));
  EXPECT_FALSE(TokenFile::open(folder.path(), 2, 1));
}

} // namespace
} // namespace foretrain
