#include "planner/filter/tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "planner/filter/field.h"

namespace foretrain {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_field_text(std::string_view word) {
  for (const Field& field : fields())
    if (std::find(field.values.begin(), field.values.end(), word) != field.values.end()) return true;
  return false;
}

/// Length of the run at the start that is a value of a text field; 0 when it is none.
std::size_t value_length(std::string_view text) {
  const auto end =
      std::find_if(text.begin(), text.end(), [](char c) { return !is_letter(c) && !is_digit(c) && c != '-'; });
  const auto length = static_cast<std::size_t>(end - text.begin());
  return is_field_text(text.substr(0, length)) ? length : 0;
}

std::size_t symbol_length(std::string_view text) {
  constexpr std::array<std::string_view, 6> kTwo = {"==", "!=", "<=", ">=", "&&", "||"};
  if (std::find(kTwo.begin(), kTwo.end(), text.substr(0, 2)) != kTwo.end()) return 2;
  return std::string_view("<>=!()[],+-*/%").find(text.front()) != std::string_view::npos ? 1 : 0;
}

} // namespace

std::string at_column(const std::string& where, std::size_t column) {
  return fmt::format("{}, column {}", where, column);
}

Result<std::vector<Token>> tokens_of(std::string_view text, const std::string& where) {
  std::vector<Token> list;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && is_space(text[at])) ++at;
    Token token;
    token.column = at + 1;
    if (at == text.size()) {
      list.push_back(std::move(token));
      return list;
    }
    const std::string_view rest = text.substr(at);
    std::size_t length = 0;
    if ((length = value_length(rest)) > 0) {
      token.kind = TokenKind::word;
    } else if (is_digit(rest[0]) || (rest[0] == '.' && rest.size() > 1 && is_digit(rest[1]))) {
      token.kind = TokenKind::number;
      const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), token.number);
      if (code != std::errc{} || !std::isfinite(token.number))
        return fail(at_column(where, token.column), "the number is out of range");
      length = static_cast<std::size_t>(end - rest.data());
    } else if (is_letter(rest[0])) {
      token.kind = TokenKind::word;
      while (length < rest.size() && (is_letter(rest[length]) || is_digit(rest[length]))) ++length;
    } else if (rest[0] == '"' || rest[0] == '\'') {
      token.kind = TokenKind::quoted;
      const std::size_t close = rest.find(rest[0], 1);
      if (close == std::string_view::npos) return fail(at_column(where, token.column), "the quote is never closed");
      token.text = std::string(rest.substr(1, close - 1));
      length = close + 1;
    } else if ((length = symbol_length(rest)) > 0) {
      token.kind = TokenKind::symbol;
    } else {
      return fail(at_column(where, token.column), "a character that has no meaning in a filter",
                  "fields, numbers, quoted texts, and or not in, == != < <= > >=, + - * /, parentheses");
    }
    if (token.kind != TokenKind::quoted) token.text = std::string(rest.substr(0, length));
    list.push_back(std::move(token));
    at += length;
  }
}

} // namespace foretrain
