// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "gui/model/run_plan.h"
#include "gui/model/run_timeline.h"
#include "gui/model/runs.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui {
namespace {

bool holds(const std::vector<std::string>& words, const std::vector<std::string>& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

TEST(RunPlan, SaysWhatIsAskedForAndNothingElse) {
  RunRequest request;
  request.steps = 7;
  const auto local = run_arguments(request, "p.json", "a.db", "out");
  EXPECT_EQ(local.front(), "run");
  EXPECT_TRUE(holds(local, {"--launcher", "local", "--steps", "7"}));
  EXPECT_TRUE(holds(local, {"--db", "a.db", "--out", "out", "--json"}));
  EXPECT_FALSE(holds(local, {"--partition"}));
  request.launcher = "slurm";
  request.time = "00:10:00";
  request.partition = "short";
  request.sbatch = {"--account=lab", "--mem=0"};
  const auto slurm = run_arguments(request, "p.json", "a.db", "out");
  EXPECT_TRUE(
      holds(slurm, {"--time", "00:10:00", "--partition", "short", "--sbatch=--account=lab", "--sbatch=--mem=0"}));
}

TEST(RunPlan, AsksForCheckpointsDataAndWeights) {
  const test::Folder folder;
  RunRequest request;
  request.checkpoint = folder / "c";
  request.checkpoint_every = 5;
  request.checkpoint_background = true;
  request.max_restarts = 2;
  request.tokens = folder / "t.bin";
  request.token_type = "uint32";
  const auto words = run_arguments(request, "p.json", "a.db", "out");
  EXPECT_TRUE(holds(words, {"--checkpoint", folder / "c", "--checkpoint-every", "5", "--checkpoint-background",
                            "--max-restarts", "2"}));
  EXPECT_TRUE(holds(words, {"--tokens", folder / "t.bin", "--token-type", "uint32"}));
  EXPECT_FALSE(holds(words, {"--resume"}));
  EXPECT_EQ(export_arguments(request, "hf"), (std::vector<std::string>{"--resume", folder / "c", "--export", "hf"}));
  request.resume = "older";
  EXPECT_EQ(export_arguments(request, "hf")[1], "older");
}

TEST(RunPlan, SaysWhatOfARequestCannotBe) {
  const test::Folder folder;
  const auto problem = [](const auto& change) {
    RunRequest request;
    change(request);
    return problem_of(request).value_or("");
  };
  EXPECT_EQ(problem([](RunRequest&) {}), "");
  EXPECT_NE(problem([](RunRequest& r) { r.checkpoint_every = 3; }), "");
  EXPECT_NE(problem([](RunRequest& r) { r.checkpoint_background = true; }), "");
  EXPECT_NE(problem([](RunRequest& r) { r.max_restarts = 1; }).find("folder"), std::string::npos);
  std::ofstream(folder / "t.bin") << "123";
  EXPECT_NE(problem([&](RunRequest& r) { r.checkpoint = folder / "t.bin"; }).find("is none"), std::string::npos);
  EXPECT_EQ(problem([&](RunRequest& r) { r.checkpoint = folder / "new"; }), "");
  EXPECT_NE(problem([&](RunRequest& r) { r.tokens = folder / "t.bin"; }).find("3 bytes"), std::string::npos);
  EXPECT_NE(problem([&](RunRequest& r) { r.tokens = folder / "nowhere"; }).find("nowhere"), std::string::npos);
  EXPECT_NE(problem([&](RunRequest& r) { r.resume = folder / "nowhere"; }).find("nowhere"), std::string::npos);
  EXPECT_NE(problem([&](RunRequest& r) { r.weights = folder / "nowhere"; }).find("nowhere"), std::string::npos);
  EXPECT_NE(problem([&](RunRequest& r) { r.resume = r.weights = "a"; }).find("of its own"), std::string::npos);
  RunRequest request;
  EXPECT_TRUE(export_problem_of(request, "hf"));
  request.checkpoint = folder / ".";
  EXPECT_FALSE(export_problem_of(request, "hf"));
  EXPECT_TRUE(export_problem_of(request, ""));
}

TEST(RunPlan, KeepsEachRunInAFolderOfItsOwn) {
  const test::Folder folder;
  const auto first = new_run_folder(folder / "s.foretrain");
  EXPECT_EQ(first.parent_path(), folder / "s-runs");
  std::filesystem::create_directories(first);
  EXPECT_NE(new_run_folder(folder / "s.foretrain"), first);
}

TEST(RunPlan, WarnsOfWhatThisMachineCannotHold) {
  Layout layout;
  layout.dp_shard = 8;
  Prediction prediction;
  prediction.memory.resize(2);
  prediction.memory[0].allocated = Bytes(10 * kGiB);
  prediction.memory[1].allocated = Bytes(20 * kGiB);
  EXPECT_FALSE(reason_against_local(layout, &prediction, 120.0 * kGiB)) << "8 ranks of 15 GiB on average";
  const auto reason = reason_against_local(layout, &prediction, 119.0 * kGiB);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("120 GiB"), std::string::npos) << *reason;
  layout.dp_shard = 128;
  EXPECT_TRUE(reason_against_local(layout, nullptr, 0));
  EXPECT_GT(machine_memory(), 1e8);
}

TEST(RunPlan, FollowsARunByWhatItsRanksWrite) {
  const test::Folder folder;
  const auto none = run_state(folder / "");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->ranks, 0);
  std::ofstream file(folder / "run.json");
  file << R"({"format": "foretrain-run 1", "warmup": 1, "steps": 3})"
       << "\n"
       << R"({"rank": 0, "step": 0, "step_time_s": 0.5, "loss": 1.0})"
       << "\n"
       << R"({"rank": 1, "step": 0, "step_time_s": 0.7, "loss": 2.0})"
       << "\n"
       << R"({"rank": 0, "step": 1, "step_time_s": 0.4, "loss": 1.5})"
       << "\n"
       << R"({"rank": 1, "step": 1, "st)" << std::flush; // still being written
  const auto state = run_state(folder / "");
  ASSERT_TRUE(state) << to_string(state.error());
  EXPECT_EQ(state->ranks, 2);
  EXPECT_EQ(state->warmup, 1);
  EXPECT_EQ(state->step_seconds, std::vector<double>{0.7}) << "the second step is not done by every rank";
  EXPECT_EQ(state->loss, std::vector<double>{3.0});
}

