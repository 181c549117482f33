#include "executor/checkpoint/safetensors.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "tests/executor/folder.h"

namespace foretrain {
namespace {

using namespace test;

/// A file as the format's page describes it, byte by byte.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return bytes + header + data;
}

TEST(Safetensors, ReadsWhatTheFormatDescribes) {
  const TestFolder folder;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]},"a":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]},"none":{"dtype":"F16","shape":[0,3],"data_offsets":[10,10]}})";
  write_file(folder / "x", file_of(header + "  ", std::string("\x07\x08") + std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
  const auto file = safetensors::File::open(folder / "x");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->entries().size(), 3U);
  const safetensors::Entry& b = file->entries().at("b");
  EXPECT_EQ(b.shape, std::vector<std::int64_t>{2});
  std::array<float, 2> values{};
  ASSERT_TRUE(file->read(b, 0, 2, values.data()));
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[1], -2.0F);
  ASSERT_TRUE(file->read(b, 1, 1, values.data()));
  EXPECT_EQ(values[0], -2.0F);
}

TEST(Safetensors, ReadsWhatItWrites) {
  const TestFolder folder;
  const std::vector<double> numbers = {1.5, -2.25, 3};
  const std::vector<std::uint16_t> halves = {1, 2};
  auto writer =
      safetensors::Writer::create(folder / "x", {{"n", "F64", {3}, 0}, {"h", "BF16", {1, 2}, 0}}, {{"k", "v"}});
  ASSERT_TRUE(writer) << to_string(writer.error());
  ASSERT_TRUE(writer->put(numbers.data(), 24));
  ASSERT_TRUE(writer->put(halves.data(), 4));
  ASSERT_TRUE(writer->finish());
  const auto file = safetensors::File::open(folder / "x");
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->metadata().at("k"), "v");
  std::vector<double> read(3);
  ASSERT_TRUE(file->read(file->entries().at("n"), 0, 3, read.data()));
  EXPECT_EQ(read, numbers);
  std::vector<std::uint16_t> read_halves(2);
  ASSERT_TRUE(file->read(file->entries().at("h"), 0, 2, read_halves.data()));
  EXPECT_EQ(read_halves, halves);
  EXPECT_EQ((8 + file->header().size()) % 8, 0U) << "the tensors are aligned";
}

struct Broken {
  const char* header;
  const char* data;
  const char* says;
};

TEST(Safetensors, RefusesBrokenHeadersAndSaysWhy) {
  const TestFolder folder;
  const std::vector<Broken> files = {
      {"[]", "", "no JSON object"},
      {"{", "", "broken header"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "", "lacks dtype, shape or data_offsets"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234", "unknown dtype"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", "1234", "unknown dtype"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234", "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}})", "1234",
       "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", "1234", "no list"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234", "impossible data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0.5,4]}})", "1234", "impossible data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234", "not two numbers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234", "need 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       "123456", "overlap or leave gaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678", "overlap or leave gaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12", "cut off: 2 bytes of 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "123456", "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "12345678", "broken header"},
      {R"({"__metadata__":{"a":1}})", "", "no text"},
      {R"({"__metadata__":[]})", "", "no object"},
  };
  for (const Broken& broken : files) {
    write_file(folder / "x", file_of(broken.header, broken.data));
    const auto file = safetensors::File::open(folder / "x");
    ASSERT_FALSE(file) << broken.header;
    EXPECT_NE(to_string(file.error()).find(broken.says), std::string::npos)
        << broken.header << ": " << to_string(file.error());
    EXPECT_NE(to_string(file.error()).find((folder / "x").string()), std::string::npos) << "names the file";
  }
}

TEST(Safetensors, RefusesFilesThatAreCutOffAnywhere) {
  const TestFolder folder;
  const std::string whole = file_of(R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", "0123456789abcdef");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_file(folder / "x", whole.substr(0, length));
    const auto file = safetensors::File::open(folder / "x");
    ASSERT_FALSE(file) << length;
    EXPECT_NE(to_string(file.error()).find("cut off"), std::string::npos) << to_string(file.error());
  }
  write_file(folder / "x", whole);
  EXPECT_TRUE(safetensors::File::open(folder / "x"));
  std::string huge = whole;
  huge[7] = '\x7f'; // a header of 2^62 bytes
  write_file(folder / "x", huge);
  EXPECT_FALSE(safetensors::File::open(folder / "x"));
  EXPECT_FALSE(safetensors::File::open(folder / "missing"));
  EXPECT_FALSE(safetensors::File::open(folder.path()));
}

TEST(Safetensors, SaysThatTheDiskIsFull) {
  auto writer = safetensors::Writer::create("/dev/full", {{"a", "F64", {1}, 0}}, {});
  ASSERT_FALSE(writer);
  EXPECT_NE(to_string(writer.error()).find("No space left"), std::string::npos) << to_string(writer.error());
}

} // namespace
} // namespace foretrain
