#include <fstream>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/support/places.h"

/// Files as users have them: each gives an error that names the file, or the right answer; none crashes.
namespace foretrain {
namespace {

namespace fs = std::filesystem;

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

class BadFile : public testing::Test {
protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The error of loading this text as a model, "no error" if it loads.
  std::string model_error(const std::string& text) {
    const fs::path file = folder_ / "model.json";
    std::ofstream(file, std::ios::binary) << text;
    const auto model = load_model(data(), file.string());
    if (model) return "no error";
    EXPECT_NE(model.error().where.find("model.json"), std::string::npos) << to_string(model.error());
    return to_string(model.error());
  }
  std::string cluster_error(const std::string& text, int devices = 0) {
    const fs::path file = folder_ / "cluster.json";
    std::ofstream(file, std::ios::binary) << text;
    const auto cluster = load_cluster(data(), file.string(), devices);
    return cluster ? "no error" : to_string(cluster.error());
  }
  static std::string model_text(const std::string& key, const std::string& value) {
    std::string text = "{";
    bool replaced = false;
    for (const auto& [name, standard] : std::initializer_list<std::pair<const char*, const char*>>{{"layers", "2"},
                                                                                                   {"hidden", "64"},
                                                                                                   {"heads", "4"},
                                                                                                   {"kv_heads", "2"},
                                                                                                   {"head_dim", "16"},
                                                                                                   {"ffn", "128"},
                                                                                                   {"vocab", "1000"}}) {
      replaced = replaced || key == name;
      text += "\"" + std::string(name) + "\": " + (key == name ? value : standard) + ",";
    }
    if (!replaced) text += "\"" + key + "\": " + value + ",";
    text.back() = '}';
    return text;
  }

  fs::path folder_;
};

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_F(BadFile, AGoodOneReads) {
  EXPECT_EQ(model_error(model_text("name", "\"x\"")), "no error");
}

TEST_F(BadFile, AnEmptyFileSaysSo) {
  EXPECT_TRUE(has(model_error(""), "the file is empty"));
  EXPECT_TRUE(has(model_error("  \n"), "the file is empty"));
}

TEST_F(BadFile, TwoHundredMegabytesAreNotRead) {
  const fs::path file = folder_ / "model.json";
  std::ofstream(file) << "{";
  fs::resize_file(file, std::uintmax_t{200} << 20); // sparse: takes no space
  const auto model = load_model(data(), file.string());
  ASSERT_FALSE(model);
  EXPECT_TRUE(has(to_string(model.error()), "larger than 64 MiB")) << to_string(model.error());
}

TEST_F(BadFile, TruncatedJsonIsFoundAtItsEnd) {
  const std::string whole = model_text("layers", "2");
  for (std::size_t length = 1; length < whole.size(); ++length)
    EXPECT_TRUE(has(model_error(whole.substr(0, length)), "not valid JSON")) << length;
}

TEST_F(BadFile, NotANumberIsNotJson) {
  EXPECT_TRUE(has(model_error(model_text("layers", "NaN")), "not valid JSON"));
  EXPECT_TRUE(has(model_error(model_text("layers", "-Infinity")), "not valid JSON"));
  EXPECT_NE(model_error(model_text("layers", "1e999")), "no error");
}

TEST_F(BadFile, AbsurdSizesAreOutOfRange) {
  EXPECT_TRUE(has(model_error(model_text("layers", "1e308")), "model.json:/layers: 1e+308 is out of range"));
  for (const char* key : {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"})
    for (const char* value : {"-1", "-9223372036854775808", "9223372036854775807", "18446744073709551615", "1e18"})
      EXPECT_TRUE(has(model_error(model_text(key, value)), "out of range")) << key << " " << value;
  for (const char* key : {"layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "ffn"})
    EXPECT_NE(model_error(model_text(key, "0")), "no error") << key;
}

TEST_F(BadFile, ZeroDevicesAreRefusedAMillionAreNot) {
  const std::string start = R"({"device": "h100-sxm-80gb", "tiers": [{"link": {"bandwidth": "450 GB/s"}, "fanout": )";
  EXPECT_TRUE(has(cluster_error(start + "0}]}"), "out of range"));
  EXPECT_TRUE(has(cluster_error(start + "-8}]}"), "out of range"));
  EXPECT_EQ(cluster_error(start + "1000000}]}"), "no error");
  EXPECT_TRUE(has(cluster_error(start + "1000001}]}"), "out of range"));
  const std::string two =
      R"({"device": "h100-sxm-80gb", "tiers": [{"link": {}, "fanout": 1000000}, {"link": {}, "fanout": 1000000}]})";
  EXPECT_TRUE(has(cluster_error(two), "1e+12 devices are more than 1000000")) << cluster_error(two);
}

TEST_F(BadFile, NamesMayBeInAnyScript) {
  EXPECT_EQ(model_error(model_text("name", "\"模型 🚀 naïve\"")), "no error");
  const auto model = load_model(data(), (folder_ / "model.json").string());
  EXPECT_EQ(model.value().name, "模型 🚀 naïve");
  EXPECT_TRUE(has(model_error(model_text("ключ", "1")), "unknown key 'ключ'"));
  EXPECT_NE(model_error(model_text("name", "\"\xff\xfe\"")), "no error") << "not UTF-8";
}

TEST_F(BadFile, WhatIsNoObjectIsNoModel) {
  for (const char* text : {"[]", "3", "\"llama3-8b\"", "null", "true"})
    EXPECT_TRUE(has(model_error(text), "not an object")) << text;
}

TEST_F(BadFile, AFolderIsNoFile) {
  EXPECT_TRUE(has(to_string(load_model(data(), folder_.string() + "/").error()), "is a directory"));
}

} // namespace
} // namespace foretrain
