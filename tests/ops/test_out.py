"""`out=` tensors of every kind: with gaps, reversed, too small, overlapping, of another dtype or device.

The operators are called as PyTorch's own samples call them. Memory between and around an out tensor's elements must not
change. OPENXPU_TEST_ALL=1 tests all operators, and more samples.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from comparing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from .indexing_samples import moved
from .recorded import OPERATORS, Call, out_variant, record, tensors

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

ALL = os.environ.get("OPENXPU_TEST_ALL") == "1"
Outs = tuple[torch.Tensor, ...]
EXACT = (torch.int64, torch.int32, torch.uint8, torch.bool)


def inner(shape: torch.Size, kind: str, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a view of the shape inside a larger tensor, and the larger one."""
    if kind == "turned":
        base = torch.empty([n + 2 for n in reversed(shape)], dtype=dtype, device=device)
        view = base.permute(*reversed(range(len(shape)))) if len(shape) else base
        for d, n in enumerate(shape):
            view = view.narrow(d, 1, n)
    else:  # gaps
        base = torch.empty([2 * n + 3 for n in shape] + [3], dtype=dtype, device=device)
        view = base.select(-1, 1)
        for d, n in enumerate(shape):
            view = view.narrow(d, 1, 2 * n)
            view = view[(slice(None),) * d + (slice(None, None, 2),)]
    assert view.shape == shape
    return view, base


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor, for comparison."""
    return tensor.cpu().reshape(-1).view(torch.uint8)


def fill(tensor: torch.Tensor) -> None:
    """Fill with a value that no operator would write."""
    if tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(113)


def raised(call: Callable[[], Any]) -> Exception | None:
    """Return the exception that a call raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
            torch.xpu.synchronize()
        except Exception as error:  # noqa: BLE001
            return error
    return None


def resizes(call: Callable[[], Any]) -> bool:
    """Return whether a call warns that it resized an out tensor."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return any("was resized" in str(w.message) for w in seen)


def roomy(shape: Any, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a contiguous tensor with spare memory: some of PyTorch's CPU kernels check neither dtype nor overlap."""
    base = torch.empty(8 * torch.Size(shape).numel() + 64, dtype=dtype, device=device)
    return base[: torch.Size(shape).numel()].view(shape)


class Case:
    """One operator with one sample: the call for either device, and its result."""

    def __init__(
        self, call: Callable[[str, Any], Any], expected: Any, arguments: Any, random: bool = False
    ) -> None:
        self.call = call  # (device, out tensors) -> result
        self.expected = tuple(tensors(expected))
        self.random = random
        # Zero-dimensional tensors go with any device.
        self.has_inputs = any(x.dim() > 0 for x in tensors(arguments))

    def run(self, outs: Outs, device: str = "xpu") -> None:
        torch.manual_seed(0)
        self.call(device, outs)
        torch.xpu.synchronize()

    def same(self, outs: Outs) -> None:
        for out, expected in zip(outs, self.expected, strict=True):
            assert out.shape == expected.shape
            if not self.random:
                # Other strides may change the order of sums; the faults looked for are far larger than rounding.
                limit = {} if out.dtype in EXACT else {"rtol": 1e-3, "atol": 1e-3}
                assert_close(out, expected.to(out.dtype), equal_nan=True, device=None, **limit)

    def new(self, shapes: Any = None, dtypes: Any = None, device: str = "xpu") -> Outs:
        shapes = shapes or [x.shape for x in self.expected]
        dtypes = dtypes or [x.dtype for x in self.expected]
        outs = tuple(roomy(s, d, device) for s, d in zip(shapes, dtypes))
        for out in outs:
            fill(out)
        return outs

    def check_views(self) -> None:
        """Strided views are written in place, and nothing else is."""
        for kind in ("gaps", "turned"):
            pairs = [inner(x.shape, kind, x.dtype, "xpu") for x in self.expected]
            for _, base in pairs:
                fill(base)
            untouched = [bits(base) for _, base in pairs]
            outs = tuple(view for view, _ in pairs)
            places = [(out.data_ptr(), out.stride()) for out in outs]
            self.run(outs)
            self.same(outs)
            assert [(out.data_ptr(), out.stride()) for out in outs] == places, kind
            for (view, base), before in zip(pairs, untouched):
                fill(view)
                assert torch.equal(bits(base), before), f"{kind}: written beside the out tensor"

    def check_resize(self) -> None:
        """An empty tensor is resized; another shape is too, with a warning."""
        outs = tuple(torch.empty(0, dtype=x.dtype, device="xpu") for x in self.expected)
        self.run(outs)
        self.same(outs)
        shapes = [(*x.shape[:-1], x.shape[-1] + 1) if x.dim() else (2,) for x in self.expected]
        on_cpu = self.new(shapes, device="cpu")
        try:
            warned = resizes(lambda: self.run(on_cpu, "cpu"))
        except Exception:  # noqa: BLE001
            return
        outs = self.new(shapes)
        assert resizes(lambda: self.run(outs)) == warned
        self.same(outs)
        strides = [x.stride() for x in on_cpu]
        assert [x.stride() for x in outs] == strides or any(x.numel() < 2 for x in outs), (
            f"strides {[x.stride() for x in outs]}, on the CPU {strides}"
        )

    def check_dtypes(self) -> None:
        """Another dtype is rejected or accepted as on the CPU."""
        for i, x in enumerate(self.expected):
            for other in (torch.int64, torch.float64, torch.float16, torch.int32, torch.complex64):
                if other == x.dtype:
                    continue
                dtypes = [other if j == i else y.dtype for j, y in enumerate(self.expected)]
                on_cpu = self.new(dtypes=dtypes, device="cpu")
                refused = raised(lambda on_cpu=on_cpu: self.run(on_cpu, "cpu"))
                outs = self.new(dtypes=dtypes)
                error = raised(lambda outs=outs: self.run(outs))
                if refused is None:
                    assert error is None, f"out of {other}, {x.dtype} is its own: {error}"
                else:
                    assert isinstance(error, (RuntimeError, IndexError, TypeError)), (
                        f"out of {other} is taken, {x.dtype} is its own; the CPU says: {refused}"
                    )
                    assert "INTERNAL ASSERT" not in str(error)

    def check_overlap(self) -> None:
        """A tensor with overlapping elements is rejected if the CPU rejects it."""
        for i, x in enumerate(self.expected):
            if x.numel() < 2:
                continue

            def outs(device: str, i: int = i) -> Outs:
                made = self.new(device=device)
                same = made[i].as_strided(made[i].shape, [0] * made[i].dim())
                return (*made[:i], same, *made[i + 1 :])

            refused = raised(lambda: self.run(outs("cpu"), "cpu"))
            if refused is None or "single memory location" not in str(refused):
                continue
            error = raised(lambda: self.run(outs("xpu")))
            assert error is not None and "unsupported operation" in str(error), f"overlap: {error}"

    def check_devices(self) -> None:
        """Inputs on one device and an out tensor on another are rejected."""
        if not self.has_inputs:
            return
        for i in range(len(self.expected)):
            for here, there in (("xpu", "cpu"), ("cpu", "xpu")):
                outs = (
                    *self.new(device=here)[:i],
                    self.new(device=there)[i],
                    *self.new(device=here)[i + 1 :],
                )
                error = raised(lambda outs=outs, here=here: self.run(outs, here))
                assert isinstance(error, RuntimeError), f"inputs on {here}, out on {there}: {error!r}"

    CHECKS = (check_views, check_resize, check_dtypes, check_overlap)


