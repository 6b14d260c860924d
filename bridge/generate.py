"""Generate the bridge's dispatcher code from the installed PyTorch's operator list.

PyTorch's wheel contains its operator list (``native_functions.yaml``) and its code generator (torchgen). This
script removes the list's XPU entries, adds openxpu's kernels, and runs torchgen. The result is what PyTorch's
own build would contain: for every operator the functional, in-place and ``out=`` wrappers over the wheel's
shape functions (``structured_*`` classes), and the registrations.

Sources of kernels
    ``native/*.yaml``
        One map per family, ``overload: kernel``: ``_softmax.out: softmax_xpu``. For a structured operator,
        name its ``out`` overload and write ``TORCH_IMPL_FUNC(softmax_xpu)``. For any other, write the
        function ``at::native::<kernel>`` with the declared signature. Overloads that some supported PyTorch
        versions lack are marked ``foo.out: foo_xpu since 2.14`` or ``… until 2.12`` (inclusive).
    ``native/nested.yaml``, ``native/sparse.yaml``, ``native/sparse_csr.yaml``
        The same for strided nested tensors (dispatch key NestedTensorXPU; no ``out`` overloads) and sparse
        tensors (SparseXPU, SparseCsrXPU). Most of their kernels are PyTorch's own C++ over operators on the
        dense parts, which CPU and CUDA share. Those are registered for xpu automatically.
    ``src/ops/tables/reduce.def``
        Reductions. Kernels are generated for overloads with dim, keepdim and dtype, or some of these, unless
        a yaml file has them.
    ``src/ops/tables/pointwise.def``
        Pointwise operations of libxpu, with the overloads that each implements. Kernels are generated for
        structured overloads whose shape function is a TensorIterator, unless a yaml file has them. Any other
        overload needs a yaml entry and a handwritten function.

Output (only changed files are written)
    ``register_<number>.cpp``       wrappers and registrations
    ``register_kinds.cpp``          the same for nested and sparse tensors
    ``pointwise_kernels.cpp``       kernels of the pointwise table
    ``reduce_kernels.cpp``          kernels of the reduction table
    ``structured.cpp``, ``.h``      code shared by the wrappers of structured operators
    ``ATen/ops/<name>_native.h``    declarations of the kernels; they take precedence over the wheel's
    ``sources.txt``                 the C++ files above, one per line, for the build
    ``overloads.txt``               the registered overloads
    ``notes.txt``                   overloads that this PyTorch lacks
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torchgen
import yaml
from torchgen import dest, gen
from torchgen.api import native as native_api
from torchgen.api import structured
from torchgen.api.types import Binding
from torchgen.dest.register_dispatch_key import StructuredRegisterDispatchKey
from torchgen.model import (
    BackendIndex,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
    SchemaKind,
)
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import FileManager, Target

ATEN = Path(torchgen.__file__).parent / "packaged" / "ATen"
OPERATORS = ATEN / "native" / "native_functions.yaml"

# Backends whose kernels torchgen leaves out of the headers of a CPU build, as its own main() does.
IGNORED_KEYS = {
    DispatchKey.MPS,
    DispatchKey.SparseMPS,
    DispatchKey.SparseCsrMPS,
    DispatchKey.MTIA,
}

# Families whose kernels are for tensors of another kind than dense ones, and how their keys begin.
KINDS = {"nested": "NestedTensor", "sparse": "Sparse", "sparse_csr": "SparseCsr"}

# The PyTorch that the pointwise table is written for: there a name that doesn't exist is a mistake.
REFERENCE = (2, 13)

# Operators of these families leave the check that all tensors are on one device to a TensorIterator, which
# their kernels here don't build: the wrapper checks.
WITHOUT_ITERATOR = {"reduce"}

# Files of registrations, which compile side by side: few, since each compiles PyTorch's templates anew.
# Operators of the same C++ signature share these templates, so they are in one file; which one doesn't depend
# on the others.
PARTS = 4

Group: TypeAlias = "NativeFunction | NativeFunctionsGroup"
Version: TypeAlias = tuple[int, int]


class Mistake(Exception):
    """An error in the input, with a message for its author."""


@dataclass(frozen=True)
class Entry:
    """A kernel of openxpu for one overload."""

    overload: str
    kernel: str
    family: str
    since: Version | None = None
    until: Version | None = None

    @property
    def key(self) -> DispatchKey:
        """The dispatch key of the kernel."""
        return DispatchKey.parse(KINDS.get(self.family, "") + "XPU")

    def expected(self, version: Version) -> bool:
        """Return whether a PyTorch of this version should have the overload."""
        return (self.since is None or version >= self.since) and (self.until is None or version <= self.until)


ENTRY = re.compile(r"(?P<kernel>\w+)(?:\s+since\s+(?P<since>\d+\.\d+))?(?:\s+until\s+(?P<until>\d+\.\d+))?")


def parse_version(text: str) -> Version:
    """``"2.13.0+cpu"`` → ``(2, 13)``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def read_families(folder: Path) -> list[Entry]:
    """Read every ``*.yaml`` in ``folder``; the file name is the family."""
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        for overload, value in (yaml.safe_load(path.read_text()) or {}).items():
            match = ENTRY.fullmatch(str(value))
            if match is None:
                raise Mistake(f"{path}: {overload}: '{value}' is not 'kernel [since X.Y] [until X.Y]'")
            since, until = (parse_version(text) if text else None for text in match.groups()[1:])
            entries.append(Entry(overload, match["kernel"], path.stem, since, until))
    return entries


