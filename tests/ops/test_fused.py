"""The fused linear and convolution operators (mkldnn::…) of Inductor's freezing, against float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from torch import Tensor

fused = torch.ops.mkldnn
XPU = "xpu"
# Keyed by attribute and algorithm: scalars and reference function.
UNARY: dict[tuple[str, str], tuple[list[float], Callable[[Tensor], Tensor]]] = {
    ("none", ""): ([], lambda x: x),
    ("relu", ""): ([], F.relu),
    ("gelu", "none"): ([], F.gelu),
    ("gelu", "tanh"): ([], lambda x: F.gelu(x, approximate="tanh")),
    ("swish", ""): ([], F.silu),
    ("sigmoid", ""): ([], torch.sigmoid),
    ("tanh", ""): ([], torch.tanh),
    ("hardswish", ""): ([], F.hardswish),
    ("hardsigmoid", ""): ([], F.hardsigmoid),
    ("leaky_relu", ""): ([0.2], lambda x: F.leaky_relu(x, 0.2)),
    ("hardtanh", ""): ([-0.5, 0.75], lambda x: F.hardtanh(x, -0.5, 0.75)),
    ("elu", ""): ([0.7], lambda x: F.elu(x, 0.7)),
    ("mish", ""): ([], F.mish),
    ("abs", ""): ([], torch.abs),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
}
# Relative to float64: PyTorch's libraries round sums to the dtype before the activation.
close = functools.partial(assert_close, times={torch.float32: 0.5}, relative_to="largest", floor=1)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


def divisor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return nonzero values, safe as divisors."""
    return (torch.rand(shape) + 0.5).to(dtype)


# --- linear ---


@pytest.mark.parametrize("unary", UNARY, ids="-".join)
@pytest.mark.parametrize("shape", [(33, 70, 17), (5, 16, 64)], ids=str)
def test_linear(unary: tuple[str, str], shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w, b = normal(m, k), normal(n, k) / k**0.5, normal(n)
    scalars, function = UNARY[unary]
    y = fused._linear_pointwise(x.to(XPU), w.to(XPU), b.to(XPU), unary[0], scalars, unary[1])
    close(y, function(F.linear(x.double(), w.double(), b.double())), dtype=torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7,), (1, 7), (3, 5, 7), (2, 1, 3, 7), (0, 7), (2, 0, 7)], ids=str)
def test_linear_of_all_shapes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, w = normal(*shape, dtype=dtype), normal(9, 7, dtype=dtype)
    y = fused._linear_pointwise(x.to(XPU), w.to(XPU), None, "swish", [], "")
    want = F.silu(F.linear(x.double(), w.double()))
    assert y.shape == want.shape and y.is_contiguous()
    if want.numel():
        close(y, want, dtype=dtype)


def test_linear_without_products() -> None:
    b = normal(4)
    y = fused._linear_pointwise(
        torch.ones(3, 0, device=XPU), torch.ones(4, 0, device=XPU), b.to(XPU), "relu", [], ""
    )
    close(y, b.double().relu().expand(3, 4), dtype=torch.float32)


@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear_binary(binary: str, dtype: torch.dtype) -> None:
    x, w, b = normal(3, 11, 20, dtype=dtype), normal(13, 20, dtype=dtype), normal(13, dtype=dtype)
    want = F.linear(x.double(), w.double(), b.double())
    others = [
        divisor(3, 11, 13, dtype=dtype),
        divisor(1, 1, 13, dtype=dtype),
        divisor(3, 13, 11, dtype=dtype).mT,
    ]
    for other in others:
        y = fused._linear_pointwise(x.to(XPU), other.to(XPU), w.to(XPU), b.to(XPU), binary)
        close(y, BINARY[binary](want, other.double()), dtype=dtype)


def test_linear_of_views() -> None:
    """Operands with any storage offset and layout."""
    memory = normal(4000).to(XPU)
    x, w = memory[3:].as_strided((9, 21), (2, 30)), memory[1:].as_strided((10, 21), (1, 11))
    b, other = memory[7:].as_strided((10,), (3,)), memory[5:].as_strided((9, 10), (1, 13))
    y = fused._linear_pointwise.binary(x, other, w, b, "add")
    x, w, b, other = (t.cpu().double() for t in (x, w, b, other))
    close(y, F.linear(x, w, b) + other, dtype=torch.float32)


# --- convolutions ---

# dims, channels in and out, groups, kernel, stride, padding, dilation
CASES = [
    (2, 3, 8, 1, 3, 1, 1, 1),
    (2, 16, 24, 1, 1, 1, 0, 1),
    (2, 8, 12, 4, 3, 2, 1, 1),
    (2, 16, 16, 16, 3, 1, 1, 1),
    (2, 5, 7, 1, 3, 1, 2, 2),
    (2, 1, 6, 1, 3, 1, 1, 1),
    (1, 6, 9, 3, 5, 2, 2, 1),
    (3, 4, 10, 2, 3, 2, 1, 1),
]
EXTENT = {1: (23,), 2: (11, 9), 3: (6, 5, 7)}
FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


