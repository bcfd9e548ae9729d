# The file compiles, but not with OGIVE_BREAK defined, and then the compiler says what the first line announces:
#   // error: <regular expression>
cmake_minimum_required(VERSION 3.21)

file(STRINGS ${SOURCE} first_line LIMIT_COUNT 1)
if(NOT first_line MATCHES "^// error: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// error: <regular expression>`")
endif()
set(expected ${CMAKE_MATCH_1})

list(TRANSFORM INCLUDES PREPEND -I)
set(compile ${COMPILER} -std=c++20 -fsyntax-only ${INCLUDES} ${SOURCE})

execute_process(COMMAND ${compile} RESULT_VARIABLE failed ERROR_VARIABLE output)
if(failed)
  message(FATAL_ERROR "does not compile as it stands:\n${output}")
endif()

execute_process(COMMAND ${compile} -DOGIVE_BREAK RESULT_VARIABLE failed ERROR_VARIABLE output)
if(NOT failed)
  message(FATAL_ERROR "compiles with OGIVE_BREAK, and must not")
endif()
if(NOT output MATCHES "${expected}")
  message(FATAL_ERROR "the compiler does not say \"${expected}\" but\n${output}")
endif()
