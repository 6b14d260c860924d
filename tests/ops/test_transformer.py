"""nn.TransformerEncoder and nn.MultiheadAttention in inference: the fused operators against the composed path on the
CPU in float64, and on xpu.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from comparing import assert_close, tolerance
from openxpu import _bridge
from torch import nn

# of layers after one another, each of which rounds its results
TIMES = {torch.float64: 10, torch.float32: 1, torch.bfloat16: 3, torch.float16: 2.5}


@pytest.fixture(autouse=True)
def no_fallback() -> Iterator[None]:
    """No operator may fall back to the CPU."""
    _bridge.fallback_counts(True)
    yield
    assert _bridge.fallback_counts() == {}


def operators(function: Any) -> tuple[Any, set[str]]:
    """Return the result, and the names of the operators that ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = function()
    return result, {event.name for event in profile.events()}


def plain(model: nn.Module, *arguments: Any, **options: Any) -> torch.Tensor:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return model(*arguments, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def padding_mask(lengths: list[int], longest: int) -> torch.Tensor:
    return torch.arange(longest) >= torch.tensor(lengths)[:, None]


def encoder(dtype: torch.dtype = torch.float64, layers: int = 2, **options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    nested = options.pop("enable_nested_tensor", True)
    layer = nn.TransformerEncoderLayer(
        **{"d_model": 24, "nhead": 4, "dim_feedforward": 40, "batch_first": True, **options}
    )
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=nested)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).eval()


def compare(
    model: nn.TransformerEncoder, dtype: torch.dtype, source: torch.Tensor, fused: bool = True, **masks: Any
) -> None:
    lengths = masks.get("src_key_padding_mask")
    with torch.no_grad():
        expected = plain(model, source, **masks)
        there = model.to("xpu", dtype)
        x = source.to("xpu", dtype)
        given = {k: v.to("xpu") if isinstance(v, torch.Tensor) else v for k, v in masks.items()}
        result, names = operators(lambda: there(x, **given))
        other = plain(there, x, **given)
    assert ("aten::_transformer_encoder_layer_fwd" in names) == fused
    assert result.shape == expected.shape
    held = torch.ones(source.shape[:2], dtype=torch.bool) if lengths is None else ~lengths
    for mine in (result, other):
        assert_close(mine[held.to("xpu")], expected[held], dtype=dtype, times=TIMES, floor=2)


@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize("masked", [False, True])
def test_dtypes(dtype: torch.dtype, masked: bool) -> None:
    source = torch.randn(4, 9, 24, dtype=torch.float64)
    mask = padding_mask([9, 2, 1, 5], 9) if masked else None
    compare(encoder(), dtype, source, src_key_padding_mask=mask)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_options(nested: bool, activation: str, first: bool, masked: bool) -> None:
    model = encoder(enable_nested_tensor=nested, activation=activation, norm_first=first)
    source = torch.randn(3, 8, 24, dtype=torch.float64)
    mask = padding_mask([8, 3, 4], 8) if masked else None
    compare(model, torch.float32, source, src_key_padding_mask=mask)


@pytest.mark.parametrize("heads", [1, 2, 3, 8])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_heads(heads: int) -> None:
    """With an odd number of heads PyTorch's layers use their composed path."""
    for mask in (None, padding_mask([3, 7, 1], 7)):
        source = torch.randn(3, 7, 24, dtype=torch.float64)
        model = encoder(nhead=heads, layers=1)
        compare(model, torch.float32, source, fused=heads % 2 == 0, src_key_padding_mask=mask)


def test_sequence_first() -> None:
    """Without batch_first the layers use their composed path."""
    model = encoder(batch_first=False, enable_nested_tensor=False)
    with torch.no_grad():
        source = torch.randn(7, 3, 24, dtype=torch.float64)
        mask = padding_mask([3, 7, 1], 7)
        expected = model(source, src_key_padding_mask=mask)
        result = model.to("xpu", torch.float32)(source.float().to("xpu"), src_key_padding_mask=mask.to("xpu"))
    kept = result.transpose(0, 1)[~mask.to("xpu")]
    assert_close(kept, expected.transpose(0, 1)[~mask], dtype=torch.float32)


