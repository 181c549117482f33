#pragma once

#include <functional>
#include <string>

#include "core/base/result.h"

namespace foretrain {

/// Runs `work` in a forked process and returns the text that it gives. The child ends with this process, and when
/// nobody reads `owner_fd` (a pipe or socket, -1: none) any more. Errors: it died (with the signal), or could not be
/// started.
[[nodiscard]] Result<std::string> run_in_child(const std::function<std::string()>& work, int owner_fd = -1);

} // namespace foretrain
