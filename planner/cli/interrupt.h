#pragma once

#include <atomic>

namespace foretrain::cli {

/// From now on the first Ctrl-C (or SIGTERM) sets the flag, so that what is done is kept; a second one ends the program
/// at once.
[[nodiscard]] const std::atomic<bool>* watch_for_interrupt();

} // namespace foretrain::cli
