#include "core/base/json.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace foretrain {
namespace {

namespace fs = std::filesystem;

/// Builds the document while it checks what the parser itself lets pass: duplicate keys and depth.
class StrictCallback {
public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaximumJsonDepth && problem_.empty())
      problem_ = fmt::format("more than {} levels of nesting", kMaximumJsonDepth);
    switch (event) {
    case Json::parse_event_t::object_start:
      keys_.emplace_back();
      break;
    case Json::parse_event_t::object_end:
      keys_.pop_back();
      break;
    case Json::parse_event_t::key:
      if (!keys_.back().insert(parsed.get<std::string>()).second && problem_.empty())
        problem_ = fmt::format("key '{}' appears twice in one object", parsed.get<std::string>());
      break;
    case Json::parse_event_t::array_start:
    case Json::parse_event_t::array_end:
      break;
    case Json::parse_event_t::value:
      if (parsed.is_number_float() && !std::isfinite(parsed.get<double>()) && problem_.empty())
        problem_ = "a number is too large for a double";
      break;
    }
    return true;
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

private:
  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

/// Bracket depth outside strings: keeps the recursive part of parsing within the stack on hostile input.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"')
      in_string = true;
    else if (c == '[' || c == '{') {
      if (++depth > 4 * kMaximumJsonDepth) return true;
    } else if (c == ']' || c == '}')
      --depth;
  }
  return false;
}

std::string line_and_column(std::string_view text, std::size_t byte) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else
      ++column;
  }
  return fmt::format("{}:{}", line, column);
}

std::string reason() {
  return std::strerror(errno);
} // NOLINT(concurrency-mt-unsafe): message text only

} // namespace

Result<Json> parse_json(std::string_view text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return fail(file, "the file is empty", "a JSON object is expected");
  if (too_deep(text)) return fail(file, fmt::format("more than {} levels of nesting", kMaximumJsonDepth));
  StrictCallback strict;
  try {
    Json document = Json::parse(text, std::ref(strict), true, true);
    if (!strict.problem().empty()) return fail(file, strict.problem());
    return document;
  } catch (const Json::parse_error& error) {
    std::string message = error.what();
    if (const auto at = message.rfind("; ");
        message.find("syntax error") != std::string::npos && at != std::string::npos)
      message = message.substr(message.find("syntax error"));
    return fail(file + ":" + line_and_column(text, error.byte), "not valid JSON: " + message);
  } catch (const Json::exception& error) { // "[json.exception.out_of_range.406] number overflow parsing '1e400'"
    const std::string message = error.what();
    const std::size_t id = message.find("] ");
    return fail(file, "not valid JSON: " + (id == std::string::npos ? message : message.substr(id + 2)));
  }
}

Result<std::string> read_text_file(const fs::path& path, std::size_t maximum_bytes) {
  const std::string name = path.string();
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::not_found) return fail(name, "no such file");
  if (code) return fail_environment(name, code.message());
  if (fs::is_directory(status)) return fail(name, "is a directory, not a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return fail_environment(name, "cannot be opened: " + reason());
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())) || stream.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > maximum_bytes)
      return fail(name, fmt::format("larger than {} MiB", maximum_bytes >> 20), "is this the right file?");
  }
  if (stream.bad()) return fail_environment(name, "cannot be read: " + reason());
  return text;
}

Result<Json> read_json_file(const fs::path& path) {
  FORETRAIN_TRY(const std::string text, read_text_file(path));
  return parse_json(text, path.string());
}

namespace {

Result<void> write_into(const fs::path& path, std::string_view text, const std::string& name) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  if (!stream) return fail_environment(name, "cannot be written: " + reason());
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  stream.flush();
  if (!stream) return fail_environment(name, "cannot be written: " + reason());
  return {};
}

} // namespace

Result<void> write_text_file(const fs::path& path, std::string_view text) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  // A device, a pipe or /dev/stdout is written to; a file put in its place would do away with it.
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_into(path, text, path.string());
  fs::path target = path;
  if (fs::exists(status) && fs::is_symlink(fs::symlink_status(path, code))) {
    target = fs::canonical(path, code);
    if (code) return fail_environment(path.string(), "cannot be written: " + code.message());
  }
  const fs::path temporary = target.string() + fmt::format(".{}.part", ::getpid());
  if (auto written = write_into(temporary, text, path.string()); !written) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    return written;
  }
  fs::rename(temporary, target, code);
  if (code) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    return fail_environment(path.string(), "cannot be written: " + code.message());
  }
  return {};
}

} // namespace foretrain