def drop_xpu(operators: list[dict[str, Any]]) -> None:
    """Remove PyTorch's XPU kernels from the list, in place."""
    ours = {"XPU", *(kind + "XPU" for kind in KINDS.values())}
    for operator in operators:
        dispatch = operator.get("dispatch")
        if not dispatch:
            continue
        for keys in [k for k in dispatch if isinstance(k, str)]:
            names = [name.strip() for name in keys.split(",")]
            others = [name for name in names if name not in ours]
            if others != names:
                kernel = dispatch.pop(keys)
                if others:
                    dispatch[", ".join(others)] = kernel
        if not set(dispatch) - {"__line__"}:
            del operator["dispatch"]
            operator["only_xpu"] = True  # merge takes it out again


def shared(operators: list[dict[str, Any]], family: str, by_hand: set[str]) -> list[Entry]:
    """Create entries for PyTorch's kernels of such tensors that CPU and CUDA share."""
    kind = KINDS[family]
    return [
        Entry(operator["func"].split("(")[0], kernel, family)
        for operator in operators
        for keys, kernel in (operator.get("dispatch") or {}).items()
        if {kind + "CPU", kind + "CUDA"} <= {name.strip() for name in str(keys).split(",")}
        and operator["func"].split("(")[0] not in by_hand
    ]


def merge(
    operators: list[dict[str, Any]], entries: Sequence[Entry], version: Version
) -> tuple[dict[str, Entry], list[str]]:
    """Add openxpu's kernels to the list, in place.

    Returns
    -------
    dict
        The used entries, by overload.
    list of str
        One line for each entry whose overload this PyTorch lacks.
    """
    by_name = {operator["func"].split("(")[0]: operator for operator in operators}
    used: dict[str, Entry] = {}
    notes = []
    only_xpu = {name for name, operator in by_name.items() if operator.pop("only_xpu", False)}
    for entry in entries:
        where = f"{entry.family}: {entry.overload}"
        if entry.overload in used:
            raise Mistake(f"{where}: already in family {used[entry.overload].family}")
        operator = by_name.get(entry.overload)
        if operator is None:
            if entry.expected(version):
                raise Mistake(f"{where}: PyTorch {version[0]}.{version[1]} has no such overload")
            notes.append(f"{where}: not in PyTorch {version[0]}.{version[1]}")
            continue
        dispatch = operator.setdefault("dispatch", {})
        if kind := KINDS.get(entry.family):
            if not any(kind in str(keys) for keys in dispatch):
                raise Mistake(f"{where}: PyTorch has no kernel for {entry.family} tensors, and no gradient")
        elif "structured_delegate" in operator:
            raise Mistake(f"{where}: name {operator['structured_delegate']}, which does the work")
        elif (
            not operator.get("structured")
            and not set(dispatch) - {"__line__"}
            and entry.overload not in only_xpu
        ):
            if entry.since and version < entry.since:
                notes.append(f"{where}: made of other operators in PyTorch {version[0]}.{version[1]}")
                continue
            raise Mistake(f"{where}: is made of other operators; a kernel would lose its gradient")
        elif "CompositeImplicitAutograd" in dispatch and not re.search(
            r"\b(CPU|CUDA)\b", " ".join(map(str, dispatch))
        ):
            raise Mistake(f"{where}: is made of other operators; a kernel would lose its gradient")
        if entry.family in WITHOUT_ITERATOR and not operator.get("structured"):
            operator.pop("device_check", None)
        dispatch[str(entry.key)] = entry.kernel
        used[entry.overload] = entry
    return used, notes


