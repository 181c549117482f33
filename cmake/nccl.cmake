# Libraries of collectives between devices: foretrain-nccl.so and foretrain-rccl.so beside the programs, loaded when
# --backend asks for them. They need CUDA with NCCL (HIP with RCCL) and no LibTorch, so they are compiled wherever these
# are installed; no GPU is needed to build them.

# foretrain_device_library(nccl NCCL::NCCL)
function(foretrain_device_library name library)
  set(target foretrain_${name})
  add_library(${target} MODULE communicators/nccl/events.cpp communicators/nccl/library.cpp communicators/nccl/link.cpp)
  target_link_libraries(${target} PRIVATE ${library} Threads::Threads foretrain_flags)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME foretrain-${name}
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" INSTALL_RPATH_USE_LINK_PATH TRUE)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/foretrain)
endfunction()

# Decides the component NCCL; sets nccl_reason and rccl_reason, which the program prints when a library is not there.
macro(foretrain_find_device_libraries)
  set(nccl_reason "switched off")
  set(rccl_reason "switched off")
  set(nccl_built FALSE)
  if(NOT NCCL STREQUAL "OFF")
    find_package(NCCL MODULE QUIET)
    set(nccl_reason "nccl.h, libnccl or the runtime of CUDA was not found (CMAKE_PREFIX_PATH)")
    if(NCCL_FOUND)
      set(nccl_built TRUE)
      set(nccl_reason "NCCL ${NCCL_VERSION}, ${NCCL_LIBRARY}")
      foretrain_device_library(nccl NCCL::NCCL)
    endif()
    find_package(RCCL MODULE QUIET)
    set(rccl_reason "rccl.h, librccl or the runtime of HIP was not found (CMAKE_PREFIX_PATH)")
    if(RCCL_FOUND)
      set(rccl_reason "${RCCL_LIBRARY}")
      foretrain_device_library(rccl RCCL::RCCL)
    endif()
  endif()
  foretrain_component_found(NCCL ${nccl_built} "${nccl_reason}")
endmacro()
