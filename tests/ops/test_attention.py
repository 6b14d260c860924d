"""scaled_dot_product_attention and its operators, against float64 on the CPU."""

from __future__ import annotations

import functools
import itertools
import os
import warnings

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# relative to the largest value, since long sums lose small terms
close = functools.partial(assert_close, relative_to="largest")
close_gradient = functools.partial(close, times=2, floor=1)


def reference(q, k, v, bias=None, causal=False, scale=None):
    """Attention by its definition, in float64."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        s = s.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else s + bias.double()
    if causal:
        s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), float("-inf"))
    return s.softmax(-1) @ v


def check(shape, keys=None, heads=None, value_depth=None, dtype=torch.float32, bias=None, **options) -> None:
    """Return the output and gradients of one attention."""
    b, h, n, d = shape
    tensors = [
        torch.randn(b, h, n, d).to(dtype),
        torch.randn(b, heads or h, keys or n, d).to(dtype),
        torch.randn(b, heads or h, keys or n, value_depth or d).to(dtype),
    ]
    leaves = [t.to("xpu").requires_grad_() for t in tensors]
    wants = [t.double().requires_grad_() for t in tensors]
    got = F.scaled_dot_product_attention(
        *leaves, attn_mask=None if bias is None else bias.to("xpu"), enable_gqa=heads is not None, **options
    )
    want = reference(*wants, bias, options.get("is_causal", False), options.get("scale"))
    assert "Overrideable" in type(got.grad_fn).__name__
    close(got, want, dtype=dtype)
    grad = torch.randn(want.shape).to(dtype)
    got.backward(grad.to("xpu"))
    want.backward(grad.double())
    for leaf, other in zip(leaves, wants, strict=True):
        close_gradient(leaf.grad, other.grad, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_plain_and_causal(dtype: torch.dtype, causal: bool) -> None:
    check((2, 3, 100, 24), dtype=dtype, is_causal=causal)


@pytest.mark.parametrize("shape", [(1, 2, 1, 16), (2, 1, 64, 64), (1, 1, 65, 128)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    check(shape)


def test_other_number_of_keys() -> None:
    check((1, 2, 30, 16), keys=77)
    check((1, 2, 1, 16), keys=130)


@pytest.mark.parametrize("depth, value_depth", [(24, 40), (40, 24), (300, 72), (64, 576)])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_keys_and_values_of_other_sizes(depth: int, value_depth: int, causal: bool) -> None:
    check((2, 4, 33, depth), keys=50, heads=2, value_depth=value_depth, is_causal=causal)
    check((1, 2, 20, depth), value_depth=value_depth, dtype=torch.bfloat16, bias=torch.randn(20, 20))


def test_large_heads() -> None:
    check((1, 2, 70, 576), is_causal=True)
    check((1, 2, 20, 320), dtype=torch.float16, scale=0.04)


def test_scale() -> None:
    check((1, 2, 20, 16), scale=0.3)


@pytest.mark.parametrize("value_depth", [16, 128])
@pytest.mark.parametrize("scale", [-0.5, 0.0])
def test_causal_by_a_scale_that_is_not_positive(scale: float, value_depth: int) -> None:
    check((1, 3, 64, 16), value_depth=value_depth, is_causal=True, scale=scale)
    check((1, 3, 64, 16), value_depth=value_depth, scale=scale)


@pytest.mark.parametrize("shape", [(40, 40), (2, 1, 1, 40), (1, 3, 40, 40), (2, 3, 40, 40)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(shape: tuple[int, ...], kind: str) -> None:
    bias = torch.randn(shape)
    if kind == "bool":
        bias = bias > -0.5
        bias[..., 0] = True
    check((2, 3, 40, 16), bias=bias)


def test_grouped_queries() -> None:
    check((2, 6, 33, 16), heads=2)


def test_math_backend_agrees() -> None:
    q = torch.randn(1, 2, 30, 16, device="xpu")
    with sdpa_kernel(SDPBackend.MATH):
        want = F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        got = F.scaled_dot_product_attention(q, q, q)
    assert_close(got, want.cpu(), times=0.5)


FUSED = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.OVERRIDEABLE)


def chosen(q: torch.Tensor, **options: object) -> SDPBackend:
    return SDPBackend(torch._fused_sdp_choice(q, q, q, **options))


@pytest.mark.parametrize("backend", FUSED, ids=lambda backend: backend.name)
def test_each_fused_backend_by_itself(backend: SDPBackend) -> None:
    q = torch.randn(2, 3, 30, 16, device="xpu", requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        want = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).square().sum(), q)[0]
    with sdpa_kernel(backend):
        assert chosen(q) == backend
        got = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).square().sum(), q)[0]
    assert_close(got, want.cpu(), times=5)


def test_the_order_of_backends_is_the_users() -> None:
    q = torch.randn(1, 2, 10, 16, device="xpu")
    assert chosen(q) == SDPBackend.OVERRIDEABLE
    for backends in itertools.permutations((SDPBackend.MATH, *FUSED), 3):
        with sdpa_kernel(list(backends), set_priority=True):
            assert chosen(q) == backends[0]
            if backends[0] is not SDPBackend.MATH and SDPBackend.MATH in backends:
                assert chosen(q.double()) == SDPBackend.MATH
        with sdpa_kernel(list(backends)):
            assert chosen(q) != SDPBackend.MATH
    assert chosen(q) == SDPBackend.OVERRIDEABLE


def test_why_no_backend_fits() -> None:
    q = torch.randn(1, 2, 10, 16, device="xpu", dtype=torch.double)
    with (
        warnings.catch_warnings(record=True) as caught,
        sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
        pytest.raises(RuntimeError, match="No available kernel. Aborting execution."),
    ):
        warnings.simplefilter("always")
        F.scaled_dot_product_attention(q, q, q)
    text = "\n".join(str(warning.message) for warning in caught)
    assert "Memory efficient kernel not used because:" in text
    assert "Expected query, key and value to all be of dtype" in text
    assert "Flash attention kernel has been runtime disabled." in text
    q = q.float()
    with (
        warnings.catch_warnings(record=True),
        sdpa_kernel(SDPBackend.CUDNN_ATTENTION),
        pytest.raises(RuntimeError, match="No available kernel. Aborting execution."),
    ):
        F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([]), pytest.raises(RuntimeError, match="No viable backend"):
        F.scaled_dot_product_attention(q, q, q)


BIASES = [(45, 37), (1, 1, 45, 37), (2, 1, 1, 37), (2, 4, 45, 37), (2, 1, 45, 1), (4, 1, 37), (1,)]


@pytest.mark.parametrize("shape", BIASES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradient_of_a_bias(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Fused kernels with broadcast biases of all shapes, including fully masked rows."""
    generator = torch.Generator().manual_seed(3)
    q, k, v, grad = (
        torch.randn(2, h, n, d, generator=generator).to(dtype)
        for h, n, d in ((4, 45, 24), (2, 37, 24), (2, 37, 24), (4, 45, 24))
    )
    bias = torch.randn(shape, generator=generator).to(dtype)
    out_of = torch.rand(shape, generator=generator) < 0.1
    if bias.ndim > 1 and bias.shape[-2:] == (45, 37):
        out_of[..., 7, :] = True
    bias = bias.masked_fill(out_of & (bias.numel() > 1), -torch.inf)
    leaf = bias.to("xpu").requires_grad_()
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        got = F.scaled_dot_product_attention(
            *(t.to("xpu").requires_grad_() for t in (q, k, v)), attn_mask=leaf, enable_gqa=True
        )
    assert "Overrideable" in type(got.grad_fn).__name__
    got.backward(grad.to("xpu"))

    wide = bias.double().requires_grad_()
    s = q.double() @ k.double().repeat_interleave(2, 1).mT / 24**0.5 + wide
    p = s.masked_fill((s == -torch.inf).all(-1, keepdim=True), 0).softmax(-1)
    p = p * (s != -torch.inf)
    (p @ v.double().repeat_interleave(2, 1)).backward(grad.double())
    assert leaf.grad.shape == shape
    # The output of each row is rounded separately; in sums over rows the errors add up as a random walk.
    walk = (2 * 4 * 45 * shape[-1] / bias.numel()) ** 0.5
    close(leaf.grad, wide.grad, dtype=dtype, times=2, floor=walk)
    # a bias that is constant along a row has a gradient of 0
    assert shape[-1] == 1 or wide.grad.abs().max() > 0.1


