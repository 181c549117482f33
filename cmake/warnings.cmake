# The project's warning flags, applied to every target through foretrain_flags.
add_library(foretrain_flags INTERFACE)
# Warnings of g++ that come out of inlining: it sees what cannot happen in copies of std::vector, moves of std::variant and
# sums of std::string, where depends on the version and on precompiled headers. Debug builds keep them.
set(foretrain_false_alarms)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  foreach(warning array-bounds stringop-overflow stringop-overread maybe-uninitialized restrict)
    list(APPEND foretrain_false_alarms $<$<NOT:$<CONFIG:Debug>>:-Wno-${warning}>)
  endforeach()
  # Sanitizers add to them at every level (g++'s manual on -fsanitize): in std::regex with -O1.
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    list(APPEND foretrain_false_alarms -Wno-maybe-uninitialized)
  endif()
endif()
target_compile_options(foretrain_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wswitch-enum
  -ffp-contract=off # the same numbers from every compiler
  ${foretrain_false_alarms}
  $<$<BOOL:${FORETRAIN_WERROR}>:-Werror>)
target_include_directories(foretrain_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")

# foretrain_library(NAME SOURCES … DEPENDS …): a static library foretrain_NAME with alias foretrain::NAME. Direct
# dependencies are public, since headers of one folder include those of the folders below it. OWN_HEADERS: precompiles
# its own set or none.
function(foretrain_library name)
  cmake_parse_arguments(ARG "OWN_HEADERS" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(foretrain_${name} STATIC ${ARG_SOURCES})
  add_library(foretrain::${name} ALIAS foretrain_${name})
  set_target_properties(foretrain_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(foretrain_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:foretrain_flags>)
  target_include_directories(foretrain_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/foretrain>")
  if(NOT ARG_OWN_HEADERS)
    foretrain_precompile(foretrain_${name} library)
  endif()
endfunction()
