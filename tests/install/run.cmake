# Installs the build to a scratch folder, then configures, builds and runs the outside project against it.
# Arguments: BUILD, SOURCE, WORK, C_COMPILER, CXX_COMPILER, GENERATOR, BUILD_TYPE, SCHEDULE, LIBDIR.
cmake_minimum_required(VERSION 3.25)
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed with ${code}:\n${text}")
  endif()
  message(STATUS "${what}: ok")
endfunction()

file(REMOVE_RECURSE "${WORK}")
step("install" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
# Moved after the install: nothing may depend on where it was.
file(RENAME "${WORK}/prefix" "${WORK}/moved")
step("configure" ${CMAKE_COMMAND} -S "${SOURCE}" -B "${WORK}/build" -G "${GENERATOR}"
     "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
     "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}" "-DCMAKE_PREFIX_PATH=${WORK}/moved")
step("build" ${CMAKE_COMMAND} --build "${WORK}/build")
set(ENV{LD_LIBRARY_PATH} "") # The library is found by the run path alone.
step("runtime_c" "${WORK}/build/runtime_c")
step("runtime_cpp" "${WORK}/build/runtime_cpp")
if(EXISTS "${SCHEDULE}")
  step("runtime_cpp with a schedule" "${WORK}/build/runtime_cpp" "${SCHEDULE}")
endif()
step("parts" "${WORK}/build/parts")
file(REMOVE_RECURSE "${WORK}")
