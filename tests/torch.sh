#!/usr/bin/env bash
# Builds and tests a copy of the tree with another PyTorch and its Triton, in a separate environment.
#   tests/torch.sh 2.15.0 [TESTS...]
# Uses the CPU build of PyTorch if there is one, else the CUDA build, of about 5 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
shift
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(tests/python/test_{device,compile,compile_triton,aoti}.py
  tests/ops/test_{reduce,norm,sort,nested,sparse}.py)
place=build/torch-$version
mkdir -p "$place"
# build products are next to the sources, so the sources are copied, with their times to keep what is up to date
tar --exclude=./build --exclude=./dist --exclude=./.venv --exclude=./.git --exclude='*.so*' \
  --exclude=./python/openxpu/_build.py -cf - . | tar -xf - -C "$place"
cd "$place"
unset OPENXPU_DRIVER_PATH
if [ ! -e .venv/.torch ]; then
  python3 -m venv .venv
  install=(.venv/bin/python -m pip install -q)
  "${install[@]}" numpy
  "${install[@]}" "torch==$version+cpu" ||
    "${install[@]}" "torch==$version+cpu" --index-url https://download.pytorch.org/whl/cpu ||
    "${install[@]}" "torch==$version"
  touch .venv/.torch
fi
make build "TORCH=$version"
export OPENXPU_DRIVER_PATH=$PWD/.venv/lib
.venv/bin/python -c 'import torch, triton; print("PyTorch", torch.__version__, "Triton", triton.__version__)'
# with xpu as the accelerator, also in CUDA builds; another version's warnings are listed, and fail no test
OMP_WAIT_POLICY=passive .venv/bin/openxpu run -m pytest -q -n 2 --timeout 600 -W default "${tests[@]}"
