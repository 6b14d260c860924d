#!/usr/bin/env bash
# Without an Intel GPU: compiles 200 of the kernels that the op tests build (all with OPENXPU_TEST_ALL=1: some
# hours) for six products, and what the Triton IR compiler emits for every 20th module of its corpus (or all), and
# runs the C tests of the runtime against Intel's real driver. Left out, with a message, where Debian sid can't be reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/build/intel
mkdir -p "$work/kernels"

status=0
"$here/fetch.sh" "$work/driver" || status=$?
if [ $status = 3 ]; then
    echo "skipped: Intel's compiler and driver can't be had on this machine"
    exit 0
fi
[ $status = 0 ] || exit $status

echo "== kernels that the op tests build, offline"
OPENXPU_DUMP_KERNELS=$work/kernels "$root/.venv/bin/python" -m pytest -q "$root/tests/ops" "$@"
"$root/.venv/bin/python" "$here/compile.py" "$work/driver/bin/ocloc" "$work/kernels" \
    --sample "$([ "${OPENXPU_TEST_ALL:-0}" = 1 ] && echo 0 || echo 200)"

echo "== products by matrix units, offline"
"$root/.venv/bin/python" "$here/matrix.py" "$work/driver/bin/ocloc" || status=1

echo "== the corpus of Triton IR as the compiler emits it, offline"
PYTHONPATH=$root/python "$root/.venv/bin/python" "$here/corpus.py" "$work/driver/bin/ocloc" "$root/build/ttir" "$work/tile" \
    --every "$([ "${OPENXPU_TEST_ALL:-0}" = 1 ] && echo 1 || echo 20)"

echo "== the runtime's C tests on Intel's driver, no GPU"
libraries=$work/driver/root/usr/lib/x86_64-linux-gnu
version=$(ls "$libraries"/libocloc.so* "$libraries"/intel-opencl/libigdrcl.so 2> /dev/null | head -n 1)
cc -O2 -shared -fPIC -o "$work/nogpu.so" "$here/nogpu.c"
mkdir -p "$work/lib" "$work/icd"
# the library that the test is linked with: it lies in build/, or in the package when the bridge is built
cp -L "$(ldd "$root/build/tests/c/test_api" | awk '/libxpu.so/ {print $3}')" "$work/lib"
cp -L "$(ldconfig -p | awk '/libcmocka.so.0/ {print $NF; exit}')" "$work/lib/libcmocka.so.0"
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
    *) echo "${pair%:*}: failed ($result)"; status=1 ;;
    esac
done
exit $status
