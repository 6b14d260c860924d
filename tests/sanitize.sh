#!/usr/bin/env bash
# sanitize.sh [PART…] [-- CTEST ARGUMENTS]
# address: the C tests under AddressSanitizer and UndefinedBehaviorSanitizer, with every allocation and OpenCL call made
# to fail in turn. thread: under ThreadSanitizer, four threads on four streams for a minute; tests of kernels alone,
# which no sanitizer checks, are skipped: it takes their memset and memcpy for unordered, and is slow where many threads
# run them. collectives: process groups that are abandoned while their ranks are busy, also under ThreadSanitizer.
# Without a part, all run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" OPENXPU_DRIVER_PATH=${OPENXPU_DRIVER_PATH:-$PWD/.venv/lib}

# Builds the C tests in a folder with its options and the sanitizers, and runs them.
sanitized() {
    local folder=$1 sanitizers=$2
    shift 2
    cmake -S . -B "$folder" -G Ninja -DOPENXPU_BRIDGE=OFF -DOPENXPU_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
        -DOPENXPU_SANITIZE="$sanitizers" "${options[@]}" > /dev/null
    cmake --build "$folder"
    "${start[@]}" ctest --test-dir "$folder" -j 2 --output-on-failure "$@"
}

parts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    parts+=("$1")
    shift
done
[ $# = 0 ] || shift
[ ${#parts[@]} -gt 0 ] || parts=(address thread collectives)
status=0
kernels='quantized|quantized_conv|matrix|conv|attention|fft|tile'
fixed=(setarch -R) # ThreadSanitizer crashes by chance where address layouts are random
for part in "${parts[@]}"; do
    case $part in
    address)
        options=(-DOPENXPU_FAULTS=ON) start=(env)
        sanitized build-asan address,undefined "$@" || status=1
        ;;
    thread)
        options=() start=("${fixed[@]}")
        OPENXPU_TEST_SECONDS=${OPENXPU_TEST_SECONDS:-60} \
            sanitized build-tsan thread \
            -E "^test_($kernels)$|_(xmx8?|xmx_pvc|fma|dot|ptx|host|none)(_unoptimized)?$" "$@" || status=1
        ;;
    collectives)
        if [ ! -f build/build.ninja ]; then
            echo "skipped: the bridge to PyTorch is not built (make build)"
            continue
        fi
        cmake --build build --target collective_races
        export TSAN_OPTIONS="suppressions=$PWD/tests/races/torch.supp" TORCH_XCCL_DUMP_ON_TIMEOUT=0
        for what in "" ends; do
            "${fixed[@]}" build/bridge/collective_races 15 $what || status=1
        done
        ;;
    *)
        echo "sanitize.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
exit $status
