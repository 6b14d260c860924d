"""Numbers that are negative in some lanes only: operations that are simpler for numbers from 0 on."""

from __future__ import annotations

import numpy as np
import pytest
import run

N = 256
OPERATIONS = {
    "extui": (
        lambda x: x.view(np.uint32).astype(np.int64),
        "arith.extui %v : tensor<{n}xi32> to tensor<{n}xi64>",
    ),
    "extsi": (lambda x: x.astype(np.int64), "arith.extsi %v : tensor<{n}xi32> to tensor<{n}xi64>"),
    "divsi": (lambda x: np.trunc(x / 8).astype(np.int32), "arith.divsi %v, %eight : tensor<{n}xi32>"),
    "remsi": (lambda x: np.fmod(x, 8).astype(np.int32), "arith.remsi %v, %eight : tensor<{n}xi32>"),
    "uitofp": (
        lambda x: x.view(np.uint32).astype(np.float32),
        "arith.uitofp %v : tensor<{n}xi32> to tensor<{n}xf32>",
    ),
    "divui": (lambda x: (x.view(np.uint32) // 8).view(np.int32), "arith.divui %v, %eight : tensor<{n}xi32>"),
    "maxui": (
        lambda x: np.maximum(x.view(np.uint32), 8).view(np.int32),
        "arith.maxui %v, %eight : tensor<{n}xi32>",
    ),
}
TYPES = {"extui": "i64", "extsi": "i64", "uitofp": "f32"}
DTYPES = {"i32": np.int32, "i64": np.int64, "f32": np.float32}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("base, stride", [(57, -5), (1279, -5), (254, -1), (-3, 1), (-500, 7), (3, 0)])
@pytest.mark.parametrize("num_warps", [1, 2, 4])
@pytest.mark.parametrize("target", run.TARGETS)
def test_affine_numbers(target: str, num_warps: int, base: int, stride: int, operation: str) -> None:
    reference, text = OPERATIONS[operation]
    element = TYPES.get(operation, "i32")
    pointers = f"tensor<{N}x!tt.ptr<{element}>>"
    module = f"""module {{
  tt.func public @k(%p: !tt.ptr<{element}>) {{
    %i = tt.make_range {{start = 0 : i32, end = {N} : i32}} : tensor<{N}xi32>
    %stride = arith.constant dense<{stride}> : tensor<{N}xi32>
    %base = arith.constant dense<{base}> : tensor<{N}xi32>
    %eight = arith.constant dense<8> : tensor<{N}xi32>
    %m = arith.muli %i, %stride : tensor<{N}xi32>
    %v = arith.addi %m, %base : tensor<{N}xi32>
    %r = {text.format(n=N)}
    %b = tt.splat %p : !tt.ptr<{element}> -> {pointers}
    %a = tt.addptr %b, %i : {pointers}, tensor<{N}xi32>
    tt.store %a, %r : {pointers}
    tt.return
  }}
}}
"""
    y = np.zeros(N, DTYPES[element])
    run.Kernel(module, target, num_warps)((1,), y)
    np.testing.assert_array_equal(y, reference((base + stride * np.arange(N)).astype(np.int32)))
