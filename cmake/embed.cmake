# Writes OUT, a C file with `embedded_files[]`: name and text of each of FILES. A file's name is its path from KERNELS,
# or its base name if it is elsewhere. Base names must be unique, too, because arrays are named after them.
set(text "/* generated */\n#include \"core/embedded.h\"\n")
set(table "")
foreach(file ${FILES})
  get_filename_component(last ${file} NAME)
  file(RELATIVE_PATH name ${KERNELS} ${file})
  if(name MATCHES "^\\.\\./")
    set(name ${last})
  endif()
  string(MAKE_C_IDENTIFIER ${last} id)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND text "static const char ${id}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${name}\", ${id}, sizeof ${id} - 1},\n")
endforeach()
string(APPEND text
  "extern const embedded_file embedded_files[];\n"
  "const embedded_file embedded_files[] = {\n${table}    {NULL, NULL, 0}};\n"
  "_Static_assert(sizeof embedded_files / sizeof *embedded_files <= EMBEDDED_MOST, \"EMBEDDED_MOST\");\n")
file(WRITE ${OUT} "${text}")
