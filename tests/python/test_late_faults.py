"""Indices out of range with deferred error reports, as on asynchronous devices; CPU devices can do the same."""

import pytest
from processes import run_python


def test_late_reports():
    out = run_python(
        """
import torch.nn.functional as F

x, i = torch.arange(8.0, device="xpu"), torch.tensor([1, 8], device="xpu")
logits, target = torch.randn(2, 3, device="xpu"), torch.tensor([1, 3], device="xpu")

def report(call, wait=torch.xpu.synchronize):
    result = call()
    try:
        wait()
    except IndexError as error:
        torch.xpu.synchronize()  # reported once
        return str(error).split(".")[0]

print(report(lambda: x[i]))
print(report(lambda: x.gather(0, i)))
print(report(lambda: x.index_put((i,), x[:2])))
print(report(lambda: x.scatter_add(0, i, x)))
print(report(lambda: F.embedding(i, torch.ones(4, 2, device="xpu"))))
print(report(lambda: F.cross_entropy(logits, target), torch.xpu.current_stream().synchronize))
print(report(lambda: x[i], lambda: x.to("cpu")))
print(report(lambda: x[i - 1], lambda: x.to("cpu")))
print((x[i - 1] + 1).tolist())
""",
        env={"OPENXPU_DEFERRED_ERRORS": "1"},
    )
    size = "is out of bounds for a dimension of size"
    assert out.stdout.splitlines() == [
        f"index: index 8 {size} 8",
        f"gather: index 8 {size} 8",
        f"index_put: index 8 {size} 8",
        f"scatter: index 8 {size} 8",
        f"index_select: index 8 {size} 4",
        f"nll_loss: index 3 {size} 3",
        f"index: index 8 {size} 8",
        "None",
        "[1.0, 8.0]",
    ]


KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def checked(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i)
    tl.device_assert(v >= 0, "v >= 0")
    tl.store(y + i, v)
"""


def test_late_assertions(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "kernel.py").write_text(KERNEL)
    out = run_python(
        f"""
import re, sys
sys.path.insert(0, {str(tmp_path)!r})
from kernel import checked

x = torch.arange(256, device="xpu")
x[130] = -1
for wait in torch.xpu.synchronize, torch.xpu.current_stream().synchronize, x.cpu:
    y = torch.zeros_like(x)
    checked[(4,)](x, y, 64, debug=True)
    try:
        wait()
    except RuntimeError as error:
        print(re.sub("at .*/(.*):[0-9]+, in", r"at \\1, in", str(error)).split(". ")[0])
    print(1 <= int((y != x).sum()) <= 64)  # on GPUs lanes that need no others go on
checked[(4,)](x, y, 64)
print(int((y != x).sum()))

index = torch.tensor([1, 256], device="xpu")
compiled = torch.compile(lambda x, i: x[i] + 1)
compiled(x, index)
try:
    torch.xpu.synchronize()
except RuntimeError as error:
    print("index out of bounds" in str(error), "An earlier call caused this" in str(error))
print(compiled(x, index - 1).tolist())
""",
        env={"OPENXPU_DEFERRED_ERRORS": "1"},
    )
    report = "checked_kernel: assertion failed: v >= 0, at kernel.py:8, in program (2, 0, 0)"
    assert out.stdout.splitlines() == [*[report, "True"] * 3, "0", "True True", "[1, 256]"]
