#!/bin/sh
# A C program needs an installed libxpu, a C compiler and pkg-config: installs, then builds and runs
# examples/c/axpy_gemm.c as its first lines say. Arguments: cmake, build folder, source folder, compiler,
# and flags that the library itself was built with (sanitizers).
set -eu
cmake=$1 build=$2 source=$3 cc=$4 flags=${5-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/first" --component libxpu > "$folder/log" || { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/moved"  # wherever it lies
PKG_CONFIG_PATH=$(dirname "$(find "$folder/moved" -name xpu.pc)")
export PKG_CONFIG_PATH
test "$(pkg-config --modversion xpu)"
cp "$source/examples/c/axpy_gemm.c" "$folder"
cd "$folder"
# shellcheck disable=SC2046,SC2086  # flags are several words
$cc -std=c11 -Wall -Wextra -Werror $flags axpy_gemm.c $(pkg-config --cflags --libs xpu) -lm -o axpy_gemm
./axpy_gemm
# Every public header stands alone, in C and, where there is a compiler, in C++.
for header in $(cd "$PKG_CONFIG_PATH/../../include" 2>/dev/null && find xpu -name '*.h' || true); do
    echo "#include <$header>" > one.c
    $cc -std=c11 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags xpu) one.c
    if command -v c++ > /dev/null; then
        c++ -x c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags xpu) one.c
    fi
done
