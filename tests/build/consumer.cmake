# Builds and runs consumer/ against ogive: WAY is find_package, add_subdirectory or pkg_config. WORK has a space in it.
cmake_minimum_required(VERSION 3.21)

function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${WORK}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

if(NOT WAY STREQUAL "add_subdirectory")
  run(${CMAKE_COMMAND} --install ${OGIVE_BINARY_DIR} --prefix "${WORK}/installed here")
  file(RENAME "${WORK}/installed here" "${WORK}/and moved there")
  set(prefix "${WORK}/and moved there")
  file(GLOB_RECURSE package "${prefix}/*.cmake" "${prefix}/*.pc")
  foreach(file IN LISTS package)
    file(STRINGS "${file}" flags REGEX "(^|[ \t\";])(-m[a-z]|-ffast-math|-O[0-9])|EIGEN_[A-Z]|${OGIVE_SOURCE_DIR}")
    if(flags)
      message(FATAL_ERROR "${file} forces something on its users: ${flags}")
    endif()
  endforeach()
endif()

if(WAY STREQUAL "pkg_config")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/share/pkgconfig")
  execute_process(COMMAND pkg-config --cflags --libs ogive OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${COMPILER} -std=c++20 ${CONSUMER}/main.cpp ${flags} -o "${WORK}/program")
  run("${WORK}/program")
else()
  run(${CMAKE_COMMAND} -S ${CONSUMER} -B "${WORK}/build" -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
    -DWAY=${WAY}
    -DOGIVE_SOURCE_DIR=${OGIVE_SOURCE_DIR}
    "-DCMAKE_PREFIX_PATH=${prefix}")
  run(${CMAKE_COMMAND} --build "${WORK}/build")
  run("${WORK}/build/program")
  run("${WORK}/build/program_testing")
endif()