def test_processors_take_math_for_the_gradient_of_a_bias() -> None:
    """PyTorch's CPU kernels are used on CPU devices, unless others are requested."""
    q = torch.randn(1, 2, 10, 16, device="xpu")
    bias = torch.zeros(10, 10, device="xpu", requires_grad=True)
    on_host = (
        torch.xpu.get_device_properties().type == "cpu" and os.environ.get("OPENXPU_HOST_PROVIDER") != "0"
    )
    assert chosen(q, attn_mask=bias) == (SDPBackend.MATH if on_host else SDPBackend.OVERRIDEABLE)
    assert chosen(q, attn_mask=bias.detach()) == SDPBackend.OVERRIDEABLE
    with torch.no_grad():
        assert chosen(q, attn_mask=bias) == SDPBackend.OVERRIDEABLE
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        assert chosen(q, attn_mask=bias) == SDPBackend.FLASH_ATTENTION


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [16, 37])
def test_gradient_of_an_expanded_bias_by_name(causal: bool, keys: int) -> None:
    """The efficient operator's bias gradients, in its meta function's layout; fp32 biases of half-precision inputs."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    generator = torch.Generator().manual_seed(4)
    q, k, v, grad = (torch.randn(2, 3, n, 16, generator=generator).half() for n in (33, keys, keys, 33))
    bias = torch.randn(33, keys, generator=generator)
    want = bias.double().requires_grad_()
    reference(*(t.double() for t in (q, k, v)), want.expand(2, 3, 33, keys), causal).backward(grad.double())
    leaf = bias.to("xpu").requires_grad_()
    dy, *xs = (t.to("xpu") for t in (grad, q, k, v))
    wide = leaf.expand(2, 3, 33, keys)
    forward = torch.ops.aten._scaled_dot_product_efficient_attention
    out = forward(*xs, wide, True, 0.0, causal)
    out[0].backward(dy)
    close(leaf.grad, want.grad, dtype=leaf.dtype, rtol=1e-2)
    backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    rest = (0.0, [True] * 4, causal)
    given = [t.detach() for t in (dy, *xs, wide, *out)]
    got = backward(*given, *rest)[3]
    with FakeTensorMode() as mode:
        foreseen = backward(*(mode.from_tensor(t) for t in given), *rest)[3]
    assert (got.shape, got.stride()) == (foreseen.shape, foreseen.stride())


def test_by_name() -> None:
    q, k, v = (torch.randn(2, 2, 33, 16) for _ in range(3))
    x = [t.to("xpu") for t in (q, k, v)]
    want = reference(q.double(), k.double(), v.double(), causal=True)
    out = torch.ops.aten._scaled_dot_product_flash_attention(*x, 0.0, True)
    assert_close(out[0], want, dtype=torch.float32, times=0.5)
    assert out[1].shape == (2, 2, 33)
    scores = (q.double() @ k.double().mT / 4).masked_fill(
        ~torch.ones(33, 33, dtype=torch.bool).tril(), -torch.inf
    )
    assert_close(out[1], scores.logsumexp(-1), dtype=torch.float32, times=0.5)
    out = torch.ops.aten._scaled_dot_product_efficient_attention(*x, None, True, 0.0, True)
    assert_close(out[0], want, dtype=torch.float32, times=0.5)
    assert out[0].transpose(1, 2).is_contiguous() and out[1].shape == (2, 2, 64)
    out = torch.ops.aten._scaled_dot_product_efficient_attention(*x, None, False, 0.0, True)
    assert out[1].shape == (2, 2, 0)


# The flash operator's meta function knows heads of one size only.
@pytest.mark.parametrize(
    "name, value_depth",
    [
        (n, d)
        for n in ("flash", "efficient", "fused_attention_overrideable")
        for d in (16, 12)
        if (n, d) != ("flash", 12)
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_strides_are_those_that_torch_compile_foresees(name: str, value_depth: int, packed: bool) -> None:
    """Forward and backward agree with the operators' meta functions."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    name = name if name.startswith("fused") else f"{name}_attention"
    forward = getattr(torch.ops.aten, f"_scaled_dot_product_{name}")
    rest = (None, True) if name == "efficient_attention" else ()

    def strides(t: torch.Tensor) -> list[tuple[int, ...]]:
        q, k, v = (t[:, :, i].transpose(1, 2) for i in range(3)) if packed else t.unbind(0)
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v[..., :value_depth]))
        out = forward(q, k, v, *rest)
        grads = torch.autograd.grad(out[0], (q, k, v), torch.ones_like(out[0]))
        return [(*x.shape, *x.stride()) for x in (out[0], out[1], *grads)]

    x = torch.randn((2, 33, 3, 4, 16) if packed else (3, 2, 4, 33, 16), device="xpu")
    with FakeTensorMode() as mode:
        foreseen = strides(mode.from_tensor(x))
    assert strides(x) == foreseen


