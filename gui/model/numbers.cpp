// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/numbers.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/base/units.h"

namespace foretrain::gui {
namespace {

std::string with_groups(std::string digits) {
  const std::size_t start = digits.starts_with("-") ? 1 : 0;
  std::size_t end = std::min(digits.find('.'), digits.size());
  while (end > start + 3) {
    end -= 3;
    digits.insert(end, ",");
  }
  return digits;
}

} // namespace

std::string grouped(std::int64_t count) {
  return with_groups(std::to_string(count));
}

std::string short_number(double value) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e9 || size < 1e-4) return fmt::format("{:.2e}", value);
  if (size >= 999.5) return with_groups(fmt::format("{:.0f}", value));
  const int before = size < 1 ? 0 : static_cast<int>(std::floor(std::log10(size))) + 1;
  const int after_point = size < 1 ? 2 - static_cast<int>(std::floor(std::log10(size))) : std::max(0, 3 - before);
  return fmt::format("{:.{}f}", value, after_point);
}

std::string tick_number(double value) {
  std::string text = std::abs(value) < 1e-12 ? "0" : fmt::format("{:.9g}", value);
  if (text.find('e') != std::string::npos) return text;
  return with_groups(std::move(text));
}

std::string short_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size >= 0.9995) return short_number(seconds) + " s";
  if (size >= 0.9995e-3) return short_number(seconds * 1e3) + " ms";
  return short_number(seconds * 1e6) + " µs";
}

std::string short_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return short_number(bytes) + " " + kUnits[unit];
}

std::string signed_percent(double percent) {
  if (std::isnan(percent)) return "–";
  if (std::abs(percent) < 0.05) return "0 %";
  return fmt::format("{:+.1f} %", percent);
}

std::string short_value(const Field& field, const FieldValue& value) {
  const auto* number = std::get_if<double>(&value);
  if (number && field.outcome) return short_number(*number);
  if (number) return with_groups(fmt::format("{:.{}f}", *number, field.decimals));
  return std::holds_alternative<std::monostate>(value) ? "–" : format_value(field, value);
}

std::string title_with_unit(const Field& field) {
  const std::string title(field.title);
  if (field.unit.empty()) return title;
  if (title.size() > 2 && title.ends_with(std::string("_") + std::string(field.unit)))
    return title.substr(0, title.size() - field.unit.size() - 1) + " " + std::string(field.unit);
  if (title.find(field.unit) != std::string::npos || field.unit == "tok/s") return title;
  return title + " " + std::string(field.unit);
}

std::string full_value(const Field& field, const FieldValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return "not known";
  const auto* number = std::get_if<double>(&value);
  const std::string text = number ? fmt::format("{}", *number) : format_value(field, value);
  return field.unit.empty() ? text : text + " " + std::string(field.unit);
}

int better_direction(const Field& field) {
  if (!field.outcome || field.kind != FieldKind::number) return 0;
  for (const std::string_view large : {"tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_percent", "headroom_gib"})
    if (field.id == large) return 1;
  return -1;
}

} // namespace foretrain::gui
