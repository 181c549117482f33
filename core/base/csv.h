#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace foretrain {

/// One record of a CSV file and the line on which it starts (from 1).
struct CsvRecord {
  std::vector<std::string> fields;
  int line = 0;
  bool operator==(const CsvRecord&) const = default;
};

/// RFC 4180: fields between quotes may hold commas, doubled quotes and line breaks; lines end with CRLF or LF; a byte
/// order mark and empty lines are passed over. Errors with the line: a quote that is not closed, text after a closing
/// quote, a quote inside an unquoted field, a record with another number of fields than the first, a control character
/// (not a text file), no record at all.
[[nodiscard]] Result<std::vector<CsvRecord>> parse_csv(std::string_view text, const std::string& file);

} // namespace foretrain
