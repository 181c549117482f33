#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace foretrain {

enum class TokenKind { number, word, quoted, symbol, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text; ///< symbols: "&&", "<=" …; quoted: without quotes
  double number = 0;
  std::size_t column = 1; ///< of its first byte, from 1
};

/// Splits a filter. A run of letters, digits, '-' and '.' that is a value of a text field ("zb-h1", "1f1b") is one
/// word.
[[nodiscard]] Result<std::vector<Token>> tokens_of(std::string_view text, const std::string& where);

/// "--where, column 7".
[[nodiscard]] std::string at_column(const std::string& where, std::size_t column);

} // namespace foretrain
