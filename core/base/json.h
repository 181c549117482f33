#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/result.h"

namespace foretrain {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMaximumJsonBytes = std::size_t{64} << 20; ///< larger files are refused, not read
inline constexpr int kMaximumJsonDepth = 64;

/// Strict JSON with // and /* */ comments. Refuses duplicate keys, NaN, infinities, numbers outside double, more than
/// 64 levels, invalid UTF-8. `file` only names the source in errors; the error's `where` carries line and column.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const std::string& file);

/// Reads and parses a file. Errors: missing, not readable, a directory, larger than 64 MiB, not JSON.
[[nodiscard]] Result<Json> read_json_file(const std::filesystem::path& path);

/// The whole file as text; same errors.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path,
                                                 std::size_t maximum_bytes = kMaximumJsonBytes);

/// Writes through a temporary file and a rename, so that a full disk or a kill leaves the old file.
[[nodiscard]] Result<void> write_text_file(const std::filesystem::path& path, std::string_view text);

} // namespace foretrain
