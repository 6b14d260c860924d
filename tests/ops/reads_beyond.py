"""Products and convolutions whose operands begin or end where the page before or behind can't be read.

`python reads_beyond.py COUNT` prints each problem before its kernels run; a read of such a page ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys

import torch
from torch import Tensor

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PAGE = mmap.PAGESIZE
kept: list[mmap.mmap] = []


def guarded(memory: Tensor, at_end: bool) -> Tensor:
    """Copy to xpu so that the last (or first) byte borders on an inaccessible page."""
    size = memory.numel() * memory.element_size()
    pages = -(-size // PAGE)
    area = mmap.mmap(-1, (pages + 2) * PAGE)
    kept.append(area)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
    address = begin + (pages + 1) * PAGE - size if at_end else begin + PAGE
    ctypes.memmove(address, memory.data_ptr(), size)
    for page in (begin, begin + (pages + 1) * PAGE):
        if libc.mprotect(page, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    storage = torch._C._construct_storage_from_data_pointer(address, torch.device("xpu:0"), size)
    return torch.empty(0, dtype=memory.dtype, device="xpu").set_(storage, 0, (memory.numel(),))


def operand(draw: random.Random, dtype: torch.dtype, *shape: int) -> tuple[Tensor, Tensor]:
    """Return tensors with the same values and strides on xpu and on the CPU."""
    strides, distance, order = [0] * len(shape), draw.choice([1, 1, 1, 1, 2]), list(range(len(shape)))
    draw.shuffle(order)
    pieces = max(16 // dtype.itemsize, 1) if draw.random() < 0.7 else 1  # row starts are multiples of this
    for dim in order:
        strides[dim] = distance
        distance = -(-distance * shape[dim] // pieces) * pieces + draw.choice([0, 0, 0, pieces])
    first = draw.choice([0, 0, 1, pieces])
    count = first + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    memory = torch.randint(-4, 5, (count,)).to(dtype)
    there = guarded(memory, draw.random() < 0.7)
    return tuple(torch.as_strided(x, shape, strides, first) for x in (there, memory))  # type: ignore[return-value]


DTYPES = [
    torch.float32,
    *[torch.float64, torch.complex128] * torch.xpu.get_device_properties().has_fp64,
    torch.complex64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
]
SIZES = [1, 1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 79, 130]


def product(draw: random.Random, dtype: torch.dtype) -> None:
    """Check a matrix product that is exact in every dtype."""
    m, n, k = draw.choice(SIZES), draw.choice(SIZES), draw.choice([1, 7, 32, 64, 128, 130, 192])
    (a, left), (b, right) = operand(draw, dtype, m, k), operand(draw, dtype, k, n)
    print("product", dtype, a.shape, a.stride(), b.shape, b.stride(), flush=True)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    assert torch.equal((a @ b).cpu(), (left.to(wide) @ right.to(wide)).to(dtype)), "wrong"


def convolution(draw: random.Random, dtype: torch.dtype) -> None:
    """Check a two-dimensional convolution that is exact in every dtype."""
    c, out = draw.choice([1, 3, 8, 16, 24]), draw.choice([1, 5, 8, 32])
    size, kernel = draw.choice([1, 5, 14]), draw.choice([1, 3])
    (x, image), (w, weight) = (
        operand(draw, dtype, 2, c, size, size),
        operand(draw, dtype, out, c, kernel, kernel),
    )
    print("convolution", dtype, x.shape, x.stride(), w.shape, w.stride(), flush=True)
    want = torch.nn.functional.conv2d(image.double(), weight.double(), padding=1)
    assert torch.equal(torch.nn.functional.conv2d(x, w, padding=1).cpu(), want.to(dtype)), "wrong"


def main() -> None:
    """Run the given number of problems."""
    draw = random.Random(0)
    torch.manual_seed(0)
    for i in range(int(sys.argv[1])):
        dtype = draw.choice(DTYPES)
        if i % 4 == 3 and dtype in (torch.float32, torch.bfloat16, torch.float16):
            convolution(draw, dtype)
        else:
            product(draw, dtype)
        torch.xpu.synchronize()


if __name__ == "__main__":
    main()
