"""Writes the dispatcher code of the bridge from the installed PyTorch's own list of operators.

PyTorch's wheel carries its operator list (``native_functions.yaml``) and its code generator
(torchgen). This script takes the list, drops the XPU entries in it, enters the kernels of ours, and
lets torchgen write what PyTorch's own build would: for every operator the functional, in-place and
``out=`` wrappers over the shape functions (``structured_*`` classes) that the wheel holds, and the
registrations.

Where kernels come from
    ``native/*.yaml``
        One map a family, ``overload: kernel``: ``_softmax.out: softmax_xpu``. For a structured
        operator name its ``out`` overload and write ``TORCH_IMPL_FUNC(softmax_xpu)``; for any
        other, write the function ``at::native::<kernel>`` with the declared signature. An overload
        that not every supported PyTorch has says so: ``foo.out: foo_xpu since 2.14``,
        ``… until 2.12`` (inclusive).

What is written (only files whose content changed are touched)
    ``register_<family>.cpp``       wrappers and registrations
    ``ATen/ops/<name>_native.h``    declarations of the kernels; they stand before the wheel's own
    ``ATen/ops/<name>_xpu_dispatch.h``
    ``sources.txt``                 the C++ files above, one a line, for the build
    ``notes.txt``                   overloads that this PyTorch doesn't have
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torchgen
import yaml
from torchgen import dest, gen
from torchgen.model import (
    BackendIndex,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
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

Group: TypeAlias = "NativeFunction | NativeFunctionsGroup"
Version: TypeAlias = tuple[int, int]


class Mistake(Exception):
    """What is wrong in the input, in words for the one who wrote it."""


@dataclass(frozen=True)
class Entry:
    """One kernel of ours for one overload."""

    overload: str
    kernel: str
    family: str
    since: Version | None = None
    until: Version | None = None

    def expected(self, version: Version) -> bool:
        """Whether a PyTorch of this version should have the overload."""
        return (self.since is None or version >= self.since) and (
            self.until is None or version <= self.until
        )


ENTRY = re.compile(
    r"(?P<kernel>\w+)(?:\s+since\s+(?P<since>\d+\.\d+))?(?:\s+until\s+(?P<until>\d+\.\d+))?"
)


def parse_version(text: str) -> Version:
    """``"2.13.0+cpu"`` → ``(2, 13)``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def read_families(folder: Path) -> list[Entry]:
    """Read every ``*.yaml`` of ``folder``; the file's name is the family."""
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        for overload, value in (yaml.safe_load(path.read_text()) or {}).items():
            match = ENTRY.fullmatch(str(value))
            if match is None:
                raise Mistake(
                    f"{path}: {overload}: '{value}' is not 'kernel [since X.Y] [until X.Y]'"
                )
            since, until = (parse_version(text) if text else None for text in match.groups()[1:])
            entries.append(Entry(overload, match["kernel"], path.stem, since, until))
    return entries


def drop_xpu(operators: list[dict[str, Any]]) -> None:
    """Take PyTorch's own XPU kernels out of the list, in place."""
    for operator in operators:
        dispatch = operator.get("dispatch")
        if not dispatch:
            continue
        for keys in [k for k in dispatch if isinstance(k, str)]:
            names = [name.strip() for name in keys.split(",")]
            if "XPU" in names:
                names.remove("XPU")
                kernel = dispatch.pop(keys)
                if names:
                    dispatch[", ".join(names)] = kernel
        if not set(dispatch) - {"__line__"}:
            del operator["dispatch"]


def merge(
    operators: list[dict[str, Any]], entries: Sequence[Entry], version: Version
) -> tuple[dict[str, Entry], list[str]]:
    """Enter our kernels into the list, in place.

    Returns
    -------
    dict
        The entries in use, by overload.
    list of str
        One line for each entry that this version of PyTorch has no overload for.
    """
    by_name = {operator["func"].split("(")[0]: operator for operator in operators}
    used: dict[str, Entry] = {}
    notes = []
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
        if "structured_delegate" in operator:
            raise Mistake(f"{where}: name {operator['structured_delegate']}, which does the work")
        dispatch = operator.setdefault("dispatch", {})
        if not operator.get("structured") and not set(dispatch) - {"__line__"}:
            raise Mistake(f"{where}: is made of other operators; a kernel would lose its gradient")
        if "CompositeImplicitAutograd" in dispatch:
            raise Mistake(f"{where}: is made of other operators; a kernel would lose its gradient")
        dispatch["XPU"] = entry.kernel
        used[entry.overload] = entry
    return used, notes


def names(group: Group) -> list[str]:
    """Return the overloads of a group: ``["mul.Tensor", "mul.out", "mul_.Tensor"]``."""
    functions = group.functions() if isinstance(group, NativeFunctionsGroup) else [group]
    return [str(f.func.name) for f in functions]


class Output:
    """The folder written to: keeps what is unchanged, deletes what is no longer made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[Path] = set()

    def write(self, name: str, text: str) -> None:
        """Write ``text`` unless the file already holds it."""
        path = self.folder / name
        self.written.add(path)
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def clean(self) -> None:
        """Delete files of earlier runs that this one didn't make."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()