def test_dropout() -> None:
    """About the right share is dropped, equally in backward, and the seed determines which."""
    n = 128
    q = torch.zeros(2, 2, n, 16, device="xpu")
    v = torch.ones(2, 2, n, 16, device="xpu", requires_grad=True)
    outs = []
    for _ in range(2):
        torch.xpu.manual_seed(7)
        outs.append(torch.ops.aten._scaled_dot_product_flash_attention(q, q, v, 0.25)[0])
    assert torch.equal(outs[0].cpu(), outs[1].cpu())
    assert abs(outs[0].mean().item() - 1) < 0.01
    kept = (outs[0].detach().cpu()[..., 0] * n * 0.75).round()
    assert abs(kept.mean().item() / n - 0.75) < 0.02 and kept.std().item() > 1
    outs[1].sum().backward()
    # The gradient of v sums the dropped probabilities by column, the same sum for each of the 16 columns.
    assert abs(v.grad.sum().item() - outs[1].sum().item()) < 1e-1


@pytest.mark.parametrize("queries, keys, causal", [(5, 7, False), (70, 70, True), (33, 1030, False)])
def test_dropout_is_that_of_the_probabilities(queries: int, keys: int, causal: bool) -> None:
    """The fused kernels drop what dropout would drop of the materialized probabilities, and can return the mask."""
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 3, n, 16, generator=generator).to("xpu") for n in (queries, keys, keys))
    grad = torch.randn(2, 3, queries, 16, generator=generator).to("xpu")
    p = 0.3

    def by_hand() -> torch.Tensor:
        scores = q @ k.mT / 4
        if causal:
            scores = scores.masked_fill(
                scores.new_ones(queries, keys, dtype=torch.bool).tril().logical_not(), -torch.inf
            )
        return torch.nn.functional.dropout(scores.softmax(-1), p) @ v

    def fused() -> torch.Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, p, causal)[0]

    results = []
    for function in (by_hand, fused):
        torch.xpu.manual_seed(11)
        leaves = [t.requires_grad_() for t in (q, k, v)]
        out = function()
        results.append([out.detach(), *torch.autograd.grad(out, leaves, grad)])
    for got, want in zip(results[1], results[0], strict=True):
        assert_close(got, want, times=5)

    torch.xpu.manual_seed(11)
    with torch.no_grad():
        flash = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, p, causal, True)
        mask = flash[8]
        kept = torch._fill_mem_eff_dropout_mask_(torch.empty_like(mask), p, int(flash[6]), int(flash[7])) > p
        assert torch.equal(mask < 0, ~kept & (mask != 0))
        assert_close(mask.clamp(min=0) @ v / (1 - p), flash[0], times=5)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        torch.xpu.manual_seed(11)
        with sdpa_kernel(backend):
            asked = F.scaled_dot_product_attention(q, k, v, None, p, causal)
        assert_close(asked, results[0][0], times=5)