def test_masks() -> None:
    source = torch.randn(3, 8, 24, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.float64) < 0
    compare(encoder(), torch.float32, source, mask=causal)
    compare(encoder(), torch.float32, source, mask=causal, src_key_padding_mask=padding_mask([8, 3, 4], 8))


def test_masked_whole() -> None:
    """An empty sequence is skipped."""
    model, source = encoder(torch.float32).to("xpu"), torch.randn(3, 8, 24, device="xpu")
    mask = padding_mask([8, 0, 4], 8)
    with torch.no_grad():
        result = model(source, src_key_padding_mask=mask.to("xpu")).cpu()
        alone = model(source[2:, :4]).cpu()
    assert_close(result[2, :4], alone[0], device="cpu")
    assert result[mask].count_nonzero() == 0


def test_large() -> None:
    source = torch.randn(5, 150, 192, dtype=torch.float64)
    model = encoder(d_model=192, nhead=6, dim_feedforward=300, layers=1)
    compare(model, torch.float32, source / 4, src_key_padding_mask=padding_mask([150, 3, 64, 77, 149], 150))


def attend(*inputs: torch.Tensor, device: str, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """torch._native_multi_head_attention with 3 heads; identical tensors are passed as one."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((72, 24), (72,), (24, 24), (24,))
    parameters = [torch.randn(*s, dtype=torch.float64, generator=generator).to(device) / 4 for s in shapes]
    there = {id(x): x.to(device) for x in inputs}
    options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    return torch._native_multi_head_attention(*(there[id(x)] for x in inputs), 24, 3, *parameters, **options)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_multihead_attention(weights: bool, average: bool) -> None:
    a, b, c = (torch.randn(3, 7, 24, dtype=torch.float64) for _ in range(3))
    causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
    ragged = padding_mask([3, 7, 1], 7)
    whole = ragged[:, None, None, :] | causal
    for inputs in ((a, a, a), (a, b, b), (a, b, c)):
        for kind, mask in ((None, None), (0, causal), (1, ragged), (2, whole.expand(3, 3, 7, 7))):
            options = {
                "mask": mask,
                "mask_type": kind,
                "need_weights": weights,
                "average_attn_weights": average,
            }
            expected = attend(*inputs, device="cpu", **options)
            actual = attend(*inputs, device="xpu", **options)
            assert_close(actual[0], expected[0])
            if weights:
                assert_close(actual[1], expected[1])


def test_nested_input() -> None:
    tensors = [torch.randn(n, 24, dtype=torch.float64) for n in (5, 1, 9)]
    nested = torch.nested.nested_tensor(tensors)
    for weights in (False, True):
        expected = attend(nested, nested, nested, device="cpu", need_weights=weights)
        actual = attend(nested, nested, nested, device="xpu", need_weights=weights)
        for mine, theirs in zip(actual[0].unbind(), expected[0].unbind(), strict=True):
            assert_close(mine, theirs)
        if weights:
            assert_close(actual[1], expected[1])
    with pytest.raises(RuntimeError, match="mask is not supported"):
        attend(nested, nested, nested, device="xpu", mask=padding_mask([5, 1, 9], 9), need_weights=False)


@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize("depth", [1, 5, 16, 65])
def test_transform_bias_rescale_qkv(depth: int, dtype: torch.dtype) -> None:
    heads = 3
    qkv, bias = torch.randn(2, 7, 9 * depth, dtype=torch.float64), torch.randn(9 * depth, dtype=torch.float64)
    expected = torch._transform_bias_rescale_qkv(qkv, bias, heads)
    actual = torch._transform_bias_rescale_qkv(qkv.to("xpu", dtype), bias.to("xpu", dtype), heads)
    assert_close(actual, expected, dtype=dtype, times=TIMES)
    parts = [qkv[0, :3], qkv[1]]
    nested = torch.nested.nested_tensor(parts)
    expected = torch._transform_bias_rescale_qkv(nested, bias, heads)
    nested = torch.nested.nested_tensor([x.to(dtype) for x in parts], device="xpu")
    actual = torch._transform_bias_rescale_qkv(nested, bias.to("xpu", dtype), heads)
    assert_close(actual, expected, dtype=dtype, times=TIMES)


def test_transform_errors() -> None:
    for qkv, bias, heads in (((2, 7, 24), 24, 3), ((2, 7, 25), 25, 1), ((2, 7, 24), 21, 2), ((7, 24), 24, 2)):
        with pytest.raises(RuntimeError):
            torch._transform_bias_rescale_qkv(
                torch.randn(*qkv, device="xpu"), torch.randn(bias, device="xpu"), heads
            )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[9, 9, 9], [3, 9, 5]])
def test_autocast(lengths: list[int], dtype: torch.dtype) -> None:
    """The fused path equals the composed one with products in half precision; parameters stay in fp32."""
    model = encoder(torch.float32).to("xpu")
    source = torch.randn(3, 9, 24, generator=torch.Generator().manual_seed(2)).to("xpu")
    mask = padding_mask(lengths, 9).to("xpu")
    with torch.no_grad(), torch.autocast("xpu", dtype):
        got = model(source, src_key_padding_mask=mask)
        want = plain(model, source, src_key_padding_mask=mask)
    kept = ~mask
    assert_close(got[kept].float(), want[kept].float(), atol=4 * tolerance(dtype, TIMES))


@pytest.mark.parametrize("dtype", TIMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"need_weights": False},
        {"need_weights": False, "key_padding_mask": padding_mask([9, 2, 1, 5], 9)},
        {"attn_mask": torch.ones(9, 9, dtype=torch.bool).triu(1), "average_attn_weights": False},
        {"attn_mask": torch.ones(16, 9, 9, dtype=torch.bool).triu(1), "need_weights": False},
    ],
    ids=lambda options: " ".join(options),
)
def test_attention_layer(options: dict[str, Any], dtype: torch.dtype) -> None:
    """nn.MultiheadAttention alone: its fast path, with and without weights, and with masks."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64).eval()
    x = torch.randn(4, 9, 24, dtype=torch.float64)
    with torch.no_grad():
        expected = plain(layer, x, x, x, **options)
        layer, x = layer.to("xpu", dtype), x.to("xpu", dtype)
        given = {k: v.to("xpu") if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        found, names = operators(lambda: layer(x, x, x, **given))
    assert "aten::_native_multi_head_attention" in names
    assert_close(found, expected, dtype=dtype, times=TIMES)


def test_attention_layer_of_nested_tensors() -> None:
    """Nested tensors are supported by the fast path only."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    rows = [torch.randn(1, length, 24) for length in (3, 5, 1)]
    with torch.no_grad():
        expected = [plain(layer.double(), x.double(), x.double(), x.double())[0][0] for x in rows]
        x = torch.nested.nested_tensor([x[0] for x in rows], device="xpu")
        found = layer.to("xpu", torch.float32)(x, x, x, need_weights=False)[0]
    for mine, theirs in zip(found.unbind(), expected, strict=True):
        assert_close(mine, theirs, dtype=torch.float32)


def test_attention_layer_is_scripted() -> None:
    layer = nn.MultiheadAttention(24, 4, batch_first=True).eval().to("xpu")
    x = torch.randn(2, 5, 24, device="xpu")
    with torch.no_grad():
        torch.testing.assert_close(torch.jit.script(layer)(x, x, x), layer(x, x, x))
