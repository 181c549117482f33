#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"

namespace foretrain {

/// The entry of `candidates` closest to `word` in edit distance, or nothing if none is near (more than half the letters
/// differ). For "did you mean".
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// " (did you mean 'x'?)" or ", one of: a, b, c": the hint for an unknown name.
[[nodiscard]] std::string hint_for(std::string_view word, std::span<const std::string> candidates);

/// Units at the edges. Sizes: "80 GiB", "512 MB", "1024 B"; rates: "50 GB/s", "400 Gb/s"; times: "2 us", "1.5 ms".
/// Nothing when the text is not a number followed by a unit of that quantity, or not finite.
[[nodiscard]] std::optional<Bytes> parse_bytes(std::string_view text);
[[nodiscard]] std::optional<BytesPerSecond> parse_rate(std::string_view text);
[[nodiscard]] std::optional<Seconds> parse_seconds(std::string_view text);
[[nodiscard]] std::optional<FlopPerSecond> parse_flop_rate(std::string_view text);

/// Shortest text that parses back to the same value; for people use `pretty`.
[[nodiscard]] std::string format_bytes(Bytes value);
[[nodiscard]] std::string format_rate(BytesPerSecond value);
[[nodiscard]] std::string format_seconds(Seconds value);
[[nodiscard]] std::string format_flop_rate(FlopPerSecond value);

/// "76.3 GiB", "1.24 s", "3.1 ms": three significant digits.
[[nodiscard]] std::string pretty(Bytes value);
[[nodiscard]] std::string pretty(Seconds value);

[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);

} // namespace foretrain
