#include "core/spec/io.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

/// The plan of docs, with one value replaced or added at a JSON pointer.
Json plan_document() {
  const auto json = parse_json(R"({
    "model": "llama3-70b",
    "cluster": { "device": "h100-sxm-80gb", "tiers": [
        { "name": "node", "fanout": 8, "link": { "bandwidth": "450 GB/s", "latency": "2 us" }, "fabric": "switch" },
        { "name": "leaf", "fanout": 8, "link": { "bandwidth": "50 GB/s", "latency": "5 us" }, "fabric": "rail" } ] },
    "job": { "sequence_length": 8192, "global_batch": 256, "precision": "bf16", "semantics": "megatron-core",
             "optimizer": { "kind": "adamw" } },
    "layout": { "tp": 8, "pp": 4, "cp": 1, "ep": 1, "etp": 1, "dp_shard": 2, "dp_replicate": 1,
                "placement": ["tp", "cp", "dp", "pp"], "micro_batch": 1, "sequence_parallel": true,
                "schedule": { "kind": "interleaved", "chunks": 5 },
                "sharding": { "kind": "optimizer" }, "recompute": { "kind": "none" } } })",
                               "plan.json");
  return json.value();
}

std::string error_with(const std::string& pointer, Json value) {
  Json json = plan_document();
  json[Json::json_pointer(pointer)] = std::move(value);
  const auto plan = plan_from(json, "plan.json", data());
  return plan ? "no error" : to_string(plan.error());
}

void expect_error(const std::string& pointer, Json value, std::initializer_list<const char*> parts) {
  const std::string error = error_with(pointer, std::move(value));
  for (const char* part : parts)
    EXPECT_NE(error.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << error;
}

TEST(SpecIo, ThePlanOfTheDocumentationReads) {
  const auto plan = plan_from(plan_document(), "plan.json", data());
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->model.hidden, 8192);
  EXPECT_EQ(plan->cluster.device.name, "h100-sxm-80gb");
  EXPECT_EQ(device_count(plan->cluster), 64);
  EXPECT_EQ(plan->cluster.tiers[1].link.bandwidth, BytesPerSecond(50e9));
  EXPECT_EQ(plan->cluster.tiers[1].fabric, Fabric::rail);
  EXPECT_EQ(plan->layout.schedule, (ScheduleChoice{"interleaved", 5}));
  EXPECT_EQ(plan->layout.world(), 64);
}

TEST(SpecIo, GroupsOfMicroBatchesAreAKeyOfTheInterleavedSchedule) {
  Json json = plan_document();
  json["layout"]["schedule"]["group"] = 5;
  const auto plan = plan_from(json, "plan.json", data());
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->layout.schedule, (ScheduleChoice{"interleaved", 5, 5}));
  EXPECT_EQ(to_json(plan->layout)["schedule"], json["layout"]["schedule"]);
  json["layout"]["schedule"]["group"] = 0;
  EXPECT_EQ(plan_from(json, "plan.json", data())->layout.schedule, (ScheduleChoice{"interleaved", 5}));
  expect_error("/layout/schedule/group", -1, {"plan.json:/layout/schedule/group", "-1"});
  expect_error("/layout/schedule", Json{{"kind", "1f1b"}, {"group", 5}},
               {"plan.json:/layout/schedule/group", "belongs to kind interleaved, not to '1f1b'"});
  expect_error("/layout/schedule", Json{{"kind", "interleaved"}, {"groups", 5}}, {"did you mean 'group'"});
}

TEST(SpecIo, UnknownKeysAreNamedWithPointerAndNearestKey) {
  expect_error("/layout/micro_batches", 1, {"plan.json:/layout/micro_batches", "did you mean 'micro_batch'"});
  expect_error("/cluster/tiers/1/link/latancy", "1 us",
               {"plan.json:/cluster/tiers/1/link/latancy", "did you mean 'latency'"});
  expect_error("/layuot", 1, {"plan.json:/layuot", "did you mean 'layout'"});
  expect_error("/space", Json::object(), {"plan.json:/space", "unknown key 'space' in plan"});
}

