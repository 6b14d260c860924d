"""What Intel's GPU compiler miscompiles (docs/internals/compiler-faults.md): 64-bit bitwise reductions between lanes,
which go through local memory, stores of their own index, negated selects and bytes, and indices of few bits. On a CPU
these show the form of the code; on a simulated GPU (`tests/sim/run.sh triton`) also the values."""

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


NEGATIONS = {
    "negf": "arith.negf %v",
    "mulf": "arith.mulf %v, %minus_one",
    "mulf, exchanged": "arith.mulf %minus_one, %v",
    "subf": "arith.subf %minus_zero, %v",
}
SELECTS = {  # after "arith.select": which of a value and the negated select %n the second select takes
    "same condition": "%m, %a, %n",
    "other arm": "%m, %n, %a",
    "another condition": "%other, %a, %n",
}


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize("second", SELECTS)
@pytest.mark.parametrize("negation", NEGATIONS)
@pytest.mark.parametrize("target", run.TARGETS)
def test_a_negated_select(target: str, negation: str, second: str, element: str) -> None:
    if element == "f64" and (target == "generic" or not run.HAS_FP64):
        pytest.skip("the device has no fp64")
    text = f"""module {{
  tt.func public @k(%x: !tt.ptr<{element}>, %y: !tt.ptr<{element}>) {{
    %i = tt.make_range {{start = 0 : i32, end = 128 : i32}} : tensor<128xi32>
    %bx = tt.splat %x : !tt.ptr<{element}> -> tensor<128x!tt.ptr<{element}>>
    %px = tt.addptr %bx, %i : tensor<128x!tt.ptr<{element}>>, tensor<128xi32>
    %a = tt.load %px : tensor<128x!tt.ptr<{element}>>
    %two = arith.constant dense<2.000000e+00> : tensor<128x{element}>
    %minus_one = arith.constant dense<-1.000000e+00> : tensor<128x{element}>
    %minus_zero = arith.constant dense<-0.000000e+00> : tensor<128x{element}>
    %b = arith.addf %a, %two : tensor<128x{element}>
    %zero = arith.constant dense<0> : tensor<128xi32>
    %bit = arith.constant dense<32> : tensor<128xi32>
    %j = arith.andi %i, %bit : tensor<128xi32>
    %m = arith.cmpi eq, %j, %zero : tensor<128xi32>
    %other = arith.cmpi slt, %i, %bit : tensor<128xi32>
    %v = arith.select %m, %a, %b : tensor<128xi1>, tensor<128x{element}>
    %n = {NEGATIONS[negation]} : tensor<128x{element}>
    %r = arith.select {SELECTS[second]} : tensor<128xi1>, tensor<128x{element}>
    %by = tt.splat %y : !tt.ptr<{element}> -> tensor<128x!tt.ptr<{element}>>
    %py = tt.addptr %by, %i : tensor<128x!tt.ptr<{element}>>, tensor<128xi32>
    tt.store %py, %r : tensor<128x!tt.ptr<{element}>>
    tt.return
  }}
}}
"""
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[element]
    i, x, y = np.arange(128), np.arange(128).astype(dtype), np.zeros(128, dtype)
    m = (i & 32) == 0
    n = -np.where(m, x, x + 2)
    run.Kernel(text, target)((1,), x, y)
    expected = {
        "same condition": np.where(m, x, n),
        "other arm": np.where(m, n, x),
        "another condition": np.where(i < 32, x, n),
    }
    np.testing.assert_array_equal(y, expected[second])


