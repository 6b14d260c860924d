"""``libdevice``: the functions of Triton's CUDA module, under the names that libxpu's compiler knows.

Intel's functions take float16, CUDA's don't: here they are computed in float32 and rounded, bfloat16
likewise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from triton.language import core
from triton.language.extra.cuda import libdevice as _cuda

_HALF_DTYPES = (core.float16, core.bfloat16)


def _with_half_dtypes(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with operands in half precision widened, and the result narrowed to their type."""

    @functools.wraps(own)
    def call(*operands: Any, _semantic: Any = None) -> Any:
        tensors = [_semantic.to_tensor(x) for x in operands]
        halves = [x.dtype for x in tensors if x.dtype in _HALF_DTYPES]
        if not halves:
            return own(*operands, _semantic=_semantic)
        wide = [_semantic.cast(x, core.float32) if x.dtype in _HALF_DTYPES else x for x in tensors]
        result = own(*wide, _semantic=_semantic)
        narrow = halves[0] if all(half == halves[0] for half in halves) else core.float32
        return _semantic.cast(result, narrow) if result.dtype == core.float32 else result

    call.__module__ = __name__
    return core.extern(call)


__all__ = [name for name, own in vars(_cuda).items() if core.is_builtin(own)]
globals().update({name: _with_half_dtypes(getattr(_cuda, name)) for name in __all__})
