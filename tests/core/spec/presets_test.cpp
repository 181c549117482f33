#include "core/spec/presets.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "tests/support/places.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

void expect_names(const std::vector<std::string>& names, std::size_t least, std::initializer_list<const char*> among) {
  EXPECT_GE(names.size(), least);
  for (const char* name : among) EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  for (const std::string& name : names)
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-."), std::string::npos) << name;
}

TEST(Presets, EveryDeviceReadsAndNamesItsSource) {
  expect_names(data().devices(), 34, {"a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb"});
  for (const std::string& name : data().devices()) {
    const auto device = data().device(name);
    ASSERT_TRUE(device) << to_string(device.error());
    EXPECT_EQ(device->name, name);
    EXPECT_FALSE(device->source.empty()) << name;
    EXPECT_EQ(device_from(to_json(*device), name).value(), *device);
  }
}

TEST(Presets, EveryClusterReadsAndNamesItsSource) {
  expect_names(data().clusters(), 28, {"dgx-a100-80gb", "dgx-h100", "gb200-nvl72"});
  for (const std::string& name : data().clusters()) {
    const auto cluster = data().cluster(name);
    ASSERT_TRUE(cluster) << to_string(cluster.error());
    EXPECT_EQ(cluster->name, name);
    EXPECT_FALSE(cluster->source.empty()) << name;
    EXPECT_EQ(cluster_from(to_json(*cluster), name, data()).value(), *cluster);
  }
}

TEST(Presets, EveryModelReads) {
  expect_names(data().models(), 25,
               {"llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"});
  for (const std::string& name : data().models()) {
    const auto model = data().model(name);
    ASSERT_TRUE(model) << to_string(model.error());
    EXPECT_EQ(model->name, name);
    EXPECT_EQ(model_from(to_json(*model), name).value(), *model);
  }
}

TEST(Presets, EverySemanticsReadsAndNamesItsSources) {
  expect_names(data().semantics(), 7, {"foretrain", "megatron-core", "megatron-deepspeed", "deepspeed", "torchtitan"});
  for (const std::string& name : data().semantics()) {
    const auto semantics = data().semantics(name);
    ASSERT_TRUE(semantics) << to_string(semantics.error());
    EXPECT_EQ(semantics->name, name);
    EXPECT_FALSE(semantics->sources.empty()) << name;
    EXPECT_FALSE(semantics->sharding.empty()) << name;
    EXPECT_FALSE(semantics->precisions.empty()) << name;
    EXPECT_EQ(semantics_from(to_json(*semantics), name).value(), *semantics);
    // What a framework can do at all needs a source of its own.
    for (const char* key : {"vocab_multiple", "schedules", "cross_entropy", "context"})
      EXPECT_TRUE(semantics->sources.contains(key)) << name << " " << key;
  }
}

TEST(Presets, VariantsOfSemanticsStateWhatDiffers) {
  const Semantics base = data().semantics("nemo").value();
  Semantics variant = data().semantics("nemo-graphs").value();
  EXPECT_LT(variant.host_per_layer.value, base.host_per_layer.value);
  EXPECT_NE(variant.sources.at("host_per_layer"), base.sources.at("host_per_layer"));
  variant.name = base.name;
  variant.host_per_layer = base.host_per_layer;
  variant.sources = base.sources;
  EXPECT_EQ(variant, base);

  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "variants";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root / "semantics");
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(root / "semantics" / (std::string(name) + ".json")) << text;
  };
  write("a", R"({"name": "a", "base": "b"})");
  write("b", R"({"name": "b", "base": "a"})");
  write("c", R"({"name": "c", "base": "nobody"})");
  write("d", R"({"name": "d", "base": 7})");
  for (const auto& [name, text] :
       {std::pair{"a", "is a variant itself"}, {"c", "'nobody' is unknown"}, {"d", "is not the name"}}) {
    const auto refused = DataFolder{root}.semantics(name);
    ASSERT_FALSE(refused) << name;
    EXPECT_NE(to_string(refused.error()).find(text), std::string::npos) << to_string(refused.error());
  }
}

TEST(Presets, UnknownFiguresStayUnknownAndAreNamed) {
  const auto ascend = data().device("ascend-910b-64gb").value();
  EXPECT_FALSE(ascend.memory_bandwidth);
  EXPECT_FALSE(ascend.bf16);
  EXPECT_FALSE(data().device("v100-sxm2-32gb").value().bf16);
  EXPECT_EQ(unknown_figures(data().cluster("atlas-800t-a2").value()),
            (std::vector<std::string>{"device ascend-910b-64gb: memory_bandwidth", "tier node: link bandwidth",
                                      "tier network: link bandwidth"}));
  EXPECT_EQ(unknown_figures(data().cluster("dgx-h100").value()), std::vector<std::string>{});
}

/// Driver totals: stas00/ml-engineering training/performance (A100 79.15 GiB, H100 79.1 GiB); 143771 MiB is what one
/// H200 reports.
TEST(Presets, UsableMemoryIsWhatTheDriverReports) {
  EXPECT_EQ(data().device("a100-sxm-80gb").value().usable_memory, parse_bytes("79.15 GiB"));
  EXPECT_EQ(data().device("h100-sxm-80gb").value().usable_memory, parse_bytes("79.1 GiB"));
  EXPECT_EQ(data().device("h200-sxm-141gb").value().usable_memory, Bytes(143771 * kMiB));
}

TEST(Presets, UnknownNamesAndFoldersAreErrors) {
  const auto wrong = data().device("h100");
  ASSERT_FALSE(wrong);
  EXPECT_NE(to_string(wrong.error()).find("'h100' is unknown"), std::string::npos);
  EXPECT_FALSE(data().model("../semantics/megatron-core"));
  const auto nowhere = DataFolder{"/nonexistent"}.model("llama3-8b");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().kind, Error::Kind::environment);
}

TEST(Presets, AFileStandsWhereAPresetDoes) {
  const fs::path folder = fs::path(testing::TempDir()) / "preset_files";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000})";
  const auto model = load_model(data(), (folder / "config.json").string());
  ASSERT_TRUE(model) << to_string(model.error());
  EXPECT_EQ(model->layers, 2);
  EXPECT_EQ(model->name, "preset_files");

  std::ofstream(folder / "cluster.json")
      << R"({"device": "h100-sxm-80gb", "tiers": [{"fanout": 8, "link": {"bandwidth": "450 GB/s"}},
      {"fanout": 4, "link": {"bandwidth": "50 GB/s"}}]})";
  const auto cluster = load_cluster(data(), (folder / "cluster.json").string(), 64);
  ASSERT_TRUE(cluster) << to_string(cluster.error());
  EXPECT_EQ(device_count(*cluster), 64);

  // In a plan both stand beside it.
  const auto plan = parse_json(R"({"model": "config.json", "cluster": "./cluster.json",
      "job": {"sequence_length": 16, "global_batch": 4}, "layout": {}})",
                               "plan");
  ASSERT_TRUE(plan);
  const auto read = plan_from(*plan, (folder / "plan.json").string(), data());
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->model.hidden, 64);
  EXPECT_FALSE(load_model(data(), (folder / "missing.json").string()));
}

} // namespace
} // namespace foretrain
