import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

DEVICE = torch.device("xpu")


def cast(value, dtype):
    """The value with its floating tensors in `dtype`."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(cast(item, dtype) for item in value)
    return value


def call(module, entry):
    op, arguments = entry[0], entry[1]
    keywords = entry[2] if len(entry) == 3 else {}
    function = getattr(torch.Tensor, op, None) if module is torch.Tensor else getattr(module, op)
    return function, arguments, keywords


def lists():
    return AutocastTestLists(DEVICE)


def names(attribute):
    return sorted({entry[0] for entry in getattr(AutocastTestLists(torch.device("cpu")), attribute)})


def run(attribute, name, dtype_expected, autocast_dtype, module=torch):
    found = [entry for entry in getattr(lists(), attribute) if entry[0] == name]
    for entry in found:
        holder = module if hasattr(module, name) else torch.Tensor
        function, arguments, keywords = call(holder, entry)
        with torch.autocast("xpu", dtype=autocast_dtype):
            result = function(*arguments, **keywords)
        first = (
            result
            if isinstance(result, torch.Tensor)
            else next(t for t in result if isinstance(t, torch.Tensor))
        )
        assert first.dtype == dtype_expected
        assert first.device.type == "xpu"


# CUDA-only operators, and einsum, whose entry in PyTorch's list cannot be called; it is tested below.
NOT_HERE = (
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "einsum",
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n in names("torch_fp16") if n not in NOT_HERE])
def test_low_precision(name, dtype):
    run("torch_fp16", name, dtype, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_einsum_in_low_precision(dtype):
    a, b = torch.randn(2, 3, 4, 5, device="xpu"), torch.randn(2, 6, 4, 5, device="xpu")
    with torch.autocast("xpu", dtype=dtype):
        product = torch.einsum("bkhd,bqhd->bqkh", a, b)
    assert product.dtype == dtype and product.shape == (2, 6, 3, 4)


@pytest.mark.parametrize("name", names("torch_fp32"))
def test_single_precision(name):
    run("torch_fp32", name, torch.float32, torch.float16)


@pytest.mark.parametrize("name", names("nn_fp32"))
def test_single_precision_of_nn(name):
    run("nn_fp32", name, torch.float32, torch.float16, torch._C._nn)


def test_settings():
    assert torch.get_autocast_dtype("xpu") == torch.float16
    assert not torch.is_autocast_enabled("xpu")
    with torch.autocast("xpu"):
        assert torch.is_autocast_enabled("xpu")
        x = torch.randn(4, 4, device="xpu")
        assert (x @ x).dtype == torch.float16
        with torch.autocast("xpu", enabled=False):
            assert (x @ x).dtype == torch.float32
    with torch.autocast("xpu", dtype=torch.bfloat16):
        assert torch.nn.functional.linear(x, x).dtype == torch.bfloat16


def test_weights_are_cast_once():
    layer = torch.nn.Linear(8, 8).xpu()
    with torch.autocast("xpu", dtype=torch.bfloat16):
        y = layer(torch.randn(2, 8, device="xpu"))
        loss = layer(y).float().square().mean()
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32


def test_grad_scaler():
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1).xpu()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("xpu", init_scale=1024.0, growth_interval=2)
    x = torch.randn(16, 4, device="xpu")
    before = layer.weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("xpu", dtype=torch.float16):
            loss = layer(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2048
    assert not torch.equal(layer.weight, before)
    # An infinite gradient: the step is skipped and the scale halved.
    before = layer.weight.detach().clone()
    optimizer.zero_grad()
    scaler.scale(layer(x).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 1024
    assert torch.equal(layer.weight, before)


def test_checkpoint_keeps_autocast():
    layer = torch.nn.Linear(4, 4).xpu()
    x = torch.randn(2, 4, device="xpu", requires_grad=True)
    with torch.autocast("xpu", dtype=torch.bfloat16):
        y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("weights", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masked", [None, "padding", "causal"])
def test_encoder_layers_in_one_operator(activation, first, weights, lower, masked):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        32, 4, 64, activation=activation, norm_first=first, batch_first=True
    )
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=not first).eval()
    x = torch.randn(2, 5, 32)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if masked == "padding" else None
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1) if masked == "causal" else None
    keep = torch.ones(2, 5, dtype=torch.bool) if padding is None else ~padding
    with torch.no_grad():
        want = encoder(x, causal, padding)[keep]
        encoder.to(DEVICE, weights)
        masks = [m if m is None else m.to(DEVICE) for m in (causal, padding)]
        with torch.autocast("xpu", lower):
            got = encoder(x.to(DEVICE, weights), *masks).cpu()[keep]
    assert (got.float() - want).abs().max() < 0.06


def test_every_policy_of_cuda_is_there():
    # except cuDNN's operators, which only CUDA has
    missing = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastXPU")
        and "cudnn" not in name
    ]
    assert not missing
    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::_addmm_activation", "AutocastXPU")