class Problem:
    """Return a convolution's tensors, and the arguments of its post-ops."""

    def __init__(
        self, case: tuple[int, ...], dtype: torch.dtype, last: bool = True, transposed: bool = False
    ) -> None:
        self.dims, cin, cout, self.groups, kernel, stride, padding, dilation = case
        self.dtype, self.transposed = dtype, transposed
        shape = (cin, cout // self.groups) if transposed else (cout, cin // self.groups)
        self.x = normal(2, cin, *EXTENT[self.dims], dtype=dtype)
        self.w = (normal(*shape, *[kernel] * self.dims) / (cin // self.groups * kernel**self.dims) ** 0.5).to(
            dtype
        )
        self.b = normal(cout, dtype=dtype)
        self.format = FORMATS[self.dims] if last else torch.contiguous_format
        self.lists = [padding], [stride], [dilation]
        options: dict[str, Any] = dict(stride=stride, padding=padding, dilation=dilation, groups=self.groups)
        function = getattr(F, f"conv{'_transpose' if transposed else ''}{self.dims}d")
        if transposed:
            self.output_padding = options["output_padding"] = int(stride > 1)
        self.want = function(self.x.double(), self.w.double(), self.b.double(), **options)

    def here(self, t: Tensor) -> Tensor:
        return t.to(XPU).contiguous(memory_format=self.format) if t.dim() == self.dims + 2 else t.to(XPU)

    def unary(self, name: str, scalars: list[float], algorithm: str) -> Tensor:
        x, w, b = map(self.here, (self.x, self.w, self.b))
        padding, stride, dilation = self.lists
        if self.transposed:
            between = padding, [self.output_padding], stride, dilation
            return fused._convolution_transpose_pointwise(
                x, w, b, *between, self.groups, name, scalars, algorithm
            )
        return fused._convolution_pointwise(
            x, w, b, padding, stride, dilation, self.groups, name, scalars, algorithm
        )

    def binary(self, other: Tensor, name: str, unary: str | None, inplace: bool = False) -> Tensor:
        x, w, b = map(self.here, (self.x, self.w, self.b))
        arguments = w, b, *self.lists, self.groups, name, None, unary, [], None
        if inplace:
            return fused._convolution_pointwise_.binary(other, x, *arguments)
        return fused._convolution_pointwise.binary(x, other, *arguments)


@pytest.mark.parametrize("unary", UNARY, ids="-".join)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolution(unary: tuple[str, str], dtype: torch.dtype) -> None:
    scalars, function = UNARY[unary]
    for case in (CASES[1], CASES[3]):
        p = Problem(case, dtype)
        close(p.unary(unary[0], scalars, unary[1]), function(p.want), dtype=dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "transposed"])
def test_convolution_layouts(case: tuple[int, ...], last: bool, transposed: bool) -> None:
    p = Problem(case, torch.float32, last, transposed)
    y = p.unary("swish", [], "")
    close(y, F.silu(p.want), dtype=torch.float32)
    x = p.here(
        p.x
    )  # Inductor takes the result to lie as the input does, channels first where it lies as both
    assert y.is_contiguous(memory_format=torch.contiguous_format if x.is_contiguous() else p.format)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[7]], ids=str)
def test_convolution_dtypes(case: tuple[int, ...], dtype: torch.dtype) -> None:
    p = Problem(case, dtype)
    close(p.unary("hardtanh", [-1, 0.5], ""), p.want.clamp(-1, 0.5), dtype=dtype)
    other = divisor(*p.want.shape, dtype=dtype)
    close(p.binary(p.here(other), "add", "relu"), (p.want + other.double()).relu(), dtype=dtype)


@pytest.mark.parametrize("binary", BINARY)
@pytest.mark.parametrize("unary", [None, "relu", "tanh"])
def test_convolution_binary(binary: str, unary: str | None) -> None:
    function = UNARY[unary or "none", ""][1]
    for case in (CASES[1], CASES[2], CASES[3], CASES[6]):
        for dtype in (torch.float32, torch.bfloat16):
            p = Problem(case, dtype)
            other = divisor(*p.want.shape, dtype=dtype)
            want = function(BINARY[binary](p.want, other.double()))
            close(p.binary(p.here(other), binary, unary), want, dtype=dtype)
            place = p.here(other)
            got = p.binary(place, binary, unary, inplace=True)
            assert got.data_ptr() == place.data_ptr()
            close(place, want, dtype=dtype)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_what_is_combined_lies_anyhow(last: bool) -> None:
    p = Problem(CASES[0], torch.float32, last)
    n, c, h, w = p.want.shape
    for shape in ((n, c, 1, 1), (1, c, 1, 1), (1, 1, 1, 1), (w, h, c, n)):
        other = normal(*shape)
        there = other.to(XPU)
        if shape[0] == w:
            other, there = (t.permute(3, 2, 1, 0) for t in (other, there))
        close(p.binary(there, "mul", None), p.want * other.double(), dtype=torch.float32)
    memory = normal(2 * p.want.numel() + 3)
    place = memory.to(XPU)[3:].as_strided(p.want.shape, [2 * s for s in p.want.stride()])
    want = p.want + memory[3:].as_strided(place.shape, place.stride()).double()
    p.binary(place, "add", None, inplace=True)
    close(place, want, dtype=torch.float32)


