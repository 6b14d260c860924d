"""Maxima and minima of negated integers, whose sign NVIDIA's compiler may lose (tile_negate_ptx)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from openxpu._tile import compile_module  # noqa: E402
from torch import Tensor  # noqa: E402

BLOCKS = ((16, 64, True), (128, 128, False))  # rows, columns, whether it is the minimum
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)

# On the CPU, by the number of the form; the kernel has the same ones.
FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: torch.maximum(x, -x),
    lambda x: torch.maximum(x, x * -1),
    lambda x: torch.minimum(x, -x),
    lambda x: torch.where(x > 5, x, -x),
    lambda x: torch.where(torch.arange(x.shape[0])[:, None] % 2 == 1, x, -x),
    lambda x: -x,
)


@triton.jit
def negated_kernel(x, out, R: tl.constexpr, C: tl.constexpr, FORM: tl.constexpr, LEAST: tl.constexpr):
    rows = tl.arange(0, R)[:, None]
    columns = tl.arange(0, C)
    v = tl.load(x + rows * C + columns[None, :])
    if FORM == 0:
        y = tl.maximum(v, -v)
    elif FORM == 1:
        y = tl.maximum(v, v * -1)
    elif FORM == 2:
        y = tl.minimum(v, -v)
    elif FORM == 3:
        y = tl.where(v > 5, v, -v)
    elif FORM == 4:
        y = tl.where(rows % 2 == 1, v, -v)
    else:
        y = -v
    tl.store(out + columns, tl.min(y, axis=0) if LEAST else tl.max(y, axis=0))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_extremes_of_negated_integers(form: int, dtype: torch.dtype) -> None:
    for rows, columns, least in BLOCKS:
        x = torch.randint(-100, 100, (rows, columns), generator=torch.Generator().manual_seed(rows)).to(dtype)
        out = torch.zeros(columns, dtype=dtype, device="xpu")
        negated_kernel[(1,)](x.to("xpu"), out, rows, columns, form, least)
        y = FORMS[form](x)
        assert torch.equal(out.cpu(), y.amin(0) if least else y.amax(0)), (rows, columns, least)


MODULE = """
module {
  tt.func public @negate(%x: !tt.ptr<TYPE>) {
    %number = arith.constant NUMBER : TYPE
    %v = tt.load %x : !tt.ptr<TYPE>
    %y = arith.OP %a, %b : TYPE
    tt.store %x, %y : !tt.ptr<TYPE>
    tt.return
  }
}
"""


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("target", ["nvidia", "cpu", "bmg"])
def test_the_form_is_for_nvidia(target: str, element: str) -> None:
    for negates, op, number, a, b in (
        (True, "subi", 0, "%number", "%v"),
        (True, "muli", -1, "%v", "%number"),
        (True, "muli", -1, "%number", "%v"),
        (False, "subi", 0, "%v", "%number"),
        (False, "muli", -3, "%v", "%number"),
    ):
        words = {"TYPE": element, "NUMBER": str(number), "OP": op, "%a": a, "%b": b}
        text = MODULE
        for word, by in words.items():
            text = text.replace(word, by)
        source = compile_module(text.encode(), target=target).source
        assert ("tile_negate_ptx" in source) == (target == "nvidia" and element != "i64" and negates), source
