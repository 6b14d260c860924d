"""PyTorch's own samples (OpInfo) for pointwise operators and factories, on xpu against the CPU."""

import math
import os
import zlib

import hypothesis.strategies as st
import mpmath
import pytest
import torch
from comparing import assert_close
from hypothesis import given, settings
from openxpu import _bridge
from torch.testing._internal.common_methods_invocations import BinaryUfuncInfo, UnaryUfuncInfo, op_db
from torch.utils._pytree import tree_map

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

# Each operator runs with these dtypes and one other, picked by its name; OPENXPU_TEST_ALL=1 takes all, and all
# samples. A dtype is a kernel to build, so the first run on a machine takes longer.
MAIN_DTYPES = (torch.float32, torch.complex64)
ALL = os.environ.get("OPENXPU_TEST_ALL") == "1"
SAMPLES = 1000 if ALL else 3

# Operators in this file's scope that OpInfo does not list as unary or binary.
OTHERS = set(
    """
    where masked_fill clamp addcmul addcdiv lerp tril triu arange linspace logspace eye flip roll
    nn.functional.gelu nn.functional.silu nn.functional.relu nn.functional.relu6 nn.functional.elu
    nn.functional.celu nn.functional.selu nn.functional.leaky_relu nn.functional.hardtanh
    nn.functional.hardswish nn.functional.hardsigmoid nn.functional.hardshrink nn.functional.softshrink
    nn.functional.softplus nn.functional.softsign nn.functional.tanhshrink nn.functional.mish
    nn.functional.logsigmoid nn.functional.threshold nn.functional.prelu nn.functional.glu
    zero_ fill full full_like zeros ones zeros_like ones_like clone trace equal tril_indices triu_indices
    diag_embed diagonal nan_to_num frexp complex polar
    """.split()
)


def in_scope(op):
    if op.name.startswith(("_refs", "masked.", "jiterator")):
        return False
    return isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) or op.name in OTHERS


def dtypes_of(op):
    supported = sorted(op.supported_dtypes("cpu") - {torch.complex32}, key=str)
    if ALL:
        return supported
    rest = [dtype for dtype in supported if dtype not in MAIN_DTYPES]
    picked = [rest[zlib.crc32(op.full_name.encode()) % len(rest)]] if rest else []
    return [dtype for dtype in supported if dtype in MAIN_DTYPES] + picked


def to_xpu(value):
    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            # Keep strides, also of expanded tensors.
            moved = leaf.detach().as_strided(
                (leaf.untyped_storage().nbytes() // leaf.element_size(),), (1,), 0
            )
            moved = moved.to("xpu").as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())
            return moved.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return "xpu"
        return leaf

    return tree_map(move, value)


def to_cpu(value):
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, value)


