"""Strided nested tensors against the CPU's in float64, with gradients; packed and padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from openxpu import _bridge

Function = Callable[..., Any]

LENGTHS = [5, 1, 17, 3]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def no_fallback() -> Iterator[None]:
    """No operator may fall back to the CPU."""
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def sequences(*shape: int, lengths: list[int] = LENGTHS, seed: int = 0) -> list[torch.Tensor]:
    """Return a tensor per length, which replaces -1 in ``shape``."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn([n if s < 0 else s for s in shape], dtype=torch.float64, generator=generator)
        for n in lengths
    ]


def parts(result: Any) -> list[torch.Tensor]:
    """Return all dense tensors of a result."""
    if isinstance(result, torch.Tensor):
        return list(result.unbind()) if result.is_nested else [result]
    return [part for item in result for part in parts(item)]


def run(function: Function, inputs: tuple[Any, ...], device: str, dtype: torch.dtype, backward: bool) -> Any:
    """Return the result's parts, and the gradients of all floating inputs."""
    leaves: list[torch.Tensor] = []
    given = []
    for x in inputs:
        if isinstance(x, list):
            x = [part.to(dtype) if part.is_floating_point() else part for part in x]
            x = torch.nested.nested_tensor(x, device=device)
        elif isinstance(x, torch.Tensor):
            x = (x.to(dtype) if x.is_floating_point() else x).to(device).clone()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and backward:
            leaves.append(x.requires_grad_())
        given.append(x)
    result = function(*given)
    values = parts(result)
    if backward:
        total = torch.zeros((), dtype=torch.float64)
        for value in values:
            weight = torch.arange(value.numel(), dtype=torch.float64).cos().view(value.shape)
            total = total + (value.cpu().double() * weight).sum()
        total.backward()
    gradients = [part for leaf in leaves if leaf.grad is not None for part in parts(leaf.grad)]
    return [value.detach() for value in values], gradients


def agree(
    function: Function,
    *inputs: Any,
    dtype: torch.dtype = torch.float32,
    backward: bool = True,
    times: float = 1,
) -> None:
    """Compare with the CPU in float64. A list is a nested tensor."""
    expected = run(function, inputs, "cpu", torch.float64, backward)
    actual = run(function, inputs, "xpu", dtype, backward)
    for mine, theirs in zip(actual, expected, strict=True):
        assert len(mine) == len(theirs)
        for x, y in zip(mine, theirs, strict=True):
            assert_close(x, y, dtype=x.dtype, times=times)


def fails(function: Function, *inputs: Any, match: str) -> None:
    with pytest.raises((RuntimeError, IndexError, NotImplementedError), match=match):
        run(function, inputs, "xpu", torch.float32, False)


UNARY: dict[str, Function] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "scalars": lambda x: (2 * x + 1) / 3 - 0.5,
    "rsub": lambda x: x - x * 0.25,
    "zero_dim": lambda x: x * torch.tensor(1.5, device=x.device, dtype=x.dtype),
    "clone": torch.clone,
    "transpose": lambda x: x.transpose(1, 2),
    "contiguous": lambda x: x.transpose(1, 2).contiguous(),
    "unsqueeze": lambda x: x.unsqueeze(2).squeeze(2),
    "view": lambda x: x.view(x.size(0), -1, 2, 4),
    "reshape": lambda x: x.transpose(1, 2).reshape(x.size(0), 8, -1, 1),
    "select": lambda x: x[2],
    "split": lambda x: x.split([3, 5], -1)[0],
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax_ragged": lambda x: torch.softmax(x, 1),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "dropout_0": lambda x: F.dropout(x, 0.0, True),
    "to_padded": lambda x: x.to_padded_tensor(-1.5),
    "to_padded_larger": lambda x: x.to_padded_tensor(0.5, (4, 20, 11)),
}
FORWARD: dict[str, Function] = {  # the CPU has no gradients of these
    "sgn": torch.sgn,
    "tanh": torch.tanh,
    "chunk": lambda x: x.chunk(2, -1)[1],
}


@pytest.mark.parametrize("name", UNARY)
def test_one_tensor(name: str) -> None:
    agree(UNARY[name], sequences(-1, 8))


