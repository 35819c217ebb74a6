# Exports bagua::{kernels,schedule,runtime} for find_package(bagua).
include(CMakePackageConfigHelpers)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/baguaConfig.cmake.in" "${CMAKE_BINARY_DIR}/baguaConfig.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/bagua")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/baguaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/baguaConfig.cmake" "${CMAKE_BINARY_DIR}/baguaConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/bagua")
install(EXPORT baguaTargets NAMESPACE bagua:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/bagua")
