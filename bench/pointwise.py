"""Latency of a small operation, and speed of pointwise operations and layout copies on large tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import harness
import torch
import torch.nn.functional as F
from harness import Case

Tensors = list[torch.Tensor]


def latency() -> Iterator[Case]:
    """Yield `a*b` on 4 elements."""
    a, b = torch.randn(4), torch.randn(4)
    x, y = a.to("xpu"), b.to("xpu")
    yield Case("latency", "a*b, 4 elements", lambda: x * y, lambda: a * b, 1 / 3, median=True)


def pairs(
    group: str, tensors: Tensors, works: dict[str, Callable[[Tensors], torch.Tensor]]
) -> Iterator[Case]:
    """Yield each work on the tensors and on their xpu copies."""
    device = [t.to("xpu") for t in tensors]
    for name, work in works.items():
        yield Case(group, name, lambda w=work: w(device), lambda w=work: w(tensors), 1.0)


def dense() -> Iterator[Case]:
    """Yield arithmetic, functions, where and casts on 2²⁴ elements."""
    for dtype in (torch.float32, torch.bfloat16):
        left, right = (torch.randn(1 << 24).to(dtype) for _ in range(2))
        other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
        yield from pairs(
            f"pointwise 2²⁴ {str(dtype)[6:]}",
            [left, right, left > 0],
            {
                "add": lambda t: t[0] + t[1],
                "mul": lambda t: t[0] * t[1],
                "gelu": lambda t: F.gelu(t[0]),
                "exp": lambda t: t[0].exp(),
                "where": lambda t: torch.where(t[2], t[0], t[1]),
                f"cast to {str(other)[6:]}": lambda t, to=other: t[0].to(to),
                "cast to float16": lambda t: t[0].to(torch.float16),
                "cast to int32": lambda t: t[0].to(torch.int32),
            },
        )


def layouts() -> Iterator[Case]:
    """Yield operands whose memory order differs from the iteration order."""
    for dtype in (torch.float32, torch.bfloat16):
        group = f"layouts {str(dtype)[6:]}"
        square = [torch.randn(4096, 4096).to(dtype) for _ in range(2)]
        yield from pairs(
            group,
            square,
            {
                "transpose 4096²": lambda t: t[0].t().contiguous(),
                "every second column": lambda t: t[0][:, ::2].contiguous(),
                "every third column": lambda t: t[0][:, ::3].contiguous(),
                "every second row": lambda t: t[0][::2].contiguous(),
                "half of each row": lambda t: t[0][:, :2048].contiguous(),
                "a + b.t()": lambda t: t[0] + t[1].t(),
                "a + row": lambda t: t[0] + t[1][0],
                "a + column": lambda t: t[0] + t[1][:, :1],
                "cat of columns": lambda t: torch.cat((t[0][:, ::2], t[1][:, 1::2]), 1),
            },
        )
        shapes = ((32, 128, 12, 64), (16, 64, 56, 56), (64, 3, 224, 224))
        yield from pairs(
            group,
            [torch.randn(shape).to(dtype) for shape in shapes],
            {
                "heads before tokens": lambda t: t[0].transpose(1, 2).contiguous(),
                "tokens last": lambda t: t[0].permute(0, 2, 3, 1).contiguous(),
                "channels last": lambda t: t[1].contiguous(memory_format=torch.channels_last),
                "3 channels last": lambda t: t[2].contiguous(memory_format=torch.channels_last),
            },
        )


def cases() -> Iterator[Case]:
    """Yield all of these."""
    yield from latency()
    yield from dense()
    yield from layouts()


if __name__ == "__main__":
    harness.main(cases)
