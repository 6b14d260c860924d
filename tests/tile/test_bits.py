"""What Intel's GPU compiler miscompiles (docs/internals/compiler-faults.md): 64-bit bitwise reductions between lanes,
which go through local memory, and stores of their own index. On a CPU these show the form of the code; on a simulated
GPU (`tests/sim/run.sh triton`) also the values."""

from __future__ import annotations

import numpy as np
import pytest
import run
from openxpu import _tile

COMBINE = {
    "ori": np.bitwise_or,
    "andi": np.bitwise_and,
    "xori": np.bitwise_xor,
    "addi": np.add,
    "muli": np.multiply,
}


@pytest.mark.parametrize("element", ["i32", "i64"])
@pytest.mark.parametrize("operation", COMBINE)
@pytest.mark.parametrize("target", run.TARGETS)
def test_bits_that_lanes_combine(target: str, operation: str, element: str) -> None:
    text = f"""module {{
  tt.func public @k(%x: !tt.ptr<{element}>, %y: !tt.ptr<{element}>) {{
    %i = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32>
    %b = tt.splat %x : !tt.ptr<{element}> -> tensor<64x!tt.ptr<{element}>>
    %p = tt.addptr %b, %i : tensor<64x!tt.ptr<{element}>>, tensor<64xi32>
    %v = tt.load %p : tensor<64x!tt.ptr<{element}>>
    %r = "tt.reduce"(%v) <{{axis = 0 : i32}}> ({{
    ^bb0(%left: {element}, %right: {element}):
      %c = arith.{operation} %left, %right : {element}
      tt.reduce.return %c : {element}
    }}) : (tensor<64x{element}>) -> {element}
    tt.store %y, %r : !tt.ptr<{element}>
    tt.return
  }}
}}
"""
    for gpu in ("bmg", "pvc"):
        source = _tile.compile_module(text.encode(), target=gpu).source
        lost = element == "i64" and operation in ("ori", "andi", "xori")
        assert ("sub_group_shuffle" in source or "sub_group_reduce" in source) != lost, source
    x = (
        np.random.default_rng(0)
        .integers(-(2**31), 2**31, 64)
        .astype(np.int32 if element == "i32" else np.int64)
    )
    if element == "i64":
        x = x * 2**31 + x
    y = np.zeros(1, x.dtype)
    run.Kernel(text, target)((1,), x, y)
    with np.errstate(over="ignore"):
        assert y[0] == COMBINE[operation].reduce(x, dtype=x.dtype)


@pytest.mark.parametrize("num_warps", [1, 2, 4])
@pytest.mark.parametrize("target", run.TARGETS)
def test_an_index_stored_at_itself(target: str, num_warps: int) -> None:
    module = """module {
  tt.func public @k(%p: !tt.ptr<i32>) {
    %i = tt.make_range {start = 0 : i32, end = 512 : i32} : tensor<512xi32>
    %pid = tt.get_program_id x : i32
    %n = arith.constant 512 : i32
    %first = arith.muli %pid, %n : i32
    %all = tt.splat %first : i32 -> tensor<512xi32>
    %at = arith.addi %all, %i : tensor<512xi32>
    %b = tt.splat %p : !tt.ptr<i32> -> tensor<512x!tt.ptr<i32>>
    %a = tt.addptr %b, %at : tensor<512x!tt.ptr<i32>>, tensor<512xi32>
    tt.store %a, %at : tensor<512x!tt.ptr<i32>>
    tt.return
  }
}
"""
    y = np.full(1024, -1, np.int32)
    run.Kernel(module, target, num_warps)((2,), y)
    assert np.array_equal(y, np.arange(1024))
    for gpu in ("bmg", "pvc"):
        assert "get_local_id" not in _tile.compile_module(module.encode(), target=gpu).source