def names(group: Group) -> list[str]:
    """Return the overloads of a group: ``["mul.Tensor", "mul.out", "mul_.Tensor"]``."""
    functions = group.functions() if isinstance(group, NativeFunctionsGroup) else [group]
    return [str(f.func.name) for f in functions]


def signature(group: Group) -> str:
    """Return the types of a group's first function: ``"Tensor, Scalar -> Tensor"``."""
    function = next(iter(group.functions())) if isinstance(group, NativeFunctionsGroup) else group
    arguments = ", ".join(str(argument.type) for argument in function.func.arguments.flat_all)
    return f"{arguments} -> {', '.join(str(result.type) for result in function.func.returns)}"


# What a structured operator does once its meta function knows an output's shape: torchgen writes it anew into
# the two methods of each of an operator's three classes, but it is the same for all operators, and so
# compiled once.
SETTERS = [
    (SchemaKind.functional, False),
    *((kind, proxy) for kind in (SchemaKind.inplace, SchemaKind.out) for proxy in (False, True)),
]


def setter_name(kind: SchemaKind, proxy: bool) -> str:
    """Return the name of the function with this body."""
    return f"set_output_{kind.name}{'_or_proxy' if proxy else ''}"


def setter(kind: SchemaKind, proxy: bool) -> str:
    """Return the head of that function; its arguments have the names of the class's fields."""
    output = "Tensor" if kind is SchemaKind.functional else "std::reference_wrapper<Tensor>"
    proxies = "" if kind is SchemaKind.functional else ", std::optional<Tensor> *proxy_outputs_"
    return (
        f"void {setter_name(kind, proxy)}(int64_t output_idx, IntArrayRef sizes, IntArrayRef strides,\n"
        f"    const TensorOptions &options, {output} *outputs_{proxies}, c10::OptionalDeviceGuard &guard_)"
    )


class StructuredWrapper(StructuredRegisterDispatchKey):
    """Torchgen's classes of structured operators, with calls as bodies."""

    def gen_class_set_output_body(self, k: SchemaKind, maybe_create_proxy: bool) -> str:
        """Return the body of one of the two methods that torchgen generates in each class."""
        proxies = "" if k is SchemaKind.functional else ", proxy_outputs_.data()"
        name = setter_name(k, maybe_create_proxy and (k, True) in SETTERS)
        return f"{name}(output_idx, sizes, strides, options, outputs_.data(){proxies}, guard_);"

    def own_body(self, kind: SchemaKind, proxy: bool) -> str:
        """Return torchgen's body."""
        text: str = super().gen_class_set_output_body(kind, proxy)
        return text


