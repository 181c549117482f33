#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "executor/checkpoint/checkpoint.h"
#include "executor/run.h"
#include "tests/executor/folder.h"

/// What needs no tensors: pieces of whole tensors, the index, the folder.
namespace foretrain {
namespace {

using namespace test;

TEST(Pieces, StretchesOfColumnsAndOwnedElements) {
  // Rows 1 and 2 of a tensor with 4 columns, columns 2 and 3: elements 6 7 10 11.
  const Slice slice{{{1, 2}}, 2, 2, 4};
  EXPECT_EQ(stretches_of(slice, 0, 4), (std::vector<Stretch>{{6, 0, 2}, {10, 2, 2}}));
  EXPECT_EQ(stretches_of(slice, 1, 2), (std::vector<Stretch>{{7, 0, 1}, {10, 1, 1}}));
  // Whole rows that follow each other are one stretch.
  const Slice rows{{{0, 2}, {2, 1}, {5, 1}}, 0, 3, 3};
  EXPECT_EQ(stretches_of(rows, 0, 12), (std::vector<Stretch>{{0, 0, 9}, {15, 9, 3}}));
}

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 8;

/// The part of [12, 8] that member `index` of `ways` has when rows (or columns) are split, and of it the share of one
/// of `shards` owners. Element e of the whole tensor is e + 0.5.
StatePart part_of(bool rows, int ways, int index, int shards, int shard, std::vector<double>& data) {
  StatePart part;
  part.key = "weight/x";
  part.type = "F64";
  part.shape = {kRows, kColumns};
  part.slice = rows ? Slice{{{kRows / ways * index, kRows / ways}}, 0, kColumns, kColumns}
                    : Slice{{{0, kRows}}, kColumns / ways * index, kColumns / ways, kColumns};
  const std::int64_t all = kRows * kColumns / ways;
  const std::int64_t share = (all + shards - 1) / shards;
  part.first = std::min(all, share * shard);
  part.count = std::min(share, all - part.first);
  data.assign(static_cast<std::size_t>(part.count), -1);
  part.data = data.data();
  return part;
}

double value_of(const StatePart& part, std::int64_t i) {
  for (const Stretch& stretch : stretches_of(part.slice, part.first, part.count))
    if (i >= stretch.part && i < stretch.part + stretch.count)
      return static_cast<double>(stretch.whole + i - stretch.part) + 0.5;
  return -1;
}

Plan plan_of_test() {
  Plan plan;
  plan.model.name = "tiny";
  plan.model.layers = 2;
  plan.model.hidden = 16;
  plan.model.heads = plan.model.kv_heads = 4;
  plan.model.head_dim = 4;
  plan.model.ffn = 24;
  plan.model.vocab = 51;
  plan.job.sequence_length = 8;
  plan.job.global_batch = 4;
  plan.job.semantics = "foretrain";
  return plan;
}

/// Saves [12, 8] split and owned like this, as a checkpoint after `steps`.
Result<void> save(const std::filesystem::path& all, bool rows, int ways, int shards, int steps, int leave_out = -1,
                  bool commits = true) {
  if (auto begun = begin_checkpoint(all, steps); !begun) return begun;
  int rank = 0;
  for (int index = 0; index < ways; ++index)
    for (int shard = 0; shard < shards; ++shard, ++rank) {
      std::vector<double> data;
      const StatePart part = part_of(rows, ways, index, shards, shard, data);
      for (std::int64_t i = 0; i < part.count; ++i) data[static_cast<std::size_t>(i)] = value_of(part, i);
      const std::vector<StatePart> parts = rank == leave_out ? std::vector<StatePart>{} : std::vector<StatePart>{part};
      if (auto written = write_shard(unfinished_checkpoint(all, steps), rank, parts); !written) return written;
    }
  if (!commits) return {};
  return commit_checkpoint(all, plan_of_test(), {steps, 7, "synthetic"}, rank);
}

Result<PieceSource> source_of(const std::filesystem::path& folder) {
  FORETRAIN_TRY(const Checkpoint checkpoint, read_checkpoint(folder));
  return open_shards(checkpoint);
}

TEST(Checkpoint, AnyCutIsReadFromAnyOther) {
  for (const bool saved_rows : {true, false})
    for (const int saved_ways : {1, 2, 4})
      for (const int saved_shards : {1, 3}) {
        const TestFolder folder;
        ASSERT_TRUE(save(folder.path(), saved_rows, saved_ways, saved_shards, 5));
        auto source = source_of(folder / checkpoint_name(5));
        ASSERT_TRUE(source) << to_string(source.error());
        for (const bool rows : {true, false})
          for (const int ways : {1, 2, 4})
            for (const int shards : {1, 5})
              for (int member = 0; member < ways * shards; ++member) {
                std::vector<double> data;
                const StatePart part = part_of(rows, ways, member / shards, shards, member % shards, data);
                ASSERT_TRUE(source->fill(part, part.key));
                for (std::int64_t i = 0; i < part.count; ++i)
                  ASSERT_EQ(data[static_cast<std::size_t>(i)], value_of(part, i));
              }
      }
}

TEST(Checkpoint, PaddingIsNeitherWrittenNorRead) {
  const TestFolder folder;
  std::vector<double> data(16, 3);
  StatePart part{"weight/table", "F64", {7, 2}, Slice{{{0, 8}}, 0, 2, 2}, 0, 16,
                 data.data()}; // the last row is padding
  EXPECT_EQ(part.unpadded(), 14);
  ASSERT_TRUE(begin_checkpoint(folder.path(), 1));
  ASSERT_TRUE(write_shard(unfinished_checkpoint(folder.path(), 1), 0, {part}));
  ASSERT_TRUE(commit_checkpoint(folder.path(), plan_of_test(), {1, 7, "synthetic"}, 1));
  auto source = source_of(folder / checkpoint_name(1));
  ASSERT_TRUE(source);
  std::vector<double> read(20, 0);
  StatePart wider{"weight/table", "F64", {7, 2}, Slice{{{0, 10}}, 0, 2, 2}, 0, 20, read.data()};
  ASSERT_TRUE(source->fill(wider, wider.key));
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], i < 14 ? 3 : 0);
}

