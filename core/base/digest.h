#pragma once

#include <string>
#include <string_view>

namespace foretrain {

/// 128-bit content digest (XXH3) of `text`, 32 lower-case hex digits. Names specs in the store; not a signature.
[[nodiscard]] std::string digest(std::string_view text);

} // namespace foretrain
