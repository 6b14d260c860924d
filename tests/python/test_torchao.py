"""torchao's workflows, unchanged, on xpu: accuracy of the quantized model's outputs, eager and compiled."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from comparing import assert_snr
from torch import nn

quantization = pytest.importorskip("torchao.quantization")
mx = pytest.importorskip("torchao.prototype.mx_formats")

FLOAT8 = torch.float8_e4m3fn
# required signal-to-noise ratio in dB
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
    "int4, hqq": (
        quantization.IntxWeightOnlyConfig(
            weight_dtype=torch.int4,
            granularity=quantization.PerGroup(32),
            intx_choose_qparams_algorithm="hqq_scale_only",
        ),
        17,
    ),
}


@pytest.fixture(scope="module")
def example() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a bf16 model on xpu, its input, and its fp32 output on the CPU."""
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
        assert_snr(result, expected, least)
        one = model(x[:1])  # few rows take other kernels
    if name != "fp8 dynamic, tensors":  # with a scale for all rows
        assert_snr(one, result[:1], 30)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["int4", "int8", "int8 dynamic", "int8 dynamic, asymmetric", "fp8 dynamic, rows", "mxfp4"]
)
def test_compiled(
    name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor], fresh_compiler: None
) -> None:
    pytest.importorskip("triton")
    model, x = copy.deepcopy(example[0][:1]), example[1]  # one layer: Inductor takes its time
    expected = copy.deepcopy(model).cpu().float()(x.cpu().float())
    config, least = CONFIGS[name]
    quantization.quantize_(model, config)
    with torch.no_grad():
        assert_snr(torch.compile(model)(x), expected, least)


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
        assert_snr(model(x), expected, least)


@pytest.mark.filterwarnings("ignore")
def test_float8_training(example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    float8 = pytest.importorskip("torchao.float8")
    model, x, expected = copy.deepcopy(example[0]).float(), example[1].float(), example[2]
    plain = copy.deepcopy(
        model
    ).cpu()  # in fp32: a last bit of bf16 would turn fp8 numbers into their neighbors
    results = []
    for each, given in ((model, x), (plain, x.cpu())):  # torchao on the CPU rounds to the same fp8 numbers
        results.append(float8.convert_to_float8_training(each)(given))
        results[-1].float().pow(2).mean().backward()
    assert_snr(results[0], expected, 23)
    assert_snr(*results, 40)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert_snr(ours.grad, theirs.grad, 40)


def trained(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Return the model's output and the gradients of its parameters."""
    result = model.train()(x)
    result.float().pow(2).mean().backward()
    return [result, *(p.grad for p in model.parameters())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["int4 by int8", "intx", "fp8"])
def test_quantization_aware_training(
    name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor]
) -> None:
    qat = pytest.importorskip("torchao.quantization.qat")
    model, x, expected = example[0], *example[1:]
    if name == "intx":
        group = quantization.PerGroup(32)
        base = quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=group)
    else:
        base = CONFIGS["fp8 dynamic, rows" if name == "fp8" else name][0]
    least = 23 if name == "fp8" else 19
    results = []
    # in fp32: a last bit of bf16 would turn numbers into their neighbors; fp8 takes bf16 alone
    dtype = torch.bfloat16 if name == "fp8" else torch.float32
    for device in ("cpu", "xpu"):
        one = copy.deepcopy(model).to(device, dtype)
        quantization.quantize_(one, qat.QATConfig(base, step="prepare"))
        results.append(trained(one, x.to(device, dtype)))
    assert_snr(results[1][0], expected, least)
    for theirs, ours in zip(*results, strict=True):
        assert_snr(ours, theirs, (30 if name == "fp8" else 60))
    quantization.quantize_(one.eval(), qat.QATConfig(base, step="convert"))
    with torch.no_grad():
        assert_snr(one(x.to(dtype)), expected, least)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mixed precision", "weights"])
