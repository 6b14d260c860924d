"""foreach operators against the CPU's, tensor by tensor."""

from __future__ import annotations

import pytest
import torch

from .indexing_samples import same

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.complex64, torch.bool]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
SHAPES = [(3, 4), (), (0,), (5000,), (17, 31), (1, 1, 7)]


def tensors(dtype: torch.dtype, seed: int = 0, shapes: list[tuple[int, ...]] = SHAPES) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    make = [torch.randn(s, generator=g) * 3 + 0.5 for s in shapes]
    return [x > 0 if dtype == torch.bool else x.to(dtype) for x in make]


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 0.016, "atol": 1e-3} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 2e-6}


@by_dtype
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"]
)
def test_binary(name: str, dtype: torch.dtype) -> None:
    if name == "pow" and dtype != torch.int32:
        pytest.skip("signs")
    new, in_place = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
    a, b = tensors(dtype), tensors(dtype, 1)
    scalars = [2, 3, 1, 4, 5, 2]
    for other in (b, 2, scalars, 2.5):
        same(new, a, other, **tolerance(dtype))
        same(lambda a, other: (in_place(a, other), a)[1], a, other, **tolerance(dtype))
    if name in ("add", "mul", "div"):
        same(new, a, torch.tensor(3, dtype=dtype), **tolerance(dtype))
    if name in ("add", "sub"):
        same(lambda a, b: new(a, b, alpha=3), a, b, **tolerance(dtype))
    same(new, a, b[:2])
    same(new, [], [])


@by_dtype
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_ternary(name: str, dtype: torch.dtype) -> None:
    new, in_place = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
    a, b, c = tensors(dtype), tensors(dtype, 1), tensors(dtype, 2)
    for value in (2, [1, 2, 3, 4, 5, 6]):
        same(new, a, b, c, value, **tolerance(dtype))
        same(lambda a, b, c, v: (in_place(a, b, c, v), a)[1], a, b, c, value, **tolerance(dtype))
    if dtype == torch.float32:
        cpu_values = torch.arange(6.0)
        x = [[t.to("xpu") for t in ts] for ts in (a, b, c)]
        torch.testing.assert_close([t.cpu() for t in new(*x, cpu_values)], list(new(a, b, c, cpu_values)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_lerp(dtype: torch.dtype) -> None:
    a, b, w = tensors(dtype), tensors(dtype, 1), tensors(dtype, 2)
    same(torch._foreach_lerp, a, b, 0.1, **tolerance(dtype))
    same(torch._foreach_lerp, a, b, w, rtol=0.03, atol=0.1)
    same(torch._foreach_lerp, a, b, [0.1, 0.2, 0.7, 0.9, 1.0, 0.0], **tolerance(dtype))


UNARY = (
    "acos asin atan cos cosh erf erfc exp expm1 lgamma log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan "
    "tanh abs ceil floor frac neg round sign trunc"
).split()


@by_dtype
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: torch.dtype) -> None:
    new, in_place = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
    if name == "abs" and dtype == torch.bool:
        pytest.skip("as CUDA's, xpu's takes what the CPU's does not")
    a = tensors(dtype)
    limits = {"rtol": 0.016, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 2e-5, "atol": 2e-5}
    same(new, a, **limits)
    same(lambda a: (in_place(a), a)[1], a, **limits)


@by_dtype
def test_zero_and_copy(dtype: torch.dtype) -> None:
    a, b = tensors(dtype), tensors(dtype, 1)
    same(lambda a: (torch._foreach_zero_(a), a)[1], a)
    same(lambda a, b: (torch._foreach_copy_(a, b), a)[1], a, b)
    same(
        lambda a, b: (torch._foreach_copy_(a, b), a)[1],
        a,
        tensors(torch.float64, 1) if dtype == torch.float32 else b,
    )


def test_layouts_and_many() -> None:
    a = [torch.randn(5, 6).t(), torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)]
    same(torch._foreach_add, a, 1)
    same(torch._foreach_add, a, [x.contiguous() for x in a])
    same(lambda a: torch._foreach_add([x[:, ::2] for x in a], 1), [torch.randn(4, 6)])
    many = tensors(torch.float32, shapes=[(n % 97,) for n in range(700)])
    same(torch._foreach_mul, many, many)
    for ord in (1, 2, float("inf")):
        same(torch._foreach_norm, many[1:50], ord, rtol=1e-5, atol=1e-6)


# Around a step of 16, four steps, and a group of 4,096 elements.
EDGES = [0, 1, 15, 16, 17, 63, 64, 65, 79, 4095, 4096, 4097, 8192 + 80 + 3]


def inside(numbers: list[torch.Tensor], device: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Copies into one buffer, with gaps of 3 elements of 7 before, between and after."""
    buffer = torch.full(
        (sum(x.numel() + 3 for x in numbers) + 3,), 7.0, dtype=numbers[0].dtype, device=device
    )
    views, at = [], 3
    for x in numbers:
        views.append(buffer[at : at + x.numel()])
        views[-1].copy_(x)
        at += x.numel() + 3
    return buffer, views


@pytest.mark.parametrize("total", [3 << 14, 1 << 17, 1 << 20])
def test_groups_of_any_length(total: int) -> None:
    """Work-groups of CPU devices grow with the number of elements: tensors with sizes around 4,096 to 65,536."""
    sizes = [total - 1, 4097, 1, 65536, 12289, 8192]
    a = [torch.arange(n, dtype=torch.float32) % 1021 for n in sizes]
    same(torch._foreach_add, a, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=lambda d: str(d)[6:])
def test_edges_of_steps_and_groups(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(3)
    numbers = [torch.randn(n, generator=g, dtype=torch.float64).to(dtype) for n in EDGES]
    results = []
    for device in ("xpu", "cpu"):
        (buffer, a), (_, b) = inside(numbers, device), inside(numbers[::-1], device)
        torch._foreach_mul_(a, [float(n) for n in range(len(a))])
        torch._foreach_add_(a, a, alpha=0.5)
        torch._foreach_addcmul_(b, b, b, value=2.0)
        results.append([buffer.cpu(), *(x.cpu() for x in b)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("order", [1, 2, float("inf")])
def test_norm_beside_float64(dtype: torch.dtype, order: float) -> None:
    g = torch.Generator().manual_seed(4)
    sizes = [n for n in EDGES if n or order <= 2] + [1 << 20]
    numbers = [torch.randn(n, generator=g, dtype=torch.float64).to(dtype) for n in sizes]
    _, views = inside(numbers, "xpu")
    expected = [x.double().norm(order) for x in numbers]
    limits = {"rtol": 2.0**-8 if dtype == torch.bfloat16 else 4e-7, "atol": 0.0}
    actual = [x.cpu().double() for x in torch._foreach_norm(views, order)]
    torch.testing.assert_close(actual, expected, **limits)
    for place in (0, -1):
        for view in views:
            view[place : place + 1 or None] = float("nan")
        assert all(
            x.isnan().item() for x, n in zip(torch._foreach_norm(views, order), sizes, strict=True) if n
        )


def test_version_counts_once() -> None:
    x = torch.ones(3, device="xpu")
    before = x._version
    torch._foreach_add_([x], 1)
    assert x._version == before + 1
