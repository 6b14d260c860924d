"""A Triton IR interpreter on NumPy: slow, simple, and independent of the compiler's later stages.

It reads the generic form that ``openxpu compile --dump-after verify`` prints. Buffers are NumPy arrays. A
pointer has the index of its buffer in the upper bits and a byte offset in the lower ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import torch
from openxpu import _tile

BUFFER_BITS = 40
DTYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.float32,
    "f8E4M3FN": np.float32,
    "f8E5M2": np.float32,
    "f8E4M3FNUZ": np.float32,
    "f8E5M2FNUZ": np.float32,
}
NARROW = {
    "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}
STORED = {"i1": np.uint8, "bf16": np.uint16} | {e: np.uint8 for e in NARROW if e != "bf16"}


@dataclass
class Type:
    """The type of a scalar or tensor."""

    element: str
    shape: tuple[int, ...]
    pointer: bool

    @property
    def dtype(self) -> type:
        return np.int64 if self.pointer else DTYPES[self.element]


@dataclass
class Op:
    """One operation."""

    name: str
    args: list[str]
    results: list[str]
    attrs: str
    types: list[Type]
    targets: list[int] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)

    def attr(self, name: str, otherwise: int | None = None) -> int:
        found = re.search(rf"\b{name} = (-?\d+|true|false)", self.attrs)
        if not found:
            if otherwise is None:
                raise KeyError(name)
            return otherwise
        return {"true": 1, "false": 0}.get(found[1]) if found[1][0] in "tf" else int(found[1])


@dataclass
class Block:
    """A block's arguments and operations."""

    args: list[str]
    types: list[Type]
    ops: list[Op] = field(default_factory=list)


def parse_type(text: str) -> Type:
    shape, rest = (), text
    if text.startswith("tensor<"):
        rest = text[7:-1]
        sizes = re.match(r"(?:\d+x)*", rest)[0]
        shape = tuple(int(n) for n in sizes.split("x")[:-1])
        rest = rest[len(sizes) :]
    pointer = rest.startswith("!tt.ptr<")
    return Type(rest[8:-1] if pointer else rest, shape, pointer)


def split_types(text: str) -> list[Type]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c == "<") - (c == ">")
        if c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [parse_type(p) for p in parts if p]


_HEAD = re.compile(
    r'\s*(?:(%[\d, %]+) = )?"([\w.]+)"\(([%\d, ]*)\)(?:\[([^\]]*)\])?'
    r"(?: <\{(.*)\}>)?( \(\{)?(?: : \(.*\) -> \((.*)\))?$"
)


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.at = 0

    def block_body(self, blocks: list[Block]) -> str:
        """Parse operations and labels up to the line that closes the region; return that line."""
        while True:
            line = self.lines[self.at]
            self.at += 1
            stripped = line.strip()
            if stripped.startswith("}"):
                return stripped
            if stripped.startswith("^"):
                inside = re.search(r"\((.*)\):$", stripped)
                pairs = re.findall(r"(%\d+): (.*?)(?=, %\d+: |$)", inside[1]) if inside else []
                blocks.append(Block([p[0] for p in pairs], [parse_type(p[1]) for p in pairs]))
                continue
            if not blocks:
                blocks.append(Block([], []))
            blocks[-1].ops.append(self.op(line))

    def op(self, line: str) -> Op:
        head = _HEAD.match(line)
        if not head:
            raise ValueError(f"not understood: {line}")
        names = re.findall(r"%\d+", head[1] or "")
        op = Op(head[2], re.findall(r"%\d+", head[3]), names, head[5] or "", split_types(head[7] or ""))
        op.targets = [int(n) for n in re.findall(r"\d+", head[4] or "")]
        if head[6]:
            while True:
                blocks: list[Block] = []
                close = self.block_body(blocks)
                op.regions.append(blocks)
                if close.startswith("}) : "):
                    op.types = split_types(re.search(r"-> \((.*)\)$", close)[1])
                    break
                if close == "})":
                    break
        return op


def parse(text: str) -> Op:
    """Parse a module (Triton's own text); return its public function."""
    printed = _tile.compile_module(text.encode(), dump_after="verify").dump
    reader = _Reader(printed)
    reader.at = 1
    blocks: list[Block] = []
    reader.block_body(blocks)
    functions = [op for op in blocks[0].ops if op.name == "tt.func"]
    return next((f for f in functions if re.search(r"\bpublic\b", f.attrs)), functions[0])


