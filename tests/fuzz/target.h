#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/spec/presets.h"
#include "tests/support/places.h"

/// One target per program: libFuzzer calls it with inputs of its own (-DFORETRAIN_FUZZ=ON with clang), replay.cpp with
/// those of a folder.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace foretrain::fuzz {

inline std::string_view text_of(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

inline DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

/// Ends the program as a sanitizer would.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

} // namespace foretrain::fuzz
