#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "core/spec/presets.h"
#include "tests/core/spec/parameter_rows.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

DataFolder data() {
  return {test::source_folder() / "data"};
}

/// Preset to row of param_counts.csv: preset_rows.csv.
std::map<std::string, std::string> rows_by_preset() {
  const auto text = read_text_file(testing::test_folder() + "/preset_rows.csv");
  EXPECT_TRUE(text);
  std::map<std::string, std::string> rows;
  std::istringstream lines(text ? *text : "");
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) rows[line.substr(0, line.find(','))] = line.substr(line.find(',') + 1);
  return rows;
}

TEST(ModelPresets, HaveThePublishedParameters) {
  std::map<std::string, testing::ParameterRow> published;
  for (const auto& row : testing::parameter_rows()) published[row.model] = row;
  const auto rows = rows_by_preset();
  const auto names = data().models();
  EXPECT_GE(names.size(), 30U);
  for (const std::string& name : names) {
    const auto model = data().model(name);
    ASSERT_TRUE(model) << to_string(model.error());
    ASSERT_TRUE(rows.contains(name)) << name;
    const auto& row = published.at(rows.at(name));
    const ParameterCount count = count_parameters(*model);
    EXPECT_EQ(count.total, row.total) << name;
    EXPECT_EQ(count.active, row.active) << name;
    EXPECT_EQ(count.active_no_input_embedding, row.other.at("active_no_input_emb").get<std::int64_t>()) << name;
    EXPECT_EQ(model->name, name);
    EXPECT_FALSE(model->source.empty()) << name;
    EXPECT_TRUE(check_model(*model, name + ":")) << name;
  }
}

TEST(ModelPresets, HaveTheNamesThatTextsUse) {
  for (const char* name :
       {"llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"})
    EXPECT_TRUE(data().model(name)) << name;
}

/// What decides memory and time beside the widths is that of the configuration, where there is one.
TEST(ModelPresets, HaveTheBlocksOfTheirConfiguration) {
  int compared = 0;
  for (const auto& [name, row] : rows_by_preset()) {
    std::string file = row;
    std::transform(file.begin(), file.end(), file.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    file = testing::test_folder() + "/configs/" + file + ".json";
    if (!std::filesystem::exists(file)) continue;
    const auto preset = data().model(name);
    const auto config = load_model(data(), file);
    ASSERT_TRUE(preset && config) << name;
    ++compared;
    EXPECT_EQ(preset->parallel_block, config->parallel_block) << name;
    EXPECT_EQ(preset->norm_placement, config->norm_placement) << name;
    EXPECT_EQ(preset->norms_per_layer, config->norms_per_layer) << name;
    EXPECT_EQ(preset->norm, config->norm) << name;
    EXPECT_EQ(preset->qk_norm, config->qk_norm) << name;
    EXPECT_EQ(preset->scaled_embedding, config->scaled_embedding) << name;
    EXPECT_EQ(preset->attention_softcap, config->attention_softcap) << name;
    EXPECT_EQ(preset->logit_softcap, config->logit_softcap) << name;
    EXPECT_EQ(preset->learned_positions, config->learned_positions) << name;
    EXPECT_EQ(preset->gated, config->gated) << name;
    EXPECT_EQ(preset->window, config->window) << name;
  }
  EXPECT_GE(compared, 60);
}

TEST(ModelPresets, SayTheLayersOfTheirConfiguration) {
  std::map<std::string, testing::ParameterRow> published;
  for (const auto& row : testing::parameter_rows()) published[row.model] = row;
  for (const auto& [name, row] : rows_by_preset()) {
    const std::string file = testing::test_folder() + "/configs/" + published.at(row).config;
    const auto json = read_json_file(file);
    ASSERT_TRUE(json);
    const auto configured = model_from(*json, file);
    const auto preset = data().model(name);
    ASSERT_TRUE(configured && preset) << name;
    EXPECT_TRUE(layer_shapes(*configured) == layer_shapes(*preset)) << name;
    EXPECT_EQ(configured->latent, preset->latent) << name;
    EXPECT_EQ(configured->moe ? configured->moe->groups : 0, preset->moe ? preset->moe->groups : 0) << name;
  }
}

TEST(ModelPresets, AreWrittenAsTheyAreRead) {
  for (const std::string& name : data().models()) {
    const auto model = data().model(name);
    ASSERT_TRUE(model) << name;
    const auto again = model_from(to_json(*model), name);
    ASSERT_TRUE(again) << to_string(again.error());
    EXPECT_EQ(*again, *model) << name;
  }
}

} // namespace
} // namespace foretrain
