#include "core/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace foretrain {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {Unit{"B", 1},
                                   Unit{"KiB", 1024.0},
                                   Unit{"MiB", 1048576.0},
                                   Unit{"GiB", 1073741824.0},
                                   Unit{"TiB", 1099511627776.0},
                                   Unit{"kB", 1e3},
                                   Unit{"KB", 1e3},
                                   Unit{"MB", 1e6},
                                   Unit{"GB", 1e9},
                                   Unit{"TB", 1e12}};
constexpr std::array kRateUnits = {Unit{"B/s", 1},           Unit{"kB/s", 1e3},     Unit{"MB/s", 1e6},
                                   Unit{"GB/s", 1e9},        Unit{"TB/s", 1e12},    Unit{"GiB/s", 1073741824.0},
                                   Unit{"MiB/s", 1048576.0}, Unit{"Mb/s", 1e6 / 8}, Unit{"Gb/s", 1e9 / 8},
                                   Unit{"Tb/s", 1e12 / 8}};
constexpr std::array kTimeUnits = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9}, Unit{"min", 60}};
constexpr std::array kFlopUnits = {Unit{"FLOP/s", 1}, Unit{"GFLOP/s", 1e9}, Unit{"TFLOP/s", 1e12},
                                   Unit{"PFLOP/s", 1e15}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc{} || !std::isfinite(number)) return std::nullopt;
  const std::string_view name = trim(text.substr(static_cast<std::size_t>(end - text.data())));
  for (const Unit& unit : units)
    if (unit.name == name) {
      // Decimal units below one are divided by their exact inverse, so that "2 us" is the double nearest to 2e-6.
      const double value = unit.factor < 1 ? number / std::round(1 / unit.factor) : number * unit.factor;
      return std::isfinite(value) ? std::optional(value) : std::nullopt;
    }
  return std::nullopt;
}

/// The unit in `units` (largest first) that gives the shortest exact text.
std::string shortest(double value, std::span<const Unit> units, std::string_view base) {
  for (const Unit& unit : units) {
    if (std::abs(value) < unit.factor) continue;
    std::string text = fmt::format("{} {}", value / unit.factor, unit.name);
    if (text.size() <= 14 && parse_quantity(text, units) == value) return text;
  }
  return fmt::format("{} {}", value, base);
}

std::string three_digits(double value) {
  const double magnitude = std::abs(value);
  return fmt::format("{:.{}f}", value, magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2);
}

} // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Candidates that hold the whole word; none where the word is short, or where it says too little.
std::vector<std::string> holding(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kShortest = 3;
  constexpr std::size_t kMost = 8;
  std::vector<std::string> found;
  if (word.size() < kShortest) return found;
  const std::string lower = lower_case(word);
  for (const std::string& candidate : candidates)
    if (lower_case(candidate).find(lower) != std::string::npos) found.push_back(candidate);
  if (found.size() > kMost) found.clear();
  return found;
}

/// A slip of one letter, else whatever holds the word, else what is near.
std::vector<std::string> meant(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 64) return {};
  const auto close = nearest(word, candidates);
  if (!close) return holding(word, candidates);
  if (edit_distance(word, *close) <= 1) return {*close};
  std::vector<std::string> found = holding(word, candidates);
  return found.empty() ? std::vector<std::string>{*close} : found;
}

} // namespace

std::string hint_for(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kMostListed = 40;
  std::string text;
  if (const std::vector<std::string> near = meant(word, candidates); !near.empty())
    text = "did you mean '" + join(near, "', '") + "'? ";
  text += "one of: " + join(candidates.first(std::min(candidates.size(), kMostListed)), ", ");
  if (candidates.size() > kMostListed) text += ", …";
  return text;
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto value = parse_quantity(text, kByteUnits);
  if (!value || *value < 0 || *value > 9.0e18) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(std::llround(*value)));
}
std::optional<BytesPerSecond> parse_rate(std::string_view text) {
  const auto value = parse_quantity(text, kRateUnits);
  return value ? std::optional(BytesPerSecond(*value)) : std::nullopt;
}
std::optional<Seconds> parse_seconds(std::string_view text) {
  const auto value = parse_quantity(text, kTimeUnits);
  return value ? std::optional(Seconds(*value)) : std::nullopt;
}
std::optional<FlopPerSecond> parse_flop_rate(std::string_view text) {
  const auto value = parse_quantity(text, kFlopUnits);
  return value ? std::optional(FlopPerSecond(*value)) : std::nullopt;
}

std::string format_bytes(Bytes value) {
  constexpr std::array units = {
      Unit{"TiB", 1099511627776.0}, Unit{"TB", 1e12}, Unit{"GiB", 1073741824.0}, Unit{"GB", 1e9},
      Unit{"MiB", 1048576.0},       Unit{"MB", 1e6},  Unit{"KiB", 1024.0},       Unit{"B", 1}};
  for (const Unit& unit : units) {
    const auto factor = static_cast<std::int64_t>(unit.factor);
    if (value.value >= factor && value.value % factor == 0)
      return fmt::format("{} {}", value.value / factor, unit.name);
  }
  return fmt::format("{} B", value.value);
}
std::string format_rate(BytesPerSecond value) {
  constexpr std::array units = {Unit{"TB/s", 1e12}, Unit{"GB/s", 1e9}, Unit{"MB/s", 1e6}, Unit{"B/s", 1}};
  return shortest(value.value, units, "B/s");
}
std::string format_seconds(Seconds value) {
  constexpr std::array units = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9}};
  return shortest(value.value, units, "s");
}
std::string format_flop_rate(FlopPerSecond value) {
  constexpr std::array units = {Unit{"PFLOP/s", 1e15}, Unit{"TFLOP/s", 1e12}, Unit{"GFLOP/s", 1e9}};
  return shortest(value.value, units, "FLOP/s");
}

std::string pretty(Bytes value) {
  const auto v = static_cast<double>(value.value);
  const double magnitude = std::abs(v);
  if (magnitude >= 1099511627776.0) return three_digits(v / 1099511627776.0) + " TiB";
  if (magnitude >= 1073741824.0) return three_digits(v / 1073741824.0) + " GiB";
  if (magnitude >= 1048576.0) return three_digits(v / 1048576.0) + " MiB";
  if (magnitude >= 1024.0) return three_digits(v / 1024.0) + " KiB";
  return fmt::format("{} B", value.value);
}
std::string pretty(Seconds value) {
  const double magnitude = std::abs(value.value);
  if (magnitude >= 1) return three_digits(value.value) + " s";
  if (magnitude >= 1e-3) return three_digits(value.value * 1e3) + " ms";
  if (magnitude >= 1e-6) return three_digits(value.value * 1e6) + " us";
  return value.value == 0 ? "0 s" : three_digits(value.value * 1e9) + " ns";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

} // namespace foretrain
