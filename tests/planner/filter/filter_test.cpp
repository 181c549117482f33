#include "planner/filter/filter.h"

#include <random>

#include <gtest/gtest.h>

#include "planner/evaluate.h"

namespace foretrain {
namespace {

/// TP 8, PP 4, DP 2 on 64 devices of 80 GB: 1.5 s and 70 GiB.
struct Sample {
  JobSpec job;
  ClusterSpec cluster;
  Layout layout;
  Evaluation slots;
  Sample() {
    job.sequence_length = 8192;
    job.global_batch = 256;
    cluster.device.memory = Bytes(80 * kGiB);
    layout.tp = 8;
    layout.pp = 4;
    layout.dp_shard = 2;
    layout.schedule = {"interleaved", 5};
    layout.sequence_parallel = true;
    slots.step_seconds = 1.5;
    slots.device_bytes = 70 * kGiB;
  }
  [[nodiscard]] FieldRow row() const { return {job, cluster, layout, &slots, nullptr}; }
  [[nodiscard]] FieldRow before_evaluation() const { return {job, cluster, layout, nullptr, nullptr}; }
};

Truth test(const std::string& text, const FieldRow& row) {
  const auto filter = Filter::parse(text, "--where");
  EXPECT_TRUE(filter) << text << ": " << (filter ? "" : to_string(filter.error()));
  return filter ? filter->test(row) : Truth::unknown;
}

TEST(Filter, ComparesFieldsWithNumbersTextsAndFlags) {
  const Sample sample;
  for (const char* text : {"tp == 8",
                           "tp=8",
                           "tp != 4",
                           "tp * pp <= 32",
                           "dp + 1 == 3",
                           "memory_gib < 70.5",
                           "schedule == interleaved",
                           "schedule == \"interleaved\"",
                           "schedule != zb-h1",
                           "sequence_parallel",
                           "sequence_parallel == yes",
                           "not offload_optimizer",
                           "headroom_gib >= 10",
                           "tp in [4, 8]",
                           "tp in (4, 8)",
                           "tp not in [1, 2]",
                           "schedule in [1f1b, interleaved]",
                           "!(tp == 4) && pp > 2 || cp > 1",
                           "-tp < -7",
                           "tp - 9 == -1",
                           "tp in [-8, 8]",
                           "micro_batches == 128",
                           "interleaved == schedule"})
    EXPECT_EQ(test(text, sample.row()), Truth::yes) << text;
  for (const char* text : {"tp == 4", "not sequence_parallel", "schedule in [1f1b, gpipe]", "tp > 8 or pp > 4"})
    EXPECT_EQ(test(text, sample.row()), Truth::no) << text;
}

TEST(Filter, AGroupIsKnownWhereALayoutSaysIt) {
  Sample sample;
  EXPECT_EQ(test("group == 5", sample.row()), Truth::unknown);
  sample.layout.schedule.group = 5;
  EXPECT_EQ(test("group == 5", sample.row()), Truth::yes);
  EXPECT_EQ(test("group > 5", sample.row()), Truth::no);
}

TEST(Filter, AndBindsTighterThanOr) {
  const Sample sample;
  EXPECT_EQ(test("tp == 8 or tp == 8 and pp == 99", sample.row()), Truth::yes);
  EXPECT_EQ(test("(tp == 8 or tp == 8) and pp == 99", sample.row()), Truth::no);
}

TEST(Filter, ConvertsUnitsToThoseOfTheField) {
  const Sample sample;
  EXPECT_EQ(test("memory_gib == 70 GiB", sample.row()), Truth::yes);
  EXPECT_EQ(test("memory_gib > 75 GB", sample.row()), Truth::yes); // 75 GB = 69.85 GiB
  EXPECT_EQ(test("step_time_s == 1500 ms", sample.row()), Truth::yes);
  EXPECT_EQ(test("memory_gib < 71680 MiB", sample.row()), Truth::no);
}

TEST(Filter, UnknownFiguresDecideNothing) {
  const Sample sample;
  const FieldRow row = sample.before_evaluation();
  EXPECT_EQ(test("memory_gib < 70", row), Truth::unknown);
  EXPECT_EQ(test("not memory_gib < 70", row), Truth::unknown);
  EXPECT_EQ(test("tp == 4 and memory_gib < 70", row), Truth::no);
  EXPECT_EQ(test("tp == 8 or memory_gib < 70", row), Truth::yes);
  EXPECT_EQ(test("tp == 8 and memory_gib < 70", row), Truth::unknown);
  EXPECT_EQ(test("tp / (pp - 4) > 1", row), Truth::unknown); // division by zero
}

TEST(Filter, DegreesAloneDecideWhatTheyCan) {
  const Sample sample;
  FieldRow row = sample.before_evaluation();
  row.settled = Dimension::degrees;
  EXPECT_EQ(test("tp == 4", row), Truth::no);
  EXPECT_EQ(test("tp == 8", row), Truth::yes);
  EXPECT_EQ(test("micro_batch == 7", row), Truth::unknown);
  EXPECT_EQ(test("tp == 4 and micro_batch == 1", row), Truth::no);
  row.settled = Dimension::micro_batch;
  EXPECT_EQ(test("micro_batch == 7", row), Truth::no);
  EXPECT_EQ(test("recompute == full", row), Truth::unknown);
}

TEST(Filter, EmptyTextAdmitsAll) {
  const Sample sample;
  EXPECT_EQ(test("", sample.row()), Truth::yes);
  EXPECT_EQ(test("  \n", sample.row()), Truth::yes);
}

struct Wrong {
  const char* text;
  const char* where;
  const char* message; ///< part of it
};

TEST(Filter, ErrorsPointAtTheColumnAndSuggest) {
  for (const Wrong& wrong : {
           Wrong{"memry_gib < 70", "--where, column 1", "memory_gib"},
           Wrong{"tp == 8 and memry < 70", "--where, column 13", "unknown field 'memry'"},
           Wrong{"schedule == intreleaved", "--where, column 13", "did you mean 'interleaved'"},
           Wrong{"tp ==", "--where, column 6", "ends here"},
           Wrong{"(tp == 8", "--where, column 9", "closes column 1"},
           Wrong{"tp == 8)", "--where, column 8", "')'"},
           Wrong{"tp", "--where, column 1", "a condition is expected"},
           Wrong{"tp == schedule", "--where, column 7", "cannot be compared"},
           Wrong{"schedule < 1f1b", "--where, column 1", "no order"},
           Wrong{"memory_gib < 3 s", "--where, column 14", "in GiB"},
           Wrong{"tp in 8", "--where, column 7", "a list is expected"},
           Wrong{"tp in [8", "--where, column 9", "not closed"},
           Wrong{"tp in [pp]", "--where, column 8", "constants"},
           Wrong{"schedule == 'x", "--where, column 13", "never closed"},
           Wrong{"'x' in ['x']", "--where, column 1", "no field"},
           Wrong{"'x' == 'x'", "--where, column 8", "no field"},
           Wrong{"tp == 1e999", "--where, column 7", "out of range"},
           Wrong{"tp ~ 8", "--where, column 4", "no meaning"},
           Wrong{"tp == \xc3\xa9", "--where, column 7", "no meaning"},
           Wrong{"and", "--where, column 1", "'and'"},
       }) {
    const auto filter = Filter::parse(wrong.text, "--where");
    ASSERT_FALSE(filter) << wrong.text;
    EXPECT_EQ(filter.error().where, wrong.where) << wrong.text;
    EXPECT_NE(to_string(filter.error()).find(wrong.message), std::string::npos) << to_string(filter.error());
  }
}

TEST(Filter, DeepAndLongTextsAreRefused) {
  const auto deep = Filter::parse(std::string(1000, '(') + "tp == 8" + std::string(1000, ')'), "--where");
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("deeper"), std::string::npos);
  EXPECT_FALSE(Filter::parse(std::string(2000, '!') + "tp == 8", "--where"));
  EXPECT_FALSE(Filter::parse("tp == " + std::string(2000, '-') + "8", "--where"));
  EXPECT_FALSE(Filter::parse(std::string(1 << 20, 'x'), "--where"));
  std::string chain = "tp==8";
  for (int i = 0; i < 500; ++i) chain += "|tp";
  EXPECT_FALSE(Filter::parse(chain, "--where"));
}

TEST(Filter, RandomTextsNeitherCrashNorHang) {
  const std::vector<std::string> pieces = {
      "tp", "pp", "memory_gib", "schedule", "1f1b", "zb-h1", "'x'", "\"",      "(",   ")",    "[",
      "]",  ",",  "==",         "!=",       "<",    "-",     "*",   "/",       "not", "and",  "or",
      "in", "7",  "1e9",        "GiB",      "s",    "%",     "yes", "nothing", " ",   "\xff", "sequence_parallel"};
  const Sample sample;
  std::mt19937 random(7); // fixed, so that a failure repeats
  int parsed = 0;
  for (int round = 0; round < 60'000; ++round) {
    std::string text;
    const auto length = random() % 12;
    for (unsigned i = 0; i < length; ++i) text += pieces[random() % pieces.size()] + (random() % 3 ? " " : "");
    if (const auto filter = Filter::parse(text, "--where")) {
      (void)filter->test(sample.row());
      (void)filter->test(sample.before_evaluation());
      ++parsed;
    }
  }
  EXPECT_GT(parsed, 300);
}

TEST(Fields, HaveUniqueIdsHelpAndAGetter) {
  const Sample sample;
  const std::vector<std::string> ids = field_ids();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Field& field = fields()[i];
    EXPECT_EQ(std::count(ids.begin(), ids.end(), ids[i]), 1) << ids[i];
    EXPECT_FALSE(field.help.empty()) << ids[i];
    ASSERT_TRUE(field.get) << ids[i];
    const bool known = !std::holds_alternative<std::monostate>(field.get(sample.before_evaluation()));
    EXPECT_FALSE(field.outcome && known) << ids[i] << " is an outcome, yet known before evaluation";
  }
}

TEST(Fields, FormatForTablesAndCsv) {
  const Sample sample;
  const Field& memory = *find_field("memory_gib");
  EXPECT_EQ(format_value(memory, memory.get(sample.row())), "70.0");
  EXPECT_EQ(format_value(memory, memory.get(sample.before_evaluation())), "-");
  EXPECT_EQ(csv_value(FieldValue(std::string("a \"b\", c"))), "\"a \"\"b\"\", c\"");
  EXPECT_EQ(csv_value(FieldValue(0.1)), "0.1");
  EXPECT_EQ(csv_value(FieldValue()), "");
}

} // namespace
} // namespace foretrain
