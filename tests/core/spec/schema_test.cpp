#include <cstdlib>
#include <functional>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

/// `FORETRAIN_UPDATE_GOLDEN=1` writes the page again.
TEST(Schema, TheReferencePageIsMadeFromTheDescriptions) {
  const std::filesystem::path file = test::source_folder() / "docs/file-formats.md";
  if (std::getenv("FORETRAIN_UPDATE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe): one thread
    ASSERT_TRUE(write_text_file(file, reference_page()));
  }
  const auto page = read_text_file(file);
  ASSERT_TRUE(page) << to_string(page.error());
  EXPECT_EQ(*page, reference_page()) << "docs/file-formats.md is out of date: run with FORETRAIN_UPDATE_GOLDEN=1";
}

TEST(Schema, EveryNameHasOneAndOtherNamesDoNot) {
  for (const std::string& name : schema_names()) {
    const auto found = schema(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ((*found)["title"], name);
    EXPECT_EQ((*found)["$schema"], "https://json-schema.org/draft/2020-12/schema");
    EXPECT_EQ((*found)["additionalProperties"], false);
  }
  const auto wrong = schema("plann");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().hint.find("did you mean 'plan'"), std::string::npos);
}

/// What a writer writes has only keys that the schema lists: schema and writer come from one description.
TEST(Schema, WrittenFilesHaveOnlyListedKeys) {
  const DataFolder data{test::source_folder() / "data"};
  const Json semantics_schema = schema("semantics").value();
  const Json model_schema = schema("model").value();
  for (const std::string& name : data.semantics()) {
    const Json written = to_json(data.semantics(name).value());
    for (const auto& [key, value] : written.items()) EXPECT_TRUE(semantics_schema["properties"].contains(key)) << key;
  }
  for (const std::string& name : data.models()) {
    const Json written = to_json(data.model(name).value());
    for (const auto& [key, value] : written.items()) EXPECT_TRUE(model_schema["properties"].contains(key)) << key;
  }
}

TEST(Schema, RangesAndDefaultsAreListed) {
  const Json layout = schema("layout").value()["properties"];
  EXPECT_EQ(layout["tp"]["minimum"], 1);
  EXPECT_EQ(layout["tp"]["default"], 1);
  EXPECT_EQ(layout["placement"]["minItems"], 4);
  EXPECT_EQ(layout["schedule"]["anyOf"][0]["enum"].size(), kScheduleKinds.size());
}

} // namespace
} // namespace foretrain
