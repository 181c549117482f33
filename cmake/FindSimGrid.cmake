# Finds SimGrid (header and library): target SimGrid::SimGrid, variable SimGrid_VERSION.
find_path(SimGrid_INCLUDE_DIR simgrid/s4u.hpp)
find_library(SimGrid_LIBRARY simgrid)
if(SimGrid_INCLUDE_DIR AND EXISTS "${SimGrid_INCLUDE_DIR}/simgrid/version.h")
  file(STRINGS "${SimGrid_INCLUDE_DIR}/simgrid/version.h" lines REGEX "#define SIMGRID_VERSION_(MAJOR|MINOR) ")
  string(REGEX MATCH "MAJOR ([0-9]+)" _ "${lines}")
  set(SimGrid_VERSION "${CMAKE_MATCH_1}")
  string(REGEX MATCH "MINOR ([0-9]+)" _ "${lines}")
  string(APPEND SimGrid_VERSION ".${CMAKE_MATCH_1}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SimGrid REQUIRED_VARS SimGrid_LIBRARY SimGrid_INCLUDE_DIR
                                  VERSION_VAR SimGrid_VERSION)
if(SimGrid_FOUND AND NOT TARGET SimGrid::SimGrid)
  add_library(SimGrid::SimGrid UNKNOWN IMPORTED)
  set_target_properties(SimGrid::SimGrid PROPERTIES
    IMPORTED_LOCATION "${SimGrid_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${SimGrid_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${SimGrid_INCLUDE_DIR}")
endif()