TEST(RunTimeline, PutsEachRankUnderItsStage) {
  const Json trace = {
      {"traceEvents",
       {{{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", "predicted stage 0"}}}},
        {{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"args", {{"name", "predicted stage 1"}}}},
        {{"ph", "M"}, {"name", "process_name"}, {"pid", 10000}, {"args", {{"name", "measured rank 0"}}}},
        {{"ph", "M"}, {"name", "process_name"}, {"pid", 10001}, {"args", {{"name", "measured rank 1"}}}},
        {{"ph", "X"}, {"pid", 0}, {"tid", 0}, {"ts", 5.0}, {"dur", 10.0}, {"cat", "compute"}, {"name", "F"}},
        {{"ph", "X"}, {"pid", 0}, {"tid", 0}, {"ts", 0.0}, {"dur", 5.0}, {"cat", "tp"}, {"name", "first"}},
        {{"ph", "X"}, {"pid", 1}, {"tid", 3}, {"ts", 2.0}, {"dur", 1.0}, {"cat", "pp"}, {"name", "s"}},
        {{"ph", "X"}, {"pid", 10000}, {"tid", 0}, {"ts", 0.0}, {"dur", 20.0}, {"cat", "compute"}, {"name", "F"}},
        {{"ph", "X"}, {"pid", 10001}, {"tid", 0}, {"ts", 0.0}, {"dur", 30.0}, {"cat", "compute"}, {"name", "F"}}}}};
  const auto timeline = run_timeline(trace, {1, 0});
  ASSERT_TRUE(timeline);
  std::vector<std::string> titles;
  for (const RunLane& lane : timeline->lanes) titles.push_back(lane.title);
  EXPECT_EQ(titles,
            (std::vector<std::string>{"predicted stage 0", "measured rank 1", "predicted stage 1", "measured rank 0"}));
  EXPECT_DOUBLE_EQ(timeline->end, 30e-6);
  EXPECT_EQ(timeline->lanes[0].rows[0][0].name, "first") << "in time order";
  EXPECT_FALSE(run_timeline(Json("nonsense"), {}));
}

TEST(RunTimeline, SaysHowMuchLaterThanPromisedEachOpWasDone) {
  const auto name = [](int process, const char* text) {
    return Json{{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", text}}}};
  };
  const auto op = [](int process, const char* text, double start, double end, int batch) {
    return Json{
        {"ph", "X"},          {"pid", process},   {"tid", 0},     {"ts", start},
        {"dur", end - start}, {"cat", "compute"}, {"name", text}, {"args", {{"micro_batch", batch}, {"layer", 2}}}};
  };
  const Json trace = {{"traceEvents",
                       {name(0, "predicted stage 0"), name(10'000, "measured rank 0"), op(0, "ffn_up F", 0, 10, 0),
                        op(0, "ffn_up B", 10, 30, 0), op(0, "ffn_up F", 30, 40, 1),
                        op(10'000, "forward ffn_up", 0, 12, 0), op(10'000, "backward ffn_up", 12, 28, 0),
                        op(10'000, "forward ffn_up", 28, 45, 1), op(10'000, "forward unheard_of", 45, 46, 1)}}};
  const auto timeline = run_timeline(trace, {0});
  ASSERT_TRUE(timeline);
  EXPECT_TRUE(timeline->lanes[0].lags.empty()) << "a forecast is not late";
  const auto& lags = timeline->lanes[1].lags;
  ASSERT_EQ(lags.size(), 3U) << "what was not promised is not late";
  EXPECT_NEAR(lags[0].seconds, 2e-6, 1e-12);
  EXPECT_NEAR(lags[1].seconds, -2e-6, 1e-12);
  EXPECT_NEAR(lags[2].seconds, 5e-6, 1e-12);
  EXPECT_DOUBLE_EQ(lags[2].at, 45e-6);
}

TEST(RunTerms, ReadTheComparison) {
  const auto terms =
      run_terms({{"rows",
                  {{{"item", "step_time"}, {"rank", nullptr}, {"predicted", 1.0}, {"measured", 2.0}, {"unit", "s"}},
                   {{"item", "time/tp"}, {"rank", 3}, {"predicted", 0.1}, {"measured", 0.2}, {"unit", "s"}}}}});
  ASSERT_TRUE(terms);
  ASSERT_EQ(terms->size(), 2U);
  EXPECT_EQ((*terms)[0].rank, -1);
  EXPECT_EQ((*terms)[1].rank, 3);
  EXPECT_FALSE(run_terms(Json::object()));
}

TEST(Calibrations, AcceptedOnesCountForLaterPredictions) {
  const test::Folder folder;
  Environment environment = test::environment();
  environment.user_data = folder / "data";
  Session searching(environment);
  searching.open_study(test::small_document(), "open");
  searching.start_search();
  ASSERT_TRUE(test::wait_until(searching, [&] { return !searching.searching(); }));
  const auto results = std::make_shared<const Results>(searching.results());
  const DeviceSpec& device = results->study.cluster.device;
  const Calibration preset = calibration_of(environment, device).value();
  Calibration slower = preset;
  slower.name = device.name;
  slower.gemm.efficiency /= 2;
  const auto changes = rank_changes(environment, *results, slower, 4);
  ASSERT_TRUE(changes) << to_string(changes.error());
  ASSERT_EQ(changes->size(), 4U);
  for (std::size_t i = 0; i < changes->size(); ++i) {
    EXPECT_GT((*changes)[i].after_s, (*changes)[i].before_s * 1.05) << "half the speed of products";
    EXPECT_EQ((*changes)[i].rank, static_cast<int>(i));
  }
  EXPECT_FALSE(searching.stale());
  Session::Act undo;
  Session::Act redo;
  searching.acted = [&](const std::string& title, Session::Act back, Session::Act again) {
    EXPECT_NE(title.find(device.name), std::string::npos);
    undo = std::move(back);
    redo = std::move(again);
  };
  ASSERT_TRUE(searching.use_calibration(slower));
  EXPECT_EQ(calibration_of(environment, device).value(), slower);
  EXPECT_TRUE(searching.stale()) << "the rows rest on the calibration before";
  ASSERT_TRUE(undo && redo);
  undo();
  EXPECT_EQ(calibration_of(environment, device).value(), preset);
  EXPECT_FALSE(searching.stale()) << "the rows rest on this one";
  redo();
  EXPECT_EQ(calibration_of(environment, device).value(), slower);
  EXPECT_TRUE(searching.stale());
  environment.user_data.clear();
  Session nowhere(environment);
  EXPECT_FALSE(nowhere.use_calibration(slower));
}

} // namespace
} // namespace foretrain::gui
