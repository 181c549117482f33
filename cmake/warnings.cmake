# The project's warning flags, applied to every target through foretrain_flags.
add_library(foretrain_flags INTERFACE)
# Warnings of g++ that come out of inlining: at -O2 and above they see what cannot happen in copies of std::vector, moves
# of std::variant and sums of std::string. Debug builds keep them.
set(foretrain_false_alarms)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O[23]")
  set(foretrain_false_alarms $<$<CONFIG:Release>:-Wno-array-bounds> $<$<CONFIG:Release>:-Wno-stringop-overflow>
    $<$<CONFIG:Release>:-Wno-stringop-overread> $<$<CONFIG:Release>:-Wno-maybe-uninitialized>
    $<$<CONFIG:Release>:-Wno-restrict>)
endif()
target_compile_options(foretrain_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wswitch-enum
  -ffp-contract=off # the same numbers from every compiler
  ${foretrain_false_alarms}
  $<$<BOOL:${FORETRAIN_WERROR}>:-Werror>)
target_include_directories(foretrain_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")

# foretrain_library(NAME SOURCES … DEPENDS …): a static library foretrain_NAME with alias foretrain::NAME. Direct
# dependencies are public, since headers of one folder include those of the folders below it.
function(foretrain_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(foretrain_${name} STATIC ${ARG_SOURCES})
  add_library(foretrain::${name} ALIAS foretrain_${name})
  set_target_properties(foretrain_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(foretrain_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:foretrain_flags>)
  target_include_directories(foretrain_${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/foretrain>")
endfunction()
