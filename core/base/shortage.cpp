#include "core/base/shortage.h"

#include <fmt/format.h>

#include "core/base/text.h"

namespace foretrain {

std::string shortage(Bytes needed, std::string_view who, Bytes available) {
  const std::string more = pretty(needed);
  const std::string less = pretty(available);
  const std::string text = fmt::format("needs {}, {} has {}", more, who, less);
  return more == less ? fmt::format("{} ({} short)", text, pretty(needed - available)) : text;
}

} // namespace foretrain
