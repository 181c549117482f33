#pragma once

#include <filesystem>
#include <string>

#include <unistd.h>

#include "db/store.h"
#include "tests/support/places.h"

/// Values for the tests of the store: every member set, so that a column that is forgotten shows.
namespace foretrain::test {

/// A new folder below the system's temporary folder, removed at the end.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "foretrain-db-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

inline Study sample_study() {
  Study study;
  study.model.name = "tiny";
  study.model.layers = 4;
  study.model.hidden = 64;
  study.model.heads = 4;
  study.model.kv_heads = 2;
  study.model.head_dim = 16;
  study.model.ffn = 256;
  study.model.vocab = 1000;
  study.cluster.name = "two nodes";
  study.cluster.device.name = "test device";
  study.cluster.device.memory = Bytes(80 * kGiB);
  study.cluster.tiers = {
      TierSpec{"node", 8, LinkSpec{BytesPerSecond(450e9), Seconds(2e-6), 0}, Fabric::switched, 1, 0, {}},
      TierSpec{"leaf", 2, LinkSpec{BytesPerSecond(50e9), Seconds(5e-6), 0}, Fabric::rail, 1, 0, {}}};
  study.job.sequence_length = 2048;
  study.job.global_batch = 64;
  study.objective = Objective::throughput;
  study.space.tp = {1, 2, 4};
  return study;
}

/// Different for each number below 12 * 2^16.
inline Layout sample_layout(int number) {
  constexpr int kDegrees[] = {1, 2, 4, 8};
  Layout layout;
  layout.tp = kDegrees[number % 4];
  layout.pp = kDegrees[number / 4 % 3];
  layout.dp_shard = 2;
  layout.micro_batch = 1 + number / 12;
  layout.sequence_parallel = layout.tp > 1;
  return layout;
}

inline Prediction sample_prediction(double step_time, Verdict verdict = Verdict::fits) {
  Prediction prediction;
  prediction.verdict = verdict;
  prediction.engine = Engine::slots;
  prediction.step_time = Seconds(step_time);
  prediction.tokens_per_s_per_device = 8192 / step_time;
  prediction.model_tflops_per_device = 401.5;
  prediction.mfu_percent = 40.5;
  prediction.flop_convention = "model";
  for (int i = 0; i < kTimeParts; ++i) prediction.time[static_cast<std::size_t>(i)] = Seconds(step_time / kTimeParts);
  StageMemory stage;
  stage.allocated = Bytes(50 * kGiB);
  stage.reserved = Bytes(52 * kGiB);
  stage.device = Bytes(static_cast<std::int64_t>(60e9 / step_time));
  stage.parts[0] = Bytes(7);
  stage.parts[kMemoryParts - 1] = Bytes(11);
  stage.peak_at = "B micro-batch 0";
  prediction.memory = {stage, stage};
  prediction.memory[1].device = Bytes(1);
  prediction.rejections = {Rejection{"memory", "needs 90, has 80", 90, 80, {"tp 4", "tp 8"}}};
  prediction.evidence = Evidence::fitted;
  prediction.step_time_interval = {Seconds(step_time * 0.9), Seconds(step_time * 1.2)};
  prediction.memory_interval = {Bytes(49 * kGiB), Bytes(51 * kGiB)};
  prediction.notes = {"a note", "caf\xc3\xa9 \"quoted\""};
  return prediction;
}

inline StoredPrediction stored(Engine engine, double step_time, Verdict verdict = Verdict::fits) {
  StoredPrediction result{{engine, "megatron-core", "0123"}, sample_prediction(step_time, verdict)};
  result.prediction.engine = engine;
  return result;
}

inline std::vector<NewCandidate> sample_batch(int first, int size) {
  std::vector<NewCandidate> batch;
  for (int i = first; i < first + size; ++i)
    batch.push_back(NewCandidate{sample_layout(i), {stored(Engine::slots, 1.0 + i)}, false});
  return batch;
}

inline DataFolder data_folder() {
  return DataFolder{test::source_folder() / "data"};
}

} // namespace foretrain::test
