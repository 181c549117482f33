#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/filter/filter.h"

/// What the parser of filters holds while it reads one.
namespace foretrain {

enum class FilterType { number, text, flag, word };

/// A parsed part of the condition. A bare word is a text once it meets a text field, otherwise an unknown field.
struct FilterPart {
  int node = -1;
  FilterType type = FilterType::number;
  std::optional<std::string> unit; ///< numbers: of a field or a quantity; absent: a plain number, fits every unit
  std::string word;
  std::size_t column = 1;
};

inline std::optional<Filter::Operation> comparison(std::string_view symbol) {
  if (symbol == "==" || symbol == "=") return Filter::Operation::equal;
  if (symbol == "!=") return Filter::Operation::unequal;
  if (symbol == "<") return Filter::Operation::less;
  if (symbol == "<=") return Filter::Operation::less_equal;
  if (symbol == ">") return Filter::Operation::greater;
  if (symbol == ">=") return Filter::Operation::greater_equal;
  return std::nullopt;
}

inline std::string_view name_of(FilterType type) {
  switch (type) {
  case FilterType::number:
    return "a number";
  case FilterType::text:
  case FilterType::word:
    return "a text";
  case FilterType::flag:
    return "a yes or no";
  }
  return "";
}

} // namespace foretrain
