#include "core/base/describe.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

enum class Colour { red, dark_blue };
struct ChoiceSpec {
  std::string kind = "plain";
  int chunks = 1;
  bool operator==(const ChoiceSpec&) const = default;
};
struct DemoSpec {
  int count = 0;
  std::optional<int> limit;
  Bytes memory;
  Colour colour = Colour::red;
  ChoiceSpec choice;
  std::vector<double> values;
  bool operator==(const DemoSpec&) const = default;
};

} // namespace

template <> struct EnumNames<Colour> {
  static constexpr std::array names = {std::pair{Colour::red, "red"}, std::pair{Colour::dark_blue, "dark-blue"}};
};
template <> struct Described<ChoiceSpec> {
  static constexpr const char* name = "choice";
  static constexpr const char* doc = "A tagged choice.";
  static constexpr auto members =
      std::tuple{required("kind", &ChoiceSpec::kind, "which"),
                 optional("chunks", &ChoiceSpec::chunks, "how many").between(1, 64).only_for("cut sliced")};
};
template <> struct Described<DemoSpec> {
  static constexpr const char* name = "demo";
  static constexpr const char* doc = "For the test.";
  static constexpr auto members = std::tuple{required("count", &DemoSpec::count, "how many").between(1, 1000),
                                             optional("limit", &DemoSpec::limit, "at most").at_least(0),
                                             optional("memory", &DemoSpec::memory, "how much"),
                                             optional("colour", &DemoSpec::colour, "which colour"),
                                             optional("choice", &DemoSpec::choice, "a choice"),
                                             optional("values", &DemoSpec::values, "some values").between(0, 1)};
};

namespace {

Result<DemoSpec> read(const char* text) {
  const auto json = parse_json(text, "demo.json");
  if (!json) return tl::unexpected<Error>(json.error());
  return read_value<DemoSpec>(*json, Where{"demo.json", ""});
}
std::string error_of(const char* text) {
  const auto result = read(text);
  return result ? "no error" : to_string(result.error());
}

TEST(Describe, WhatIsWrittenIsReadBackEqual) {
  const auto demo = read(R"({"count": 3, "memory": "80 GiB", "colour": "dark-blue",
                             "choice": {"kind": "cut", "chunks": 4}, "values": [0.5, 1]})");
  ASSERT_TRUE(demo) << to_string(demo.error());
  const auto again = read_value<DemoSpec>(write_value(*demo), Where{"again", ""});
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(*demo, *again);
  EXPECT_EQ(demo->memory, Bytes(80LL << 30));
}

TEST(Describe, AnUnknownKeyIsNamedWithPointerAndNearestKey) {
  EXPECT_EQ(error_of(R"({"count": 1, "memry": "1 B"})")
                .rfind("demo.json:/memry: unknown key 'memry' in demo (did you mean 'memory'?", 0),
            0U)
      << error_of(R"({"count": 1, "memry": "1 B"})");
}

TEST(Describe, AKeyOfAnotherChoiceSaysSo) {
  EXPECT_EQ(error_of(R"({"count": 1, "choice": {"kind": "plain", "chunks": 2}})"),
            "demo.json:/choice/chunks: key 'chunks' belongs to kind cut sliced, not to 'plain'");
}

TEST(Describe, AChoiceMayBeItsKindAlone) {
  const auto demo = read(R"({"count": 1, "choice": "cut"})");
  ASSERT_TRUE(demo) << to_string(demo.error());
  EXPECT_EQ(demo->choice.kind, "cut");
}

TEST(Describe, WrongTypesUnitsAndRangesAreErrorsAtTheirPlace) {
  EXPECT_NE(error_of(R"({})").find("'count' is missing"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1.5})").find("demo.json:/count"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1e308})").find("out of range"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": -1})").find("between 1 and 1000"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1, "memory": 80})").find("no unit"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1, "memory": "80 parsecs"})").find("demo.json:/memory"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1, "colour": "rd"})").find("did you mean 'red'"), std::string::npos);
  EXPECT_NE(error_of(R"({"count": 1, "values": [0.5, 2]})").find("demo.json:/values/1"), std::string::npos);
  EXPECT_NE(error_of(R"([1])").find("not an object"), std::string::npos);
}

TEST(Describe, NullMeansAbsentForOptionalMembersOnly) {
  EXPECT_TRUE(read(R"({"count": 1, "limit": null})"));
  EXPECT_FALSE(read(R"({"count": null})"));
}

TEST(Describe, TheSchemaListsRangesAndRequiredKeys) {
  const Json schema = schema_of<DemoSpec>();
  EXPECT_EQ(schema["properties"]["count"]["minimum"], 1);
  EXPECT_EQ(schema["required"], Json::array({"count"}));
  EXPECT_EQ(schema["additionalProperties"], false);
}

} // namespace
} // namespace foretrain