class Torchgen:
    """Torchgen's model of the merged list, and the texts made from it."""

    def __init__(self, operators: list[dict[str, Any]]) -> None:
        tags = gen.parse_tags_yaml(str(ATEN / "native" / "tags.yaml"))
        parsed = gen.parse_native_yaml_struct(operators, tags, IGNORED_KEYS, str(OPERATORS))
        self.indices: dict[DispatchKey, BackendIndex] = parsed.backend_indices
        self.xpu = self.indices[DispatchKey.XPU]
        self.files = FileManager(".", ATEN / "templates", dry_run=True)
        self.selector = SelectiveBuilder.get_nop_selector()
        self.by_root: dict[str, list[Group]] = defaultdict(list)
        for group in gen.get_grouped_native_functions(parsed.native_functions):
            self.by_root[group.root_name].append(group)

    def ours(self) -> list[Group]:
        """Return the groups in which a function has a kernel of ours."""
        return [
            group
            for groups in self.by_root.values()
            for group in groups
            if self.xpu.has_kernel(group)
            or isinstance(group, NativeFunctionsGroup)
            and any(self.xpu.has_kernel(f) for f in group.functions())
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

    def dispatch_header(self, root: str) -> str:
        """``ATen/ops/<root>_xpu_dispatch.h``."""
        declare = dest.RegisterDispatchKey(
            self.xpu,
            Target.NAMESPACED_DECLARATION,
            self.selector,
            rocm=False,
            symint=True,
            class_method_name=None,
            skip_dispatcher_op_registration=False,
        )
        text: str = self.files.substitute_with_template(
            "DispatchKeyFunction.h",
            lambda: {
                "dispatch_namespace": "xpu",
                "dispatch_namespaced_declarations": [
                    line for group in self.by_root[root] for line in declare(group)
                ],
            },
        )
        return text

    def registration(self, groups: Sequence[Group]) -> str:
        """Return wrappers and registrations of ``groups``, as one C++ file."""
        roots = sorted({group.root_name for group in groups})
        text: str = self.files.substitute_with_template(
            "RegisterDispatchKey.cpp",
            lambda: {
                "extra_cuda_headers": "",
                "external_backend_headers": "",
                "dispatch_headers": dest.gen_registration_headers(self.xpu, True, False),
                "ops_headers": [
                    f"#include <ATen/ops/{root}_{kind}.h>"
                    for root in roots
                    for kind in ("native", "xpu_dispatch")
                ],
                "dispatch_helpers": dest.gen_registration_helpers(self.xpu),
                "dispatch_definitions": gen.get_native_function_definitions(
                    fm=self.files,
                    grouped_native_functions=groups,
                    dispatch_key=DispatchKey.XPU,
                    backend_idx=self.xpu,
                    selector=self.selector,
                    rocm=False,
                    symint=True,
                    skip_dispatcher_op_registration=False,
                    gen_dispatch_helpers=True,
                ),
            },
        )
        return text


def generate(native: Path, folder: Path) -> None:
    """Write everything for the families in ``native`` into ``folder``."""
    version = parse_version(importlib.metadata.version("torch"))
    with OPERATORS.open() as file:
        operators = yaml.load(file, Loader=gen.LineLoader)
    drop_xpu(operators)
    used, notes = merge(operators, read_families(native), version)
    model = Torchgen(operators)

    families: dict[str, list[Group]] = defaultdict(list)
    for group in model.ours():
        families[next(used[name].family for name in names(group) if name in used)].append(group)

    output = Output(folder)
    for root in sorted({group.root_name for group in model.ours()}):
        output.write(f"ATen/ops/{root}_native.h", model.native_header(root))
        output.write(f"ATen/ops/{root}_xpu_dispatch.h", model.dispatch_header(root))
    sources = []
    for family, groups in sorted(families.items()):
        sources.append(f"register_{family}.cpp")
        output.write(sources[-1], model.registration(sorted(groups, key=lambda g: names(g)[0])))
    output.write("sources.txt", "".join(f"{source}\n" for source in sources))
    output.write("notes.txt", "".join(f"{note}\n" for note in notes))
    output.clean()


def fingerprint(inputs: Iterable[Path]) -> str:
    """Hash what the output depends on: the inputs, this script and the installed PyTorch."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    for path in [Path(__file__), *inputs]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; returns its exit status."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", type=Path, default=here / "native", help="folder of *.yaml")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args(arguments)

    # The same input as last time is no work; the stamp lies beside the folder.
    stamp = options.out.with_name(options.out.name + ".stamp")
    current = fingerprint(sorted(options.native.glob("*.yaml")))
    if stamp.exists() and stamp.read_text() == current:
        return 0
    try:
        generate(options.native, options.out)
    except Mistake as mistake:
        print(f"generate.py: {mistake}", file=sys.stderr)
        return 1
    stamp.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
