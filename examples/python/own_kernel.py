"""A Triton kernel of one's own on xpu: softmax, one program a row."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out, x, columns, BLOCK: tl.constexpr):
    """Subtracts the row's maximum, so that no exponential overflows."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax along the rows of a contiguous matrix."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](out, x, columns, BLOCK=triton.next_power_of_2(columns))
    return out


def main() -> None:
    """Compares it with PyTorch's."""
    x = torch.randn(1000, 777, device="xpu")
    difference = (softmax(x) - torch.softmax(x, dim=1)).abs().max().item()
    print(f"largest difference from torch.softmax: {difference:.1e}")


if __name__ == "__main__":
    main()