def test_nothing_to_convolve() -> None:
    x, w = torch.ones(0, 3, 8, 8, device=XPU), torch.ones(4, 3, 3, 3, device=XPU)
    y = fused._convolution_pointwise(x, w, None, [1], [1], [1], 1, "relu", [], "")
    assert y.shape == (0, 4, 8, 8)


# --- wrong arguments ---


@pytest.mark.parametrize(
    ("unary", "scalars", "algorithm", "message"),
    [
        ("softplus", [], "", "Unary attr softplus is not supported for conv/linear post unary fusion"),
        ("gelu", [], None, "GELU algorithm is not specified, please specify it as 'none' or 'tanh'"),
        ("hardtanh", [1.0], "", "Unary attr hardtanh takes 2 scalars, but got 1"),
        ("leaky_relu", [None], "", "Unary attr leaky_relu: scalar 0 is None"),
    ],
)
def test_unknown_attributes(unary: str, scalars: list[Any], algorithm: str | None, message: str) -> None:
    x, w = torch.ones(2, 3, device=XPU), torch.ones(4, 3, device=XPU)
    with pytest.raises(RuntimeError, match=message):
        fused._linear_pointwise(x, w, None, unary, scalars, algorithm)
    with pytest.raises(RuntimeError, match=message):
        fused._convolution_pointwise(
            x.view(1, 3, 2, 1), w.view(4, 3, 1, 1), None, [0], [1], [1], 1, unary, scalars, algorithm
        )


def test_wrong_linear() -> None:
    x, w = torch.ones(2, 3, device=XPU), torch.ones(4, 3, device=XPU)
    other = torch.ones(2, 4, device=XPU)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fused._linear_pointwise(x, w.T, None, "relu", [], "")
    with pytest.raises(RuntimeError, match="same dtype"):
        fused._linear_pointwise(x, w.double(), None, "relu", [], "")
    with pytest.raises(RuntimeError, match="Binary attr pow is not supported"):
        fused._linear_pointwise(x, other, w, None, "pow")
    with pytest.raises(RuntimeError, match="dimension of output and other tensor to be the same"):
        fused._linear_pointwise(x, other[0], w, None, "add")
    with pytest.raises(RuntimeError, match="expanded size"):
        fused._linear_pointwise(x, other[:, :3], w, None, "add")
    with pytest.raises(RuntimeError, match="dtype"):
        fused._linear_pointwise(x, other.half(), w, None, "add")


def test_wrong_convolutions() -> None:
    x, w, y = (
        torch.ones(1, 4, 8, 8, device=XPU),
        torch.ones(2, 3, 3, 3, device=XPU),
        torch.ones(1, 2, 6, 6, device=XPU),
    )
    end = [0], [1], [1], 1

    def run(x: Tensor, w: Tensor, b: Tensor | None = None, end: Any = end) -> Tensor:
        return fused._convolution_pointwise(x, w, b, *end, "relu", [], "")

    right = x[:, :3]
    assert run(right, w).shape == y.shape
    with pytest.raises(RuntimeError, match="expected input.* to have 3 channels, but got 4 channels"):
        run(x, w)
    with pytest.raises(RuntimeError, match="same type"):
        run(right, w.half())
    with pytest.raises(RuntimeError, match="expected bias to be 1-dimensional with 2 elements"):
        run(right, w, torch.ones(3, device=XPU))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        run(right[:, :, :2], w)
    with pytest.raises(RuntimeError, match="negative padding"):
        run(right, w, end=([-1], [1], [1], 1))
    with pytest.raises(RuntimeError, match="non-positive stride"):
        run(right, w, end=([0], [0], [1], 1))
    with pytest.raises(RuntimeError, match="list of 2 values"):
        run(right, w, end=([0, 0, 0], [1], [1], 1))
    with pytest.raises(RuntimeError, match="-dimensional input"):
        run(right[0], w)
    with pytest.raises(RuntimeError, match="3D, 4D, 5D"):
        run(right[0, 0], w)

    def binary(other: Tensor, name: str = "add", alpha: float | None = None, inplace: bool = False) -> Tensor:
        rest = w, None, *end, name, alpha, None, [], None
        if inplace:
            return fused._convolution_pointwise_.binary(other, right, *rest)
        return fused._convolution_pointwise.binary(right, other, *rest)

    assert binary(y).shape == y.shape
    with pytest.raises(RuntimeError, match="Binary attr atan2 is not supported"):
        binary(y, "atan2")
    with pytest.raises(RuntimeError, match="the alpha value should be none or 1.0"):
        binary(y, alpha=2)
    with pytest.raises(RuntimeError, match="expanded size"):
        binary(y[..., :5])
    with pytest.raises(RuntimeError, match="same shape"):
        binary(y[..., :1], inplace=True)
    with pytest.raises(RuntimeError, match="same type"):
        binary(y.half())
