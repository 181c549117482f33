#include "core/base/describe.h"

namespace foretrain::detail {

std::string show(const Json& value) {
  constexpr std::size_t kMostShown = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "…";
  return text;
}

bool listed(const char* kinds, std::string_view kind) {
  std::string_view rest = kinds;
  while (!rest.empty()) {
    const std::size_t space = rest.find(' ');
    if (rest.substr(0, space) == kind) return true;
    if (space == std::string_view::npos) return false;
    rest.remove_prefix(space + 1);
  }
  return false;
}

Result<double> read_number(const Json& json, const Where& where, Bounds bounds) {
  if (!json.is_number()) return fail(where.text(), show(json) + " is not a number");
  const auto number = json.get<double>();
  if (!std::isfinite(number)) return fail(where.text(), show(json) + " is not finite");
  if (number < bounds.low || number > bounds.high)
    return fail(where.text(), show(json) + " is out of range",
                fmt::format("between {:g} and {:g}", bounds.low, bounds.high));
  return number;
}

Result<std::int64_t> read_integer(const Json& json, const Where& where, Bounds bounds, std::int64_t low,
                                  std::int64_t high) {
  if (!json.is_number()) return fail(where.text(), show(json) + " is not a whole number");
  const auto number = json.get<double>();
  // Configuration files write 1e6 for a million; what has a fraction or does not fit is an error.
  if (!std::isfinite(number) || number != std::floor(number))
    return fail(where.text(), show(json) + " is not a whole number");
  const double lowest = std::max(bounds.low, static_cast<double>(low));
  const double highest = std::min(bounds.high, static_cast<double>(high));
  if (number < lowest || number > highest || std::abs(number) > 9.0e18)
    return fail(where.text(), show(json) + " is out of range", fmt::format("between {:g} and {:g}", lowest, highest));
  return json.is_number_integer() ? json.get<std::int64_t>() : static_cast<std::int64_t>(number);
}

} // namespace foretrain::detail
