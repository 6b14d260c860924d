#!/usr/bin/env bash
# fuzz.sh [SECONDS]: fuzzes the Triton IR compiler with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer. It
# starts from the corpus and the inputs kept by earlier runs. Findings are written to build/fuzz/found. The exit status
# is 77 without clang.
# fuzz.sh keep: minimizes the inputs at equal coverage into data/fuzz.tar.xz, for the tests.
# fuzz.sh image [SECONDS]: fuzzes the reader of kernel images, starting from images of the modules in ir/.
# fuzz.sh package [SECONDS]: fuzzes opening, planning and running packages of small models, without a device.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang > /dev/null || { echo "needs clang"; exit 77; }
work=build/fuzz
mkdir -p $work/{seeds,grown,found}

cflags="-g -O2 -DLIBFUZZER -Iinclude -Isrc -fno-omit-frame-pointer -fno-sanitize-recover=undefined"

if [ "${1:-}" = image ]; then
    mkdir -p $work/images/{seeds,grown}
    clang $cflags -fsanitize=fuzzer,address,undefined tests/tile/fuzz_image.c src/runtime/image.c src/core/*.c \
        build/embedded_kernels.c -lpthread -lm -o $work/image_fuzzer
    for module in tests/tile/ir/*.ttir; do
        .venv/bin/python -m openxpu.cli compile --image "$module" -o "$work/images/seeds/$(basename "$module").image"
    done
    $work/image_fuzzer -max_total_time="${2:-600}" -max_len=65536 -artifact_prefix=$work/found/ \
        -print_final_stats=1 $work/images/grown $work/images/seeds
    exit
fi

if [ "${1:-}" = package ]; then
    mkdir -p $work/package/{seeds,grown}
    clang $cflags -Isrc/ops -fsanitize=fuzzer,address,undefined tests/c/fuzz_package.c src/package/*.c \
        -Wl,--wrap=os_file_map,--wrap=os_file_unmap,--wrap=os_file_write src/runtime/image.c src/ops/iter.c \
        src/ops/dtype.c src/core/*.c build/embedded_kernels.c -lpthread -lm -o $work/package_fuzzer
    .venv/bin/python tests/c/fuzz_seeds.py $work/package/seeds
    $work/package_fuzzer -max_total_time="${2:-3600}" -max_len=65536 -rss_limit_mb=3000 \
        -artifact_prefix=$work/found/ -print_final_stats=1 $work/package/grown $work/package/seeds
    exit
fi

clang $cflags -fsanitize=fuzzer,address,undefined tests/tile/fuzz.c src/tile/*.c src/core/*.c \
    src/runtime/image.c build/embedded_kernels.c -lpthread -lm -o $work/fuzzer

# dictionary: operations, attributes and types from the corpus
tar -xJf tests/tile/data/ttir.tar.xz -C $work
[ ! -f tests/tile/data/fuzz.tar.xz ] || tar -xJf tests/tile/data/fuzz.tar.xz -C $work/grown --strip-components=1
{
    sed -n 's/^OP([^"]*\("[^"]*"\).*/\1/p' src/tile/ops.def
    types='bf16|f16|f32|f64|i1|i8|i16|i32|i64'
    cat $work/ttir/*.ttir \
        | grep -oE "!?tensor<[a-z0-9]+>|[A-Za-z_]+ = |[a-z][a-z0-9]*<|f8E[A-Z0-9]+|\b($types)\b" \
        | sort | uniq -c | sort -rn | head -n 200 | sed -E 's/^ *[0-9]+ (.*)$/"\1"/'
    printf '"%s"\n' -1 0 2147483647 2147483648 9223372036854775807 18446744073709551615 0x7F800000 1.0e+308 \
        'dense<' '^bb1' '%%0#1' '(' ')' '{' '}' '<{' '}>' '({' '})'
} > $work/words

cp tests/tile/ir/*.ttir tests/tile/ir/*/*.ttir $work/seeds/
find $work/ttir -name '*.ttir' -size -12k -exec cp -t $work/seeds {} +

if [ "${1:-}" = keep ]; then
    rm -rf $work/fuzz && mkdir $work/fuzz # the folder's name in the archive
    $work/fuzzer -merge=1 -max_len=12288 -timeout=1200 $work/fuzz $work/grown $work/seeds 2>&1 | tail -n 3
    for seed in $work/seeds/*; do # these are already in the tests
        rm -f "$work/fuzz/$(sha1sum < "$seed" | cut -d ' ' -f 1)"
    done
    tar -C $work --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c fuzz \
        | xz -9e > tests/tile/data/fuzz.tar.xz
    ls -l tests/tile/data/fuzz.tar.xz
    exit
fi
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
$work/fuzzer -max_total_time="${1:-3600}" -max_len=12288 -timeout=1200 -rss_limit_mb=3000 -dict=$work/words \
    -artifact_prefix=$work/found/ -print_final_stats=1 $work/grown $work/seeds
