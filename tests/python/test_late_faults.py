"""Indices out of range on devices that work while the program goes on; host devices can be made to report alike."""

from helpers import python


def test_late_reports():
    out = python(
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
        {"OPENXPU_LATE_FAULTS": "1"},
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
