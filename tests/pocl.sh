#!/usr/bin/env bash
# pocl.sh [c|ops] [ARGUMENTS]
# Portability: everything that needs neither subgroups nor fp16 arithmetic passes on Debian's PoCL. c: the C tests;
# ops: the operator tests, with one in 8 parameters each (OPENXPU_TEST_EVERY), since PoCL takes long to build kernels.
# If PoCL is not installed, it is installed during the tests only, because programs that ask for the CPU would find it.
# The exit status is 77 if that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e /etc/OpenCL/vendors/pocl.icd ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        # its .icd file is a configuration file, which apt-get doesn't restore once it has been deleted
        apt-get install -y -qq -o Dpkg::Options::=--force-confmiss pocl-opencl-icd > /dev/null
        trap 'apt-get purge -y -qq pocl-opencl-icd > /dev/null' EXIT
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
