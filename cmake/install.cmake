# Headers, a CMake package and a pkg-config file. All of it is relocatable and the same on every architecture.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_directory ${CMAKE_INSTALL_DATADIR}/cmake/ogive)
set(pkgconfig_directory ${CMAKE_INSTALL_DATADIR}/pkgconfig)

install(DIRECTORY include/ogive DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")

install(TARGETS ogive EXPORT ogive-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ogive-targets NAMESPACE ogive:: DESTINATION ${package_directory})

configure_package_config_file(cmake/ogive-config.cmake.in ${PROJECT_BINARY_DIR}/ogive-config.cmake
  INSTALL_DESTINATION ${package_directory}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ogive-config-version.cmake
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES
  ${PROJECT_BINARY_DIR}/ogive-config.cmake
  ${PROJECT_BINARY_DIR}/ogive-config-version.cmake
  cmake/ogive-dependencies.cmake
  DESTINATION ${package_directory})

file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${pkgconfig_directory} /prefix)
configure_file(cmake/ogive.pc.in ${PROJECT_BINARY_DIR}/ogive.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ogive.pc DESTINATION ${pkgconfig_directory})
