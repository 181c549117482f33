// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <string>

#include "planner/filter/field.h"

namespace foretrain::gui {

/// Three significant digits with grouped thousands: "1.24", "12,480", "0.00310".
[[nodiscard]] std::string short_number(double value);
/// The same without zeros at the end, for ticks: "30", "0.5", "1,250".
[[nodiscard]] std::string tick_number(double value);
/// "1.24 s", "3.10 ms", "820 us"
[[nodiscard]] std::string short_seconds(double seconds);
/// "76.3 GiB"
[[nodiscard]] std::string short_bytes(double bytes);
/// "12,480"
[[nodiscard]] std::string grouped(std::int64_t count);
/// "+3.2 %", "-0.4 %"; "0 %" when it rounds to nothing.
[[nodiscard]] std::string signed_percent(double percent);
/// Of a field: three significant digits for figures, counts as they are, "–" for unknown; no unit.
[[nodiscard]] std::string short_value(const Field& field, const FieldValue& value);
/// Title with unit: "step (s)".
[[nodiscard]] std::string title_with_unit(const Field& field);
/// "8192" → "8,192 tokens"; the value in full with its unit, for tooltips and the clipboard.
[[nodiscard]] std::string full_value(const Field& field, const FieldValue& value);
/// Whether small values of a field are good, large ones, or neither: -1, 1, 0.
[[nodiscard]] int better_direction(const Field& field);

} // namespace foretrain::gui