def _rounded(value: np.ndarray, element: str) -> torch.Tensor:
    """Round to the narrow type as Triton does: f8E4M3FN, which has no infinity, saturates."""
    wide = torch.from_numpy(np.array(value, order="C"))
    if element == "f8E4M3FN":  # before 2.13, PyTorch converts these values to NaN
        wide = wide.clamp(-448, 448)
    return wide.to(NARROW[element])


def _narrow(value: np.ndarray, element: str) -> np.ndarray:
    if element not in NARROW:
        return np.asarray(value, DTYPES[element])
    return _rounded(np.asarray(value, np.float32), element).float().numpy().reshape(np.shape(value))


def _unsigned(a: np.ndarray) -> np.ndarray:
    a = np.asarray(a)
    return a.astype(np.uint8) if a.dtype == np.bool_ else a.view(f"u{a.dtype.itemsize}")


# Division by 0 yields 0, as in compiled kernels.
def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    q = np.abs(a.astype(np.float128)) // np.abs(safe.astype(np.float128))
    q = (q * np.sign(a) * np.sign(safe)).astype(a.dtype)
    return np.where(b == 0, 0, q).astype(a.dtype)


def _bits(a: np.ndarray) -> np.ndarray:
    """Return the bits of integers along a new last dimension, least significant first."""
    u, width = _unsigned(a), 8 * np.asarray(a).dtype.itemsize
    return (u[..., None] >> np.arange(width, dtype=u.dtype)) & 1


def _leading_zeros(bits: np.ndarray) -> np.ndarray:
    any_bit = bits.any(-1)
    return np.where(any_bit, bits.argmax(-1), bits.shape[-1])


