# What `cmake --install` and CPack put where: programs (each installed by its own folder) in bin, presets in
# share/foretrain, libraries and headers for programs that call find_package(foretrain).
include(CMakePackageConfigHelpers)

set(foretrain_libraries base spec program simulator simgrid filter planner frameworks db)
foreach(name IN LISTS foretrain_libraries)
  if(TARGET foretrain_${name})
    install(TARGETS foretrain_${name} EXPORT foretrainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
foreach(folder core simulator planner frameworks db)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}")
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/foretrain
      FILES_MATCHING PATTERN "*.h" PATTERN "planner/cli" EXCLUDE)
  endif()
endforeach()
install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/foretrain)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/foretrain)
install(EXPORT foretrainTargets NAMESPACE foretrain:: DESTINATION ${package_folder})
configure_package_config_file(cmake/foretrainConfig.cmake.in ${PROJECT_BINARY_DIR}/foretrainConfig.cmake
  INSTALL_DESTINATION ${package_folder} PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/foretrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/foretrainConfig.cmake ${PROJECT_BINARY_DIR}/foretrainConfigVersion.cmake
  cmake/FindSimGrid.cmake cmake/FindxxHash.cmake DESTINATION ${package_folder})

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_VENDOR "Foretrain")
set(CPACK_PACKAGE_CONTACT "Foretrain developers <foretrain@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
