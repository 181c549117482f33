#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace foretrain {

void check_failed(const char* condition, const char* message, const char* file, int line) {
  std::fprintf(stderr, "foretrain: internal error at %s:%d: %s (%s)\n", file, line, message, condition);
  std::abort();
}

} // namespace foretrain
