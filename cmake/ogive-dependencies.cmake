# How ogive uses the libraries it stands on. Shared by its own build and by the installed package.

# Eigen's version files disagree about ranges (3.4 rejects "3.4...5", 5.x rejects "3.4"), so the range is checked here.
function(ogive_check_eigen complaint)
  set(${complaint} "" PARENT_SCOPE)
  if(Eigen3_VERSION VERSION_LESS 3.4 OR Eigen3_VERSION VERSION_GREATER_EQUAL 6)
    set(${complaint} "ogive needs Eigen 3.4 or 5.x, but found ${Eigen3_VERSION} in ${Eigen3_DIR}" PARENT_SCOPE)
  endif()
endfunction()

# Links Eigen, but takes only the include directories of xsimd: Debian's target links a library that does not exist.
# Neither is written into the exported target, so that a program may as well bring them as subdirectories.
function(ogive_use_dependencies target)
  if(TARGET xsimd::xsimd)
    get_target_property(directories xsimd::xsimd INTERFACE_INCLUDE_DIRECTORIES)
  else()
    get_target_property(directories xsimd INTERFACE_INCLUDE_DIRECTORIES)
  endif()
  target_include_directories(${target} SYSTEM INTERFACE $<BUILD_INTERFACE:${directories}>)
  target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:Eigen3::Eigen>)
endfunction()
