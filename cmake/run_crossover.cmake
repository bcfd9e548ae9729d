# Runs PROGRAM, whose results go to OUT, and tells it which commit of SOURCE it measures.
execute_process(
  COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=10
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE no_git)
if(NOT no_git)
  set(ENV{OGIVE_COMMIT} ${commit})
endif()
execute_process(COMMAND ${PROGRAM} --out ${OUT} COMMAND_ERROR_IS_FATAL ANY)
