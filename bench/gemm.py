"""Matrix products, convolutions and attention (`python bench/gemm.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from harness import Case, main

# ResNet-50: input channels, output channels, kernel, stride, image side.
CONVOLUTIONS = [
    (64, 64, 3, 1, 56),
    (128, 128, 3, 1, 28),
    (256, 256, 3, 1, 14),
    (64, 256, 1, 1, 56),
    (512, 128, 1, 1, 28),
    (1024, 256, 1, 1, 14),
    (256, 512, 1, 2, 56),
]


def cases() -> Iterator[Case]:
    """Yield products, small products, convolutions forward and backward, and attention."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for n in (256, 512, 1024, 2048):
            a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
            x, y = a.to("xpu"), b.to("xpu")
            yield Case("mm", f"{n} {name}", lambda x=x, y=y: x @ y, lambda a=a, b=b: a @ b, 0.95)
        n = 1024
        w, v = torch.randn(n, n).to(dtype), torch.randn(1, n).to(dtype)
        x, y = w.to("xpu"), v.to("xpu")
        yield Case(
            "mm",
            f"linear 1 x {n} {name}",
            lambda x=x, y=y: F.linear(y, x),
            lambda w=w, v=v: F.linear(v, w),
            1.0,
        )
    for m, k, n in ((4, 4, 4), (64, 64, 64), (1, 64, 64)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        x, y = a.to("xpu"), b.to("xpu")
        yield Case("mm", f"{m}x{k}x{n}", lambda x=x, y=y: x @ y, lambda a=a, b=b: a @ b, 0.4, median=True)
    a, b = torch.randn(12, 16, 64), torch.randn(12, 64, 16)
    x, y = a.to("xpu"), b.to("xpu")
    yield Case(
        "mm", "bmm 12 x 16x64x16", lambda x=x, y=y: x.bmm(y), lambda a=a, b=b: a.bmm(b), 0.6, median=True
    )
    for cin, cout, kernel, stride, size in CONVOLUTIONS:
        for last in (False, True):
            form = torch.channels_last if last else torch.contiguous_format
            a = torch.randn(8, cin, size, size).to(memory_format=form)
            w = torch.randn(cout, cin, kernel, kernel).to(memory_format=form)
            x, y = a.to("xpu"), w.to("xpu")
            label = f"{cin}→{cout} {kernel}x{kernel}/{stride} {size}{' last' if last else ''}"

            def forward(
                x: torch.Tensor, w: torch.Tensor, s: int = stride, p: int = kernel // 2
            ) -> torch.Tensor:
                return F.conv2d(x, w, stride=s, padding=p)

            yield Case(
                "conv", label, lambda f=forward, x=x, y=y: f(x, y), lambda f=forward, a=a, w=w: f(a, w), 0.95
            )

            if kernel == 3:
                ga, gw = a.clone().requires_grad_(), w.clone().requires_grad_()
                gx, gy = x.clone().requires_grad_(), y.clone().requires_grad_()
                go = forward(a, w)
                gz = go.to("xpu")
                yield Case(
                    "conv",
                    label + " training",
                    lambda f=forward, x=gx, y=gy, g=gz: torch.autograd.grad(f(x, y), (x, y), g),
                    lambda f=forward, x=ga, y=gw, g=go: torch.autograd.grad(f(x, y), (x, y), g),
                    0.95,
                )
    for shape in ((1, 12, 32, 32), (32, 12, 128, 32), (8, 12, 512, 64)):
        q = torch.randn(shape)
        x = q.to("xpu")
        yield Case(
            "attention",
            "x".join(map(str, shape)),
            lambda x=x: F.scaled_dot_product_attention(x, x, x),
            lambda q=q: F.scaled_dot_product_attention(q, q, q),
            0.95,
        )


if __name__ == "__main__":
    main(cases)
