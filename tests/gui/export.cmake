# Every view goes to a file without a display, and what is written is what the suffix says.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(ENV{DISPLAY} "")
set(ENV{WAYLAND_DISPLAY} "")
function(export view kind start)
  set(file ${FOLDER}/${view}.${kind})
  execute_process(COMMAND ${PROGRAM} ${STUDY} --search --jobs 1 --export ${file} --view ${view} --theme dark --size 900x600
    RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${view} to ${kind}: exit code ${code}\n${errors}")
  endif()
  file(READ ${file} head LIMIT 8 HEX)
  if(NOT head MATCHES "^${start}")
    message(FATAL_ERROR "${file} starts with ${head}")
  endif()
endfunction()
export(table csv 72616e6b2c) # "rank,"
export(pareto svg 3c3f786d6c) # "<?xml"
export(timeline pdf 25504446) # "%PDF"
export(memory png 89504e47)
execute_process(COMMAND ${PROGRAM} ${STUDY} --search --export ${FOLDER}/x.gif RESULT_VARIABLE code ERROR_VARIABLE errors OUTPUT_QUIET)
if(code EQUAL 0 OR NOT errors MATCHES "'gif' is no kind of file")
  message(FATAL_ERROR "an unknown kind of file is not refused: ${code} ${errors}")
endif()
execute_process(COMMAND ${PROGRAM} ${STUDY} --filter "tp <=" --export ${FOLDER}/x.csv RESULT_VARIABLE code ERROR_VARIABLE errors)
if(code EQUAL 0)
  message(FATAL_ERROR "a filter that does not read is not refused")
endif()
