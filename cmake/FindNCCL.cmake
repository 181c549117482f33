# Finds NCCL with CUDA's runtime (headers and libraries): target NCCL::NCCL, variable NCCL_VERSION.
set(hints /usr/local/cuda $ENV{CUDA_HOME})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ${hints} PATH_SUFFIXES lib lib64)
find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${hints} PATH_SUFFIXES include)
find_library(NCCL_CUDA_LIBRARY cudart HINTS ${hints} PATH_SUFFIXES lib64 lib)
if(NCCL_INCLUDE_DIR AND EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" lines REGEX "#define NCCL_(MAJOR|MINOR) ")
  string(REGEX MATCH "NCCL_MAJOR ([0-9]+)" _ "${lines}")
  set(NCCL_VERSION "${CMAKE_MATCH_1}")
  string(REGEX MATCH "NCCL_MINOR ([0-9]+)" _ "${lines}")
  string(APPEND NCCL_VERSION ".${CMAKE_MATCH_1}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_CUDA_LIBRARY NCCL_CUDA_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_LINK_LIBRARIES "${NCCL_CUDA_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}")
endif()
