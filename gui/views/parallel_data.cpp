// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/parallel_data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "gui/model/numbers.h"

namespace foretrain::gui {
namespace {

constexpr std::size_t kMostAxes = 12;

/// Correlation of two columns over the rows that have both, 0 when there is none.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double n = 0, sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) continue;
    n += 1;
    sa += a[i];
    sb += b[i];
    saa += a[i] * a[i];
    sbb += b[i] * b[i];
    sab += a[i] * b[i];
  }
  const double va = n * saa - sa * sa;
  const double vb = n * sbb - sb * sb;
  return va > 0 && vb > 0 ? (n * sab - sa * sb) / std::sqrt(va * vb) : 0;
}

bool is_outcome_shown(const Field& field) {
  return field.id == "step_time_s" || field.id == "memory_gib";
}

bool may_be_an_axis(const Field& field) {
  return is_outcome_shown(field) || (!field.outcome && field.id != "recompute_detail" && field.id != "dp_shard" &&
                                     field.id != "gpus" && field.id != "micro_batches");
}

struct Column {
  const Field* field = nullptr;
  std::vector<double> values; ///< of each shown row
};

/// Columns of all fields that may be axes. Rows are taken in turns of a few hundred, which stay in the cache while one
/// field after the other is read.
std::vector<Column> columns_of(const Session& session) {
  constexpr std::size_t kTurn = 256;
  std::vector<Column> columns;
  for (const Field& field : fields())
    if (may_be_an_axis(field)) columns.push_back({&field, {}});
  const std::vector<int>& shown = session.shown();
  for (Column& column : columns) column.values.reserve(shown.size());
  for (std::size_t from = 0; from < shown.size(); from += kTurn)
    for (Column& column : columns)
      for (std::size_t i = from; i < std::min(from + kTurn, shown.size()); ++i)
        column.values.push_back(
            number_of(*column.field, session.results().study, session.rows()[static_cast<std::size_t>(shown[i])]));
  return columns;
}

/// Places of all rows. Most fields have few values, and a logarithm takes longer than to look one up.
std::vector<float> places_of(const ParallelAxis& axis, const std::vector<double>& column) {
  struct Known {
    double value = std::numeric_limits<double>::quiet_NaN();
    float place = 0;
  };
  constexpr int kBits = 6;
  std::array<Known, 1U << kBits> known;
  std::vector<float> places(column.size());
  for (std::size_t i = 0; i < column.size(); ++i) {
    const double value = column[i];
    if (std::isnan(value)) {
      places[i] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    Known& entry = known[std::bit_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15U >> (64 - kBits)];
    if (entry.value != value) entry = {value, static_cast<float>(axis.place(value))};
    places[i] = entry.place;
  }
  return places;
}

/// Pixels from the top, -1 where there is no value.
std::vector<int> pixels_of(const ParallelAxis& axis, int height) {
  std::vector<int> pixels(axis.places.size());
  const auto last = static_cast<float>(height - 1);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const float place = axis.places[i];
    pixels[i] = std::isnan(place) ? -1 : static_cast<int>((1 - std::clamp(place, 0.0F, 1.0F)) * last + 0.5F);
  }
  return pixels;
}

} // namespace

double ParallelAxis::place(double value) const {
  double share = 0.5;
  if (high > low) share = logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return flipped ? 1 - share : share;
}

double ParallelAxis::value(double place) const {
  const double share = flipped ? 1 - place : place;
  return logarithmic ? low * std::pow(high / low, share) : low + share * (high - low);
}

