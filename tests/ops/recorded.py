"""Calls of ATen's operators, as PyTorch's own samples (OpInfo) make them on xpu, forward and backward."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .indexing_samples import moved

Overload = torch._ops.OpOverload

# The first of these that an operator supports is used.
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
OPERATORS = [
    i for i in op_db if not i.name.startswith(("_refs", "jiterator", "masked.", "signal.", "sparse."))
]


@dataclass(frozen=True)
class Call:
    """One call; tensors are copies of the arguments, with their strides."""

    overload: Overload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on(self, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return copies of the arguments on ``device``."""

        def copy(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                y = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device)
                return y.copy_(x)
            return torch.device(device) if isinstance(x, torch.device) and x.type == "xpu" else x

        return tree_map(copy, (self.args, self.kwargs))


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested value."""
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]


def out_variant(overload: Overload) -> Overload | None:
    """Return the overload of the same operator with ``out=``, if there is one."""
    plain = [(a.name, str(a.type)) for a in overload._schema.arguments]
    if any(a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments):
        return None
    packet = overload.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        arguments = other._schema.arguments
        if not any(a.is_out for a in arguments):
            continue
        rest = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        # Variants of factory functions lack the options of new tensors.
        if rest == plain or rest == [
            p for p in plain if p[0] not in ("dtype", "layout", "device", "pin_memory")
        ]:
            return other
    return None


class Recorder(TorchDispatchMode):
    """Keeps the first ``limit`` calls of each operator that differ in shapes."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.calls: dict[Overload, dict[Any, Call]] = {}

    def __torch_dispatch__(self, func: Overload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        seen = self.calls.setdefault(func, {})
        shapes = str([(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in tree_leaves(args)])
        if func.namespace == "aten" and len(seen) < self.limit and shapes not in seen:
            strided = all(x.layout == torch.strided for x in tensors((args, kwargs)))
            small = sum(x.numel() for x in tensors((args, kwargs))) < 100_000
            if strided and small:
                kept = Call(func, *tree_map(kept_tensor, (tuple(args), kwargs)))
                seen[shapes] = kept
        return func(*args, **kwargs)


def kept_tensor(x: Any) -> Any:
    """Return a copy of a tensor with its strides."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).copy_(x.detach())


def record(info: Any, samples: int = 4, limit: int = 2) -> dict[Overload, list[Call]]:
    """Return the calls of one operator's samples on xpu, with backward, by ATen operator."""
    recorder = Recorder(limit)
    dtype = next((d for d in DTYPES if d in info.dtypes), None)
    if dtype is not None:
        gradient = dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
        run(info, dtype, gradient, samples, recorder)
    return {overload: list(calls.values()) for overload, calls in recorder.calls.items()}


def run(info: Any, dtype: torch.dtype, gradient: bool, samples: int, recorder: Recorder) -> None:
    """Run the first samples of one operator, with backward, under the recorder."""
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=gradient)):
        if number >= samples:
            break
        args, kwargs = moved((sample.input, *sample.args)), moved(sample.kwargs)
        with warnings.catch_warnings(), recorder:
            warnings.simplefilter("ignore")
            try:
                results = [
                    x
                    for x in tree_leaves(info.op(*args, **kwargs))
                    if isinstance(x, torch.Tensor) and x.requires_grad
                ]
                total = sum((x.abs() if x.is_complex() else x).sum() for x in results)
                if results:
                    total.backward()
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                continue  # other tests check errors