# --- through Python: every operator of OpInfo that takes out= ---


def placed(value: Any, device: str) -> Any:
    """Return the arguments of a sample for a device."""
    if device == "cpu":
        return value
    return tree_map(lambda x: "xpu" if isinstance(x, str) and x == "cpu" else x, moved(value))


def in_sample(name: str) -> bool:
    return ALL or zlib.crc32(name.encode()) % 12 == 0


def api_cases(info: Any, device: str = "xpu") -> Iterator[Case]:
    """Return the first samples of an operator with their results on the device."""
    dtype = next(
        (d for d in (torch.float32, torch.complex64, torch.int64, torch.bool) if d in info.dtypes), None
    )
    count = 0
    for sample in info.sample_inputs("cpu", dtype):
        arguments = (sample.input, *sample.args)
        if "out" in sample.kwargs or count == (3 if ALL else 1):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = placed((arguments, sample.kwargs), device)
            expected = info.op(*args, **kwargs)
        if not all(x.numel() for x in tensors(expected)) and not ALL:
            continue
        count += 1

        def call(device: str, outs: Outs, sample: Any = sample, arguments: Any = arguments) -> Any:
            args, kwargs = placed((arguments, sample.kwargs), device)
            return info.op(*args, **kwargs, out=outs if len(outs) > 1 else outs[0])

        yield Case(call, expected, arguments)


NOT_OURS = ("_refs.", "sparse.", "jiterator")
APIS = [i for i in op_db if i.supports_out and not i.name.startswith(NOT_OURS)]


# CUDA takes them, too: PyTorch's Python copies, or the probabilities may lie on the CPU. histogramdd has lists.
ANY_DEVICE = {"lu", "bernoulli", "histogramdd"}


@pytest.mark.parametrize("info", [i for i in APIS if i.name not in ANY_DEVICE], ids=lambda i: i.full_name)
def test_other_device(info: Any) -> None:
    for case in api_cases(info, "cpu"):
        case.check_devices()


@pytest.mark.parametrize("info", [i for i in APIS if in_sample(i.full_name)], ids=lambda i: i.full_name)
def test_api(info: Any) -> None:
    for case in api_cases(info):
        for check in Case.CHECKS:
            check(case)


# --- the overloads themselves, as PyTorch reaches them in those samples and in their backward ---

TAKEN: dict[str, int] = {}  # calls of each overload, of all operators


def overload_case(call: Call, variant: Any) -> Case | None:
    args, kwargs = call.on("xpu")
    torch.manual_seed(0)
    expected = call.overload(*args, **kwargs)
    names = [a.name for a in variant._schema.arguments if a.is_out]
    outs = tensors(expected)
    if len(outs) != len(names) or not any(x.numel() > 1 for x in outs):
        return None
    if any(x.layout != torch.strided or not x.is_xpu for x in outs):
        return None

    def run(device: str, outs: Outs) -> Any:
        args, kwargs = call.on(device)
        for option in ("dtype", "layout", "device", "pin_memory"):
            kwargs.pop(option, None)
        return variant(*args, **kwargs, **dict(zip(names, outs)))

    random = torch.Tag.nondeterministic_seeded in variant.tags or "empty" in variant.name()
    return Case(run, expected, call.args, random)


@pytest.mark.parametrize(
    "info", [i for i in OPERATORS if in_sample(i.full_name)], ids=lambda info: info.full_name
)
def test_overloads(info: Any) -> None:
    for overload, calls in record(info).items():
        variant = out_variant(overload)
        if variant is None:
            continue
        for call in calls:
            case = overload_case(call, variant) if TAKEN.get(variant.name(), 0) < 2 else None
            if case is None:
                continue
            TAKEN[variant.name()] = TAKEN.get(variant.name(), 0) + 1
            case.check_views()