TEST(Checkpoint, SaysWhatIsMissingOrDamaged) {
  const TestFolder folder;
  std::vector<double> data;
  const StatePart whole = part_of(true, 1, 0, 1, 0, data);
  const auto complaint = [&](const char* says) {
    auto source = source_of(folder / checkpoint_name(5));
    std::string text = source ? "" : to_string(source.error());
    if (source) {
      const auto filled = source->fill(whole, whole.key);
      text = filled ? "nothing" : to_string(filled.error());
    }
    EXPECT_NE(text.find(says), std::string::npos) << text;
  };
  ASSERT_TRUE(save(folder.path(), true, 2, 1, 5, 1)); // rank 1 wrote none of its elements
  complaint("48 elements were found where 96 are needed");
  ASSERT_TRUE(save(folder.path(), true, 2, 1, 5)); // in place of it
  const std::filesystem::path shard = folder / checkpoint_name(5) / shard_name(1);
  const std::string good = bytes_of_file(shard);
  complaint("nothing");
  std::string bad = good;
  bad[bad.size() - 3] ^= 1;
  write_file(shard, bad);
  complaint("is damaged");
  write_file(shard, good.substr(0, good.size() - 8));
  complaint("is cut off: 8 bytes of 384 are missing");
  bad = good;
  bad[bad.find("F64")] = 'U';
  write_file(shard, bad);
  complaint("rank-00001.safetensors");
  bad = good;
  bad.replace(bad.find("columns"), 7, "columnz");
  write_file(shard, bad);
  complaint("is not the shard that the checkpoint was made with");
  std::filesystem::remove(shard);
  complaint("No such file");
  write_file(shard, good);
  complaint("nothing");
  const std::filesystem::path index = folder / checkpoint_name(5) / "index.json";
  const std::string text = bytes_of_file(index);
  write_file(index, text.substr(0, text.size() / 2));
  complaint("index.json");
  write_file(index, "{}");
  complaint("no index of a checkpoint");
}

TEST(Checkpoint, IsThereWholeOrNotAtAll) {
  const TestFolder folder;
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  EXPECT_FALSE(newest_checkpoint(folder / "missing"));
  ASSERT_TRUE(save(folder.path(), true, 2, 1, 5));
  ASSERT_TRUE(save(folder.path(), true, 2, 1, 10, -1, false)); // killed before the rename
  EXPECT_EQ(*newest_checkpoint(folder.path()), folder / checkpoint_name(5));
  std::filesystem::remove(unfinished_checkpoint(folder.path(), 10) / shard_name(1));
  EXPECT_FALSE(commit_checkpoint(folder.path(), plan_of_test(), {10, 7, "synthetic"}, 2)) << "a shard is missing";
  EXPECT_EQ(*newest_checkpoint(folder.path()), folder / checkpoint_name(5));
  ASSERT_TRUE(save(folder.path(), true, 1, 1, 10)); // what the crash left goes
  EXPECT_EQ(*newest_checkpoint(folder.path()), folder / checkpoint_name(10));
  EXPECT_EQ(*newest_checkpoint(folder / checkpoint_name(5)), folder / checkpoint_name(5)) << "itself is one";
  EXPECT_FALSE(std::filesystem::exists(folder / checkpoint_name(10) / shard_name(1)));
  EXPECT_FALSE(std::filesystem::exists(unfinished_checkpoint(folder.path(), 10)));
}

