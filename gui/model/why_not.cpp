// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/why_not.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "core/spec/names.h"
#include "gui/model/numbers.h"
#include "planner/explain.h"
#include "planner/remedies.h"
#include "planner/search.h"

namespace foretrain::gui {
namespace {

constexpr const char* kPlace = "layout";
constexpr const char* kSuch =
    "such as: tp 8 pp 4 micro_batch 2 schedule interleaved*2 group 5 sharding optimizer recompute full";
constexpr std::array kNumbers = {"tp", "pp",       "cp",           "ep",          "etp",
                                 "dp", "dp_shard", "dp_replicate", "micro_batch", "group"};
constexpr std::array kKinds = {"schedule", "sharding", "recompute", "context_parallel", "expert_dispatch"};

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ' && c != ',' && c != '=' && c != '\t' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

template <class List> bool holds(const List& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::optional<int> whole_number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? std::optional<int>(number)
                                                                                : std::nullopt;
}

/// "interleaved*2" has its chunks behind the star.
Result<Json> choice_in(const std::string& key, const std::string& value) {
  const std::size_t star = value.find('*');
  Json choice = {{"kind", value.substr(0, star)}};
  if (star == std::string::npos) return choice;
  const auto chunks = whole_number_in(value.substr(star + 1));
  if (key != "schedule" || !chunks) return fail(kPlace, fmt::format("'{}' does not read as {}", value, key), kSuch);
  choice["chunks"] = *chunks;
  return choice;
}

/// What is set when all words are known: devices left over make dp, and a group belongs to the schedule.
struct Later {
  std::optional<int> dp;
  std::optional<int> group;
};

Result<void> set_word(const std::string& key, const std::string& value, Json& document, Later& later) {
  if (holds(kNumbers, key)) {
    const auto number = whole_number_in(value);
    if (!number) return fail(kPlace, fmt::format("{}: '{}' is no number above 0", key, value), kSuch);
    if (key == "dp")
      later.dp = number;
    else if (key == "group")
      later.group = number;
    else
      document[key] = *number;
    return {};
  }
  if (key == "sequence_parallel") {
    document[key] = value == "yes" || value == "true" || value == "on";
    return {};
  }
  if (key == "overlap_tp") {
    document["overlap"]["tp"] = value == "yes" || value == "true" || value == "on";
    return {};
  }
  if (!holds(kKinds, key)) return fail(kPlace, fmt::format("'{}' is no part of a layout", key), kSuch);
  FORETRAIN_TRY(document[key], choice_in(key, value));
  return {};
}

std::string amount(const Rejection& why, double value) {
  return is_memory(why.rule) ? short_bytes(value) : short_number(value);
}

} // namespace

Result<Layout> layout_in_words(const std::string& text, const Layout& base, int devices) {
  const std::vector<std::string> words = split_words(text);
  if (words.size() % 2 != 0) return fail(kPlace, fmt::format("'{}' has no value", words.back()), kSuch);
  Json document = to_json(base);
  Later later;
  bool shards = false;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    std::string key = words[i];
    if (key == "mb") key = "micro_batch";
    if (key == "sp") key = "sequence_parallel";
    shards = shards || key == "dp_shard";
    if (auto set = set_word(key, words[i + 1], document, later); !set) return tl::unexpected<Error>(set.error());
  }
  if (later.group) document["schedule"]["group"] = *later.group;
  FORETRAIN_TRY(Layout layout, layout_from(document, kPlace));
  if (!shards) {
    const int others = layout.tp * layout.pp * layout.cp * layout.dp_replicate;
    layout.dp_shard = std::max(1, later.dp ? *later.dp / layout.dp_replicate : devices / others);
  }
  return layout;
}

std::string words_of(const Layout& layout) {
  std::string words = fmt::format("tp {} pp {} cp {}", layout.tp, layout.pp, layout.cp);
  if (layout.ep > 1 || layout.etp > 1) words += fmt::format(" ep {} etp {}", layout.ep, layout.etp);
  words +=
      fmt::format(" micro_batch {} sequence_parallel {}", layout.micro_batch, layout.sequence_parallel ? "yes" : "no");
  if (layout.overlap.tp) words += " overlap_tp yes";
  words += fmt::format(" schedule {}", layout.schedule.kind);
  if (layout.schedule.chunks > 1) words += fmt::format("*{}", layout.schedule.chunks);
  if (layout.schedule.group > 0) words += fmt::format(" group {}", layout.schedule.group);
  words += fmt::format(" sharding {}", id_of(layout.sharding.kind));
  return words;
}

Result<WhyNot> why_not(const Environment& environment, const Results& results, const Layout& layout) {
  const Study& study = results.study;
  FORETRAIN_TRY(const Semantics semantics, environment.data.semantics(study.job.semantics));
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, study.cluster.device));
  WhyNot answer;
  answer.layout = layout;
  FORETRAIN_TRY(answer.prediction, predict({study.model, study.cluster, study.job, layout}, semantics, calibration,
                                           Engine::replay, "", environment.data.root.string()));
  const auto& rows = results.rows;
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.layout == layout; });
  if (found != rows.end()) answer.row = static_cast<int>(found - rows.begin());
  answer.rank = 1 + static_cast<int>(std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
                  return step_seconds(row) < answer.prediction.step_time.value;
                }));
  return answer;
}

std::vector<std::string> lines_of(const WhyNot& answer) {
  const Prediction& prediction = answer.prediction;
  std::vector<std::string> lines = {describe(answer.layout)};
  double bytes = 0;
  for (const StageMemory& stage : prediction.memory) bytes = std::max(bytes, double(stage.device.value));
  const std::string figures = short_seconds(prediction.step_time.value) + " a step, " + short_bytes(bytes);
  if (prediction.verdict == Verdict::illegal) lines.emplace_back("cannot run:");
  if (prediction.verdict == Verdict::oom) lines.push_back("does not fit (" + figures + "):");
  for (const Rejection& why : prediction.rejections) {
    std::string line = why.rule + ": " + why.reason;
    if (why.needed > 0 || why.available > 0)
      line += fmt::format(" – needed {}, available {}", amount(why, why.needed), amount(why, why.available));
    if (!why.nearest.empty()) line += "; would do: " + join(why.nearest, "; ");
    lines.push_back(std::move(line));
  }
  if (prediction.verdict != Verdict::fits) return lines;
  if (answer.row >= 0)
    lines.push_back(fmt::format("is #{} in the table: {}", answer.row + 1, figures));
  else
    lines.push_back(
        fmt::format("fits: {}. Its step time would make it #{}; the search has not kept it: it lies outside "
                    "the study's space or filter, or beyond what is kept",
                    figures, answer.rank));
  return lines;
}

} // namespace foretrain::gui