ParallelData parallel_data(const Session& session, const ParallelArrangement& arrangement) {
  const auto among = [](const std::vector<std::string>& ids, std::string_view id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  struct Entry {
    ParallelAxis axis;
    double influence = 0;
    std::vector<double> column;
  };
  ParallelData data;
  std::vector<Entry> entries;
  std::vector<Column> columns = columns_of(session);
  const std::vector<double> times = std::find_if(columns.begin(), columns.end(), [](const Column& c) {
                                      return c.field->id == "step_time_s";
                                    })->values;
  for (Column& column : columns) {
    const Field& field = *column.field;
    Entry entry{{&field, 0, 1, false, false, {}}, 0, std::move(column.values)};
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const double value : entry.column)
      if (!std::isnan(value)) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    if (!(high > low)) {
      if (!std::isinf(low) && !session.shown().empty())
        data.constant.push_back(
            std::string(field.title) + " " +
            short_value(field, value_of(field, session.results().study,
                                        session.rows()[static_cast<std::size_t>(session.shown().front())])));
      continue;
    }
    entry.axis.low = low;
    entry.axis.high = high;
    entry.axis.flipped = among(arrangement.flipped, field.id);
    entry.axis.logarithmic = low > 0 && field.kind == FieldKind::number && among(arrangement.logarithmic, field.id);
    entry.influence = is_outcome_shown(field) ? -1 : std::abs(correlation(entry.column, times));
    entries.push_back(std::move(entry));
  }
  const auto place_in_order = [&](const Entry& e) {
    return std::find(arrangement.order.begin(), arrangement.order.end(), e.axis.field->id) - arrangement.order.begin();
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    const auto pa = place_in_order(a);
    const auto pb = place_in_order(b);
    return pa != pb ? pa < pb : a.influence > b.influence;
  });
  if (entries.size() > kMostAxes) // the figures at the end stay
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(kMostAxes) - 2, entries.end() - 2);
  for (Entry& entry : entries) {
    entry.axis.places = places_of(entry.axis, entry.column);
    data.axes.push_back(std::move(entry.axis));
  }
  return data;
}

std::vector<std::string> moved(const ParallelData& data, std::size_t from, std::size_t to) {
  std::vector<std::string> order;
  for (const ParallelAxis& axis : data.axes) order.emplace_back(axis.field->id);
  std::string id = std::move(order[from]);
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), std::move(id));
  return order;
}

std::string brush_text(const ParallelAxis& axis, double from, double to) {
  const double a = axis.value(std::clamp(std::min(from, to), 0.0, 1.0));
  const double b = axis.value(std::clamp(std::max(from, to), 0.0, 1.0));
  const double low = std::min(a, b);
  const double high = std::max(a, b);
  const Field& field = *axis.field;
  if (field.kind == FieldKind::flag) return high > 0.5 && low > 0.5 ? "yes" : low < 0.5 && high < 0.5 ? "no" : "";
  if (field.kind == FieldKind::text) {
    std::string text;
    for (std::size_t i = 0; i < field.values.size(); ++i)
      if (double(i) >= low - 1e-9 && double(i) <= high + 1e-9)
        text += (text.empty() ? "/^" : "|/^") + field.values[i] + "$/";
    return text;
  }
  return fmt::format("{:.4g}~{:.4g}", low, high);
}

std::vector<std::uint32_t> line_density(const std::vector<ParallelAxis>& axes, const std::vector<double>& x, int width,
                                        int height) {
  const auto rows = static_cast<std::size_t>(height);
  const auto columns = static_cast<std::size_t>(width);
  std::vector<std::uint32_t> counts(columns * rows, 0);
  if (axes.size() < 2) return counts;
  // Most fields have few values: lines between the same two pixels are drawn once, with their number.
  std::vector<std::uint32_t> alike(rows * rows, 0);
  std::vector<std::uint32_t> met;
  std::vector<int> left;
  std::vector<int> right = pixels_of(axes.front(), height);
  for (std::size_t a = 0; a + 1 < axes.size(); ++a) {
    left.swap(right);
    right = pixels_of(axes[a + 1], height);
    const double start = std::floor(x[a]);
    const double length = std::floor(x[a + 1]) - start;
    const int from = std::clamp(static_cast<int>(start), 0, width - 1);
    const int to = std::clamp(static_cast<int>(start + length), 0, width - 1);
    if (to <= from) continue;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] < 0 || right[i] < 0) continue;
      const std::uint32_t line = static_cast<std::uint32_t>(left[i] * height + right[i]);
      if (alike[line]++ == 0) met.push_back(line);
    }
    constexpr double kOne = 65536; // of heights with sixteen binary places
    for (const std::uint32_t line : met) {
      const std::uint32_t number = std::exchange(alike[line], 0);
      const double top = line / static_cast<std::uint32_t>(height);
      const double slope = (line % static_cast<std::uint32_t>(height) - top) / length;
      auto y = static_cast<std::int32_t>((top + slope * (from - start) + 0.5) * kOne);
      const auto step = static_cast<std::int32_t>(slope * kOne);
      for (std::size_t column = static_cast<std::size_t>(from); column < static_cast<std::size_t>(to);
           ++column, y += step)
        counts[static_cast<std::size_t>(y >> 16) * columns + column] += number;
    }
    met.clear();
  }
  return counts;
}

} // namespace foretrain::gui
