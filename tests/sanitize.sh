#!/usr/bin/env bash
# The C tests under AddressSanitizer and UndefinedBehaviorSanitizer, every allocation and OpenCL call made
# to fail in turn; then under ThreadSanitizer, four threads on four streams for a minute, and groups of collectives
# that are given up while their ranks are at work.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" OPENXPU_DRIVER_PATH=${OPENXPU_DRIVER_PATH:-$PWD/.venv/lib}
common=(-G Ninja -DOPENXPU_BRIDGE=OFF -DOPENXPU_TESTS=ON -DCMAKE_BUILD_TYPE=Debug)

cmake -S . -B build-asan "${common[@]}" -DOPENXPU_SANITIZE=address,undefined -DOPENXPU_FAULTS=ON > /dev/null
cmake --build build-asan
ctest --test-dir build-asan --output-on-failure "$@"

cmake -S . -B build-tsan "${common[@]}" -DOPENXPU_SANITIZE=thread > /dev/null
cmake --build build-tsan
OPENXPU_TEST_SECONDS=${OPENXPU_TEST_SECONDS:-60} ctest --test-dir build-tsan --output-on-failure "$@"

if [ -f build/build.ninja ]; then # with PyTorch
    cmake --build build --target collective_races
    export TSAN_OPTIONS="suppressions=$PWD/tests/races/torch.supp" TORCH_XCCL_DUMP_ON_TIMEOUT=0
    for what in "" ends; do # addresses where ThreadSanitizer wants them
        setarch -R build/bridge/collective_races 15 $what
    done
fi
