#!/usr/bin/env bash
# The wheel: it is complete, has at most 5 MB, and works without the rest of the project.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist
make -s wheel
wheel=$(ls "$PWD"/dist/*.whl)
size=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $size bytes"
[ "$size" -le 5000000 ] || { echo "the wheel is larger than 5 MB"; exit 1; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
.venv/bin/python -m pip install -q --no-deps --target "$place/site" "$wheel"
cd "$place"
# -S -s: ignore the tree that .venv is linked to; its packages come after the wheel's
packages=$("$OLDPWD/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
PYTHONPATH="$place/site:$packages" OPENXPU_DRIVER_PATH="$OLDPWD/.venv/lib" "$OLDPWD/.venv/bin/python" -S -s -c "
import torch, openxpu
assert openxpu.__file__.startswith('$place'), openxpu.__file__
x = torch.randn(64, 64, device='xpu', requires_grad=True)
(x @ x).relu().sum().backward()
torch.testing.assert_close(torch.compile(torch.exp)(x.detach()), x.detach().exp())
print('works:', torch.xpu.get_device_name())"
