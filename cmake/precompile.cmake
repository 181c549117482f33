# Most of a build's time goes into the standard library and JSON, parsed again for every file. Each set below is parsed
# once and shared by every target that asks for it, which halves the time. A file still includes all that it uses:
# -DFORETRAIN_PCH=OFF (preset tidy) compiles without.
option(FORETRAIN_PCH "Precompile the headers of libraries" ON)

set(foretrain_pch_standard <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional>
  <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple>
  <unordered_map> <utility> <variant> <vector> <nlohmann/json.hpp> <fmt/format.h> <tl/expected.hpp>)

# foretrain_precompiled_set(NAME LIBRARIES … HEADERS …): what foretrain_precompile(TARGET NAME) shares.
function(foretrain_precompiled_set name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  if(NOT FORETRAIN_PCH)
    return()
  endif()
  set(source "${PROJECT_BINARY_DIR}/foretrain_pch_${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Carries the precompiled headers of the set ${name}.\n")
  add_library(foretrain_pch_${name} OBJECT "${source}")
  target_link_libraries(foretrain_pch_${name} PRIVATE foretrain_flags ${ARG_LIBRARIES})
  target_precompile_headers(foretrain_pch_${name} PRIVATE ${ARG_HEADERS})
endfunction()

# foretrain_precompile(TARGET NAME): compile with the set's headers. Its flags must be those of the set.
function(foretrain_precompile target name)
  if(TARGET foretrain_pch_${name})
    target_precompile_headers(${target} REUSE_FROM foretrain_pch_${name})
    # What a compiler cache needs to tell two sets of headers apart.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()
