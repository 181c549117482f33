#include "core/base/csv.h"

#include <fmt/format.h>

namespace foretrain {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

class CsvParser {
public:
  CsvParser(std::string_view text, const std::string& file) : text_(text), file_(file) {
    if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
  }

  Result<std::vector<CsvRecord>> parse() {
    std::vector<CsvRecord> records;
    while (at_ < text_.size()) {
      if (skip_line_end()) continue; // an empty line
      FORETRAIN_TRY(CsvRecord record, read_record());
      if (!records.empty() && record.fields.size() != records.front().fields.size())
        return fail(where(record.line),
                    fmt::format("{} columns, the header has {}", record.fields.size(), records.front().fields.size()));
      records.push_back(std::move(record));
    }
    if (records.empty()) return fail(file_, "the file is empty", "a header line is expected");
    return records;
  }

private:
  [[nodiscard]] std::string where(int line) const { return fmt::format("{}:{}", file_, line); }

  bool skip_line_end() {
    if (text_.substr(at_, 2) == "\r\n")
      at_ += 2;
    else if (text_[at_] == '\n')
      at_ += 1;
    else
      return false;
    ++line_;
    return true;
  }

  Result<CsvRecord> read_record() {
    CsvRecord record;
    record.line = line_;
    while (true) {
      FORETRAIN_TRY(std::string field, at_ < text_.size() && text_[at_] == '"' ? read_quoted() : read_plain());
      record.fields.push_back(std::move(field));
      if (at_ == text_.size() || skip_line_end()) return record;
      if (text_[at_] != ',') return fail(where(line_), "text after a closing quote");
      ++at_;
    }
  }

  /// Control characters other than tab do not occur in text.
  [[nodiscard]] static bool is_binary(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7f;
  }

  Result<std::string> read_plain() {
    const std::size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == ',' || c == '\n' || text_.substr(at_, 2) == "\r\n") break;
      if (c == '"')
        return fail(where(line_), "a quote inside a field that does not begin with one",
                    "double it and quote the field");
      if (is_binary(c) || c == '\r')
        return fail(where(line_),
                    fmt::format("control character 0x{:02x}: not a text file", static_cast<unsigned char>(c)));
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  Result<std::string> read_quoted() {
    const int first_line = line_;
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') return field;
      } else if (is_binary(c)) {
        return fail(where(line_),
                    fmt::format("control character 0x{:02x}: not a text file", static_cast<unsigned char>(c)));
      }
      if (c == '\n') ++line_;
      field += c;
    }
    return fail(where(first_line), "a quote is not closed");
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  int line_ = 1;
};

} // namespace

Result<std::vector<CsvRecord>> parse_csv(std::string_view text, const std::string& file) {
  return CsvParser(text, file).parse();
}

} // namespace foretrain
