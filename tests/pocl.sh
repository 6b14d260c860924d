#!/usr/bin/env bash
# The portability leg: what needs neither subgroups nor fp16 arithmetic passes on Debian's PoCL.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! ldconfig -p | grep -q libpocl && ! ls /etc/OpenCL/vendors/pocl.icd > /dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get install -y -qq pocl-opencl-icd > /dev/null
    else
        echo "skipped: PoCL is not installed (apt-get install pocl-opencl-icd)"
        exit 0
    fi
fi
export OPENXPU_DEVICE=portable
ctest --test-dir build --output-on-failure
.venv/bin/python -m pytest -q tests/ops "$@"
