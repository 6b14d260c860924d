#!/usr/bin/env bash
# libxpu for Windows: compiles without warnings with MinGW-w64, and its DLL exports the same functions as libxpu.so.
# It uses UCRT, as Python does. If Wine is installed, tests/windows/files.c runs; nothing else is run. The exit status
# is 77 if MinGW-w64 is unavailable.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
if ! command -v x86_64-w64-mingw32-gcc-win32 > /dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get install -y -qq --no-install-recommends gcc-mingw-w64-x86-64-win32 > /dev/null
    else
        echo "skipped: MinGW-w64 is not installed (apt-get install gcc-mingw-w64-x86-64-win32)"
        exit 77
    fi
fi
cmake -S . -B build-mingw -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/mingw.cmake -DOPENXPU_BRIDGE=OFF \
    -DCMAKE_COMPILE_WARNING_AS_ERROR=ON > /dev/null
cmake --build build-mingw
diff <(nm -D --defined-only python/openxpu/libxpu.so | awk '$2 != "A" { print $3 }' | sort) \
    <(x86_64-w64-mingw32-objdump -p build-mingw/libxpu.dll |
        awk '/Name Pointer/ { names = 1; next } NF == 0 { names = 0 } names && /\[/ { print $NF }' | sort) ||
    { echo "the DLL's functions differ from libxpu.so's"; exit 1; }
if x86_64-w64-mingw32-objdump -p build-mingw/libxpu.dll | grep -q 'DLL Name: msvcrt'; then
    echo "the DLL uses msvcrt.dll"
    exit 1
fi
echo "libxpu.dll: $(stat -c %s build-mingw/libxpu.dll) bytes, needs" \
    "$(x86_64-w64-mingw32-objdump -p build-mingw/libxpu.dll | sed -n 's/.*DLL Name: //p' | tr '\n' ' ')"
if command -v wine > /dev/null; then
    build=$PWD/build-mingw
    x86_64-w64-mingw32-gcc-win32 -specs="$build/ucrt.specs" -D_UCRT -D_WIN32_WINNT=0x0A00 -std=gnu11 -O1 -Wall -Wextra \
        -Werror -Wno-unused-parameter -Isrc -Iinclude tests/windows/files.c src/core/os.c src/core/os_windows.c \
        -o "$build/files.exe"
    empty=$(mktemp -d)
    trap 'rm -rf "$empty"' EXIT
    (cd "$empty" && WINEPREFIX=$build/wine WINEDEBUG=-all wine "$build/files.exe")
fi
