# cmake -D BUILD=… -D GENERATOR=… -D CXX=… -P run.cmake: installs BUILD under itself, builds the consumer against that,
# runs it and compares what it prints.
set(folder ${BUILD}/tests/consumer)
file(REMOVE_RECURSE ${folder}/prefix ${folder}/build)
set(quiet COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}/prefix ${quiet})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${folder}/build -G ${GENERATOR}
  -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${CXX_FLAGS} -D CMAKE_PREFIX_PATH=${folder}/prefix ${quiet})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${folder}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${folder}/build/consumer COMMAND_ERROR_IS_FATAL ANY
  OUTPUT_VARIABLE printed OUTPUT_STRIP_TRAILING_WHITESPACE)
set(expected "llama3-8b: 8030261248 parameters, 8 x h100-sxm-80gb")
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "printed '${printed}', expected '${expected}'")
endif()
