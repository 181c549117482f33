# cmake -D PROGRAM=… -D EXAMPLE=… -P run.cmake: runs EXAMPLE/run.sh with PROGRAM; each line of EXAMPLE/expected.txt must be in
# what it prints, however its lines are broken.
execute_process(COMMAND ${CMAKE_COMMAND} -E env FORETRAIN=${PROGRAM} STEPS=1 PROBE_STEPS=3 sh ${EXAMPLE}/run.sh
  RESULT_VARIABLE result OUTPUT_VARIABLE printed ERROR_VARIABLE complaints)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${EXAMPLE}/run.sh ended with ${result}: ${complaints}")
endif()
string(REGEX REPLACE "[ \n]+" " " printed "${printed}")
file(STRINGS ${EXAMPLE}/expected.txt lines ENCODING UTF-8)
if(NOT lines)
  message(FATAL_ERROR "${EXAMPLE}/expected.txt is empty")
endif()
foreach(line IN LISTS lines)
  string(FIND "${printed}" "${line}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "'${line}' is not in the output:\n${printed}")
  endif()
endforeach()
