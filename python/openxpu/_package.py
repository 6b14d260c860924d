"""Export: an exported program as one file that libxpu runs without PyTorch (``xpu/package.h``).

Inductor lowers the program for xpu to a graph of allocations, kernel launches and library operators (its FX
wrapper). It becomes the package's program: registers for sizes, tensors, and steps. Operators that the runner
lacks are reported here, not when the package runs.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import hashlib
import math
import operator
import os
import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import sympy
import torch
from torch._inductor import config as inductor_config  # noqa: F401 (the options below are its)
from torch._inductor.codegen import wrapper_fxir
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from openxpu import _targets, _tile
from openxpu.triton.compiler import BINARY

ALIGN = 64  # XPU_PACKAGE_ALIGN
INT_OPS = "const size add sub mul floordiv mod min max eq ne lt le and or not".split()
NONE, TENSOR, INT, FLOAT, LIST = range(5)  # arg_tag
INPUT, CONSTANT, NEW, VIEW = range(4)  # tensor_kind
MAX_DIMS = 16

# Inductor options: the runner does launches and size checks.
OPTIONS: dict[str, Any] = {
    "fx_wrapper": True,
    "alignment_asserts": False,
    "size_asserts": False,
    "use_static_triton_launcher": False,
}


class PackageError(RuntimeError):
    """The program can't be packaged; the message names what the runner lacks."""


def _library() -> ctypes.CDLL:
    library = _tile.library()
    library.xpu_package_operator.restype = ctypes.c_char_p
    return library


@functools.cache
def _runner_operators() -> frozenset[str]:
    """Return the names of the runner's operators."""
    found: list[str] = []
    while name := _library().xpu_package_operator(len(found)):
        found.append(name.decode())
    return frozenset(found)


@functools.cache
def _dtypes() -> dict[torch.dtype, int]:
    """Return the value of each dtype in ``xpu/dtype.h``."""
    names = (
        "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64"
    )
    names += " complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
    return {getattr(torch, name): i for i, name in enumerate(names.split())}


class _Converter(wrapper_fxir.FxConverter):
    """Inductor's converter, which also annotates nodes with images and layouts."""

    def _generate_triton_call(self, line: Any) -> None:
        super()._generate_triton_call(line)
        tuner = self.kernels[line.kernel_name].tuner
        node: Any = next(iter(reversed(self.gm.graph.nodes)))
        chosen = tuner.compile_results[0]
        kinds = tuner.triton_meta["signature"]
        node.meta["openxpu_image"] = chosen.kernel.asm[BINARY]
        node.meta["openxpu_params"] = [
            name
            for name, kind in kinds.items()
            if kind != "constexpr" and name not in tuner.triton_meta["constants"]
        ]

    def _generate_graph_constants(self) -> None:
        for name, value in V.graph.constants.items():  # or `get_attr` warns that there is no such attribute
            self.gm.register_buffer(name, value, persistent=False)
        super()._generate_graph_constants()

    lacking: collections.Counter[str]  # set on the class of a lowering: operators that the runner lacks

    def _note(self, target: Any) -> None:
        if _operator_of(target) is None and target not in _FREE:
            self.lacking[str(target)] += 1

    def _generate_fallback_call(self, ir_node: Any, *args: Any, **kwargs: Any) -> None:
        self._note(ir_node.op_overload)
        super()._generate_fallback_call(ir_node, *args, **kwargs)

    def _generate_extern_kernel_common(self, kernel: Any, out_ir_node: Any) -> None:
        self._note(kernel.op_overload)
        super()._generate_extern_kernel_common(kernel, out_ir_node)
        node: Any = next(iter(reversed(self.gm.graph.nodes)))
        if hasattr(kernel.layout, "stride"):
            node.meta["openxpu_layout"] = kernel.layout

    def _generate_multi_output(self, line: Any) -> None:
        super()._generate_multi_output(line)
        buffer: Any = V.graph.try_get_buffer(line.result_name)
        if buffer is not None and hasattr(buffer.layout, "stride"):
            self.buffer_to_node[line.result_name].meta["openxpu_layout"] = buffer.layout


def _expression(value: Any) -> sympy.Expr:
    """Convert an int, SymInt or expression to an expression."""
    return sympy.sympify(value.node.expr if isinstance(value, torch.SymInt) else value)