INDICES = {  # of %r, numbers below 32
    "division": ("arith.divsi %r, %seventeen", lambda r: r // 17),
    "unsigned division": ("arith.divui %r, %seventeen", lambda r: r // 17),
    "minimum": ("arith.minui %low, %one", lambda r: np.minimum(r & 12, 1)),
    "comparison": ("arith.extui %m : tensor<128xi1> to tensor<128xi32>", lambda r: r < 13),
    "choice": ("arith.select %m, %one, %zero : tensor<128xi1>, tensor<128xi32>", lambda r: r < 13),
    "sum": ("arith.addi %two, %c", lambda r: 2 + (r < 13)),
}


@pytest.mark.parametrize("element", ["i8", "f16", "f32"])
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("target", run.TARGETS)
def test_an_index_of_two_values(target: str, index: str, element: str) -> None:
    form, expected = INDICES[index]
    text = f"""module {{
  tt.func public @k(%x: !tt.ptr<{element}>, %y: !tt.ptr<{element}>) {{
    %i = tt.make_range {{start = 0 : i32, end = 128 : i32}} : tensor<128xi32>
    %zero = arith.constant dense<0> : tensor<128xi32>
    %one = arith.constant dense<1> : tensor<128xi32>
    %two = arith.constant dense<2> : tensor<128xi32>
    %eleven = arith.constant dense<11> : tensor<128xi32>
    %twelve = arith.constant dense<12> : tensor<128xi32>
    %thirteen = arith.constant dense<13> : tensor<128xi32>
    %seventeen = arith.constant dense<17> : tensor<128xi32>
    %thirty_one = arith.constant dense<31> : tensor<128xi32>
    %product = arith.muli %i, %eleven : tensor<128xi32>
    %r = arith.andi %product, %thirty_one : tensor<128xi32>
    %low = arith.andi %r, %twelve : tensor<128xi32>
    %m = arith.cmpi ult, %r, %thirteen : tensor<128xi32>
    %c = arith.extui %m : tensor<128xi1> to tensor<128xi32>
    %at = {form}{"" if ":" in form else " : tensor<128xi32>"}
    %bx = tt.splat %x : !tt.ptr<{element}> -> tensor<128x!tt.ptr<{element}>>
    %px = tt.addptr %bx, %at : tensor<128x!tt.ptr<{element}>>, tensor<128xi32>
    %v = tt.load %px : tensor<128x!tt.ptr<{element}>>
    %by = tt.splat %y : !tt.ptr<{element}> -> tensor<128x!tt.ptr<{element}>>
    %py = tt.addptr %by, %i : tensor<128x!tt.ptr<{element}>>, tensor<128xi32>
    tt.store %py, %v : tensor<128x!tt.ptr<{element}>>
    tt.return
  }}
}}
"""
    dtype = {"i8": np.int8, "f16": np.float16, "f32": np.float32}[element]
    x, y = np.arange(16).astype(dtype), np.zeros(128, dtype)
    run.Kernel(text, target, num_warps=1)((1,), x, y)
    np.testing.assert_array_equal(y, x[np.asarray(expected(np.arange(128) * 11 & 31), int)])


@pytest.mark.parametrize("target", run.TARGETS)
def test_masked_indices(target: str) -> None:
    """Each of two rows loads x[j] by an index of five bits, and stores it in reverse order."""
    text = """module {
  tt.func public @k(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>) {
    %r = tt.make_range {start = 0 : i32, end = 2 : i32} : tensor<2xi32>
    %r1 = tt.expand_dims %r {axis = 1 : i32} : tensor<2xi32> -> tensor<2x1xi32>
    %rows = tt.broadcast %r1 : tensor<2x1xi32> -> tensor<2x32xi32>
    %c = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
    %c1 = tt.expand_dims %c {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %columns = tt.broadcast %c1 : tensor<1x32xi32> -> tensor<2x32xi32>
    %width = arith.constant dense<32> : tensor<2x32xi32>
    %first = arith.muli %rows, %width : tensor<2x32xi32>
    %i = arith.addi %first, %columns : tensor<2x32xi32>
    %mask = arith.constant dense<31> : tensor<2x32xi32>
    %j = arith.andi %i, %mask : tensor<2x32xi32>
    %bx = tt.splat %x : !tt.ptr<i32> -> tensor<2x32x!tt.ptr<i32>>
    %px = tt.addptr %bx, %j : tensor<2x32x!tt.ptr<i32>>, tensor<2x32xi32>
    %v = tt.load %px : tensor<2x32x!tt.ptr<i32>>
    gpu.barrier
    %end = arith.constant dense<63> : tensor<2x32xi32>
    %back = arith.subi %end, %columns : tensor<2x32xi32>
    %by = tt.splat %y : !tt.ptr<i32> -> tensor<2x32x!tt.ptr<i32>>
    %py = tt.addptr %by, %back : tensor<2x32x!tt.ptr<i32>>, tensor<2x32xi32>
    tt.store %py, %v : tensor<2x32x!tt.ptr<i32>>
    tt.return
  }
}
"""
    x, y = np.arange(1, 33, dtype=np.int32), np.zeros(64, np.int32)
    run.Kernel(text, target, num_warps=1)((1,), x, y)
    np.testing.assert_array_equal(y[32:], x[::-1])


def constants(tensor: str, **numbers: int) -> str:
    """Return lines that define constants."""
    return "\n".join(f"    %{name} = arith.constant dense<{n}> : {tensor}" for name, n in numbers.items())


def typed(lines: str, tensor: str) -> str:
    """Add the type to lines that have none."""
    return "\n".join(f"    {line}" if ":" in line else f"    {line} : {tensor}" for line in lines.split("\n"))


BYTES = {  # of the byte %w, the product %p = %a * 33, and the comparison %m = %w < 100
    "difference": ("%r = arith.subi %p, %w", lambda a, u: a * 33 - u),
    "negation": ("%n = arith.subi %zero, %w\n%r = arith.remui %n, %factor", lambda a, u: (-u % 2**32) % 33),
    "product": ("%n = arith.muli %w, %ones\n%r = arith.addi %n, %p", lambda a, u: a * 33 - u),
    "complement": (
        "%c = arith.xori %w, %ones\n%n = arith.addi %c, %one\n%r = arith.addi %p, %n",
        lambda a, u: a * 33 - u,
    ),
    "upper bits": ("%h = arith.shrui %w, %two\n%r = arith.subi %p, %h", lambda a, u: a * 33 - u // 4),
    "second byte": (
        "%s = arith.shrui %a, %eight\n%h = arith.andi %s, %mask\n%r = arith.subi %p, %h",
        lambda a, u: a * 33 - (a >> 8 & 255),
    ),
    "remainder": ("%h = arith.remui %w, %three\n%r = arith.subi %p, %h", lambda a, u: a * 33 - u % 3),
    "lowest bit": ("%h = arith.andi %w, %one\n%r = arith.subi %p, %h", lambda a, u: a * 33 - u % 2),
    "odd": (
        "%o = arith.trunci %u : tensor<256xi8> to tensor<256xi1>\n"
        "%n = arith.extsi %o : tensor<256xi1> to tensor<256xTYPE>\n%r = arith.addi %p, %n",
        lambda a, u: a * 33 - u % 2,
    ),
    "comparison": (
        "%h = arith.extui %m : tensor<256xi1> to tensor<256xTYPE>\n%r = arith.subi %p, %h",
        lambda a, u: a * 33 - (u < 100),
    ),
    "choice": (
        "%h = arith.select %m, %two, %w : tensor<256xi1>, tensor<256xTYPE>\n%r = arith.subi %p, %h",
        lambda a, u: a * 33 - np.where(u < 100, 2, u),
    ),
    "two bytes": ("%h = arith.ori %w, %two\n%r = arith.subi %p, %h", lambda a, u: a * 33 - (u | 2)),
}


@pytest.mark.parametrize("element", ["i32", "i64"])
@pytest.mark.parametrize("form", BYTES)
@pytest.mark.parametrize("target", run.TARGETS)
def test_a_negated_byte(target: str, form: str, element: str) -> None:
    lines, expected = BYTES[form]
    if form == "negation" and element == "i64":
        expected = lambda a, u: np.array([int(-x % 2**64) % 33 for x in u.astype(object)])  # noqa: E731
    numbers = dict(zero=0, one=1, two=2, three=3, eight=8, factor=33, hundred=100, mask=255, ones=-1)
    tensor = f"tensor<256x{element}>"
    loaded, stored, widening, narrowing = "%a", "%r", "", ""
    if element == "i64":
        loaded, stored = "%loaded", "%stored"
        widening = "%a = arith.extsi %loaded : tensor<256xi32> to tensor<256xi64>"
        narrowing = "%stored = arith.trunci %r : tensor<256xi64> to tensor<256xi32>"
    text = f"""module {{
  tt.func public @k(%x: !tt.ptr<i32>, %b: !tt.ptr<i8>, %y: !tt.ptr<i32>) {{
    %i = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
    %bx = tt.splat %x : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
    %px = tt.addptr %bx, %i : tensor<256x!tt.ptr<i32>>, tensor<256xi32>
    {loaded} = tt.load %px : tensor<256x!tt.ptr<i32>>
    %bb = tt.splat %b : !tt.ptr<i8> -> tensor<256x!tt.ptr<i8>>
    %pb = tt.addptr %bb, %i : tensor<256x!tt.ptr<i8>>, tensor<256xi32>
    %u = tt.load %pb : tensor<256x!tt.ptr<i8>>
{constants(tensor, **numbers)}
    {widening}
    %w = arith.extui %u : tensor<256xi8> to tensor<256xTYPE>
    %m = arith.cmpi ult, %w, %hundred : tensor<256xTYPE>
    %p = arith.muli %a, %factor : tensor<256xTYPE>
{typed(lines, tensor)}
    {narrowing}
    %by = tt.splat %y : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
    %py = tt.addptr %by, %i : tensor<256x!tt.ptr<i32>>, tensor<256xi32>
    tt.store %py, {stored} : tensor<256x!tt.ptr<i32>>
    tt.return
  }}
}}
""".replace("TYPE", element)
    random = np.random.default_rng(0)
    a, u = random.integers(-(2**20), 2**20, 256).astype(np.int32), np.arange(256, dtype=np.uint8)
    y = np.zeros(256, np.int32)
    run.Kernel(text, target, num_warps=1)((1,), a, u.view(np.int8), y)
    np.testing.assert_array_equal(y, expected(a.astype(np.int64), u.astype(np.int64)))


SIGNS = {  # of the absolute value %v
    "shift": "%r = arith.shrsi %v, %last",
    "comparison": "%m = arith.cmpi slt, %v, %zero\n%r = arith.extsi %m : tensor<128xi1> to tensor<128xTYPE>",
    "choice": "%m = arith.cmpi sgt, %zero, %v\n"
    "%r = arith.select %m, %ones, %zero : tensor<128xi1>, tensor<128xTYPE>",
    "quotient": "%odd = arith.ori %v, %one\n%r = arith.floordivsi %one, %odd",
}


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("form", SIGNS)
@pytest.mark.parametrize("target", run.TARGETS)
def test_the_least_number_has_a_negative_absolute_value(target: str, form: str, element: str) -> None:
    bits = int(element[1:])
    tensor = f"tensor<128x{element}>"
    text = f"""module {{
  tt.func public @k(%x: !tt.ptr<TYPE>, %y: !tt.ptr<TYPE>) {{
    %i = tt.make_range {{start = 0 : i32, end = 128 : i32}} : tensor<128xi32>
{constants(tensor, zero=0, one=1, ones=-1, last=bits - 1)}
    %bx = tt.splat %x : !tt.ptr<TYPE> -> tensor<128x!tt.ptr<TYPE>>
    %px = tt.addptr %bx, %i : tensor<128x!tt.ptr<TYPE>>, tensor<128xi32>
    %a = tt.load %px : tensor<128x!tt.ptr<TYPE>>
    %v = math.absi %a : tensor<128xTYPE>
{typed(SIGNS[form], tensor)}
    %by = tt.splat %y : !tt.ptr<TYPE> -> tensor<128x!tt.ptr<TYPE>>
    %py = tt.addptr %by, %i : tensor<128x!tt.ptr<TYPE>>, tensor<128xi32>
    tt.store %py, %r : tensor<128x!tt.ptr<TYPE>>
    tt.return
  }}
}}
""".replace("TYPE", element)
    x = np.random.default_rng(0).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 128).astype(f"int{bits}")
    x[::3], x[1] = -(2 ** (bits - 1)), 0
    y = np.zeros_like(x)
    run.Kernel(text, target, num_warps=1)((1,), x, y)
    v = np.abs(x)
    expected = 1 // (v | 1) if form == "quotient" else -(v < 0).astype(x.dtype)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("target", run.TARGETS)
def test_a_sum_of_least_integers(target: str, element: str) -> None:
    least = -(2 ** (int(element[1:]) - 1))
    text = f"""module {{
  tt.func public @k(%y: !tt.ptr<{element}>) {{
    %v = arith.constant dense<{least}> : tensor<16x{element}>
    %r = "tt.reduce"(%v) <{{axis = 0 : i32}}> ({{
    ^bb0(%left: {element}, %right: {element}):
      %c = arith.addi %left, %right : {element}
      tt.reduce.return %c : {element}
    }}) : (tensor<16x{element}>) -> {element}
    %one = arith.constant 1 : {element}
    %s = arith.addi %r, %one : {element}
    tt.store %y, %s : !tt.ptr<{element}>
    tt.return
  }}
}}
"""
    y = np.zeros(1, f"int{element[1:]}")
    run.Kernel(text, target, num_warps=1)((1,), y)
    assert y[0] == 1
