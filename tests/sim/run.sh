#!/usr/bin/env bash
# run.sh PART…: tests on simulated GPUs.
#   smoke     programs and children on every product, faults, the self-test on two products; two minutes
#   planted-PRODUCT  kernels with planted faults, on bmg all of them
#   c-PRODUCT the C tests of libxpu that need a device, on this product
#   ops       a case of each operator family and what only GPUs compute so, on two products
#   ops-PRODUCT  tests/ops with pairs of parameters, on bmg and lnl all of it, on other products a fifth
#   triton    random Triton programs, compared with NumPy, on products with different subgroup sizes and matrix engines;
#             OPENXPU_TEST_SEED=$RANDOM makes other programs than the first 500
# The exit status is 77 if Intel's driver is unavailable.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
driver=$root/build/intel/driver
simulate=("$root/.venv/bin/openxpu" simulate --driver "$driver")

"$root/python/openxpu/_fetch_intel_driver.sh" "$driver" || {
    echo "skipped: Intel's driver can't be had on this machine"
    exit 77
}

tests() { OPENXPU_SIM_TEST_DRIVER=$driver "$root/.venv/bin/python" -m pytest -q --timeout 300 "$@"; }
smoke() { tests --ignore "$here/test_planted.py" "$here"; }
# One process runs many variants.
planted() { tests --timeout 900 -k "$1-" "$here/test_planted.py"; }

# The C tests, each with what it takes to be quick: interpreted lanes are 1,000 times slower than a GPU's.
c_tests() {
    local status=0 test
    for test in api image package graph random cache request dtype fault fork threads pinned fft \
        "matrix 0 0 40" "conv 0 0 40" "attention 0 0 40" quantized package_experts; do
        set -- $test
        echo "== $1 on $product"
        timeout 900 "${simulate[@]}" --device "$product" "$root/build/tests/c/test_$1" "${@:2}" || {
            echo "test_$1 on $product: failed ($?)"
            status=1
        }
    done
    return $status
}

ops() {
    local status=0
    export PYTHONPATH=$root/python OPENXPU_DRIVER_PATH=$root/.venv/lib OPENXPU_TEST_PAIRS=1
    for product in bmg lnl; do
        "${simulate[@]}" --device "$product" "$root/.venv/bin/python" -m pytest -q --timeout 600 "$root/tests/check" ||
            status=1
        "${simulate[@]}" --device "$product" "$root/.venv/bin/python" -m pytest -q --timeout 600 \
            "$root/tests/ops/test_counting.py" -k "medians and (float32 or int16)" || status=1
    done
    return $status
}

all_ops() {
    local every=5
    case $product in bmg | lnl) every=1 ;; esac
    PYTHONPATH=$root/python OPENXPU_DRIVER_PATH=$root/.venv/lib OPENXPU_TEST_PAIRS=1 OPENXPU_TEST_EVERY=$every \
        OMP_WAIT_POLICY=passive "${simulate[@]}" --device "$product" \
        "$root/.venv/bin/python" -m pytest -q -n 2 --dist worksteal --timeout 900 "$root/tests/ops"
}

triton() {
    local status=0
    export PYTHONPATH=$root/python OPENXPU_DRIVER_PATH=$root/.venv/lib
    for product in bmg pvc dg2 mtl; do
        echo "== Triton programs on $product"
        "${simulate[@]}" --device "$product" "$root/.venv/bin/python" -m pytest -q --timeout 600 \
            "$root/tests/tile/test_bits.py" || status=1
        "${simulate[@]}" --device "$product" "$root/.venv/bin/python" "$root/tests/tile/test_differential.py" \
            "${OPENXPU_TEST_SEED:-0}" 500 || status=1
    done
    return $status
}

status=0
for part in "${@:-smoke}"; do
    case $part in
    smoke) smoke || status=1 ;;
    ops) ops || status=1 ;;
    ops-*) product=${part#ops-} && all_ops || status=1 ;;
    triton) triton || status=1 ;;
    planted-*) planted "${part#planted-}" || status=1 ;;
    c-*) product=${part#c-} && c_tests || status=1 ;;
    *)
        echo "run.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
exit $status
