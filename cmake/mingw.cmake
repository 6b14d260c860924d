# Windows from Linux, with MinGW-w64: cmake -DCMAKE_TOOLCHAIN_FILE=cmake/mingw.cmake -DOPENXPU_BRIDGE=OFF …
# The C library is UCRT, as Python's: msvcrt's getenv does not see what a program puts into os.environ. Debian 13 has a
# compiler for UCRT (gcc-mingw-w64-ucrt64); an older one links it by its specs.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
find_program(MINGW_CC NAMES x86_64-w64-mingw32ucrt-gcc-posix x86_64-w64-mingw32ucrt-gcc x86_64-w64-mingw32-gcc-win32
                            x86_64-w64-mingw32-gcc REQUIRED)
set(CMAKE_C_COMPILER ${MINGW_CC})
if(NOT MINGW_CC MATCHES ucrt)
  execute_process(COMMAND ${MINGW_CC} -dumpspecs OUTPUT_VARIABLE specs COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "-lmsvcrt" "-lucrt" specs "${specs}")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/ucrt.specs "${specs}")
  set(CMAKE_C_FLAGS_INIT "-D_UCRT -specs=${CMAKE_CURRENT_BINARY_DIR}/ucrt.specs")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
