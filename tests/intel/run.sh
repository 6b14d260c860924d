#!/usr/bin/env bash
# run.sh [PART…]: tests with Intel's offline compiler and its GPU driver from Debian sid, without an Intel GPU.
#   kernels  compiles 200 of the kernels that a quarter of the op tests build for six products. OPENXPU_TEST_ALL=1
#            compiles all kernels of all op tests, which takes hours.
#   matrix   checks the kernels for XMX.
#   corpus   compiles the output of the Triton IR compiler for every 20th module of its corpus (or all).
#   driver   runs the C test test_api on the driver.
# Without arguments all four run, even if one fails. The exit status is 77 if compiler and driver are unavailable.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/build/intel
python=$root/.venv/bin/python
all=${OPENXPU_TEST_ALL:-0}
mkdir -p "$work/kernels"

"$root/python/openxpu/_fetch_intel_driver.sh" "$work/driver" || {
    status=$?
    [ $status = 3 ] || exit $status
    echo "skipped: Intel's compiler and driver can't be had on this machine"
    exit 77
}

kernels() {
    echo "== kernels that the op tests build, offline"
    local status=0
    OMP_WAIT_POLICY=passive OPENXPU_DUMP_KERNELS=$work/kernels \
        OPENXPU_TEST_EVERY=$([ "$all" = 1 ] && echo 1 || echo "${OPENXPU_TEST_EVERY:-4}") \
        "$python" -m pytest -q -n 2 --dist worksteal --timeout 600 "$root/tests/ops" || status=1
    "$python" "$here/compile.py" "$work/driver/bin/ocloc" "$work/kernels" \
        --sample "$([ "$all" = 1 ] && echo 0 || echo 200)" || status=1
    return $status
}

matrix() {
    echo "== products by matrix units, offline"
    "$python" "$here/matrix.py" "$work/driver/bin/ocloc"
}

corpus() {
    echo "== the corpus of Triton IR as the compiler emits it, offline"
    PYTHONPATH=$root/python "$python" "$here/corpus.py" "$work/driver/bin/ocloc" "$root/build/ttir" "$work/tile" \
        --every "$([ "$all" = 1 ] && echo 1 || echo 20)"
}

driver() {
    echo "== test_api on Intel's driver, no GPU"
    local libraries=$work/driver/root/usr/lib/x86_64-linux-gnu status=0 result version pair
    version=$(ls "$libraries"/libocloc.so* "$libraries"/intel-opencl/libigdrcl.so 2> /dev/null | head -n 1)
    cc -O2 -shared -fPIC -o "$work/nogpu.so" "$here/nogpu.c" || return 1
    mkdir -p "$work/lib" "$work/icd"
    # the library that the test is linked with is in build/, or in the package if the bridge is built
    cp -L "$(ldd "$root/build/tests/c/test_api" | awk '/libxpu.so/ {print $3}')" "$work/lib" || return 1
    cp -L "$(ldconfig -p | awk '/libcmocka.so.0/ {print $NF; exit}')" "$work/lib/libcmocka.so.0" || return 1
    echo "$libraries/intel-opencl/libigdrcl.so" > "$work/icd/intel.icd"
    for pair in bmg:5x4x8 lnl:1x8x8 pvc:8x8x8 dg2:8x4x16 mtl:1x8x16 tgllp:1x6x16; do
        result=0
        env -u LD_LIBRARY_PATH OCL_ICD_VENDORS="$work/icd" NEOReadDebugKeys=1 UseAubStream=0 \
            SetCommandStreamReceiver=5 EnableDirectSubmission=0 ProductFamilyOverride="${pair%:*}" \
            HardwareInfoOverride="${pair#*:}" OPENXPU_DEVICE=gpu OPENXPU_CACHE=0 timeout 120 \
            "$work/driver/root/usr/lib64/ld-linux-x86-64.so.2" --preload "$work/nogpu.so" \
            --library-path "$work/lib:$libraries:$libraries/intel-opencl" "$root/build/tests/c/test_api" || result=$?
        case $result in
        0) echo "${pair%:*}: passed" ;;
        124) echo "${pair%:*}: skipped: this build of the driver ($version) waits for a GPU" ;;
        *)
            echo "${pair%:*}: failed ($result)"
            status=1
            ;;
        esac
    done
    return $status
}

[ $# -gt 0 ] || set -- kernels matrix corpus driver
status=0
for part in "$@"; do
    case $part in
    kernels | matrix | corpus | driver) "$part" || status=1 ;;
    *)
        echo "run.sh: no part is called $part" >&2
        exit 2
        ;;
    esac
done
exit $status
