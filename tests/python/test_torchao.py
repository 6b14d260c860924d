"""torchao's workflows, unchanged, on xpu: how much of a model's answers is left, eager and compiled."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

quantization = pytest.importorskip("torchao.quantization")
mx = pytest.importorskip("torchao.prototype.mx_formats")

FLOAT8 = torch.float8_e4m3fn
# signal to noise, dB, that is to be reached
CONFIGS: dict[str, tuple[Any, float]] = {
    "int8": (quantization.Int8WeightOnlyConfig(), 40),
    "int8 dynamic": (quantization.Int8DynamicActivationInt8WeightConfig(), 35),
    "int4": (quantization.Int4WeightOnlyConfig(group_size=64, int4_packing_format="plain_int32"), 20),
    "fp8": (quantization.Float8WeightOnlyConfig(), 26),
    "fp8 dynamic, tensors": (
        quantization.Float8DynamicActivationFloat8WeightConfig(granularity=quantization.PerTensor()),
        23,
    ),
    "fp8 dynamic, rows": (
        quantization.Float8DynamicActivationFloat8WeightConfig(granularity=quantization.PerRow()),
        23,
    ),
    "mxfp8": (mx.MXDynamicActivationMXWeightConfig(activation_dtype=FLOAT8, weight_dtype=FLOAT8), 24),
    "mxfp4": (
        mx.MXDynamicActivationMXWeightConfig(
            activation_dtype=torch.float4_e2m1fn_x2, weight_dtype=torch.float4_e2m1fn_x2
        ),
        12,
    ),
    "nvfp4": (mx.NVFP4WeightOnlyConfig(), 12),
    "int8, groups": (quantization.Int8WeightOnlyConfig(granularity=quantization.PerGroup(64)), 40),
    "int8 dynamic, asymmetric": (
        quantization.Int8DynamicActivationInt8WeightConfig(
            act_mapping_type=quantization.MappingType.ASYMMETRIC
        ),
        35,
    ),
    "fp8 dynamic, blocks": (
        quantization.Float8DynamicActivationFloat8WeightConfig(
            granularity=(quantization.PerBlock([1, 128]), quantization.PerBlock([128, 128]))
        ),
        23,
    ),
    "int4 by int8": (
        quantization.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=quantization.PerGroup(32)
        ),
        20,
    ),
}


def noise(actual: torch.Tensor, expected: torch.Tensor) -> float:
    a, b = actual.detach().cpu().double(), expected.detach().cpu().double()
    return float(20 * torch.log10(b.norm() / (a - b).norm()))


@pytest.fixture(scope="module")
def example() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model on xpu in bf16, its input, and what it gives in fp32 on the CPU."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).bfloat16().eval()
    x = torch.randn(32, 256).bfloat16()
    with torch.no_grad():
        expected = copy.deepcopy(model).float()(x.float())
    return model.to("xpu"), x.to("xpu"), expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGS)
def test_eager(name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    model, x, expected = copy.deepcopy(example[0]), *example[1:]
    config, least = CONFIGS[name]
    quantization.quantize_(model, config)
    with torch.no_grad():
        result = model(x)
        assert noise(result, expected) > least
        one = model(x[:1])  # few rows take other kernels
    if name != "fp8 dynamic, tensors":  # whose scale is that of all rows
        assert noise(one, result[:1]) > 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["int4", "int8 dynamic", "fp8 dynamic, rows", "mxfp4"])
def test_compiled(
    name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor], fresh_compiler: None
) -> None:
    pytest.importorskip("triton")
    model, x = copy.deepcopy(example[0][:1]), example[1]  # one layer: Inductor takes its time
    expected = copy.deepcopy(model).cpu().float()(x.cpu().float())
    config, least = CONFIGS[name]
    quantization.quantize_(model, config)
    with torch.no_grad():
        assert noise(torch.compile(model)(x), expected) > least


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["awq", "smoothquant"])
def test_calibrated(how: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    model, x, expected = copy.deepcopy(example[0]), *example[1:]
    if how == "awq":
        wrapper = pytest.importorskip("torchao.prototype.awq").AWQConfig
        config, least = CONFIGS["int4"]
    else:
        wrapper = pytest.importorskip("torchao.prototype.smoothquant").SmoothQuantConfig
        config, least = CONFIGS["int8 dynamic"]
    with torch.no_grad():
        quantization.quantize_(model, wrapper(config, step="prepare"))
        model(x)
        quantization.quantize_(model, wrapper(config, step="convert"))
        assert noise(model(x), expected) > least


@pytest.mark.filterwarnings("ignore")
def test_float8_training(example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    float8 = pytest.importorskip("torchao.float8")
    model, x, expected = copy.deepcopy(example[0]).float(), example[1].float(), example[2]
    plain = copy.deepcopy(
        model
    ).cpu()  # in fp32: a last bit of bf16 would turn fp8 numbers into their neighbours
    results = []
    for each, given in ((model, x), (plain, x.cpu())):  # torchao on the CPU rounds to the same fp8 numbers
        results.append(float8.convert_to_float8_training(each)(given))
        results[-1].float().pow(2).mean().backward()
    assert noise(results[0], expected) > 23
    assert noise(*results) > 40
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert noise(ours.grad, theirs.grad) > 40


def test_weights_are_small() -> None:
    layer = nn.Linear(1024, 1024, bias=False, device="xpu", dtype=torch.bfloat16)
    before = torch.xpu.memory_allocated()
    quantization.quantize_(layer, CONFIGS["int4"][0])
    # of 2 MiB are left half a MiB, and 3 bytes for each 64 of them
    assert before - torch.xpu.memory_allocated() > 1.4 * (1 << 20)


def test_packing_under_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    packed = torch.zeros(16, 32, dtype=torch.uint8, device="xpu")
    real = torch.ops.aten._convert_weight_to_int4pack(packed, 8)
    with FakeTensorMode() as mode:
        fake = torch.ops.aten._convert_weight_to_int4pack(mode.from_tensor(packed), 8)
    assert (fake.shape, fake.dtype, fake.device) == (real.shape, real.dtype, real.device)
