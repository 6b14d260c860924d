# Runs generate.py while configuring, and again whenever one of its inputs changes; sets
#   GENERATED          the folder to put before torch's include folders
#   GENERATED_SOURCES  the C++ files in it
set(GENERATED ${CMAKE_BINARY_DIR}/generated)
file(GLOB GENERATE_INPUTS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/native/*.yaml)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${GENERATE_INPUTS} ${CMAKE_CURRENT_LIST_DIR}/generate.py
  ${CMAKE_SOURCE_DIR}/src/ops/tables/pointwise.def ${CMAKE_SOURCE_DIR}/src/ops/tables/reduce.def)
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/generate.py --out ${GENERATED}
  COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${GENERATED}/sources.txt GENERATED_SOURCES)
list(TRANSFORM GENERATED_SOURCES PREPEND ${GENERATED}/)