_INT = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "divsi": _divide,
    "remsi": lambda a, b: np.where(b == 0, 0, a - _divide(a, b) * b).astype(a.dtype),
    "divui": lambda a, b: np.where(b == 0, 0, _unsigned(a) // np.maximum(_unsigned(b), 1)).astype(a.dtype),
    "remui": lambda a, b: np.where(b == 0, 0, _unsigned(a) % np.maximum(_unsigned(b), 1)).astype(a.dtype),
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: (_unsigned(a) >> _unsigned(b)).view(a.dtype),
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": lambda a, b: np.minimum(_unsigned(a), _unsigned(b)).view(a.dtype),
    "maxui": lambda a, b: np.maximum(_unsigned(a), _unsigned(b)).view(a.dtype),
    "ceildivsi": lambda a, b: (-((-a.astype(object)) // np.where(b == 0, 1, b).astype(object))).astype(
        a.dtype
    ),
    "floordivsi": lambda a, b: (a.astype(object) // np.where(b == 0, 1, b).astype(object)).astype(a.dtype),
    "absi": np.abs,
    "ctpop": lambda a: _bits(a).sum(-1),
    "ctlz": lambda a: _leading_zeros(_bits(a)[..., ::-1]),
    "cttz": lambda a: _leading_zeros(_bits(a)),
}
_FLOAT = {
    "addf": lambda a, b: a + b,
    "subf": lambda a, b: a - b,
    "mulf": lambda a, b: a * b,
    "divf": lambda a, b: a / b,
    "precise_divf": lambda a, b: a / b,
    "remf": np.fmod,
    "negf": lambda a: -a,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "fma": lambda a, b, c: a.astype(np.float64) * b + c,
    "absf": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "exp": np.exp,
    "exp2": np.exp2,
    "floor": np.floor,
    "log": np.log,
    "log2": np.log2,
    "precise_sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sin": np.sin,
    "sqrt": np.sqrt,
}
_CMPI = ("==", "!=", "<", "<=", ">", ">=", "u<", "u<=", "u>", "u>=")
_CMPF = ("no", "==", ">", ">=", "<", "<=", "!=", "ord", "u==", "u>", "u>=", "u<", "u<=", "u!=", "uno", "yes")
_COMPARE = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_T = torch.special
_EXTERN = {
    "exp": torch.exp,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "pow": torch.pow,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erfinv": torch.erfinv,
    "ldexp": torch.ldexp,
    "isnan": torch.isnan,
    "fmul_rn": torch.mul,
    "lgamma": torch.lgamma,
    "erfc": torch.erfc,
    "cyl_bessel_i0": _T.i0,
    "j0": _T.bessel_j0,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "expm1": torch.expm1,
    "acosh": torch.acosh,
    "asinh": torch.asinh,
    "nextafter": torch.nextafter,
    "copysign": torch.copysign,
    "fmod": torch.fmod,
    "nearbyint": torch.round,
    "trunc": torch.trunc,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "signbit": torch.signbit,
    "isinf": torch.isinf,
    "sin": torch.sin,
    "rint": torch.round,
}


class Unsupported(NotImplementedError):
    """An operation that the interpreter does not support."""


class Interpreter:
    """Runs programs one after another on shared buffers."""

    def __init__(
        self, function: Op, buffers: list[np.ndarray | int | float], grid: tuple[int, int, int]
    ) -> None:
        self.function, self.grid = function, grid
        self.buffers = [b if isinstance(b, np.ndarray) else None for b in buffers]
        self.arguments = [
            np.int64(i << BUFFER_BITS) if isinstance(b, np.ndarray) else b for i, b in enumerate(buffers)
        ]

    def run(self) -> None:
        """Run all programs of the grid."""
        for z in range(self.grid[2]):
            for y in range(self.grid[1]):
                for x in range(self.grid[0]):
                    self.program, self.env = (x, y, z), {}
                    entry = self.function.regions[0][0]
                    for name, value, ty in zip(entry.args, self.arguments, entry.types, strict=True):
                        self.env[name] = np.asarray(value, ty.dtype)
                    with np.errstate(all="ignore"):
                        self.blocks(self.function.regions[0])

    def blocks(self, blocks: list[Block]) -> tuple[str, list[np.ndarray]]:
        """Run a region from its first block; return the name and values of its terminator."""
        block = blocks[0]
        while True:
            for op in block.ops[:-1]:
                self.step(op)
            end = block.ops[-1]
            values = [self.env[a] for a in end.args]
            if end.name == "cf.br":
                block = blocks[end.targets[0]]
            elif end.name == "cf.cond_br":
                taken = 0 if values[0] else 1
                skip = len(blocks[end.targets[0]].args) if taken else 0
                block = blocks[end.targets[taken]]
                values = values[1 + skip :]
            else:
                return end.name, values
            self.bind(block, values[: len(block.args)])

    def bind(self, block: Block, values: list[np.ndarray]) -> None:
        self.env.update(zip(block.args, values, strict=True))

    def region(self, blocks: list[Block], values: list[np.ndarray]) -> list[np.ndarray]:
        self.bind(blocks[0], values)
        return self.blocks(blocks)[1]

    def step(self, op: Op) -> None:
        args = [self.env[a] for a in op.args]
        results = self.evaluate(op, args)
        for name, value, ty in zip(op.results, results, op.types, strict=True):
            shaped = np.asarray(value, ty.dtype) if ty.pointer else _narrow(value, ty.element)
            self.env[name] = np.broadcast_to(shaped, ty.shape) if ty.shape != shaped.shape else shaped

    # --- memory ---

    def places(self, pointers: np.ndarray, element: str) -> tuple[np.ndarray, np.ndarray]:
        number = pointers >> BUFFER_BITS
        stored = np.dtype(STORED.get(element, DTYPES[element]))
        return number, (pointers & ((1 << BUFFER_BITS) - 1)) // stored.itemsize

    def view(self, number: int, element: str) -> np.ndarray:
        return self.buffers[number].view(STORED.get(element, DTYPES[element]))

    def read(self, pointers: np.ndarray, element: str, mask: np.ndarray, other: np.ndarray) -> np.ndarray:
        out = np.array(np.broadcast_to(other, pointers.shape), DTYPES[element])
        numbers, index = self.places(pointers, element)
        for n in np.unique(numbers[mask]) if pointers.shape else np.unique(numbers[()] if mask else []):
            chosen = mask & (numbers == n)
            if (index[chosen] < 0).any():
                raise IndexError
            raw = self.view(int(n), element)[index[chosen]]
            if element in NARROW:
                bits = torch.from_numpy(
                    np.array(raw, order="C").view(np.int16 if raw.itemsize == 2 else np.uint8)
                )
                raw = bits.view(NARROW[element]).float().numpy()
            out[chosen] = raw != 0 if element == "i1" else raw
        return out

    def write(self, pointers: np.ndarray, element: str, mask: np.ndarray, value: np.ndarray) -> None:
        value = np.broadcast_to(value, pointers.shape)
        numbers, index = self.places(pointers, element)
        for n in np.unique(numbers[mask]):
            chosen = mask & (numbers == n)
            raw = value[chosen]
            if element in NARROW:
                bits = torch.int16 if element == "bf16" else torch.uint8
                raw = _rounded(raw, element).view(bits).numpy()
            if (index[chosen] < 0).any():
                raise IndexError
            self.view(int(n), element)[index[chosen]] = raw.astype(
                STORED.get(element, raw.dtype), copy=False
            ).view(STORED.get(element, raw.dtype))

    def atomic(self, op: Op, args: list[np.ndarray]) -> np.ndarray:
        element = op.types[0].element
        mask = np.broadcast_to(args[2] if len(args) > 2 else True, args[0].shape)
        kind = op.attr("atomic_rmw_op")
        combine = {1: np.bitwise_and, 2: np.bitwise_or, 3: np.bitwise_xor, 4: np.add, 5: np.add, 6: np.maximum,
                   7: np.minimum, 8: _INT["maxui"], 9: _INT["minui"], 10: lambda a, b: b}.get(kind)  # fmt: skip
        if not combine:
            raise Unsupported(f"atomic {kind}")
        old = np.zeros(args[0].shape, DTYPES[element])
        for i in np.ndindex(args[0].shape):
            if mask[i]:
                at = (np.asarray(args[0][i]), element, np.asarray(True))
                old[i] = self.read(*at, np.asarray(0))
                self.write(*at, np.asarray(_narrow(combine(old[i], np.asarray(args[1])[i]), element)))
        return old

    # --- operations ---

    def evaluate(self, op: Op, args: list[np.ndarray]) -> list[np.ndarray]:
        dialect, _, name = op.name.partition(".")
        ty = op.types[0] if op.types else None
        if op.name in ("llvm.intr.assume", "tt.assert", "tt.print", "ttg.barrier", "gpu.barrier"):
            return []
        if name in _INT and dialect in ("arith", "math"):
            if args[0].dtype == np.bool_ and name in ("addi", "subi", "muli"):
                return [args[0] & args[1] if name == "muli" else args[0] ^ args[1]]
            return [_INT[name](*map(np.atleast_1d, args)).reshape(args[0].shape)]
        if name in _FLOAT:
            return [_FLOAT[name](*map(np.atleast_1d, args)).reshape(args[0].shape)]
        if op.name == "tt.extern_elementwise":
            return [self.extern(op, args)]
        method = getattr(self, "do_" + op.name.replace(".", "_"), None)
        if not method:
            raise Unsupported(op.name)
        out = method(op, args, ty)
        return out if isinstance(out, list) else [out]

    def extern(self, op: Op, args: list[np.ndarray]) -> np.ndarray:
        symbol = re.search(r'symbol = "__nv_(\w+)"', op.attrs)[1]
        base = symbol if symbol in _EXTERN else symbol[:-1]
        if base not in _EXTERN:
            raise Unsupported(symbol)
        exact = base == "nextafter"
        wide = [torch.from_numpy(np.ascontiguousarray(a)) for a in args]
        wide = [w.double() if w.is_floating_point() and not exact else w for w in wide]
        return _EXTERN[base](*wide).numpy().reshape(args[0].shape)

    def do_arith_constant(self, op, args, ty):
        text = re.search(r"value = (?:dense<(.*?)>|(\S+))", op.attrs)
        number = (text[1] or text[2]).strip()
        if number.startswith("0x"):
            width = {2: np.uint16, 4: np.uint32, 8: np.uint64}[(len(number) - 2) // 2]
            bits = np.array(int(number, 16), width)
            value = (
                (bits.astype(np.uint32) << 16).view(np.float32)
                if ty.element == "bf16"
                else bits.view(ty.dtype)
            )
        else:
            value = {"true": True, "false": False}.get(number)
            if value is None:
                value = float(number) if ty.element[0] in "fb" else int(number)
        return np.full(ty.shape, value, ty.dtype)

    def do_arith_cmpi(self, op, args, ty):
        sign = _CMPI[op.attr("predicate")]
        a, b = (_unsigned(x) for x in args) if sign[0] == "u" else args
        if a.dtype == np.bool_:  # as a signed integer, true is -1
            a, b = -a.astype(np.int8), -b.astype(np.int8)
        return _COMPARE[sign.lstrip("u")](a, b)

    def do_arith_cmpf(self, op, args, ty):
        sign, (a, b) = _CMPF[op.attr("predicate")], args
        nan = np.isnan(a) | np.isnan(b)
        if sign in ("ord", "uno"):
            return nan if sign == "uno" else ~nan
        holds = _COMPARE[sign.lstrip("u")](a, b)
        return holds | nan if sign[0] == "u" else holds & ~nan

    def do_arith_select(self, op, args, ty):
        return np.where(*args)

    def do_cast(self, op, args, ty):
        return args[0].astype(ty.dtype)

    do_arith_extf = do_arith_truncf = do_tt_fp_to_fp = do_cast

    def do_arith_trunci(self, op, args, ty):
        return args[0] & 1 != 0 if ty.element == "i1" else args[0].astype(ty.dtype)

    def do_arith_extsi(self, op, args, ty):
        wide = args[0].astype(ty.dtype)
        return 0 - wide if args[0].dtype == np.bool_ else wide

    do_arith_sitofp = do_arith_extsi

    def do_arith_extui(self, op, args, ty):
        return _unsigned(args[0]).astype(ty.dtype)

    do_arith_uitofp = do_arith_extui

    def do_arith_fptosi(self, op, args, ty):
        return np.trunc(args[0]).astype(np.int64).astype(ty.dtype)

    def do_arith_fptoui(self, op, args, ty):
        bits = 8 * np.dtype(ty.dtype).itemsize
        if bits < 32:
            return self.do_arith_fptosi(op, args, ty)
        x, end = np.nan_to_num(np.asarray(args[0], np.float64), nan=0.0), 2.0**bits
        inside = np.where(x < end, np.clip(x, 0, None), 0).astype(np.uint64)
        most = np.uint64(2**bits - 1)  # saturates, as on CUDA
        return np.where(x < end, inside, most).astype(f"u{bits // 8}").view(ty.dtype)

    def do_tt_bitcast(self, op, args, ty):
        if ty.pointer or args[0].dtype == ty.dtype:
            return args[0]
        return np.ascontiguousarray(args[0]).view(ty.dtype).reshape(ty.shape)

    def do_tt_mulhiui(self, op, args, ty):
        a, b = (_unsigned(x).astype(object) for x in args)
        bits = 8 * args[0].dtype.itemsize
        return np.asarray((a * b) // 2**bits % 2**bits).astype(f"u{bits // 8}").view(ty.dtype)

    def do_tt_make_range(self, op, args, ty):
        return np.arange(op.attr("start"), op.attr("end"), dtype=ty.dtype)

    def do_tt_splat(self, op, args, ty):
        return np.broadcast_to(args[0], ty.shape)

    def do_tt_broadcast(self, op, args, ty):
        return np.broadcast_to(args[0], ty.shape)

    def do_tt_reshape(self, op, args, ty):
        return args[0].reshape(ty.shape)

    do_tt_expand_dims = do_tt_unsplat = do_tt_reshape

    def do_tt_trans(self, op, args, ty):
        order = re.search(r"order = array<i32: ([\d, ]+)>", op.attrs)[1]
        return args[0].transpose([int(n) for n in order.split(",")])

    def do_tt_join(self, op, args, ty):
        return np.stack(args, -1)

    def do_tt_split(self, op, args, ty):
        return [args[0][..., 0], args[0][..., 1]]

    def do_tt_cat(self, op, args, ty):
        return np.concatenate(args)

    def do_tt_gather(self, op, args, ty):
        return np.take_along_axis(*args, op.attr("axis"))

    def do_tt_histogram(self, op, args, ty):
        kept = args[0][np.broadcast_to(args[1], args[0].shape)] if len(args) > 1 else args[0]
        return np.bincount(kept, minlength=ty.shape[0])[: ty.shape[0]]

    def do_tt_clampf(self, op, args, ty):
        return np.fmin(np.fmax(args[0], args[1]), args[2]) if "none" in op.attrs else np.clip(*args)

    def do_tt_addptr(self, op, args, ty):
        size = np.dtype(STORED.get(ty.element, DTYPES[ty.element])).itemsize
        return args[0] + args[1].astype(np.int64) * size

    def do_tt_load(self, op, args, ty):
        mask = np.broadcast_to(args[1] if len(args) > 1 else True, args[0].shape)
        return self.read(
            args[0], ty.element, mask, args[2] if len(args) > 2 else np.zeros((), DTYPES[ty.element])
        )

    def do_tt_store(self, op, args, ty):
        mask = np.broadcast_to(args[2] if len(args) > 2 else True, args[0].shape)
        self.write(args[0], self.pointee(op), mask, args[1])
        return []

    def pointee(self, op: Op) -> str:
        return self.element_of[op.args[0]]

    def do_tt_atomic_rmw(self, op, args, ty):
        return self.atomic(op, args)

    def do_tt_get_program_id(self, op, args, ty):
        return np.int32(self.program[op.attr("axis")])

    def do_tt_get_num_programs(self, op, args, ty):
        return np.int32(self.grid[op.attr("axis")])

    def do_tt_dot(self, op, args, ty):
        wide = np.int64 if ty.element[0] == "i" else np.float64
        return args[0].astype(wide) @ args[1].astype(wide) + args[2]

    def combine(self, op: Op, left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
        """Apply the combine region of a reduction or scan to arrays."""
        return [np.array(v) for v in self.elementwise(op.regions[0], [*left, *right], left[0].shape)]

    def elementwise(
        self, blocks: list[Block], values: list[np.ndarray], shape: tuple[int, ...]
    ) -> list[np.ndarray]:
        self.bind(blocks[0], values)
        for inner in blocks[0].ops[:-1]:
            results = self.evaluate(inner, [self.env[a] for a in inner.args])
            for name, value, ty in zip(inner.results, results, inner.types, strict=True):
                self.env[name] = _narrow(value, ty.element)
        return [np.broadcast_to(self.env[a], shape) for a in blocks[0].ops[-1].args]

    def do_tt_reduce(self, op, args, ty):
        axis = op.attr("axis")
        values = [np.moveaxis(a, axis, 0) for a in args]
        while len(values[0]) > 1:
            half = len(values[0]) // 2
            values = self.combine(op, [v[:half] for v in values], [v[half:] for v in values])
        return [v[0] for v in values]

    def do_tt_scan(self, op, args, ty):
        axis, reverse = op.attr("axis"), op.attr("reverse", 0)
        values = [np.moveaxis(a, axis, 0)[:: -1 if reverse else 1].copy() for a in args]
        step = 1
        while step < len(values[0]):
            sums = self.combine(op, [v[:-step] for v in values], [v[step:] for v in values])
            values = [np.concatenate([v[:step], s]) for v, s in zip(values, sums, strict=True)]
            step *= 2
        return [np.moveaxis(v[:: -1 if reverse else 1], 0, axis) for v in values]

    def do_scf_for(self, op, args, ty):
        low, high, step = (int(a) for a in args[:3])
        values = args[3:]
        index = op.regions[0][0].types[0].dtype
        for i in range(low, high, step):
            values = self.region(op.regions[0], [np.asarray(i, index), *values])
        return list(values)

    def do_scf_if(self, op, args, ty):
        if args[0]:
            return self.region(op.regions[0], [])
        return self.region(op.regions[1], []) if len(op.regions) > 1 else []

    def do_scf_while(self, op, args, ty):
        values = args
        for _ in range(100000):
            holds, *values = self.region(op.regions[0], values)
            if not holds:
                return values
            values = self.region(op.regions[1], values)
        raise Unsupported("a loop that doesn't end")


def note_pointees(function: Op) -> dict[str, str]:
    """Map each pointer's name to its element type."""
    found: dict[str, str] = {}

    def walk(blocks: list[Block]) -> None:
        for block in blocks:
            found.update((n, t.element) for n, t in zip(block.args, block.types, strict=True) if t.pointer)
            for op in block.ops:
                found.update((n, t.element) for n, t in zip(op.results, op.types, strict=True) if t.pointer)
                for region in op.regions:
                    walk(region)

    walk(function.regions[0])
    return found


def interpret(text: str, grid: tuple[int, int, int], buffers: list[np.ndarray | int | float]) -> None:
    """Run a module on ``buffers``, which are modified in place.

    Raises
    ------
    Unsupported
        If the interpreter does not support an operation.
    IndexError
        If the program accesses memory outside a buffer.
    """
    function = parse(text)
    machine = Interpreter(function, buffers, grid)
    machine.element_of = note_pointees(function)
    machine.run()
