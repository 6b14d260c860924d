"""Latency of a small operation, and bandwidth of pointwise operations on large tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import harness
import torch
import torch.nn.functional as F
from harness import Case


def cases() -> Iterator[Case]:
    """`a*b` on 4 elements; add, gelu, exp, where and casts on 2²⁴."""
    a, b = torch.randn(4), torch.randn(4)
    x, y = a.to("xpu"), b.to("xpu")
    yield Case("latency", "a*b, 4 elements", lambda: x * y, lambda: a * b, 1 / 3, median=True)
    for dtype in (torch.float32, torch.bfloat16):
        left, right = (torch.randn(1 << 24).to(dtype) for _ in range(2))
        mask = left > 0
        device = [t.to("xpu") for t in (left, right, mask)]
        host = [left, right, mask]
        other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
        works: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
            "add": lambda t: t[0] + t[1],
            "gelu": lambda t: F.gelu(t[0]),
            "exp": lambda t: t[0].exp(),
            "where": lambda t: torch.where(t[2], t[0], t[1]),
            f"cast to {str(other)[6:]}": lambda t, to=other: t[0].to(to),
        }
        for name, work in works.items():
            yield Case(
                f"pointwise 2²⁴ {str(dtype)[6:]}",
                name,
                lambda w=work, t=device: w(t),
                lambda w=work, t=host: w(t),
                1.0,
            )


if __name__ == "__main__":
    harness.main(cases)