def test_transformer_layer_trains() -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    twin = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    twin.load_state_dict(layer.state_dict())
    twin.to("xpu")
    x = torch.randn(3, 10, 32)
    layer(x).square().mean().backward()
    twin(x.to("xpu")).square().mean().backward()
    for (name, p), q in zip(layer.named_parameters(), twin.parameters(), strict=True):
        assert_close(q.grad, p.grad, times=0.5, what=name)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (7, 0), (4, 3)], ids=str)
def test_sequences_of_different_lengths_and_windows(window: tuple[int, int]) -> None:
    """torch.nn.attention.varlen with packed sequences, one of them empty."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    lengths, heads, depth = [5, 0, 70, 33], 2, 32
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    tensors = [torch.randn(sum(lengths), heads, depth) for _ in range(3)]
    leaves = [t.to("xpu").requires_grad_() for t in tensors]
    wants = [t.double().requires_grad_() for t in tensors]
    got = varlen.varlen_attn(
        *leaves, starts.to("xpu"), starts.to("xpu"), max(lengths), max(lengths), window_size=window
    )
    parts = []
    for first, last in itertools.pairwise(starts.tolist()):
        q, k, v = (t[first:last].transpose(0, 1)[None] for t in wants)
        places = torch.arange(last - first)
        apart = places[None, :] - places[:, None]
        looks = (apart >= -window[0]) | (window[0] < 0)
        looks &= (apart <= window[1]) | (window[1] < 0)
        parts.append(reference(q, k, v, looks)[0].transpose(0, 1))
    want = torch.cat(parts)
    assert_close(got, want, dtype=torch.float32, atol=2e-5)
    grad = torch.randn(want.shape)
    got.backward(grad.to("xpu"))
    want.backward(grad.double())
    for leaf, other in zip(leaves, wants, strict=True):
        assert_close(leaf.grad, other.grad, dtype=torch.float32, atol=5e-5)


def test_flash_attention_refuses_what_it_lacks() -> None:
    """Page tables and slopes are not supported."""
    q = torch.randn(10, 2, 16, device="xpu")
    starts = torch.tensor([0, 10], dtype=torch.int32, device="xpu")
    slopes = torch.zeros(2, device="xpu")
    forward = torch.ops.aten._flash_attention_forward
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        forward(q, q, q, starts, starts, 10, 10, 0.0, False, False, alibi_slopes=slopes)
    with pytest.raises(RuntimeError, match="int32"):
        forward(q, q, q, starts.long(), starts, 10, 10, 0.0, False, False)


def test_gradients_of_samples() -> None:
    q, k = torch.randn(3, 1, 2, 5, 4), torch.randn(1, 2, 5, 4)

    def attended(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, k, is_causal=True).sin().sum()

    by_sample = torch.func.vmap(torch.func.grad(attended), (0, None))
    wanted = torch.stack([torch.func.grad(attended)(x, k.double()) for x in q.double()])
    assert_close(by_sample(q.xpu(), k.xpu()), wanted, dtype=torch.float32, times=0.5)


# --- xFormers' operator: [batch, rows, heads, depth] ---


def seen(queries: int, keys: int, mask: int, window: int | None) -> torch.Tensor:
    """Return the keys that a query attends to: all, top-left (1) or bottom-right (2) causal; the last `window`."""
    i, j = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
    own = i + (keys - queries if mask == 2 else 0)
    sees = torch.ones(queries, keys, dtype=torch.bool) if mask == 0 else j <= own
    return sees & (j > own - window) if window else sees


def efficient(q, k, v, bias, mask, window, scale) -> torch.Tensor:
    """Return the reference for [batch, rows, heads, depth] in float64."""
    s = torch.einsum("bmhd,bnhd->bhmn", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        s = s + bias
    s = s.masked_fill(~seen(q.shape[1], k.shape[1], mask, window), float("-inf"))
    return torch.einsum("bhmn,bnhd->bmhd", s.softmax(-1), v)


def run_efficient(q, k, v, bias, starts, longest, mask, window, scale, grad):
    """Return result and gradients on xpu, and the shape of the logsumexp, if requested."""
    x = [None if t is None else t.to("xpu") for t in (q, k, v, bias, *starts, grad)]
    out, sums, seed, offset, most_q, most_k = torch.ops.aten._efficient_attention_forward(
        *x[:4], *x[4:6], *longest, 0.0, mask, True, scale=scale, window_size=window
    )
    grads = torch.ops.aten._efficient_attention_backward(
        x[6], *x[:4], out, *x[4:6], most_q, most_k, sums, 0.0, seed, offset, mask, bias is not None,
        scale=scale, window_size=window,
    )  # fmt: skip
    return out, sums, grads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "mask", "window", "biased", "scale"),
    [
        (33, 33, 0, None, False, None), (20, 50, 0, None, False, 0.3), (20, 50, 0, None, True, None),
        (33, 33, 1, None, False, None), (33, 33, 1, None, True, None), (20, 50, 1, None, False, None),
        (33, 33, 2, None, False, None), (20, 50, 2, None, False, None), (33, 33, 2, None, True, None),
        (33, 33, 1, 5, False, None), (33, 33, 2, 1, False, None), (20, 50, 2, 7, False, 0.5),
        (1, 70, 2, None, False, None), (1, 1, 1, None, False, None),
    ],
)  # fmt: skip
def test_efficient_attention(queries, keys, mask, window, biased, scale, dtype) -> None:
    q, k, v = (torch.randn(2, n, 3, 16).to(dtype) for n in (queries, keys, keys))
    bias = torch.randn(2, 3, queries, keys).to(dtype) if biased else None
    wide = [None if t is None else t.double().requires_grad_() for t in (q, k, v, bias)]
    want = efficient(*wide, mask, window, scale)
    grad = torch.randn(want.shape).to(dtype)
    want.backward(grad.double())
    out, sums, grads = run_efficient(q, k, v, bias, (None, None), (None, None), mask, window, scale, grad)
    assert out.shape == want.shape and sums.shape == (2, 3, (queries + 31) // 32 * 32)
    close(out, want, dtype=dtype)
    for got, leaf in zip(grads, wide, strict=True):
        if leaf is not None:
            close_gradient(got, leaf.grad, dtype=dtype)


@pytest.mark.parametrize("mask", [0, 1, 2])
@pytest.mark.parametrize(("queries", "keys"), [([3, 40, 1], [3, 40, 1]), ([5, 2], [9, 33])])
def test_efficient_attention_of_sequences(queries: list[int], keys: list[int], mask: int) -> None:
    q, k, v = (torch.randn(1, sum(n), 2, 16) for n in (queries, keys, keys))
    starts = [torch.tensor([0, *itertools.accumulate(n)], dtype=torch.int32) for n in (queries, keys)]
    if mask == 1 and queries != keys:
        with pytest.raises(NotImplementedError, match="top-left"):
            run_efficient(q, k, v, None, starts, (max(queries), max(keys)), mask, None, None, q)
        return
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    parts = [
        efficient(*(t[:, s[i] : s[i + 1]] for t, s in zip(wide, (starts[0], starts[1], starts[1]), strict=True)),
                  None, mask, None, None)
        for i in range(len(queries))
    ]  # fmt: skip
    want = torch.cat(parts, 1)
    grad = torch.randn(want.shape)
    want.backward(grad.double())
    out, sums, grads = run_efficient(q, k, v, None, starts, (max(queries), max(keys)), mask, None, None, grad)
    assert sums.shape == (len(queries), 2, (max(queries) + 31) // 32 * 32)
    assert_close(out, want, dtype=torch.float32)
    for got, leaf in zip(grads, wide, strict=False):
        assert_close(got, leaf.grad, dtype=torch.float32, times=5)


def test_efficient_attention_with_dropout_and_one_storage() -> None:
    q, k, v = (torch.randn(2, 24, 3, 16, device="xpu") for _ in range(3))
    forward, backward = (
        torch.ops.aten._efficient_attention_forward,
        torch.ops.aten._efficient_attention_backward,
    )
    for mask in (0, 2):
        out, sums, seed, offset, m, n = forward(q, k, v, None, None, None, None, None, 0.4, mask, True)
        grads = backward(
            v,
            q,
            k,
            v,
            None,
            out,
            None,
            None,
            m,
            n,
            sums,
            0.4,
            seed,
            offset,
            mask,
            False,
            shared_storage_dqdkdv=True,
        )
        assert grads[0].untyped_storage().data_ptr() == grads[2].untyped_storage().data_ptr()
        # The result is linear in v: its gradient, for the same random numbers, shows what was dropped.
        assert_close((grads[2] * v).sum(), (v * out).sum(), rtol=1e-4)
    assert forward(q, k, v, None, None, None, None, None, 0.0, 0, False)[1].shape == (2, 3, 0)


def test_efficient_attention_refuses() -> None:
    q = torch.randn(2, 8, 3, 16, device="xpu")
    starts = torch.tensor([0, 3, 8], dtype=torch.int32, device="xpu")
    forward = torch.ops.aten._efficient_attention_forward
    rest = (None, None, 0.0)
    for call, text in [
        (lambda: forward(q, q[:, :, :2], q, None, None, None, *rest, 0), "incompatible shapes"),
        (lambda: forward(q, q, q[:, :5], None, None, None, *rest, 0), "incompatible shapes"),
        (lambda: forward(q[0], q[0], q[0], None, None, None, *rest, 0), "incompatible shapes"),
        (lambda: forward(q, q, q, None, starts, None, *rest, 0), "passed together"),
        (lambda: forward(q, q, q, None, starts, starts, *rest, 0), "batch size of 1"),
        (lambda: forward(q, q, q, None, None, None, *rest, 3), "custom_mask_type"),
        (lambda: forward(q, q, q, None, None, None, *rest, 0, window_size=3), "causal"),
        (lambda: forward(q, q, q, None, None, None, *rest, 0, seqlen_k=starts), "seqlen_k"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
