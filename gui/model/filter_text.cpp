// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/filter_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <regex>

#include <fmt/format.h>

namespace foretrain::gui {
namespace {

std::string trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return std::string(text.substr(from, text.find_last_not_of(" \t") - from + 1));
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t to = text.find(at); to != std::string::npos; from = to + 1, to = text.find(at, from))
    parts.push_back(trimmed(std::string_view(text).substr(from, to - from)));
  parts.push_back(trimmed(std::string_view(text).substr(from)));
  return parts;
}

std::string place_of(const Field& field) {
  return "filter of " + std::string(field.title);
}

/// "2", "1.5 s", "80 GiB": whatever the filter language takes as a quantity.
bool starts_number(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.' || text[0] == '-');
}

Result<std::string> number_condition(const Field& field, const std::string& part) {
  for (const std::string_view sign : {"<=", ">=", "<>", "!=", "==", "<", ">", "="}) {
    if (!part.starts_with(sign)) continue;
    const std::string rest = trimmed(std::string_view(part).substr(sign.size()));
    if (!starts_number(rest)) return fail(place_of(field), fmt::format("'{}' is no number", rest), "such as >4 or 2~8");
    return fmt::format("{} {} {}", field.id, sign == "<>" ? "!=" : sign == "=" ? "==" : sign, rest);
  }
  const std::size_t tilde = part.find('~');
  if (tilde != std::string::npos) {
    const std::string low = trimmed(std::string_view(part).substr(0, tilde));
    const std::string high = trimmed(std::string_view(part).substr(tilde + 1));
    if ((!low.empty() && !starts_number(low)) || (!high.empty() && !starts_number(high)) || (low + high).empty())
      return fail(place_of(field), fmt::format("'{}' is no range", part), "such as 2~8, ~8 or 2~");
    if (low.empty()) return fmt::format("{} <= {}", field.id, high);
    if (high.empty()) return fmt::format("{} >= {}", field.id, low);
    return fmt::format("({0} >= {1} and {0} <= {2})", field.id, low, high);
  }
  if (!starts_number(part))
    return fail(place_of(field), fmt::format("'{}' is no number", part), "such as 8, >4 or 2~8");
  return fmt::format("{} == {}", field.id, part);
}

std::string quoted(const std::string& text) {
  return text.find('"') == std::string::npos ? "\"" + text + "\"" : "'" + text + "'";
}

std::string one_of(const Field& field, const std::vector<std::string>& values, bool negated) {
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + quoted(value);
  const std::string in = fmt::format("{} in [{}]", field.id, list);
  return negated ? "not (" + in + ")" : in;
}

Result<std::vector<std::string>> matching(const Field& field, const std::string& part) {
  std::vector<std::string> found;
  if (part.size() >= 2 && part.front() == '/' && part.back() == '/') {
    try {
      const std::regex pattern(part.substr(1, part.size() - 2));
      for (const std::string& value : field.values)
        if (std::regex_search(value, pattern)) found.push_back(value);
    } catch (const std::regex_error& error) {
      return fail(place_of(field), fmt::format("'{}' is no regular expression", part), error.what());
    }
  } else {
    for (const std::string& value : field.values)
      if (value.find(part) != std::string::npos) found.push_back(value);
  }
  if (found.empty())
    return fail(place_of(field), fmt::format("'{}' matches none of its values", part),
                fmt::format("{}", fmt::join(field.values, ", ")));
  return found;
}

Result<std::string> text_condition(const Field& field, std::string part) {
  bool negated = false;
  for (const std::string_view sign : {"<>", "!=", "==", "="}) {
    if (!part.starts_with(sign)) continue;
    negated = sign == "<>" || sign == "!=";
    part = trimmed(std::string_view(part).substr(sign.size()));
    break;
  }
  if (part.empty()) return fail(place_of(field), "a value is missing", "such as 1f1b|zb");
  if (field.values.empty()) return one_of(field, {part}, negated);
  FORETRAIN_TRY(const std::vector<std::string> values, matching(field, part));
  return one_of(field, values, negated);
}

Result<std::string> flag_condition(const Field& field, const std::string& part) {
  for (const std::string_view yes : {"yes", "y", "true", "1", "on"})
    if (part == yes) return std::string(field.id);
  for (const std::string_view no : {"no", "n", "false", "0", "off"})
    if (part == no) return "not " + std::string(field.id);
  return fail(place_of(field), fmt::format("'{}' is neither yes nor no", part));
}

} // namespace

Result<std::string> column_expression(const Field& field, const std::string& text) {
  std::string condition;
  for (const std::string& part : split(text, '|')) {
    if (part.empty()) return fail(place_of(field), "a value is missing beside '|'");
    auto one = field.kind == FieldKind::number ? number_condition(field, part)
               : field.kind == FieldKind::flag ? flag_condition(field, part)
                                               : text_condition(field, part);
    if (!one) return one;
    condition += (condition.empty() ? "" : " or ") + *one;
  }
  return "(" + condition + ")";
}

Result<std::string> chip_expression(const Chip& chip) {
  if (chip.kind == Chip::Kind::expression) return chip.text;
  const Field* field = find_field(chip.field);
  if (!field) return fail("filter", fmt::format("there is no field '{}'", chip.field));
  return column_expression(*field, chip.text);
}

Result<Filter> chip_filter(const Chip& chip) {
  FORETRAIN_TRY(const std::string expression, chip_expression(chip));
  return Filter::parse(expression, "filter");
}

std::string chip_title(const Chip& chip) {
  if (chip.kind == Chip::Kind::expression) return chip.text;
  const bool sign = !chip.text.empty() && std::string_view("<>=!").find(chip.text[0]) != std::string_view::npos;
  return fmt::format("{}{} {}", chip.field, sign ? "" : ":", chip.text);
}

std::string joined_expression(const std::vector<Chip>& chips) {
  std::string all;
  for (const Chip& chip : chips) {
    const auto one = chip_expression(chip);
    if (!one || one->empty() || !Filter::parse(*one, "filter")) continue;
    const bool wrapped = one->front() == '(' && chip.kind != Chip::Kind::expression;
    all += (all.empty() ? "" : " and ") + (wrapped ? *one : "(" + *one + ")");
  }
  return all;
}

std::vector<std::string> completions(const std::string& text, std::size_t cursor) {
  const std::string before = text.substr(0, std::min(cursor, text.size()));
  std::size_t from = before.size();
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  while (from > 0 && in_word(before[from - 1])) --from;
  const std::string word = before.substr(from);
  std::vector<std::string> found;
  // The last field named before the word: its values come first.
  const Field* subject = nullptr;
  std::size_t end = from;
  while (end > 0 && !subject) {
    while (end > 0 && !in_word(before[end - 1])) --end;
    std::size_t start = end;
    while (start > 0 && in_word(before[start - 1])) --start;
    if (start == end) break;
    const std::string name = before.substr(start, end - start);
    if (name == "and" || name == "or" || name == "not") break;
    subject = find_field(name);
    end = start;
  }
  if (subject)
    for (const std::string& value : subject->values)
      if (value.starts_with(word)) found.push_back(value);
  if (found.empty())
    for (const std::string& id : field_ids())
      if (id.starts_with(word)) found.push_back(id);
  return found;
}

} // namespace foretrain::gui