TEST(SpecIo, AKeyOfAnotherChoiceSaysWhoseItIs) {
  expect_error("/layout/schedule", Json{{"kind", "1f1b"}, {"chunks", 2}},
               {"plan.json:/layout/schedule/chunks", "belongs to kind interleaved, not to '1f1b'"});
  expect_error("/layout/recompute", Json{{"kind", "none"}, {"count", 1}},
               {"plan.json:/layout/recompute/count", "belongs to kind full"});
  expect_error("/job/optimizer", Json{{"kind", "adafactor"}, {"moments", "fp32"}},
               {"plan.json:/job/optimizer/moments", "not to 'adafactor'"});
  expect_error("/layout/sharding", Json{{"kind", "optimizer"}, {"reshard_after_forward", true}},
               {"plan.json:/layout/sharding/reshard_after_forward", "belongs to kind parameters"});
}

TEST(SpecIo, UnknownNamesAreAnsweredWithTheNearest) {
  expect_error("/layout/schedule", "1f1p",
               {"plan.json:/layout/schedule/kind", "'1f1p' is unknown", "did you mean '1f1b'"});
  expect_error("/layout/schedule", Json{{"kind", "interleavd"}, {"chunks", 2}},
               {"'interleavd' is unknown", "did you mean 'interleaved'"});
  expect_error("/job/precision", "bf61", {"plan.json:/job/precision", "did you mean 'bf16'"});
  expect_error("/job/semantics", "megatron", {"plan.json:/job/semantics", "'megatron' is unknown", "megatron-core"});
  expect_error("/model", "llama3-70", {"plan.json:/model", "did you mean 'llama3-70b'"});
  expect_error("/cluster/device", "h100-sxm-80g", {"plan.json:/cluster/device", "did you mean 'h100-sxm-80gb'"});
  expect_error("/cluster", "dgx-h10", {"plan.json:/cluster", "did you mean 'dgx-h100'"});
  expect_error("/cluster/tiers/0/fabric", "switched", {"plan.json:/cluster/tiers/0/fabric", "did you mean 'switch'"});
}

TEST(SpecIo, RoutingAsTheRouterDoesItIsRefusedWithTheReason) {
  expect_error(
      "/job/routing", "real",
      {"plan.json:/job/routing/kind", "'real' is not modelled: no published measurement", "balanced, imbalanced"});
}

TEST(SpecIo, WrongTypesAndUnitsAreErrorsAtTheirPlace) {
  expect_error("/layout/tp", "8", {"plan.json:/layout/tp", "\"8\" is not a whole number"});
  expect_error("/layout/tp", 2.5, {"2.5 is not a whole number"});
  expect_error("/layout/sequence_parallel", 1, {"plan.json:/layout/sequence_parallel", "not true or false"});
  expect_error("/layout/placement", "tp", {"plan.json:/layout/placement", "not a list of 4"});
  expect_error("/cluster/tiers/0/link/bandwidth", 450,
               {"plan.json:/cluster/tiers/0/link/bandwidth", "450 has no unit", "50 GB/s"});
  expect_error("/cluster/tiers/0/link/bandwidth", "450 GiB", {"\"450 GiB\"", "50 GB/s"});
  expect_error("/cluster/tiers/0/link/latency", "2 GB/s", {"\"2 GB/s\"", "2 us"});
  expect_error("/model", 3, {"plan.json:/model", "3 is not an object"});
  expect_error("/layout", Json::array(), {"plan.json:/layout", "expected layout"});
}