@pytest.mark.parametrize("name", FORWARD)
def test_one_tensor_forward(name: str) -> None:
    agree(FORWARD[name], sequences(-1, 8), backward=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = F.layer_norm(F.linear(x, w, b), (6,), w[:, 0].contiguous(), b)
        return (F.gelu(x) * 1.5 + x).to_padded_tensor(0)

    generator = torch.Generator().manual_seed(1)
    weight, bias = (torch.randn(*s, dtype=torch.float64, generator=generator) for s in ((6, 8), (6,)))
    agree(function, sequences(-1, 8), weight, bias, dtype=dtype, backward=dtype.itemsize > 2, times=3)


@pytest.mark.parametrize("name", ["relu_", "gelu_", "silu_", "tanh_", "abs_", "neg_", "sgn_", "zero_"])
def test_in_place(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        getattr(torch.ops.aten, name)(y)
        return y.mul_(2).add_(x)

    agree(function, sequences(-1, 8), backward=False)
    agree(lambda x: x.clone().fill_(2.5), sequences(-1, 8), backward=False)


def test_two_tensors() -> None:
    a, b = sequences(-1, 8), sequences(-1, 8, seed=1)
    for function in (torch.add, torch.sub, torch.mul, torch.div):
        agree(function, a, [x + 3 * x.sign() for x in b], times=10)
    agree(lambda x, y: torch.add(x, y, alpha=0.5), a, b)
    agree(lambda x, y: torch.where(x > 0.5, torch.zeros_like(y[0][0, 0]), y), a, b, backward=False)
    agree(lambda x, y: (x >= 0.5, y > 0.5, x == 0.25, (x > 0).logical_not()), a, b, backward=False)
    agree(lambda x, y: (torch.isnan(x), torch.isinf(y / (y * 0))), a, b, backward=False)
    agree(lambda x, y: x.masked_fill(y > 0, -2.0), a, b, backward=False)
    agree(lambda x, y: torch.cat([x, y]), a, b, backward=False)
    agree(lambda x, y: x.clone().copy_(y), a, b, backward=False)


@pytest.mark.parametrize("width", [None, 1, 7])
def test_dense_operand_for_each_item(width: int | None) -> None:
    """[B, *, D] with [B, 1, D], and [B, *] with [B, 1]: the CPU has no such kernel."""
    nested = sequences(-1, *([width] if width else []))
    dense = torch.arange(len(nested) * (width or 1), dtype=torch.float32).view(len(nested), 1, width or 1)
    if width is None:
        dense = dense.squeeze(-1)
    x = torch.nested.nested_tensor([part.float() for part in nested], device="xpu")
    for operator in (torch.add, torch.mul):
        result = operator(x, dense.to("xpu"))
        for part, mine, row in zip(nested, result.unbind(), dense, strict=True):
            assert_close(mine, operator(part.float(), row))
    fails(torch.div, nested, dense, match="nested")


def test_products() -> None:
    a, b = sequences(-1, 8), sequences(8, -1, seed=1)
    agree(torch.matmul, a, b, times=3)
    agree(torch.bmm, a, b, times=3, backward=False)
    heads = sequences(3, -1, 8), sequences(3, -1, 8, seed=1)
    agree(lambda x, y: torch.matmul(x, y.transpose(-2, -1)), *heads, times=3)
    weight, bias = torch.randn(5, 8, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    agree(F.linear, a, weight, bias, times=3)
    agree(F.linear, a, weight, times=3)
    fails(torch.matmul, a, a, match="cannot be matrix multiplied")


def test_layer_norm() -> None:
    w, b = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    agree(lambda x, w, b: F.layer_norm(x, (8,), w, b), sequences(-1, 8), w, b, times=5)
    agree(lambda x, w, b: F.layer_norm(x, (8,), w, b), sequences(2, -1, 8), w, b, times=5)
    w, b = torch.randn(3, 8, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    agree(lambda x, w, b: F.layer_norm(x, (3, 8), w, b), sequences(-1, 3, 8), w, b, times=5)
    fails(lambda x: F.layer_norm(x, (8,)), sequences(-1, 8), match="requires weight and bias")
    fails(lambda x, w, b: F.layer_norm(x, (8,), w[0], b[0]), sequences(8, -1), w, b, match="irregular")


def test_embedding() -> None:
    indices = [torch.randint(0, 10, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    agree(lambda i, w: F.embedding(i, w), indices, torch.randn(10, 6, dtype=torch.float64), backward=False)


def test_dropout() -> None:
    x = torch.nested.nested_tensor(sequences(-1, 64, lengths=[300, 7]), device="xpu").requires_grad_()
    y = F.dropout(x, 0.25, True)
    buffer = y.detach().values() / x.detach().values()
    kept = buffer != 0
    assert 0.7 < kept.double().mean().item() < 0.8
    torch.testing.assert_close(buffer[kept], torch.full_like(buffer[kept], 1 / 0.75))
    y.to_padded_tensor(0).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.values(), kept.double() / 0.75)


def test_devices() -> None:
    x = torch.nested.nested_tensor([part.float() for part in sequences(-1, 8)])
    there = x.to("xpu")
    assert there.device.type == "xpu" and there.is_nested
    for a, b in zip(there.to("cpu").unbind(), x.unbind(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(there.half().cpu().unbind(), x.half().unbind(), strict=True):
        assert torch.equal(a, b)
    copy = torch.empty_like(x)
    copy.copy_(there)
    assert torch.equal(copy.values(), x.values())
    for like in (torch.zeros_like, torch.ones_like):
        assert torch.equal(like(there).values().cpu(), like(x).values())
    assert torch.randn_like(there).device == there.device
    assert there.is_same_size(there) and there.numel() == x.numel() and there.size(0) == 4
    assert "nested_tensor" in repr(there)
    one = there[1]
    one.zero_()  # a view
    assert there.unbind()[1].count_nonzero().item() == 0


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "ragged_1d": [(3,), (0,), (40,), (1,)],
    "rows": [(5, 8), (1, 8), (17, 8)],
    "odd_rows": [(5, 7), (0, 7), (17, 7)],
    "both": [(2, 3), (4, 1), (1, 9)],
    "columns": [(6, 2), (6, 9), (6, 1)],
    "images": [(3, 4, 5), (3, 7, 2), (3, 1, 1)],
    "five": [(1, 2, 1, 3, 2), (2, 1, 3, 1, 2), (1, 1, 1, 1, 5)],
    "same": [(4, 4), (4, 4)],
    "long": [(20011, 3), (5, 3), (9000, 3)],
    "long_elements": [(70001,), (3,)],
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.float32, torch.int64, torch.complex128])
@pytest.mark.parametrize("name", SHAPES)
def test_padding(name: str, dtype: torch.dtype) -> None:
    tensors = [
        (torch.arange(1, 1 + n.numel()) % 113).view(n).to(dtype) for n in map(torch.Size, SHAPES[name])
    ]
    most = [max(sizes) for sizes in zip(*SHAPES[name], strict=True)]
    for shape in (None, [len(tensors) + 1, *(n + d for d, n in enumerate(most))]):
        nested = torch.nested.nested_tensor(tensors, device="xpu")
        padded = nested.to_padded_tensor(1, shape) if shape else nested.to_padded_tensor(1)
        expected = torch.full(shape or [len(tensors), *most], 1, dtype=dtype)
        for item, tensor in zip(expected, tensors, strict=False):
            item[tuple(slice(n) for n in tensor.shape)] = tensor
        assert torch.equal(padded.cpu(), expected)
        if shape is None:
            back = torch._nested_from_padded_and_nested_example(padded, nested)
            for mine, tensor in zip(back.unbind(), tensors, strict=True):
                assert torch.equal(mine.cpu(), tensor)


def test_padding_errors() -> None:
    nested = torch.nested.nested_tensor(sequences(-1, 8), device="xpu")
    with pytest.raises(RuntimeError, match="Truncation is not supported"):
        nested.to_padded_tensor(0, (4, 16, 8))
    with pytest.raises(RuntimeError, match="does not match NestedTensor dims"):
        nested.to_padded_tensor(0, (4, 17))
    with pytest.raises(RuntimeError, match="non-zero numel"):
        torch.nested.nested_tensor([torch.empty(0)], device="xpu").to_padded_tensor(0)
    with pytest.raises(RuntimeError, match="item 2 has size 17"):
        torch._nested_from_padded_and_nested_example(torch.zeros(4, 16, 8, device="xpu"), nested)
    with pytest.raises(RuntimeError, match="doesn't fit"):
        torch._nested_from_padded(torch.zeros(3, 17, 8, device="xpu"), nested._nested_tensor_size())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_from_padded_with_heads(dtype: torch.dtype) -> None:
    padded = torch.randn(3, 2, 7, 5).to(dtype)
    sizes = torch.tensor([[4, 10], [7, 10], [0, 10]])
    result = torch._nested_from_padded(padded.to("xpu"), sizes, True)
    for mine, whole, length in zip(result.unbind(), padded, [4, 7, 0], strict=True):
        assert torch.equal(mine.cpu(), whole.transpose(0, 1).flatten(1)[:length])


def test_from_mask() -> None:
    x, mask = torch.randn(4, 6, 3), torch.arange(6) < torch.tensor([[2], [6], [1], [5]])
    result = torch._nested_tensor_from_mask(x.to("xpu"), mask.to("xpu"))
    for mine, whole, length in zip(result.unbind(), x, [2, 6, 1, 5], strict=True):
        assert torch.equal(mine.cpu(), whole[:length])
    assert torch._nested_tensor_from_mask_left_aligned(x.to("xpu"), mask.to("xpu"))
    mask[0, 4] = True
    assert not torch._nested_tensor_from_mask_left_aligned(x.to("xpu"), mask.to("xpu"))
    with pytest.raises(RuntimeError, match="left-aligned"):
        torch._nested_tensor_from_mask(x.to("xpu"), mask.to("xpu"))


# --- jagged ---


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("inner", [(), (1,), (5,), (3, 4), (1000,)])
def test_jagged(inner: tuple[int, ...], dtype: torch.dtype) -> None:
    offsets = torch.tensor([0, 3, 3, 10, 11], dtype=dtype)
    values = torch.randn(11, *inner)
    for length in (7, 9, 4):  # equal to the longest, longer, shorter
        pad = torch.ops.aten._jagged_to_padded_dense_forward
        expected = pad(values, [offsets], [length], -2.0)
        actual = pad(values.to("xpu"), [offsets.to("xpu")], [length], -2.0)
        assert torch.equal(actual.cpu(), expected)
        unpad = torch.ops.aten._padded_dense_to_jagged_forward
        for total in (11, None):
            back = unpad(actual, [offsets.to("xpu")], total).cpu()
            wanted = values.clone()
            wanted[3 + length : 10] = 0
            assert torch.equal(back, wanted)


def test_jagged_levels() -> None:
    """Two levels: items of sequences of rows."""
    outer, inner = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 4, 4, 6, 10])
    values = torch.randn(10, 3)
    expected = torch.full((3, 3, 4, 3), 9.0)
    for item in range(3):
        for i in range(outer[item], outer[item + 1]):
            rows = values[inner[i] : inner[i + 1]]
            expected[item, i - outer[item], : len(rows)] = rows
    offsets = [outer.to("xpu"), inner.to("xpu")]
    padded = torch.ops.aten._jagged_to_padded_dense_forward(values.to("xpu"), offsets, [3, 4], 9.0)
    assert torch.equal(padded.cpu(), expected)
    assert torch.equal(torch.ops.aten._padded_dense_to_jagged_forward(padded, offsets, 10).cpu(), values)
    cut = torch.ops.aten._padded_dense_to_jagged_forward(padded[:, :2].contiguous(), offsets, 10).cpu()
    values[6:] = 0  # item 2's third sequence
    assert torch.equal(cut, values)


def test_jagged_errors() -> None:
    values, offsets = torch.randn(5, 2, device="xpu"), torch.tensor([0, 2, 5], device="xpu")
    pad, unpad = (
        torch.ops.aten._jagged_to_padded_dense_forward,
        torch.ops.aten._padded_dense_to_jagged_forward,
    )
    with pytest.raises(IndexError, match="nested_pad"):
        pad(values, [torch.tensor([0, 2, 6], device="xpu")], [4], 0.0)
        torch.xpu.synchronize()  # GPUs report the error here
    with pytest.raises(IndexError, match="nested_pad"):
        pad(values, [torch.tensor([-1, 2, 5], device="xpu")], [4], 0.0)
        torch.xpu.synchronize()
    with pytest.raises(RuntimeError, match="expected 1D offsets"):
        pad(values, [offsets.view(1, 3)], [4], 0.0)
    if torch.xpu.get_device_properties().type == "cpu":  # a GPU would have to be waited for
        with pytest.raises(RuntimeError, match="final offset should match"):
            unpad(torch.zeros(2, 3, 2, device="xpu"), [offsets], 6)
    with pytest.raises(NotImplementedError, match="6 jagged dimensions"):
        pad(values, [offsets] * 6, [2] * 6, 0.0)


def jagged_of(tensors: list[torch.Tensor], device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.nested.nested_tensor(
        [x.to(dtype) for x in tensors], device=device, layout=torch.jagged, requires_grad=True
    )


JAGGED: dict[str, Function] = {
    "pointwise": lambda x: F.gelu(x * 2 + 1) / 3 - x.sin(),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax_ragged": lambda x: torch.softmax(x, 1),
    "amax_ragged": lambda x: x.amax(1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 1.5),
    "matmul": lambda x: x @ torch.ones(8, 3, device=x.device, dtype=x.dtype),
    "transposed": lambda x: x.transpose(1, 2).contiguous(),
    "view": lambda x: x.reshape(x.size(0), -1, 2, 4),
    "attention": lambda x: (lambda y: F.scaled_dot_product_attention(y, y * 0.5, y + 1).transpose(1, 2))(
        x.view(x.size(0), -1, 2, 4).transpose(1, 2)
    ),
}


JAGGED_FORWARD: dict[str, Function] = {  # PyTorch has no gradients of these
    "sum_ragged": lambda x: x.sum(1),
    "mean_ragged": lambda x: x.mean(1),
    "layer_norm_ragged": lambda x: F.layer_norm(x, (x.shape[1], 8)),
}


@pytest.mark.parametrize("name", [*JAGGED, *JAGGED_FORWARD])
def test_jagged_tensor(name: str) -> None:
    results: list[tuple[torch.Tensor, ...]] = []
    for device, dtype in (("cpu", torch.float64), ("xpu", torch.float32)):
        x = jagged_of(sequences(-1, 8), device, dtype)
        y = (JAGGED | JAGGED_FORWARD)[name](x)
        values = y.values() if y.is_nested else y
        if name in JAGGED_FORWARD:
            results.append((values.detach().cpu().double(),))
            continue
        weight = torch.arange(values.numel(), dtype=torch.float64).cos().view(values.shape)
        (values * weight.to(device, dtype)).sum().backward()
        assert x.grad is not None
        results.append((values.detach().cpu().double(), x.grad.values().cpu().double()))
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


# --- attention ---


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention(dtype: torch.dtype, turned: bool) -> None:
    """Contiguous inputs, and views of [L, H, E]."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v)) if turned else (q, k, v)
        if q.device.type == "cpu":  # the CPU operator needs contiguous tensors
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        return F.scaled_dot_product_attention(q, k, v)

    shape = (-1, 3, 8) if turned else (3, -1, 8)
    value = (-1, 3, 5) if turned else (3, -1, 5)
    keys = [4, 9, 2, 1]
    agree(
        function,
        sequences(*shape),
        sequences(*shape, lengths=keys, seed=1),
        sequences(*value, lengths=keys, seed=2),
        dtype=dtype,
        backward=dtype.itemsize > 2,
        times=10,
    )


def test_attention_causal() -> None:
    q, k, v = (sequences(2, -1, 8, seed=seed) for seed in range(3))
    tensors = [torch.nested.nested_tensor(x, device="xpu", dtype=torch.float32) for x in (q, k, v)]
    result = F.scaled_dot_product_attention(*tensors, is_causal=True, scale=0.5)
    for mine, a, b, c in zip(result.unbind(), q, k, v, strict=True):
        expected = F.scaled_dot_product_attention(a[None], b[None], c[None], is_causal=True, scale=0.5)[0]
        assert_close(mine, expected, dtype=torch.float32, times=0.5)
    with pytest.raises(RuntimeError, match="explicit attn_mask"):
        F.scaled_dot_product_attention(*tensors, attn_mask=torch.ones(17, 17, device="xpu"))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("lengths", "depth", "value_depth"),
    [(LENGTHS, 16, 16), ([5, 1, 0, 9], 20, 7), ([130, 64, 1], 64, 64), ([2, 40], 256, 256)],
    ids=str,
)
def test_jagged_attention(
    lengths: list[int], depth: int, value_depth: int, dtype: torch.dtype, causal: bool
) -> None:
    """The varlen kernel, without padding, with gradients and empty sequences."""
    heads, offsets = 3, torch.tensor([0, *lengths], device="xpu").cumsum(0)
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.randn(sum(lengths), heads * width, generator=generator, dtype=torch.float64).to(dtype)
        for width in (depth, depth, value_depth)
    ]
    given = [x.to("xpu").requires_grad_() for x in rows]

    def by_heads(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor_from_jagged(x, offsets).unflatten(-1, [heads, -1]).transpose(1, 2)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = F.scaled_dot_product_attention(*map(by_heads, given), is_causal=causal)
    assert "aten::_flash_attention_forward" in {event.name for event in profile.events()}
    values = found.transpose(1, 2).flatten(-2).values()
    weight = torch.arange(values.numel(), dtype=torch.float64).cos().view(values.shape)
    gradients = torch.autograd.grad((values * weight.to("xpu")).sum(), given)

    expected, wanted = [], [x.double().requires_grad_() for x in rows]
    for parts in zip(*(x.split(lengths) for x in wanted), strict=True):
        q, k, v = (x.unflatten(-1, [heads, -1]).transpose(0, 1)[None] for x in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal) if len(parts[0]) else q @ q.mT @ v
        expected.append(out[0].transpose(0, 1).flatten(-2))
    theirs = torch.autograd.grad((torch.cat(expected) * weight).sum(), wanted)
    for mine, other in zip((values, *gradients), (torch.cat(expected), *theirs), strict=True):
        assert_close(mine, other, dtype=dtype, floor=3)


def test_jagged_attention_drops() -> None:
    """Dropout keeps the mean, and depends on the generator's seed."""
    x = jagged_of([torch.ones(200, 2, 8), torch.ones(100, 2, 8)], "xpu", torch.float32).transpose(1, 2)

    def attend() -> torch.Tensor:
        torch.xpu.manual_seed(3)
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.25).values()

    first = attend()
    assert torch.equal(first, attend()) and first.std() > 0.01
    assert abs(first.mean().item() - 1) < 0.02


def test_jagged_attention_is_chosen() -> None:
    """The math backend, if requested or if the kernel doesn't support the inputs."""
    x = jagged_of(sequences(-1, 2, 8), "xpu", torch.float32).transpose(1, 2)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        plain = F.scaled_dot_product_attention(x, x, x)
        with pytest.raises(RuntimeError, match="No viable backend"):
            F.scaled_dot_product_attention(x, x, x, is_causal=True)
    torch.testing.assert_close(plain.values(), F.scaled_dot_product_attention(x, x, x).values())


@pytest.mark.skipif(not torch.xpu.get_device_properties().has_fp64, reason="needs fp64")
def test_jagged_attention_of_float64() -> None:
    x = jagged_of(sequences(-1, 2, 8), "xpu", torch.float32).transpose(1, 2)
    wide = jagged_of(sequences(-1, 2, 8), "xpu", torch.float64).transpose(1, 2)
    torch.testing.assert_close(
        F.scaled_dot_product_attention(wide, wide, wide).values(),
        F.scaled_dot_product_attention(x, x, x).values().double(),
        rtol=1e-5,
        atol=1e-5,
    )


def test_jagged_attention_compiled() -> None:
    offsets = torch.tensor([0, 5, 9, 18], device="xpu")
    x = torch.randn(18, 16, generator=torch.Generator().manual_seed(0)).to("xpu").requires_grad_()

    def attend(values: torch.Tensor) -> torch.Tensor:
        rows = torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=4, max_seqlen=9)
        y = rows.unflatten(-1, [2, 8]).transpose(1, 2)
        return F.scaled_dot_product_attention(y, y, y, is_causal=True).transpose(1, 2).flatten(-2).values()

    results = [(y, *torch.autograd.grad(y.square().sum(), x)) for y in (attend(x), torch.compile(attend)(x))]
    torch.testing.assert_close(results[1], results[0])


def test_attention_of_cpu_tensors_is_untouched() -> None:
    q, k, v = (torch.nested.nested_tensor(sequences(2, -1, 8, seed=seed)) for seed in range(3))
    result = F.scaled_dot_product_attention(q, k, v)
    for mine, a, b, c in zip(result.unbind(), q.unbind(), k.unbind(), v.unbind(), strict=True):
        torch.testing.assert_close(mine, F.scaled_dot_product_attention(a[None], b[None], c[None])[0])
