#include "core/base/result.h"

namespace foretrain {

std::string to_string(const Error& error) {
  std::string text = error.where.empty() ? error.message : error.where + ": " + error.message;
  if (!error.hint.empty()) text += " (" + error.hint + ")";
  return text;
}

} // namespace foretrain