class _Ints:
    """Integer registers; each is an operation on earlier ones."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []
        self.found: dict[tuple[int, int, int], int] = {}
        self.symbols: dict[sympy.Symbol, int] = {}

    def put(self, op: str, a: int, b: int = 0) -> int:
        """Return the register of an operation; equal operations share one."""
        row = (INT_OPS.index(op), a, b)
        if row not in self.found:
            self.found[row] = len(self.rows)
            self.rows.append(row)
        return self.found[row]

    def const(self, value: int) -> int:
        """Return the register of a constant."""
        if not -(2**63) <= value < 2**63:
            raise PackageError(f"the integer {value} doesn't fit in 64 bits")
        return self.put("const", value)

    def fold(self, op: str, registers: Sequence[int]) -> int:
        """Reduce several registers with a binary operation."""
        return functools.reduce(lambda a, b: self.put(op, a, b), registers)

    def of(self, value: Any) -> int:
        """Return the register of an int, SymInt or expression in the input sizes."""
        e = _expression(value)
        if e.is_Integer:
            return self.const(int(e))
        if e in (sympy.true, sympy.false):
            return self.const(int(e == sympy.true))
        if e.is_Symbol:
            if e not in self.symbols:
                raise PackageError(f"{e} is not the size of an input; data-dependent sizes are not supported")
            return self.symbols[e]
        kind = type(e).__name__
        if e.is_Mul or kind == "floor":
            return self._quotient(e)
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            return self.fold("mul", [self.of(e.base)] * int(e.exp))
        simple = {
            "Add": "add",
            "Max": "max",
            "Min": "min",
            "And": "and",
            "Or": "or",
            "FloorDiv": "floordiv",
            "CleanDiv": "floordiv",
            "IntTrueDiv": "floordiv",
            "Mod": "mod",
            "PythonMod": "mod",
            "Equality": "eq",
            "Unequality": "ne",
            "StrictLessThan": "lt",
            "LessThan": "le",
        }
        if kind in simple and kind != "IntTrueDiv":
            return self.fold(simple[kind], [self.of(arg) for arg in e.args])
        if kind in ("StrictGreaterThan", "GreaterThan"):
            return self.put("lt" if kind[0] == "S" else "le", self.of(e.args[1]), self.of(e.args[0]))
        if kind == "Not":
            return self.put("not", self.of(e.args[0]))
        if kind == "CeilDiv":
            zero, (a, b) = self.const(0), map(self.of, e.args)
            return self.put("sub", zero, self.put("floordiv", self.put("sub", zero, a), b))
        if kind == "ModularIndexing":
            a, b, c = map(self.of, e.args)
            return self.put("mod", self.put("floordiv", a, b), c)
        if kind == "Identity":
            return self.of(e.args[0])
        raise PackageError(f"the runner can't compute {e} from the inputs' sizes ({kind})")

    def _quotient(self, e: sympy.Expr) -> int:
        """Compute a product, or the floor of one, with fractional factors."""
        inner = e.args[0] if type(e).__name__ == "floor" else e
        top, bottom = sympy.fraction(sympy.together(inner))
        if bottom == 1:
            if not top.is_Mul:
                return self.of(top)
            return self.fold("mul", [self.of(factor) for factor in top.args])
        return self.put("floordiv", self.of(top), self.of(bottom))


def _words_of_text(text: str) -> list[int]:
    data = text.encode()
    padded = data + bytes(-len(data) % 8)
    return [len(data), *struct.unpack(f"<{len(padded) // 8}q", padded)]


def _float_bits(value: float) -> int:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


def _lacking(missing: collections.Counter[str]) -> PackageError:
    named = ", ".join(f"{name} ({n} times)" if n > 1 else name for name, n in missing.items())
    return PackageError(f"the package runner lacks {named}")


class _File:
    """Weights and images, which the programs of a package share."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []  # on the CPU, as bytes
        self.weights_size = 0
        self.kept: dict[bytes, int] = {}
        self.images: dict[bytes, int] = {}  # their offsets
        self.images_size = 0
        self.programs: list[list[int]] = []
        self.offline: Callable[[bytes], bytes | None] = lambda _: None  # for the current target

    def keep(self, data: torch.Tensor) -> int:
        """Return the offset of these bytes in the weights."""
        digest = hashlib.blake2b(data.numpy().data, digest_size=32).digest()
        if digest not in self.kept:
            self.kept[digest] = self.weights_size
            self.weights.append(data)
            self.weights_size += -(-data.numel() // ALIGN) * ALIGN
        return self.kept[digest]

    def put(self, image: bytes) -> tuple[int, int]:
        """Return the offset of this image, and its bytes."""
        if image not in self.images:
            self.images[image] = self.images_size
            self.images_size += -(-len(image) // 8) * 8
        return self.images[image], len(image)

    def put_binary(self, image: bytes) -> tuple[int, int]:
        """Do the same for an offline compiler's binary of it; 0 bytes if there is none."""
        binary = self.offline(image)
        return self.put(binary) if binary else (0, 0)


class _Packer:
    """Converts a lowered graph to a package's program."""

    def __init__(
        self, exported: torch.export.ExportedProgram, lowered: torch.fx.GraphModule, file: _File
    ) -> None:
        self.exported, self.lowered, self.file = exported, lowered, file
        self.ints = _Ints()
        self.zero = self.ints.const(0)
        self.checks: list[tuple[int, str]] = []
        self.open_sizes: dict[int, tuple[int, int, int, int]] = {}  # register: input, dimension, factor, rest
        self.constants: list[list[int]] = []  # offset, bytes, is_state
        self.inputs: list[list[int]] = []
        self.tensors: list[list[Any]] = []  # kind, dtype, sizes, strides, base, offset
        self.outputs: list[list[int]] = []
        self.images: dict[bytes, int] = {}
        self.steps: list[list[int]] = []
        self.slots: dict[Any, int] = {}
        self.known: dict[tuple[Any, ...], int] = {}
        self.missing: collections.Counter[str] = collections.Counter()

    # --- tensors ---

    def _shape(self, sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[list[int], list[int]]:
        if len(sizes) > MAX_DIMS:
            raise PackageError(
                f"a tensor has {len(sizes)} dimensions; the package runner supports up to {MAX_DIMS}"
            )
        return [self.ints.of(s) for s in sizes], [self.ints.of(s) for s in strides]

    def _dtype(self, dtype: torch.dtype) -> int:
        if dtype not in _dtypes():
            raise PackageError(f"the package runner does not support tensors of {dtype}")
        return _dtypes()[dtype]

    def _slot(
        self,
        kind: int,
        dtype: torch.dtype,
        sizes: Sequence[Any],
        strides: Sequence[Any],
        base: int,
        offset: Any = 0,
    ) -> int:
        row: list[Any] = [kind, self._dtype(dtype), *self._shape(sizes, strides), base, self.ints.of(offset)]
        key: tuple[Any, ...] = (kind, row[1], tuple(row[2]), tuple(row[3]), base, row[5])
        if kind != NEW and key in self.known:
            return self.known[key]
        self.known[key] = len(self.tensors)
        self.tensors.append(row)
        return len(self.tensors) - 1

    def _root(self, slot: int) -> int:
        kind, base = self.tensors[slot][0], self.tensors[slot][4]
        return base if kind == VIEW else slot

    def _input(self, node: Any, name: str) -> None:
        value = node.meta["val"]
        sizes, strides = self._shape(value.shape, value.stride())
        words = [*_words_of_text(name), self._dtype(value.dtype), len(sizes), *sizes, *strides]
        self.slots[node] = self._slot(INPUT, value.dtype, value.shape, value.stride(), len(self.inputs))
        self.inputs.append(words)

    def _constant(self, node: Any) -> None:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            raise PackageError(f"the constant {node.target} is a {type(value).__name__}, not a tensor")
        key = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if key not in self.known or not value.numel():
            span = 1 + sum((s - 1) * t for s, t in zip(value.shape, value.stride(), strict=True))
            flat = value.detach().as_strided((span if value.numel() else 0,), (1,), value.storage_offset())
            data = flat.cpu().view(torch.uint8)
            self.constants.append([self.file.keep(data), data.numel(), 0])
            self.known[key] = self._slot(
                CONSTANT, value.dtype, value.shape, value.stride(), len(self.constants) - 1
            )
        self.slots[node] = self.known[key]

    def _written(self, slot: int) -> None:
        kind, *_, base, _ = self.tensors[self._root(slot)]
        if kind == CONSTANT:
            self.constants[base][2] = 1

    def _new(self, node: Any) -> int:
        """Return memory for an operator's result, in the layout that Inductor assumes."""
        layout = node.meta.get("openxpu_layout")
        value = node.meta["val"]
        sizes, strides = (layout.size, layout.stride) if layout else (value.shape, value.stride())
        self.slots[node] = self._slot(NEW, value.dtype, sizes, strides, 0)
        return self.slots[node]

    # --- steps ---

    def _tensor(self, node: Any) -> tuple[int, int]:
        if not isinstance(node, torch.fx.Node) or node not in self.slots:
            raise PackageError(f"{node} is not a tensor known to the package runner")
        return TENSOR, self.slots[node]

    def _int(self, value: Any) -> tuple[int, int]:
        return INT, self.ints.of(value.meta["val"] if isinstance(value, torch.fx.Node) else value)

    def _list(self, values: Sequence[Any]) -> list[tuple[int, int]]:
        return [(LIST, len(values)), *map(self._int, values)]

    def _optional(self, node: Any) -> tuple[int, int]:
        return (NONE, 0) if node is None else self._tensor(node)

    def _operator(self, name: str, written: int, args: Sequence[tuple[int, int]]) -> None:
        """Add a step; its first `written` arguments are outputs."""
        for _, slot in args[:written]:
            self._written(slot)
        self.steps.append([-1, *_words_of_text(name), len(args), *(word for arg in args for word in arg)])

    def _dense(self, arg: tuple[int, int], dtype: torch.dtype | None = None) -> tuple[int, int]:
        """Return a contiguous tensor of the dtype: this one, or a copy."""
        _, of, sizes, strides, _, _ = self.tensors[arg[1]]
        wanted = of if dtype is None else self._dtype(dtype)
        dense = [self.ints.const(1)]
        for size in sizes[:0:-1]:
            dense.insert(0, self.ints.put("mul", dense[0], size))
        dense = dense[: len(sizes)]
        if of == wanted and strides == dense:
            return arg
        self.tensors.append([NEW, wanted, sizes, dense, 0, self.zero])
        made = (TENSOR, len(self.tensors) - 1)
        self._operator("copy", 1, [made, arg])
        return made

    def _launch(self, node: Any) -> None:
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        image: bytes = node.meta["openxpu_image"]
        described = _image_params(image)
        given = dict(kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"]))
        given.update(node.kwargs["kwargs"])
        (grid,) = node.kwargs["grid"]
        args = []
        names = node.meta["openxpu_params"]
        if len(names) != len(described):
            raise PackageError(
                f"a kernel image has {len(described)} parameters, but the program passes {names}"
            )
        for name, (kind, written) in zip(names, described, strict=True):
            if kind == 0:
                args.append(self._tensor(given[name]))
                if written:
                    self._written(args[-1][1])
            elif kind == 1:
                args.append(self._int(given[name]))
            else:
                args.append((FLOAT, _float_bits(float(given[name]))))
        number = self.images.setdefault(image, len(self.images))
        grid = [self._int(n)[1] for n in (*grid, 1, 1)[:3]]
        self.steps.append([number, *grid, len(args), *(word for arg in args for word in arg)])

    def _call(self, node: Any) -> None:
        target = node.target
        if target is torch.ops.higher_order.triton_kernel_wrapper_mutation:
            self._launch(node)
        elif target is torch.empty_strided:
            value = node.meta["val"]
            self.slots[node] = self._slot(NEW, value.dtype, value.shape, value.stride(), 0)
        elif target is torch.as_strided:
            slot = self._root(self._tensor(node.args[0])[1])
            value, offset = node.meta["val"], node.args[3]
            if isinstance(offset, torch.fx.Node):
                offset = offset.meta["val"]
            self.slots[node] = self._slot(VIEW, value.dtype, value.shape, value.stride(), slot, offset)
        elif target is operator.getitem:
            if node not in self.slots and node.users:
                self.missing[f"{node.args[0].target}, result {node.args[1]}"] += 1
        elif (known := _operator_of(target)) and known[0] in _runner_operators():
            known[1](self, node)
        elif not isinstance(node.meta.get("val"), (int, torch.SymInt, torch.SymBool, bool)):
            self.missing[str(target)] += 1

    # --- the program ---

    def pack(self) -> None:
        """Fill the tables."""
        signature = self.exported.graph_signature
        placeholders = self.lowered.graph.find_nodes(op="placeholder")
        names = [str(name) for name in signature.user_inputs if name is not None]
        self._symbols(placeholders)
        if len(names) != len(placeholders):
            names = [str(node.target) for node in placeholders]
        for node in self.lowered.graph.nodes:
            if node.op == "placeholder":
                name = names[placeholders.index(node)]
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor):
                    self._input(node, name)
                elif isinstance(value, torch.SymInt):
                    raise PackageError(f"input {name} is a dynamic number: pass it as a tensor")
            elif node.op == "get_attr":
                if isinstance(node.meta.get("val"), torch.fx.GraphModule):
                    self.missing["control flow (torch.cond and similar)"] += 1
                else:
                    self._constant(node)
            elif node.op == "call_function":
                try:
                    self._call(node)
                except PackageError:
                    if not self.missing:  # otherwise results of missing operators are absent
                        raise
            elif node.op == "output":
                self._missing()
                (results,) = node.args
                results = list(results) if isinstance(results, (list, tuple)) else [results]
                self._outputs([r for r in results if r is not None])
        self._ranges()

    def _missing(self) -> None:
        if self.missing:
            raise _lacking(self.missing)

    def _symbols(self, placeholders: Sequence[torch.fx.Node]) -> None:
        tensors = [n.meta["val"] for n in placeholders if isinstance(n.meta.get("val"), torch.Tensor)]
        sizes = [(_expression(s), i, d) for i, value in enumerate(tensors) for d, s in enumerate(value.shape)]
        for e, i, d in sorted(sizes, key=lambda each: not each[0].is_Symbol):
            # 2 * Dim("b") + 1 alone determines b; inconsistent sizes are rejected when the package runs
            unknown = e.free_symbols - self.ints.symbols.keys()
            if len(e.free_symbols) != 1 or not unknown:
                continue
            (symbol,) = unknown
            factor, rest = e.coeff(symbol), sympy.expand(e - e.coeff(symbol) * symbol)
            if factor.is_Integer and factor > 0 and rest.is_Integer:
                register = self.ints.put("size", i, d)
                if rest:
                    register = self.ints.put("sub", register, self.ints.const(int(rest)))
                if factor != 1:
                    register = self.ints.put("floordiv", register, self.ints.const(int(factor)))
                self.ints.symbols[symbol] = register
                self.open_sizes[register] = (i, d, int(factor), int(rest))
        self.environment = next(
            (t.fake_mode.shape_env for t in tensors if isinstance(t, torch._subclasses.FakeTensor)), None
        )

    def _outputs(self, results: Sequence[Any]) -> None:
        names = [str(name) for name in self.exported.graph_signature.user_outputs if name is not None]
        for i, node in enumerate(results):
            _, slot = self._tensor(node)
            name = names[i] if len(names) == len(results) else f"output{i}"
            self.outputs.append([*_words_of_text(name), slot])

    def _ranges(self) -> None:
        """Return the size constraints of the export, and those that Inductor added."""
        for symbol, bounds in self.exported.range_constraints.items():
            if symbol not in self.ints.symbols:
                continue
            register = self.ints.symbols[symbol]
            for limit, order in ((bounds.lower, 1), (bounds.upper, -1)):
                if not limit.is_Integer or (order > 0 and limit <= 0):
                    continue
                pair = (self.ints.const(int(limit)), register)[::order]
                text = f"{self._size_name(register)} {'>=' if order > 0 else '<='} {limit}"
                self.checks.append((self.ints.put("le", *pair), text))
        for guard in getattr(self.environment, "guards", []):
            if guard.expr.free_symbols <= self.ints.symbols.keys():
                names = {
                    s: sympy.Symbol(self._size_name(self.ints.symbols[s])) for s in guard.expr.free_symbols
                }
                self.checks.append((self.ints.of(guard.expr), str(guard.expr.xreplace(names))))

    def _size_name(self, register: int) -> str:
        i, d, factor, rest = self.open_sizes[register]
        name = f"{self.input_name(i)}.size({d})"
        if rest:
            name = f"({name} {'+' if rest < 0 else '-'} {abs(rest)})"
        return name if factor == 1 else f"{name} / {factor}"

    def input_name(self, i: int) -> str:
        """Decode an input's name from its words."""
        length, *words = self.inputs[i]
        return struct.pack(f"<{len(words)}q", *words)[:length].decode()

    def words(self) -> list[int]:
        """Return the program."""
        tensors = [
            [kind, dtype, len(sizes), *sizes, *strides, base, offset]
            for kind, dtype, sizes, strides, base, offset in self.tensors
        ]
        images = [[*self.file.put(image), *self.file.put_binary(image)] for image in self.images]
        checks = [[register, *_words_of_text(text)] for register, text in self.checks]
        parts: list[list[Any]] = [self.ints.rows, checks, self.constants, self.inputs, tensors]
        parts += [self.outputs, images, self.steps]
        return [word for part in parts for word in (len(part), *(w for row in part for w in row))]


def _image_params(image: bytes) -> list[tuple[int, bool]]:
    """Return the kind of each image parameter, and whether it is written."""
    import json

    return [(p[0], bool(p[4])) for p in json.loads(image.partition(b"\n")[0])["params"]]


# --- operators: conversion of PyTorch's arguments to the runner's ---


def _argument(node: Any, position: int, name: str, default: Any = None) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _product(packer: _Packer, node: Any) -> None:
    out, (a, b) = packer._tensor(node.kwargs["out"]), map(packer._tensor, node.args[:2])
    packer._operator(_OPERATORS[node.target][0], 1, [out, a, b])


def _added(packer: _Packer, node: Any) -> None:
    tensors = [packer._tensor(t) for t in (node.kwargs["out"], *node.args[:3])]
    beta, alpha = (float(node.kwargs.get(name, 1)) for name in ("beta", "alpha"))
    scalars = [(FLOAT, _float_bits(beta)), (FLOAT, _float_bits(alpha))]
    packer._operator(_OPERATORS[node.target][0], 1, [*tensors, *scalars])


def _convolution(packer: _Packer, node: Any) -> None:
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = (
        *node.args,
        *(node.kwargs[a.name] for a in node.target._schema.arguments[len(node.args) :]),
    )
    tensors = [packer._tensor(x), packer._tensor(weight), packer._optional(bias)]
    lists = [arg for values in (stride, padding, dilation) for arg in packer._list(values)]
    last = [packer._int(int(transposed)), *packer._list(output_padding), packer._int(groups)]
    out = packer._new(node)
    packer._operator("convolution", 1, [(TENSOR, out), *tensors, *lists, *last])


def _attention(packer: _Packer, node: Any) -> None:
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem and user.users}
    bias = _argument(node, 3, "attn_bias")
    if _argument(node, 4, "dropout_p", 0.0):
        raise PackageError("attention with dropout is not supported: export the model in evaluation mode")
    scale = node.kwargs.get("scale")
    tensors = [*map(packer._tensor, node.args[:3]), packer._optional(bias)]
    if set(results) != {0}:
        return  # the others are reported as missing
    numbers = [
        packer._int(int(_argument(node, 5, "is_causal", False))),
        (FLOAT, _float_bits(math.nan if scale is None else float(scale))),
    ]
    packer._operator("attention", 1, [(TENSOR, packer._new(results[0])), *tensors, *numbers])


def _sort(packer: _Packer, node: Any) -> None:
    """Sort or top-k: values and indices, as far as they are used."""
    given = {a.name: a.default_value for a in node.target._schema.arguments}
    given.update(zip(given, node.args, strict=False))
    given.update(node.kwargs)
    descending = given["largest"] if "largest" in given else given["descending"]
    source = packer._tensor(given["self"])
    dims = len(packer.tensors[source[1]][2])
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    outs = []
    for i in range(2):
        if i in results:
            outs.append((TENSOR, packer._new(results[i])))
        else:
            value = node.meta["val"][i]
            outs.append((TENSOR, packer._slot(NEW, value.dtype, value.shape, value.stride(), 0)))
    numbers = [packer._int(given["dim"] % max(dims, 1)), packer._int(int(bool(descending)))]
    packer._operator("sort", 2, [*outs, source, *numbers])


def _grouped(packer: _Packer, node: Any) -> None:
    """Grouped matrix product; operands of three dimensions are batches."""
    if _argument(node, 3, "bias") is not None:
        raise PackageError("a grouped product with a bias is not supported, as in PyTorch")
    a, b = map(packer._tensor, node.args[:2])
    ends = _argument(node, 2, "offs")
    out = (TENSOR, packer._new(node))
    if ends is None:
        packer._operator("bmm", 1, [out, a, b])
    else:
        packer._operator("grouped_mm", 1, [out, a, b, packer._dense(packer._tensor(ends), torch.int32)])


def _grouped_or_zero(packer: _Packer, node: Any) -> None:
    """The same, with zeros behind the last group."""
    a, b, ends = map(
        packer._tensor, (_argument(node, i, n) for i, n in enumerate(("input", "weight", "offs")))
    )
    out = (TENSOR, packer._new(node))
    packer._operator("fill", 1, [out, (FLOAT, _float_bits(0.0))])
    packer._operator("grouped_mm", 1, [out, a, b, packer._dense(ends, torch.int32)])


def _histogram(packer: _Packer, node: Any) -> None:
    """Histogram: int32 counts, converted to PyTorch's dtype."""
    given = {a.name: a.default_value for a in node.target._schema.arguments}
    given.update(zip(given, node.args, strict=False))
    given.update(node.kwargs)
    source, value = packer._tensor(given["self"]), node.meta["val"]
    bounds = [float(b if value.is_floating_point() else int(b)) for b in (given["min"], given["max"])]
    if not bounds[0] < bounds[1] or max(map(abs, bounds)) > 2**53:
        raise PackageError(
            f"a histogram from {given['min']} to {given['max']} is not supported: pass its bounds"
        )
    out = (TENSOR, packer._new(node))
    counts = out
    if value.dtype != torch.int32:
        counts = (TENSOR, packer._slot(NEW, torch.int32, value.shape, (1,), 0))
    scalars = [(FLOAT, _float_bits(b)) for b in bounds]
    packer._operator("histogram", 1, [counts, packer._dense(source), *scalars])
    if counts != out:
        packer._operator("copy", 1, [out, counts])


SCATTER_OPS = {"sum": 1, "prod": 2, "amin": 3, "amax": 4}  # xpu_scatter_op


def _scatter(packer: _Packer, name: str, tensors: Sequence[tuple[int, int]], dim: int, op: int) -> None:
    """Combine the third tensor into the first at the indices in the second."""
    dims = [len(packer.tensors[slot][2]) for _, slot in tensors]
    if dims[0] == 0 or dims[1] != (1 if name == "index_scatter" else dims[0]) or dims[2] != dims[0]:
        raise PackageError(
            f"scatter with an index of {dims[1]} dimensions into a tensor of {dims[0]} is not supported"
        )
    packer._operator(name, 1, [*tensors, packer._int(dim % dims[0]), packer._int(op)])


def _scattered(packer: _Packer, node: Any) -> None:
    """Combine into a tensor's elements in place."""
    out, dim, index, source = node.args[:4]
    way = _argument(node, 4, "reduce")
    if way not in SCATTER_OPS or not _argument(node, 5, "include_self", True):
        raise PackageError(f"{node.target} with reduce={way!r} or without include_self is not supported")
    tensors = [packer._tensor(t) for t in (out, index, source)]
    _scatter(packer, "scatter", tensors, dim, SCATTER_OPS[way])
    packer.slots[node] = tensors[0][1]


def _index_added(packer: _Packer, node: Any) -> None:
    """Add slices to a copy."""
    into, dim, index, source = node.args[:4]
    if _argument(node, 4, "alpha", 1) != 1:
        raise PackageError(f"{node.target} with alpha is not supported: multiply the source first")
    given, *others = [packer._tensor(t) for t in (into, index, source)]
    out = (TENSOR, packer._new(node))
    packer._operator("copy", 1, [out, given])
    _scatter(packer, "index_scatter", [out, *others], dim, SCATTER_OPS["sum"])


_aten = torch.ops.aten
_OPERATORS: dict[Any, tuple[str, Callable[[_Packer, Any], None]]] = {
    _aten.mm.out: ("mm", _product),
    _aten.bmm.out: ("bmm", _product),
    _aten.addmm.out: ("addmm", _added),
    _aten.baddbmm.out: ("baddbmm", _added),
    _aten.convolution.default: ("convolution", _convolution),
    _aten._scaled_dot_product_fused_attention_overrideable.default: ("attention", _attention),
    _aten.sort.default: ("sort", _sort),
    _aten.sort.stable: ("sort", _sort),
    _aten.topk.default: ("sort", _sort),
    _aten._grouped_mm.default: ("grouped_mm", _grouped),
    _aten.histc.default: ("histogram", _histogram),
    _aten.scatter_reduce_.two: ("scatter", _scattered),
    _aten.index_add.default: ("index_scatter", _index_added),
}
# Operators of optional libraries.
_OTHERS: dict[str, tuple[str, Callable[[_Packer, Any], None]]] = {
    # transformers' mixture of experts uses it instead of _grouped_mm, except in bfloat16
    "transformers.grouped_mm_fallback.default": ("grouped_mm", _grouped_or_zero),
}


def _operator_of(target: Any) -> tuple[str, Callable[[_Packer, Any], None]] | None:
    return _OPERATORS.get(target) or _OTHERS.get(str(target))


# Operators that do nothing.
_FREE: frozenset[Any] = frozenset()

# --- the file ---


class _Chunk(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def _write(path: str, about: str, file: _File) -> None:
    words = [len(file.programs), *(w for program in file.programs for w in (len(program), *program))]
    program = (ctypes.c_int64 * len(words))(*words)
    kept = [ctypes.create_string_buffer(image, len(image)) for image in file.images]
    images = (_Chunk * len(kept))(*[_Chunk(ctypes.addressof(k), len(k)) for k in kept])
    weights = (_Chunk * len(file.weights))(*[_Chunk(w.data_ptr(), w.numel()) for w in file.weights])
    counts = [ctypes.c_size_t(n) for n in (len(words), len(kept), len(file.weights))]
    status = _library().xpu_package_write(
        os.fsencode(path), about.encode(), program, counts[0], images, counts[1], weights, counts[2]
    )
    if status:
        raise PackageError(_library().xpu_last_error().decode(errors="replace"))


# Operators that may return a view of their first argument, contrary to their schemas.
MAY_ALIAS = "contiguous expand_as flatten reshape reshape_as to type_as unflatten view_as".split()


def _tensors_of(exported: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the program's parameters, buffers and constants."""
    every = {**exported.constants, **exported.state_dict}
    return {name: tensor for name, tensor in every.items() if isinstance(tensor, torch.Tensor)}


def _changed(exported: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the buffers that the program modifies, found through in-place writes and views."""
    buffers = exported.graph_signature.inputs_to_buffers
    tensors = _tensors_of(exported)
    names = set(exported.graph_signature.buffers_to_mutate.values())

    def memory_of(node: Any) -> Any:
        while isinstance(node, torch.fx.Node) and isinstance(node.target, torch._ops.OpOverload):
            returns = node.target._schema.returns
            is_view = returns and returns[0].alias_info or node.target._opname in MAY_ALIAS
            if not is_view or not node.args:
                return None
            node = node.args[0]
        return node if isinstance(node, torch.fx.Node) else None

    for node in exported.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
            continue
        for given, argument in zip(node.args, node.target._schema.arguments, strict=False):
            if argument.alias_info and argument.alias_info.is_write:
                written = map(memory_of, given if isinstance(given, list | tuple) else [given])
                names |= {buffers[m.name] for m in written if m and m.name in buffers}
    return {name: tensors[name] for name in sorted(names)}


def _refuse_parts_that_change(
    exported: torch.export.ExportedProgram, changed: dict[str, torch.Tensor]
) -> None:
    """Raise an error if a modified buffer shares memory with a different tensor."""

    def places(tensor: torch.Tensor) -> tuple[Any, ...]:
        return tensor.storage_offset(), tensor.shape, tensor.stride()

    def memory(tensor: torch.Tensor) -> int:
        """Return the address; 0 for tensors composed of others, such as quantized weights."""
        return 0 if is_traceable_wrapper_subclass(tensor) else tensor.untyped_storage().data_ptr()

    tensors = _tensors_of(exported)
    for name, buffer in changed.items():
        for other, tensor in tensors.items():
            if places(tensor) != places(buffer) and memory(tensor) == memory(buffer) != 0:
                raise PackageError(
                    f"{name} is mutated and shares memory with {other}; a package would separate them"
                )


def _refuse_outputs_that_are_no_tensors(exported: torch.export.ExportedProgram) -> None:
    """Raise an error for an output that is a number or a string. None is allowed, and omitted."""
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    specs = exported.graph_signature.output_specs
    user = [spec.arg for spec in specs if spec.kind == OutputKind.USER_OUTPUT]
    for i, arg in enumerate(user):
        if isinstance(arg, ConstantArgument) and arg.value is not None:
            raise PackageError(f"output {i} is {arg.value!r}, not a tensor: remove it")
        if not isinstance(arg, ConstantArgument | TensorArgument):
            raise PackageError(f"output {i}, {arg.name}, is not a tensor: return a tensor, or remove it")


def _lower(exported: torch.export.ExportedProgram, options: dict[str, Any]) -> torch.fx.GraphModule:
    """Lower the program with Inductor to its FX wrapper graph."""
    args, kwargs = exported.example_inputs
    missing: collections.Counter[str] = collections.Counter()
    converter = type("_Converter", (_Converter,), {"lacking": missing})
    module: Any = exported.module(check_guards=False)
    try:
        with (
            torch.no_grad(),
            mock.patch.object(wrapper_fxir, "FxConverter", converter),
            warnings.catch_warnings(),
        ):
            # Inductor copies the tree of arguments; PyTorch's class of its leaves warns when it is copied
            warnings.filterwarnings(
                "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
            )
            lowered: Any = torch._inductor.aot_compile(module, args, kwargs, options={**OPTIONS, **options})
    except Exception as error:
        if missing:  # the converter may not know these either
            raise _lacking(missing) from error
        raise PackageError(f"Inductor can't lower the program to its FX wrapper: {error}") from error
    if missing:
        raise _lacking(missing)
    return lowered


def package(
    exported: torch.export.ExportedProgram,
    path: str | os.PathLike[str],
    options: dict[str, Any] | None = None,
    targets: Sequence[str] | None = None,
    compiler: str | os.PathLike[str] | None = None,
) -> str:
    """Export a program to a file for ``xpu/package.h``; see :func:`openxpu.package`."""
    from torch.export.passes import move_to_device_pass

    import openxpu

    if not openxpu.is_loaded() or not torch.xpu.is_available():
        raise PackageError(openxpu.no_device_hint())
    _refuse_outputs_that_are_no_tensors(exported)
    changed = _changed(exported)
    _refuse_parts_that_change(exported, changed)
    options = dict(options or {})
    if any(buffer.numel() == 1 for buffer in changed.values()):
        options["joint_graph_constant_folding"] = False  # it treats them as constants
    on = {tensor.device.type for tensor in _tensors_of(exported).values()}
    values = [n.meta.get("val") for n in exported.graph.find_nodes(op="placeholder")]
    on |= {v.device.type for v in values if isinstance(v, torch.Tensor)}
    if on - {"xpu"}:
        exported = move_to_device_pass(exported, "xpu:0")
    file = _File()
    about = f"openxpu {openxpu.__version__}, PyTorch {torch.__version__}"
    kinds: Sequence[str | None] = targets or [None]
    for target in kinds:
        with contextlib.nullcontext() if target is None else _targets.instead(target):
            packer = _Packer(exported, _lower(exported, options), file)
            packer.pack()
        file.offline = functools.partial(_targets.compile_offline, name=target or "", compiler=compiler)
        file.programs.append(packer.words())
    if targets:
        about += f", for {', '.join(targets)}"
    _write(os.fspath(path), about, file)
    return os.fspath(path)