class Wrapper(dest.RegisterDispatchKey):
    """Torchgen's wrappers, or their registrations."""

    def structured(self, group: NativeFunctionsGroup) -> StructuredWrapper:
        """Return the same for a structured operator."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return StructuredWrapper(**fields, g=group)

    def gen_structured(self, g: NativeFunctionsGroup) -> list[str]:
        """Return torchgen's code for a structured operator, with these classes."""
        kernel = self.backend_index.get_kernel(g)
        if kernel is None or not kernel.structured:
            return super().gen_structured(g)
        write = self.structured(g).gen_one
        return [text for text in map(write, g.functions()) if text is not None]


class Output:
    """The output folder: keeps unchanged files, deletes obsolete ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[Path] = set()

    def write(self, name: str, text: str) -> None:
        """Write ``text`` unless the file already contains it."""
        path = self.folder / name
        self.written.add(path)
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def clean(self) -> None:
        """Delete files of earlier runs that this one didn't write."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()


class Torchgen:
    """Torchgen's model of the merged list, and the code generated from it."""

    def __init__(self, operators: list[dict[str, Any]]) -> None:
        tags = gen.parse_tags_yaml(str(ATEN / "native" / "tags.yaml"))
        parsed = gen.parse_native_yaml_struct(operators, tags, IGNORED_KEYS, str(OPERATORS))
        self.indices: dict[DispatchKey, BackendIndex] = parsed.backend_indices
        self.xpu = self.indices[DispatchKey.XPU]
        self.kinds = {family: self.indices[DispatchKey.parse(kind + "XPU")] for family, kind in KINDS.items()}
        self.files = FileManager(".", ATEN / "templates", dry_run=True)
        self.selector = SelectiveBuilder.get_nop_selector()
        self.by_root: dict[str, list[Group]] = defaultdict(list)
        for group in gen.get_grouped_native_functions(parsed.native_functions):
            self.by_root[group.root_name].append(group)

    def having(self, index: BackendIndex) -> list[Group]:
        """Return the groups in which a function has a kernel in ``index``."""
        return [
            group
            for groups in self.by_root.values()
            for group in groups
            if index.has_kernel(group)
            or isinstance(group, NativeFunctionsGroup)
            and any(index.has_kernel(f) for f in group.functions())
        ]

    def native_header(self, root: str) -> str:
        """``ATen/ops/<root>_native.h``."""
        groups = self.by_root[root]
        structured = any(isinstance(g, NativeFunctionsGroup) and g.structured for g in groups)
        text: str = self.files.substitute_with_template(
            "NativeFunction.h",
            lambda: {
                "extra_includes": f"#include <ATen/ops/{root}_meta.h>" if structured else [],
                "native_function_declarations": gen.get_native_function_declarations(
                    grouped_native_functions=groups,
                    backend_indices=self.indices,
                    native_function_decl_gen=dest.compute_native_function_declaration,
                ),
            },
        )
        return text

    def wrapper(self, index: BackendIndex, target: Target) -> Wrapper:
        """Return the code generator for ``target`` and the key of ``index``."""
        return Wrapper(
            index,
            target,
            self.selector,
            rocm=False,
            symint=True,
            class_method_name=None,
            skip_dispatcher_op_registration=False,
        )

    def setters(self) -> tuple[str, str]:
        """``structured.h`` and ``structured.cpp``."""
        declared = "".join(f"{setter(kind, proxy)};\n" for kind, proxy in SETTERS)
        header = f"""\
// Written by generate.py: what setting an output is for all structured operators.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

namespace at {{
{declared}}}  // namespace at
"""
        group = next(g for g in self.having(self.xpu) if isinstance(g, NativeFunctionsGroup) and g.structured)
        structured = self.wrapper(self.xpu, Target.ANONYMOUS_DEFINITION).structured(group)
        lines = [
            "// Written by generate.py: torchgen's bodies, each as a function of its own.",
            '#include "structured.h"',
            "#include <ATen/native/Resize.h>",
            *dest.gen_registration_headers(self.xpu, True, False),
            "namespace at {",
            "namespace {",
            *dest.gen_registration_helpers(self.xpu),
            "}  // namespace",
            *(f"{setter(kind, proxy)} {{{structured.own_body(kind, proxy)}}}\n" for kind, proxy in SETTERS),
            "}  // namespace at",
        ]
        return header, "\n".join(lines) + "\n"

    def registration(self, groups: Sequence[Group], index: BackendIndex) -> str:
        """Return wrappers and registrations of ``groups`` for the key of ``index``, as one C++ file."""
        define, register = (
            [text for group in groups for text in self.wrapper(index, target)(group)]
            for target in (Target.ANONYMOUS_DEFINITION, Target.REGISTRATION)
        )
        # TORCH_FN makes a type of each function, and the dispatcher's templates are compiled for each of
        # them; of a pointer they are for each signature.
        registered = [re.sub(r"\bTORCH_FN\((\w+)\)", r"&\1", text) for text in register]
        lines = [
            f"// Written by generate.py: wrappers and registrations for {index.dispatch_key}.",
            "#include <ATen/DeviceGuard.h>",
            "#include <ATen/core/op_registration/adaption.h>",
            "#include <torch/library.h>",
            '#include "structured.h"',
            *(f"#include <ATen/ops/{root}_native.h>" for root in sorted({g.root_name for g in groups})),
            "",
            "namespace at {",
            "namespace {",
            *define,
            f"TORCH_LIBRARY_IMPL(aten, {index.dispatch_key}, m) {{",
            *registered,
            "}",
            "}  // namespace",
            "}  // namespace at",
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class TableUse:
    """An overload that an entry of the pointwise table implements, for some argument values."""

    overload: str
    qualifiers: tuple[tuple[str, str], ...]  # (argument, value)
    operation: str  # the enumerator's end
    scalars: str  # a letter each


TABLE_LINE = re.compile(
    r'^X\(\s*(?P<name>\w+),\s*"(?P<overloads>[^"]*)",\s*'
    r'"(?P<inputs>[a-z]*)(?:,(?P<scalars>[a-z]*))?>[a-z]*"',
    re.MULTILINE,
)
TABLE_USE = re.compile(r"(?P<overload>[\w.]+)(?:\[(?P<qualifiers>[^\]]*)\])?")


def read_table(path: Path) -> dict[str, list[TableUse]]:
    """Read the pointwise table: the entries of each overload, those with qualifiers first."""
    text = path.read_text()
    lines = list(TABLE_LINE.finditer(text))
    if len(lines) != len(re.findall(r"^X\(", text, re.MULTILINE)):
        raise Mistake(f"{path}: a line that starts with X( doesn't read like the others")
    uses: dict[str, list[TableUse]] = defaultdict(list)
    for line in lines:
        for word in line["overloads"].split():
            match = TABLE_USE.fullmatch(word)
            if match is None:
                if word == "-":
                    continue
                raise Mistake(f"{path}: {line['name']}: '{word}' is no overload")
            qualifiers = []
            for qualifier in (match["qualifiers"] or "").split(","):
                if qualifier:
                    argument, _, value = qualifier.partition("=")
                    qualifiers.append((argument, value))
            uses[match["overload"]].append(
                TableUse(match["overload"], tuple(qualifiers), line["name"], line["scalars"] or "")
            )
    for same in uses.values():
        same.sort(key=lambda use: -len(use.qualifiers))
    return dict(uses)


def table_entries(
    uses: dict[str, list[TableUse]], operators: list[dict[str, Any]], by_hand: set[str]
) -> list[Entry]:
    """Create entries for the overloads of the table whose kernels are generated."""
    by_name = {operator["func"].split("(")[0]: operator for operator in operators}
    entries = []
    for overload in uses:
        operator = by_name.get(overload)
        if overload in by_hand:
            continue
        if operator and operator.get("structured_inherits") != "TensorIteratorBase":
            continue
        entries.append(Entry(overload, kernel_name(overload), "pointwise", since=REFERENCE, until=REFERENCE))
    return entries


def kernel_name(overload: str) -> str:
    """Return the name of a generated kernel."""
    return re.sub(r"\W", "_", overload) + "_xpu"


def condition(argument: Binding, value: str) -> str:
    """Return a C++ test that ``argument`` has the value of a qualifier."""
    kind = argument.type
    optional = "optional" in kind.lower()
    if value == "None":
        return f"!{argument.name}.has_value()"
    if "string_view" in kind:
        value = f'"{value}"'
    elif value in ("True", "False"):
        value = value.lower()
    test = f"{argument.name}{'.value()' if optional else ''} == {value}"
    return f"{argument.name}.has_value() && {test}" if optional else test


def scalar(argument: Binding) -> str:
    """Return a C++ expression that passes a scalar to libxpu."""
    if "OptionalScalarRef" in argument.type:
        return f"scalar_of({argument.name}.get())"
    if "optional" in argument.type:
        return f"scalar_of({argument.name}.value())"
    return f"scalar_of({argument.name})"


def pointwise_kernel(group: NativeFunctionsGroup, kernel: str, uses: Sequence[TableUse]) -> str:
    """Generate the kernel of a structured overload: it selects the table entry and passes the scalars."""
    arguments = [a for a in structured.impl_arguments(group) if "Tensor" not in a.type]
    declared = ", ".join(a.decl() for a in structured.impl_arguments(group))
    overload = str(group.out.func.name)
    branches = []
    for use in uses:
        qualified = dict(use.qualifiers)
        for name in set(qualified) - {a.name for a in arguments}:
            raise Mistake(f"pointwise.def: {overload} has no argument {name}, or it is a tensor")
        call = f"pointwise(*this, common_dtype_, XPU_POINTWISE_{use.operation}"
        if use.scalars:  # without any in the table, the iterator holds them as 0-dimensional tensors
            numbers = [scalar(a) for a in arguments if a.name not in qualified]
            if len(use.scalars) != len(numbers):
                raise Mistake(f"pointwise.def: {use.operation}: {overload} has {len(numbers)} scalars")
            call += f", {{{', '.join(numbers)}}}"
        tests = [condition(a, qualified[a.name]) for a in arguments if a.name in qualified]
        branches.append((" && ".join(tests), call + ");"))
    if branches[-1][0]:
        known = {name: [dict(use.qualifiers).get(name) for use in uses] for name in dict(uses[-1].qualifiers)}
        why = ", ".join(
            f"{name} argument must be either {' or '.join(map(str, known[name]))}" for name in known
        )
        branches.append(("", f'TORCH_CHECK(false, "{overload}: {why}.");'))
    body = " else ".join(
        f"if ({test}) {{\n        {call}\n    }}" if test else f"{{\n        {call}\n    }}"
        for test, call in branches
    )
    if len(branches) == 1:
        body = branches[0][1]
    return f"TORCH_IMPL_FUNC({kernel})\n({declared}) {{\n    {body}\n}}\n"


def pointwise_kernels(groups: Sequence[NativeFunctionsGroup], uses: dict[str, list[TableUse]]) -> str:
    """Write ``pointwise_kernels.cpp``."""
    includes = "".join(
        f"#include <ATen/ops/{root}_native.h>\n" for root in sorted({g.root_name for g in groups})
    )
    overloads = {str(group.out.func.name): group for group in groups}
    kernels = "\n".join(
        pointwise_kernel(group, kernel_name(overload), uses[overload])
        for overload, group in sorted(overloads.items())
    )
    return f"""\
// Written by generate.py from the table of pointwise operations.
#include "native/pointwise.h"

{includes}
namespace at::native {{

using openxpu::pointwise;
using openxpu::scalar_of;

{kernels}
}}  // namespace at::native
"""


@dataclass(frozen=True)
class Reduction:
    """An entry of the reduction table."""

    operation: str  # the enumerator's end
    type: str  # that computed in: out, in, long or int
    outputs: int


REDUCE_LINE = re.compile(
    r'^X\(\s*(?P<name>\w+),\s*"(?P<overloads>[^"]*)",\s*"[a-z]*",\s*(?P<type>\w+),.*[\s,](?P<second>\S+)\)$',
    re.MULTILINE,
)


def read_reductions(path: Path) -> dict[str, Reduction]:
    """Read the reduction table: the entry of each overload."""
    text = path.read_text()
    lines = list(REDUCE_LINE.finditer(text))
    if len(lines) != len(re.findall(r"^X\(", text, re.MULTILINE)):
        raise Mistake(f"{path}: a line that starts with X( doesn't read like the others")
    found: dict[str, Reduction] = {}
    for line in lines:
        for overload in line["overloads"].split():
            if overload in found:
                raise Mistake(f"{path}: {line['name']}: {overload} is {found[overload].operation}'s")
            if overload != "-":
                found[overload] = Reduction(line["name"], line["type"], 1 if line["second"] == "0" else 2)
    return found


def reduce_kernel(overload: str, group: Group, reduction: Reduction) -> str:
    """Generate the kernel of an overload: it passes dimensions and outputs."""
    kernel, operation = kernel_name(overload), f"XPU_REDUCE_{reduction.operation}"
    is_structured = isinstance(group, NativeFunctionsGroup) and group.structured
    if is_structured:
        assert isinstance(group, NativeFunctionsGroup)
        arguments = structured.impl_arguments(group)
        outputs = [a.name for a in structured.out_arguments(group)]
    else:
        functions = group.functions() if isinstance(group, NativeFunctionsGroup) else [group]
        function = next(f for f in functions if str(f.func.name) == overload)
        arguments = native_api.arguments(function.func, symint=False)
        outputs = [] if function.func.arguments.out else ["result"]
        if len(function.func.returns) != 1 or function.func.kind().name != "functional":
            raise Mistake(f"reduce.def: {overload}: neither structured nor a function with one result")
    given = {a.name for a in arguments}
    if strange := given - {"self", "dim", "keepdim", "dtype", *outputs}:
        raise Mistake(
            f"reduce.def: {overload}: write a kernel by hand, which knows {', '.join(sorted(strange))}"
        )
    if len(outputs) != reduction.outputs:
        raise Mistake(f"reduce.def: {overload} has {len(outputs)} outputs, {operation} {reduction.outputs}")
    dims = "reduced_dims(self, dim)" if "dim" in given else "all_dims()"
    keep = "keepdim" if "keepdim" in given else "false"
    declared = ", ".join(a.defn() for a in arguments)
    if is_structured:
        call = "reduce_converted" if "dtype" in given else "reduce"
        body = f"{call}({operation}, self, {{{', '.join(outputs)}}}, {dims}, {keep});"
        return f"TORCH_IMPL_FUNC({kernel})\n({declared}) {{\n    {body}\n}}\n"
    types = {"in": "self.scalar_type()", "long": "at::kLong", "int": "at::kBool"}
    if "dtype" in given or reduction.type not in types:
        raise Mistake(f"reduce.def: {overload}: the dtype of its result takes a kernel written by hand")
    body = f"return reduced({operation}, self, {dims}, {keep}, {types[reduction.type]});"
    return f"at::Tensor {kernel}({declared}) {{\n    {body}\n}}\n"


def reduce_kernels(groups: dict[str, Group], reductions: dict[str, Reduction]) -> str:
    """Write ``reduce_kernels.cpp``."""
    includes = "".join(
        f"#include <ATen/ops/{root}_native.h>\n" for root in sorted({g.root_name for g in groups.values()})
    )
    kernels = "\n".join(
        reduce_kernel(overload, group, reductions[overload]) for overload, group in sorted(groups.items())
    )
    return f"""\
// Written by generate.py from the table of reductions.
#include "native/reduce.h"

{includes}
namespace at::native {{

using openxpu::all_dims;
using openxpu::reduce;
using openxpu::reduce_converted;
using openxpu::reduced;
using openxpu::reduced_dims;

{kernels}
}}  // namespace at::native
"""


def generate(native: Path, tables: Path, folder: Path) -> None:
    """Generate everything for the families in ``native`` and the ``tables`` into ``folder``."""
    version = parse_version(importlib.metadata.version("torch"))
    with OPERATORS.open() as file:
        operators = yaml.load(file, Loader=gen.LineLoader)
    drop_xpu(operators)
    by_hand = read_families(native)
    of_kind: dict[str, list[Entry]] = {family: [] for family in KINDS}
    for entry in [entry for entry in by_hand if entry.family in KINDS]:
        of_kind[entry.family].append(entry)
        by_hand.remove(entry)
    for family, entries in of_kind.items():
        entries += shared(operators, family, {entry.overload for entry in entries})
    uses = read_table(tables / "pointwise.def")
    taken = {entry.overload for entry in by_hand}
    by_table = table_entries(uses, operators, taken)
    reductions = read_reductions(tables / "reduce.def")
    of_reductions = [
        Entry(overload, kernel_name(overload), "reduce", since=REFERENCE, until=REFERENCE)
        for overload in reductions
        if overload not in taken
    ]
    used, notes = merge(operators, by_hand + by_table + of_reductions, version)
    for entries in of_kind.values():
        notes += merge(operators, entries, version)[1]
    model = Torchgen(operators)

    output = Output(folder)
    for root in sorted(
        {g.root_name for index in (model.xpu, *model.kinds.values()) for g in model.having(index)}
    ):
        output.write(f"ATen/ops/{root}_native.h", model.native_header(root))
    table_groups = [
        group
        for group in model.having(model.xpu)
        if isinstance(group, NativeFunctionsGroup) and used.get(str(group.out.func.name)) in by_table
    ]
    sources, overloads = ["pointwise_kernels.cpp", "reduce_kernels.cpp", "structured.cpp"], []
    output.write(sources[0], pointwise_kernels(table_groups, uses))
    of_overload = {name: group for group in model.having(model.xpu) for name in names(group)}
    reduce_groups = {e.overload: of_overload[e.overload] for e in of_reductions if e.overload in used}
    output.write(sources[1], reduce_kernels(reduce_groups, reductions))
    header, text = model.setters()
    output.write("structured.h", header)
    output.write(sources[2], text)
    parts: dict[int, list[Group]] = defaultdict(list)
    for group in sorted(model.having(model.xpu), key=lambda group: names(group)[0]):
        parts[zlib.crc32(signature(group).encode()) % PARTS].append(group)
    registrations = {
        f"register_{part}.cpp": model.registration(members, model.xpu) for part, members in parts.items()
    }
    for text in registrations.values():
        overloads += re.findall(r'm\.impl\("([\w.]+)"', text)
    registrations["register_kinds.cpp"] = "".join(
        model.registration(model.having(index), index) for index in model.kinds.values()
    )
    # The build starts with the first ones: the longest.
    for name, text in sorted(registrations.items(), key=lambda item: -len(item[1])):
        sources.append(name)
        output.write(name, text)
    output.write("sources.txt", "".join(f"{source}\n" for source in sources))
    output.write("overloads.txt", "".join(f"{overload}\n" for overload in sorted(overloads)))
    output.write("notes.txt", "".join(f"{note}\n" for note in notes))
    output.clean()


def fingerprint(inputs: Iterable[Path]) -> str:
    """Hash the inputs, this script and the installed PyTorch."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    for path in [Path(__file__), *inputs]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; return its exit status."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", type=Path, default=here / "native", help="folder of *.yaml")
    parser.add_argument(
        "--tables",
        type=Path,
        default=here.parent / "src" / "ops" / "tables",
        help="folder of pointwise.def and reduce.def",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args(arguments)

    # The same input as last time is no work; the stamp lies beside the folder.
    stamp = options.out.with_name(options.out.name + ".stamp")
    tables = [options.tables / name for name in ("pointwise.def", "reduce.def")]
    current = fingerprint([*sorted(options.native.glob("*.yaml")), *tables])
    if stamp.exists() and stamp.read_text() == current:
        return 0
    try:
        generate(options.native, options.tables, options.out)
    except Mistake as mistake:
        print(f"generate.py: {mistake}", file=sys.stderr)
        return 1
    stamp.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
