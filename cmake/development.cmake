# Flags of ogive's own tests, benchmarks and examples. Nothing here reaches users of the library.
include(CheckCXXCompilerFlag)

option(OGIVE_NATIVE "Compile tests, benchmarks and examples for this machine (-march=native)" ${PROJECT_IS_TOP_LEVEL})
option(OGIVE_WERROR "Treat warnings as errors; the environment variable of this name gives the default" $ENV{OGIVE_WERROR})
option(OGIVE_WITH_OPENMP "Compile tests, benchmarks and examples with OpenMP where it is found" ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

if(NOT TARGET ogive::testing)
  message(FATAL_ERROR
    "The tests, benchmarks and examples need nlohmann-json (Debian: nlohmann-json3-dev); without it set "
    "OGIVE_BUILD_TESTS, OGIVE_BUILD_BENCHMARKS and OGIVE_BUILD_EXAMPLES to OFF")
endif()

add_library(ogive_warnings INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(ogive_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
  if(OGIVE_WERROR)
    target_compile_options(ogive_warnings INTERFACE -Werror)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # The AVX-512 intrinsics of g++ 12 start from registers that are undefined on purpose, and the compiler then warns
  # about its own headers.
  target_compile_options(ogive_warnings INTERFACE -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

add_library(ogive_development INTERFACE)
target_link_libraries(ogive_development INTERFACE ogive::testing ogive_warnings)
if(OGIVE_NATIVE)
  check_cxx_compiler_flag(-march=native OGIVE_HAS_MARCH_NATIVE)
  if(OGIVE_HAS_MARCH_NATIVE)
    target_compile_options(ogive_development INTERFACE -march=native)
  endif()
endif()
if(OGIVE_WITH_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(ogive_development INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()

enable_testing()