CASES = [
    pytest.param(op, dtype, id=f"{op.full_name}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    if in_scope(op)
    for dtype in dtypes_of(op)
]


def doubled(value):
    """Convert to float64, with the same requires_grad."""
    return tree_map(
        lambda leaf: (
            leaf.detach().double().requires_grad_(leaf.requires_grad)
            if isinstance(leaf, torch.Tensor)
            else leaf
        ),
        value,
    )


HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
POLYGAMMA = ("digamma", "polygamma", "special.polygamma")
# The CPU's kernels of these operators are less exact than ours in these dtypes: by 6e-5 (polygamma), or because
# they round to the half type in between. float64 is the reference.
REFERENCE_IN_DOUBLE = (
    dict.fromkeys(POLYGAMMA, (torch.float32, *INTEGERS))
    | dict.fromkeys(("add", "sub", "linspace", "logspace"), HALVES)
    | {"special.hermite_polynomial_he": (torch.float32,)}
)
BESSEL = {
    "special.bessel_j0": lambda x: mpmath.besselj(0, x),
    "special.bessel_j1": lambda x: mpmath.besselj(1, x),
    "special.bessel_y0": lambda x: mpmath.bessely(0, x),
    "special.bessel_y1": lambda x: mpmath.bessely(1, x),
}


def reference(op, dtype, sample, expected):
    """Return what the operator should, if the CPU's result is not exact enough; ``expected`` otherwise."""
    if dtype in REFERENCE_IN_DOUBLE.get(op.name, ()):
        options = dict(sample.kwargs)
        if options.get("dtype") is not None:
            options["dtype"] = torch.float64
        exact = op(*doubled((sample.input, *sample.args)), **options)
        if op.name in POLYGAMMA and sample.args and sample.args[0] > 0:
            # the CPU takes π x for exact, and misses the poles
            x, order = sample.input, sample.args[0]
            is_pole = (x <= 0) & (x == x.double().round())
            exact = torch.where(is_pole, torch.inf if order % 2 else -torch.inf, exact)
        return exact.to(expected.dtype)
    if op.name in BESSEL and dtype == torch.float64:  # the CPU's errors are up to 1e-6
        values = [
            math.nan if "bessel_y" in op.name and x < 0 else float(BESSEL[op.name](x))
            for x in sample.input.flatten().tolist()
        ]
        return torch.tensor(values, dtype=dtype).view(expected.shape)
    return expected


def compare(op, dtype, actual, sample, expected):
    limits = {}
    if op.name in ("pow", "__rpow__") and dtype == torch.complex64:
        # exp(b log a): the rounding of b log a, here up to 30, is an error of as many units in the last place.
        limits = {"rtol": 1e-5, "atol": 1e-5}
    if op.name == "logit" and dtype in HALVES:
        # PyTorch's CPU kernel rounds x / (1 - x) to the half type in between, its CUDA kernel does not.
        expected = op(sample.input.float(), *sample.args, **sample.kwargs).to(dtype)
    expected = reference(op, dtype, sample, expected)
    torch.testing.assert_close(to_cpu(actual), expected, equal_nan=True, **limits)


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_samples(op, dtype):
    for number, sample in enumerate(op.sample_inputs("cpu", dtype)):
        if number >= SAMPLES:
            break
        if sample.kwargs.get("training"):
            continue  # random
        expected = op(sample.input, *sample.args, **sample.kwargs)
        arguments = to_xpu((sample.input, sample.args, sample.kwargs))
        _bridge.fallback_counts(True)
        actual = op(arguments[0], *arguments[1], **arguments[2])
        assert _bridge.fallback_counts(True) == {}
        compare(op, dtype, actual, sample, expected)


@pytest.mark.parametrize(
    ("op", "dtype"), [case for case in CASES if case.values[1] in (torch.float32, torch.complex64)]
)
def test_gradients(op, dtype):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        pytest.skip("not differentiable")
    samples = op.sample_inputs("cpu", dtype, requires_grad=True)
    sample = next(s for s in samples if not s.kwargs.get("training"))  # training is random
    if not isinstance(sample.input, torch.Tensor) or not sample.input.requires_grad:
        pytest.skip("no gradient")
    moved = to_xpu((sample.input, sample.args, sample.kwargs))
    expected = op(sample.input, *sample.args, **sample.kwargs)
    actual = op(moved[0], *moved[1], **moved[2])
    if not isinstance(expected, torch.Tensor) or not expected.requires_grad:
        pytest.skip("no gradient")
    upstream = torch.randn_like(expected)
    if op.name in REFERENCE_IN_DOUBLE and dtype == torch.float32:
        input, *args = doubled((sample.input, *sample.args))
        (double_grad,) = torch.autograd.grad(op(input, *args, **sample.kwargs), input, upstream.double())
        expected_grad = double_grad.to(dtype)
    else:
        (expected_grad,) = torch.autograd.grad(expected, sample.input, upstream)
    (actual_grad,) = torch.autograd.grad(actual, moved[0], upstream.to("xpu"))
    assert_close(actual_grad, expected_grad, equal_nan=True)


shapes = st.lists(st.integers(0, 9), min_size=0, max_size=4)


@st.composite
def views(draw, shape):
    """Return a function that makes a view of this shape from a base tensor: permuted, strided, or broadcast."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.integers(1, 3)) for _ in shape]
    broadcast = [draw(st.integers(0, 4)) == 0 for _ in shape]

    def view(device):
        base = torch.arange(1, 1 + math.prod(n * k for n, k in zip(shape, steps)), dtype=torch.float32)
        base = base.remainder(37).to(device).view([shape[d] * steps[d] for d in order])
        base = base.permute([order.index(d) for d in range(len(shape))])
        base = base[tuple(slice(None, None, k) for k in steps)]
        for d, once in enumerate(broadcast):
            if once and shape[d] > 0:
                base = base.narrow(d, 0, 1).expand(
                    [n if e != d else shape[d] for e, n in enumerate(base.shape)]
                )
        return base

    return view


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_strides(data):
    shape = data.draw(shapes)
    a, b = data.draw(views(shape)), data.draw(views(shape))
    kind = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int32]))
    expected = a("cpu").to(kind) * 2 + b("cpu")
    assert_close(a("xpu").to(kind) * 2 + b("xpu"), expected)
    condition = a("xpu") > b("xpu")
    assert_close(torch.where(condition, a("xpu"), b("xpu")), torch.maximum(a("cpu"), b("cpu")))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_out_with_strides(data):
    shape = data.draw(shapes.filter(lambda s: len(s) >= 2))
    a, b = data.draw(views(shape)), data.draw(views(shape))
    out = torch.empty(list(reversed(shape)), device="xpu").permute(*reversed(range(len(shape))))
    torch.mul(a("xpu"), b("xpu"), out=out)
    assert out.stride() == torch.empty(list(reversed(shape))).permute(*reversed(range(len(shape)))).stride()
    assert_close(out, a("cpu") * b("cpu"))


@pytest.mark.parametrize(
    "dtype", (torch.float32, torch.int32, torch.bfloat16, torch.uint8, torch.float64), ids=str
)
def test_rows_with_steps(dtype):
    a, b = (torch.arange(n, n + 7 * 300).remainder(113).to(dtype).view(7, 300) for n in (0, 50))
    x, y = a.to("xpu"), b.to("xpu")
    for step in (2, 3, 4, 5):
        assert torch.equal((x[:, ::step] + y[:, ::step]).cpu(), a[:, ::step] + b[:, ::step])
        assert torch.equal(
            (x[:, ::step] * y[2, : -(-300 // step)]).cpu(), a[:, ::step] * b[2, : -(-300 // step)]
        )
        out, expected = x.clone(), a.clone()
        out[:, ::step] += y[:, ::step]
        expected[:, ::step] += b[:, ::step]
        assert torch.equal(out.cpu(), expected)
        assert torch.equal((x.t() + y.t()[:, :1])[::step].cpu(), (a.t() + b.t()[:, :1])[::step])


def test_mixed_devices_and_dtypes():
    x = torch.arange(5, device="xpu")
    assert (x + torch.tensor(0.5)).dtype == torch.float32
    assert (x + torch.tensor(0.5)).tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert (torch.tensor(2.0) * x.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + torch.ones(5)
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        x.add_(0.5)
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        x + torch.ones(4, device="xpu")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.ones(1, device="xpu").expand(3).add_(1)
    with pytest.warns(UserWarning, match="resized"):
        torch.mul(x, x, out=torch.empty(3, dtype=torch.int64, device="xpu"))


def test_glu_forward_derivative():
    x = torch.randn(3, 8, dtype=torch.float64, device="xpu", requires_grad=True)
    for dim in (1, -1):
        assert torch.autograd.gradcheck(
            lambda x, d=dim: torch.nn.functional.glu(x, d), x, check_forward_ad=True
        )
    assert torch.autograd.gradgradcheck(torch.nn.functional.glu, x, check_fwd_over_rev=True)
