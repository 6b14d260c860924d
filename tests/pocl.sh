#!/usr/bin/env bash
# pocl.sh [c|ops] [ARGUMENTS]
# The portability leg: what needs neither subgroups nor fp16 arithmetic passes on Debian's PoCL. c: the C tests; ops: the
# tests of operators, one in 8 of each one's parameters (OPENXPU_TEST_EVERY), since PoCL takes long to build kernels.
# If PoCL is not installed, it is for the time of the tests: programs that ask for "the CPU" find it, too. Exit status 77
# if it can't be.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e /etc/OpenCL/vendors/pocl.icd ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get install -y -qq pocl-opencl-icd > /dev/null
        trap 'apt-get remove -y -qq pocl-opencl-icd > /dev/null' EXIT
    else
        echo "skipped: PoCL is not installed (apt-get install pocl-opencl-icd)"
        exit 77
    fi
fi
export OPENXPU_DEVICE=portable OPENXPU_TEST_EVERY=${OPENXPU_TEST_EVERY:-8} OMP_WAIT_POLICY=passive
part=${1:-all}
[ $# = 0 ] || shift
status=0
if [ "$part" != ops ]; then
    ctest --test-dir build -j 2 --output-on-failure "$@" || status=1
fi
if [ "$part" != c ]; then
    .venv/bin/python -m pytest -q -n 2 --dist worksteal --timeout 600 tests/ops "$@" || status=1
fi
exit $status