TEST(SpecIo, NumbersOutOfRangeAreErrorsWithTheRange) {
  expect_error("/layout/tp", 0, {"plan.json:/layout/tp", "0 is out of range", "between 1 and"});
  expect_error("/layout/tp", -4, {"-4 is out of range"});
  expect_error("/layout/micro_batch", 1e308, {"plan.json:/layout/micro_batch", "out of range"});
  expect_error("/job/sequence_length", 0, {"plan.json:/job/sequence_length", "out of range"});
  expect_error("/job/global_batch", 1e300, {"plan.json:/job/global_batch", "out of range"});
  expect_error("/cluster/tiers/0/fanout", 0, {"plan.json:/cluster/tiers/0/fanout", "out of range"});
  expect_error("/cluster/tiers/0/link/latency", "-1 us", {"plan.json:/cluster/tiers/0/link/latency", "out of range"});
  expect_error("/cluster/tiers/0/background_load", 1, {"plan.json:/cluster/tiers/0/background_load"});
}

TEST(SpecIo, WhatContradictsItselfIsAnError) {
  expect_error("/layout/placement", Json::array({"tp", "tp", "dp", "pp"}),
               {"plan.json:/layout/placement", "each of tp, cp, dp, pp"});
  expect_error("/layout/recompute", "selective", {"plan.json:/layout/recompute/modules"});
  expect_error("/layout/recompute", Json{{"kind", "selective"}, {"modules", {"moe", "moe"}}},
               {"plan.json:/layout/recompute/modules/1"});
  expect_error("/job/packed", Json::array({Json{{"length", 100}, {"share", 0.5}}}), {"plan.json:/job/packed", "0.5"});
  expect_error("/job/packed", Json::array({Json{{"length", 9000}, {"share", 1}}}), {"9000", "8192"});
  expect_error("/cluster/tiers/0/shape", Json::array({2, 4}), {"plan.json:/cluster/tiers/0/shape", "torus"});
  expect_error("/cluster/tiers", Json::array(), {"plan.json:/cluster/tiers", "empty"});
  expect_error("/layout/dp_shard", 1000000, {"plan.json:/layout", "devices"});
}

TEST(SpecIo, AModelMayBeAnObjectAPresetOrAHuggingFaceConfiguration) {
  Json model = to_json(data().model("llama3-8b").value());
  EXPECT_EQ(error_with("/model", model), "no error");
  model["kv_heads"] = 7;
  expect_error("/model", model, {"plan.json:/model/kv_heads", "7 does not divide"});
  const Json config{{"model_type", "llama"},   {"hidden_size", 4096},       {"intermediate_size", 14336},
                    {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
                    {"vocab_size", 128256}};
  Json document = plan_document();
  document["model"] = config;
  const auto plan = plan_from(document, "plan.json", data());
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->model.ffn, 14336);
  expect_error("/model", Json{{"model_type", "no-such-architecture"}}, {"plan.json", "no-such-architecture"});
}

TEST(SpecIo, AClusterMayBeAPresetOfAnotherSize) {
  Json document = plan_document();
  document["cluster"] = Json{{"preset", "dgx-h100"}, {"devices", 64}};
  const auto plan = plan_from(document, "plan.json", data());
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(device_count(plan->cluster), 64);
  expect_error("/cluster", Json{{"preset", "dgx-h100"}, {"devices", 12}}, {"plan.json:/cluster/devices", "12", "8"});
  expect_error("/cluster", Json{{"preset", "dgx-h"}, {"devices", 8}}, {"plan.json:/cluster/preset", "dgx-h100"});
  expect_error("/cluster", Json{{"preset", "dgx-h100"}}, {"plan.json:/cluster", "'devices' is missing"});
}

TEST(SpecIo, SizesWhoseBytesWouldNotFitAreRefused) {
  Json document = plan_document();
  document["job"]["sequence_length"] = 100000000;
  document["layout"]["micro_batch"] = 1000000;
  const auto plan = plan_from(document, "plan.json", data());
  ASSERT_FALSE(plan);
  EXPECT_NE(to_string(plan.error()).find("1e+14 tokens"), std::string::npos) << to_string(plan.error());
  Json model = to_json(data().model("llama3-8b").value());
  model["hidden"] = 1000000;
  model["ffn"] = 10000000;
  model["layers"] = 100000;
  model["head_dim"] = 1000000;
  expect_error("/model", model, {"plan.json:/model", "parameters are more than"});
}

