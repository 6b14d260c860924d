"""libxpu without the host's libraries, as C programs and packages use it, compared with PyTorch on the CPU.

Matrix products, convolutions and attention run on libxpu's own CPU kernels (`OPENXPU_HOST_PROVIDER=0`).
PyTorch uses oneDNN and MKL, which have half-precision matrix instructions that OpenCL C cannot reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["OPENXPU_HOST_PROVIDER"] = "0"  # before openxpu is loaded

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from harness import Case, main  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# images, filters, stride, padding
CONVOLUTIONS = (
    ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    ((8, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    ((8, 64, 28, 28), (256, 64, 1, 1), 1, 0),
)
# batch, heads, queries, keys, head size: a sentence, an image, a long text, a decoding step
ATTENTION = (
    (8, 12, 128, 128, 32),
    (8, 12, 197, 197, 64),
    (1, 12, 1024, 1024, 64),
    (1, 32, 1, 1024, 128),
)


def by_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute attention with an explicit score matrix: two products and a softmax."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


def cases() -> Iterator[Case]:
    """Yield cases; fp32 and fp16 bars keep the current level; for bf16 PyTorch uses CPU instructions."""
    torch.manual_seed(0)
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        bar = 0.1 if dtype == torch.bfloat16 else 0.4
        for n in (256, 1024):
            p, q = (torch.randn(n, n).to(dtype) for _ in range(2))
            x, y = p.xpu(), q.xpu()
            yield Case("product", f"{n} {name}", lambda x=x, y=y: x @ y, lambda p=p, q=q: p @ q, bar)
        for images, filters, stride, padding in CONVOLUTIONS:
            p, w = torch.randn(images).to(dtype), torch.randn(filters).to(dtype)
            x, y = p.xpu(), w.xpu()
            yield Case(
                "convolution",
                f"{images} {filters} {name}".replace(" ", ""),
                lambda x=x, y=y, s=stride, d=padding: F.conv2d(x, y, None, s, d),
                lambda p=p, w=w, s=stride, d=padding: F.conv2d(p, w, None, s, d),
                bar / 2,
            )
        for batch, heads, queries, keys, depth in ATTENTION:
            cpu = [torch.randn(batch, heads, n, depth).to(dtype) for n in (queries, keys, keys)]
            xpu = [t.xpu() for t in cpu]
            size = f"{batch}x{heads}x{queries}x{keys}x{depth} {name}"
            yield Case(
                "attention",
                size,
                lambda t=xpu: F.scaled_dot_product_attention(*t),
                lambda t=cpu: F.scaled_dot_product_attention(*t),
                0.8,
            )
            yield Case(
                "attention, against scores on xpu",
                size,
                lambda t=xpu: F.scaled_dot_product_attention(*t),
                lambda t=xpu: by_scores(*t),
                1.0,
            )


if __name__ == "__main__":
    main(cases)
