# cmake -P include_rule.cmake FOLDER: what the headers of ogive may include.
#   - a layer sees strictly lower layers and itself; files of ops/ never include each other
#   - reference/ and interop/ see core/ only, so that a reference shares no bug with what it checks; interop/onnx/ runs
#     operators and layers
#   - testing/ sees everything below it; only the umbrella and testing/ see reference/
#   - intrinsics live in simd/ and linalg/; xsimd is named in simd/batch.hpp alone
cmake_minimum_required(VERSION 3.21)

set(see_config      config version)
set(see_core        ${see_config} core)
set(see_simd        ${see_core} simd)
set(see_linalg      ${see_simd} linalg)
set(see_maps        ${see_linalg} maps)
set(see_engine      ${see_maps} engine)
set(see_ops         ${see_engine})
set(see_layers      ${see_engine} ops layers)
set(see_distributed ${see_engine} ops distributed)
set(see_reference   ${see_core} reference)
set(see_interop     ${see_core} interop)
set(see_onnx        ${see_engine} ops layers interop)
set(see_testing     ${see_engine} ops layers reference testing)
set(see_version     version)
set(see_ogive       ${see_engine} ops layers reference interop)

math(EXPR last "${CMAKE_ARGC} - 1")
get_filename_component(root "${CMAKE_ARGV${last}}" ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE ${root} ${root}/*.hpp)

set(faulty 0)
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[/.].*" "" layer ${header})
  if(header MATCHES "^interop/onnx")
    set(layer onnx)
  endif()
  set(complaints)

  if(NOT DEFINED see_${layer})
    list(APPEND complaints "is in no known layer")
  endif()

  file(STRINGS ${root}/${header} includes REGEX "^[ \t]*#[ \t]*include[ \t]*<ogive/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE ".*<ogive/([^/.>]+).*" "\\1" seen ${include})
    if(NOT seen IN_LIST see_${layer})
      list(APPEND complaints "must not see ${seen}/: ${include}")
    endif()
  endforeach()

  file(STRINGS ${root}/${header} relative REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  if(relative)
    list(APPEND complaints "includes with quotes: ${relative}")
  endif()

  file(STRINGS ${root}/${header} guard REGEX "^#pragma once$")
  if(NOT guard)
    list(APPEND complaints "has no #pragma once")
  endif()

  file(STRINGS ${root}/${header} intrinsics REGEX "^[^/]*(_mm(256|512)?_[a-z]|__m(128|256|512)|[a-z]mmintrin\\.h|arm_neon\\.h)")
  if(intrinsics AND NOT layer MATCHES "^(simd|linalg)$")
    list(APPEND complaints "has intrinsics")
  endif()

  file(STRINGS ${root}/${header} xsimd REGEX "^[^/]*(xsimd::|<xsimd/)|#[ \t]*include[ \t]*<xsimd/")
  if(xsimd AND NOT header STREQUAL "simd/batch.hpp")
    list(APPEND complaints "names xsimd")
  endif()

  if(complaints)
    math(EXPR faulty "${faulty} + 1")
    list(JOIN complaints "\n    " text)
    message("${header}\n    ${text}")
  endif()
endforeach()

list(LENGTH headers number)
if(faulty)
  message(FATAL_ERROR "${faulty} headers break the include rule (of ${number})")
endif()
message("${number} headers keep the include rule")
