#pragma once

namespace foretrain {

[[noreturn]] void check_failed(const char* condition, const char* message, const char* file, int line);

} // namespace foretrain

/// Aborts on a mistake of ours. Always on; no input a user can give may reach a failing check.
#define FORETRAIN_CHECK(condition, message)                                                                            \
  ((condition) ? void() : ::foretrain::check_failed(#condition, message, __FILE__, __LINE__))
