"""Matrix products by layout and size, and products of a few rows (`python bench/products.py`).

The results decide where PyTorch's library, oneDNN and libxpu's own kernel take over from each other. `openxpu
info --tuning` prints these limits; `openxpu tune` measures them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from harness import Case, main

SIZES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048)
# Below this size, Python and the dispatcher take longer than the product.
LATENCY = 128


def cases() -> Iterator[Case]:
    """Yield square products in three layouts, and one to eight rows times a transposed matrix."""
    for n in SIZES:
        a, b = torch.randn(n, n), torch.randn(n, n)
        for layout, (p, q) in {
            "a @ b": (a, b),
            "a @ b.t()": (a, b.t()),
            "a.t() @ b": (a.t(), b),
        }.items():
            x, y = p.xpu(), q.xpu()
            assert x.stride() == p.stride() and y.stride() == q.stride()
            bar = 0.97 if n > LATENCY else 0.9
            yield Case(layout, f"{n} float32", lambda x=x, y=y: x @ y, lambda p=p, q=q: p @ q, bar)
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for rows in (1, 2, 4, 8):
            for n in (256, 1024, 2048):
                p, q = torch.randn(rows, n).to(dtype), torch.randn(n, n).to(dtype).t()
                x, y = p.xpu(), q.xpu()
                yield Case(
                    "few rows",
                    f"{rows} x {n} {name}",
                    lambda x=x, y=y: x @ y,
                    lambda p=p, q=q: p @ q,
                    0.97,
                )


if __name__ == "__main__":
    main(cases)
