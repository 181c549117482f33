#include "tests/support/places.h"

namespace foretrain::test {

std::filesystem::path source_folder() {
  return FORETRAIN_SOURCE_DIR;
}

std::filesystem::path build_folder() {
  return FORETRAIN_BINARY_DIR;
}

int slowness() {
  return FORETRAIN_SLOWNESS;
}

} // namespace foretrain::test