TEST(Checkpoint, GoesOnOnlyWithTheSameTraining) {
  const TestFolder folder;
  ASSERT_TRUE(save(folder.path(), true, 1, 1, 5));
  const auto prepared = [&](const Plan& plan, int steps, std::uint64_t seed) -> std::string {
    RunSettings settings;
    settings.resume = folder.path();
    settings.steps = steps;
    settings.seed = seed;
    const auto done = prepare_run(plan, settings);
    return done ? std::to_string(settings.first_step) + " " + settings.resume.filename().string()
                : to_string(done.error());
  };
  const Plan same = plan_of_test();
  EXPECT_EQ(prepared(same, 6, 7), "5 step-00000005");
  Plan other = same;
  other.model.name = "another name";
  other.layout.tp = 2;
  EXPECT_EQ(prepared(other, 6, 7), "5 step-00000005") << "neither the name nor the layout matters";
  EXPECT_NE(prepared(same, 5, 7).find("5 steps are done"), std::string::npos) << prepared(same, 5, 7);
  EXPECT_NE(prepared(same, 6, 1).find("seed 7, the plan has 1"), std::string::npos) << prepared(same, 6, 1);
  other = same;
  other.model.ffn = 32;
  EXPECT_NE(prepared(other, 6, 7).find("model/ffn 24, the plan has 32"), std::string::npos) << prepared(other, 6, 7);
  other = same;
  other.job.precision = Precision::fp32;
  EXPECT_NE(prepared(other, 6, 7).find("job/precision"), std::string::npos) << prepared(other, 6, 7);
  other = same;
  other.job.optimizer.kind = OptimizerKind::lion;
  EXPECT_NE(prepared(other, 6, 7).find("job/optimizer"), std::string::npos) << prepared(other, 6, 7);
}

TEST(Checkpoint, DoesNotMixWithThoseOfAnotherRun) {
  const TestFolder folder;
  ASSERT_TRUE(save(folder.path(), true, 1, 1, 5));
  RunSettings settings;
  settings.steps = 10;
  settings.seed = 7;
  settings.checkpoint.folder = folder.path();
  const auto mixed = prepare_run(plan_of_test(), settings);
  ASSERT_FALSE(mixed);
  EXPECT_NE(to_string(mixed.error()).find("another run"), std::string::npos) << to_string(mixed.error());
  settings.resume = folder.path();
  EXPECT_TRUE(prepare_run(plan_of_test(), settings));
  settings.first_step = 0;
  prepare_restart(settings);
  EXPECT_EQ(settings.first_step, 5);
}

TEST(Convert, RoundsToNearestAndTiesToEven) {
  const auto bf16 = [](float value) {
    std::uint16_t bits = 0;
    EXPECT_TRUE(convert("F32", &value, "BF16", &bits, 1));
    return bits;
  };
  EXPECT_EQ(bf16(1.0F), 0x3f80);
  EXPECT_EQ(bf16(1.0F + 0x1p-8F), 0x3f80) << "a tie goes to the even one";
  EXPECT_EQ(bf16(1.0F + 3 * 0x1p-8F), 0x3f82) << "a tie goes to the even one";
  EXPECT_EQ(bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()), 0x7f80) << "infinity";
  const float strange = std::nanf("");
  EXPECT_EQ(bf16(strange) & 0x7fc0, 0x7fc0) << "not a number stays none";
  const auto half = [](std::uint16_t bits) {
    double value = 0;
    EXPECT_TRUE(convert("F16", &bits, "F64", &value, 1));
    return value;
  };
  EXPECT_EQ(half(0x3c00), 1.0);
  EXPECT_EQ(half(0xc000), -2.0);
  EXPECT_EQ(half(0x7bff), 65504.0);
  EXPECT_EQ(half(0x0001), 0x1p-24);
  EXPECT_TRUE(std::isinf(half(0xfc00)));
  EXPECT_TRUE(std::isnan(half(0x7e00)));
  double number = 0;
  EXPECT_FALSE(convert("I64", &number, "F64", &number, 1));
}

} // namespace
} // namespace foretrain
