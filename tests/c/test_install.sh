#!/bin/sh
# A C program needs an installed libxpu, a C compiler and pkg-config: installs, then builds and runs
# the examples in C as their first lines say. Arguments: cmake, build folder, source folder, compiler, and
# flags that the library itself was built with (sanitizers).
set -eu
cmake=$1 build=$2 source=$3 cc=$4 flags=${5-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cmake" --install "$build" --prefix "$folder/first" --component libxpu > "$folder/log" ||
    { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/moved"  # the installation is relocatable
PKG_CONFIG_PATH=$(dirname "$(find "$folder/moved" -name xpu.pc)")
export PKG_CONFIG_PATH
test "$(pkg-config --modversion xpu)"
cp "$source"/examples/c/*.c "$folder"
cd "$folder"
for example in axpy_gemm softmax package; do
    # shellcheck disable=SC2046,SC2086  # flags are several words
    $cc -std=c11 -Wall -Wextra -Werror $flags $example.c $(pkg-config --cflags --libs xpu) -lm -o $example
done
./axpy_gemm
if ./package axpy_gemm.c 2> said; then exit 1; fi
grep 'package: these .* bytes are not a package' said
# by the formula, to four decimals
cat > expected << 'END'
  0.0321  0.0871  0.2369  0.6439
  0.2500  0.2500  0.2500  0.2500
  0.0000  1.0000  0.0000  0.0000
END
./softmax | tee printed
cmp printed expected
# Every public header compiles on its own, in C and, if there is a compiler, in C++.
include=$(pkg-config --variable=includedir xpu)
test -f "$include/xpu/xpu.h"
for header in $(cd "$include" && find xpu -name '*.h'); do
    echo "#include <$header>" > one.c
    $cc -std=c11 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags xpu) one.c
    if command -v c++ > /dev/null; then
        c++ -x c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags xpu) one.c
    fi
done