def test_integer_training(name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    training = pytest.importorskip("torchao.prototype.quantized_training")
    configs = {
        "mixed precision": (training.int8_mixed_precision_training, 36, 20),
        "weights": (training.int8_weight_only_quantized_training, 40, 25),
    }
    config, least, least_of_gradients = configs[name]
    model, x, expected = copy.deepcopy(example[0]).float(), example[1].float(), example[2]
    plain = copy.deepcopy(model).cpu()
    quantization.quantize_(model, config())
    result, *gradients = trained(model, x)
    assert_snr(result, expected, least)
    for ours, theirs in zip(gradients, trained(plain, x.cpu())[1:], strict=True):
        assert_snr(ours, theirs, least_of_gradients)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["AdamW8bit", "AdamW4bit", "AdamWFp8"])
def test_optimizer(name: str, example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    """Optimizer steps without Inductor, which compiles for a long time for each parameter shape."""
    optim = pytest.importorskip("torchao.optim")
    results = []
    for device in ("cpu", "xpu"):
        model, x = (t.to(device, torch.float32) for t in (copy.deepcopy(example[0][:1]), example[1]))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = getattr(optim, name)(model.parameters(), lr=1e-2)
        with torch.compiler.set_stance("force_eager"):
            for _ in range(2):
                (model(x) - 1).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        results.append([p.detach() - b for p, b in zip(model.parameters(), before, strict=True)])
    assert any(
        type(v).__name__.startswith("OptimState") for s in optimizer.state.values() for v in s.values()
    )
    for theirs, ours in zip(*results, strict=True):
        assert_snr(ours, theirs, 40)


def test_nf4(example: tuple[nn.Module, torch.Tensor, torch.Tensor]) -> None:
    nf4 = pytest.importorskip("torchao.quantization.quantize_.workflows.nf4.nf4_tensor")
    weight, x = example[0][0].weight.detach().float(), example[1].float()
    ours, theirs = nf4.to_nf4(weight), nf4.to_nf4(weight.cpu())
    assert torch.equal(ours.get_original_weight().cpu(), theirs.get_original_weight())
    assert_snr(ours.get_original_weight(), weight, 20)
    given, other = x.clone().requires_grad_(), x.cpu().requires_grad_()
    result, expected = nf4.linear_nf4(given, ours), nf4.linear_nf4(other, theirs)
    result.sum().backward()
    expected.sum().backward()
    assert_snr(result, expected, 100)
    assert_snr(given.grad, other.grad, 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("m, n, k", [(33, 40, 96), (5, 7, 13), (2, 64, 65), (0, 8, 8), (3, 4, 0)])
def test_scaled_int8_product(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    pytest.importorskip("torchao.prototype.quantized_training.int8_mm")
    product = torch.ops.torchao.scaled_int8_mm
    torch.manual_seed(0)
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((m, k), (n, k)))
    rows, columns = (torch.rand(m, 1) / 8).to(dtype), torch.rand(1, n).to(dtype)
    for right in (b.t(), b.t().contiguous()):
        for left in (a, a.t().contiguous().t()):
            for scale in (columns, columns[0, 0]):
                result = product(*(x.to("xpu") for x in (left, right, rows, scale)))
                expected = (a.double() @ b.double().t()) * rows.double() * scale.double()
                assert (result.dtype, result.shape) == (dtype, (m, n))
                if expected.any():
                    assert_snr(result, expected, (120 if dtype == torch.float32 else 53))
                else:
                    assert not result.any()


def test_bad_scaled_int8_products() -> None:
    pytest.importorskip("torchao.prototype.quantized_training.int8_mm")
    product = torch.ops.torchao.scaled_int8_mm
    a, b = (torch.ones(shape, dtype=torch.int8, device="xpu") for shape in ((4, 8), (8, 6)))
    rows, columns = torch.ones(4, 1, device="xpu"), torch.ones(6, device="xpu")
    product(a, b, rows, columns)
    for arguments, message in [
        ((a.int(), b, rows, columns), "int8 operands"),
        ((a, b[:4], rows, columns), "cannot be multiplied"),
        ((a[0], b, rows, columns), "must be 2D"),
        ((a, b, rows[:2], columns), "A_scale"),
        ((a, b, rows, columns[:2]), "B_scale"),
        ((a, b, rows, columns.half()), "one dtype"),
        ((a, b, rows.int(), columns.int()), "the scales"),
        ((a, b.cpu(), rows, columns), "same device"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            product(*arguments)


@pytest.mark.parametrize("block", [128, 64])
@pytest.mark.parametrize("shape, n", [((3, 17, 256), 200), ((1, 384), 128), ((40, 320), 72), ((0, 256), 16)])
def test_blockwise_product(shape: tuple[int, ...], n: int, block: int) -> None:
    pytest.importorskip("triton")
    blockwise = pytest.importorskip("torchao.kernel.blockwise_quantization")
    torch.manual_seed(0)
    k = shape[-1]
    blocks = -(-k // block)
    a, b = torch.randn(shape).to(FLOAT8), torch.randn(n, k).to(FLOAT8)
    scale_a, scale_b = torch.rand(*shape[:-1], blocks), torch.rand(-(-n // block), blocks)
    arguments = [x.to("xpu") for x in (a, scale_a, b, scale_b)]
    result = blockwise.blockwise_fp8_gemm(*arguments, block_size=block)
    wide_a = scale_a.double().repeat_interleave(block, -1)[..., :k]
    wide_b = scale_b.double().repeat_interleave(block, 0)[:n].repeat_interleave(block, 1)[:, :k]
    expected = (a.double() * wide_a) @ (b.double() * wide_b).t()
    assert (result.dtype, result.shape) == (torch.bfloat16, expected.shape)
    if expected.numel():
        assert_snr(result, expected, 50)


def test_bad_blockwise_products() -> None:
    pytest.importorskip("triton")
    from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm

    a, b = (torch.ones(rows, 256, device="xpu").to(FLOAT8) for rows in (4, 200))
    arguments = [a, torch.ones(4, 2, device="xpu"), b, torch.ones(2, 2, device="xpu")]
    assert blockwise_fp8_gemm(*arguments).cpu().tolist() == [[256.0] * 200] * 4
    for place, wrong, message in [
        (0, a.float(), "fp8 operands"),
        (0, a[:, :16], "got .4, 16. and .200, 256."),
        (1, arguments[1][:, :1], "a_s"),
        (1, arguments[1].half(), "fp32 scales"),
        (3, arguments[3][:, :1], "b_s"),
        (2, b.cpu(), "same device"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            torch.ops.ao.blockwise_fp8_gemm(*arguments[:place], wrong, *arguments[place + 1 :], 128)
    with pytest.raises(RuntimeError, match="block_size to be positive"):
        torch.ops.ao.blockwise_fp8_gemm(*arguments, 0)


def test_weights_are_small() -> None:
    layer = nn.Linear(1024, 1024, bias=False, device="xpu", dtype=torch.bfloat16)
    before = torch.xpu.memory_allocated()
    quantization.quantize_(layer, CONFIGS["int4"][0])
    # 2 MiB become half a MiB and 3 bytes for each 64 elements
    assert before - torch.xpu.memory_allocated() > 1.4 * (1 << 20)


def test_packing_under_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    packed = torch.zeros(16, 32, dtype=torch.uint8, device="xpu")
    real = torch.ops.aten._convert_weight_to_int4pack(packed, 8)
    with FakeTensorMode() as mode:
        fake = torch.ops.aten._convert_weight_to_int4pack(mode.from_tensor(packed), 8)
    assert (fake.shape, fake.dtype, fake.device) == (real.shape, real.dtype, real.device)