TEST(SpecIo, AStudyHasASpaceInsteadOfALayout) {
  Json document = plan_document();
  document.erase("layout");
  document["space"] = Json{{"tp", {1, 2, 4, 8}}, {"schedules", {"1f1b"}}, {"sequence_parallel", {true}}};
  document["objective"] = "memory-headroom";
  const auto study = study_from(document, "study.json", data());
  ASSERT_TRUE(study) << to_string(study.error());
  EXPECT_EQ(study->space.tp, (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(study->objective, Objective::memory_headroom);
  document["space"]["schedules"] = {"1f1b", "interleave"};
  const auto wrong = study_from(document, "study.json", data());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().where, "study.json:/space/schedules/1");
  document["layout"] = Json::object();
  EXPECT_FALSE(study_from(document, "study.json", data()));
}

TEST(SpecIo, SourcesOfSemanticsMustNameTheirKeys) {
  Json json = to_json(data().semantics("megatron-core").value());
  json["sources"]["contxt"] = "somewhere";
  const auto semantics = semantics_from(json, "s.json");
  ASSERT_FALSE(semantics);
  EXPECT_EQ(semantics.error().where, "s.json:/sources/contxt");
  EXPECT_NE(semantics.error().hint.find("context"), std::string::npos);
}

TEST(SpecIo, NamesOfFlagsReadLikeThoseOfFiles) {
  EXPECT_EQ(precision_from("mxfp8", "--precision").value(), Precision::mxfp8);
  EXPECT_EQ(objective_from("cost", "--objective").value(), Objective::cost);
  EXPECT_EQ(engine_from("simgrid", "--engine").value(), Engine::simgrid);
  const auto wrong = precision_from("bf17", "--precision");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().where, "--precision");
}

/// Keys that outside scripts rely on: added to, never renamed.
TEST(SpecIo, APredictionHasTheKeysOfItsContract) {
  Prediction prediction;
  prediction.step_time = Seconds(1.5);
  prediction.time[static_cast<std::size_t>(TimePart::bubble)] = Seconds(0.25);
  prediction.memory.resize(2);
  prediction.memory[1].device = Bytes(70 * kGiB);
  prediction.memory[1].parts[static_cast<std::size_t>(MemoryPart::logits)] = Bytes(kGiB);
  prediction.rejections = {Rejection{"memory", "too large", 90, 80, {"tp 8"}}};
  prediction.verdict = Verdict::oom;
  const Json json = to_json(prediction);
  EXPECT_EQ(json["verdict"], "oom");
  EXPECT_EQ(json["step_time_s"], 1.5);
  for (const char* key : {"tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu_percent", "flop_convention", "evidence"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host", "other"})
    EXPECT_TRUE(json["time"].contains(key)) << key;
  EXPECT_EQ(json["time"]["bubble"], 0.25);
  const Json& stage = json["memory"][1];
  EXPECT_EQ(stage["device_bytes"], 70 * kGiB);
  EXPECT_TRUE(stage.contains("allocated_bytes") && stage.contains("reserved_bytes"));
  for (const char* key : {"parameters", "gradients", "master", "moments", "activations", "logits", "temporaries",
                          "buckets", "communication", "context", "fragmentation"})
    EXPECT_TRUE(stage["parts"].contains(key)) << key;
  EXPECT_EQ(stage["parts"]["logits"], kGiB);
  EXPECT_EQ(
      json["rejections"][0],
      (Json{
          {"rule", "memory"}, {"reason", "too large"}, {"needed", 90.0}, {"available", 80.0}, {"nearest", {"tp 8"}}}));
  EXPECT_EQ(json["interval"]["step_time_s"].size(), 2U);
  EXPECT_EQ(json["interval"]["memory_bytes"].size(), 2U);
}

TEST(SpecIo, AnIllegalLayoutHasNoTime) {
  Prediction prediction;
  prediction.verdict = Verdict::illegal;
  EXPECT_TRUE(to_json(prediction)["step_time_s"].is_null());
}

} // namespace
} // namespace foretrain
