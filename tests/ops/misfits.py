"""Calls of operators whose arguments don't fit each other: an error is due, or a result; never a signal.

`python misfits.py OPERATOR… [--changes N]` records the calls that PyTorch's samples (OpInfo) of these operators make on
xpu, forward and backward, and makes them again with a size, or an element of a tensor of integers, changed here and
there. Memory comes from an allocator that puts the end of each block beside a page that nobody may touch, so that a
kernel that reads or writes behind its operands ends the process. Prints a line per failure and a count; the exit status
tells whether there was a failure. Without operators it takes all of OpInfo, or with `--every N` one in N. With
`--indices` only elements are changed, and those of ATen's operators are named that took a number beyond every size
without an error: no index is among their arguments, or a check is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT), str(ROOT / "tests")]

import openxpu  # noqa: E402, F401
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

if TYPE_CHECKING:
    from tests.ops.recorded import Call

ALLOCATOR = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGNED = 16, LATE = 512 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *base; size_t size; } given[LATE]; /* back, and not yet the system's */
static unsigned next;

static size_t pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

void *take(size_t size, int device, void *queue) {
    if (size > (size_t)1 << 30) return NULL;
    char *base = mmap(NULL, pages(size) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    mprotect(base + pages(size), PAGE, PROT_NONE);
    memset(base, 0xff, pages(size));
    return base + pages(size) - (size + ALIGNED - 1) / ALIGNED * ALIGNED;
}

void give(void *pointer, size_t size, int device, void *queue) {
    char *base = (char *)((uintptr_t)pointer / PAGE * PAGE);
    pthread_mutex_lock(&lock);
    if (given[next].base) munmap(given[next].base, pages(given[next].size) + PAGE);
    given[next].base = base;
    given[next].size = size;
    next = (next + 1) % LATE;
    pthread_mutex_unlock(&lock);
}
"""

SECONDS = 60  # time limit of a call, with kernel builds
CALLS = 8  # recorded calls per operator
FAR = {torch.int32: 2**30, torch.int64: 2**40}  # beyond every size
# PyTorch's own shape functions read their lists without a check, on the CPU too.
UNCHECKED_LISTS = {"aten::reflection_pad1d_backward"}


def resized(x: Tensor, dim: int, size: int) -> Tensor:
    """Return ``x`` with another size; its values are repeated, so that indices stay in range."""
    if size == 0 or x.size(dim) == 0:
        shape = list(x.shape)
        shape[dim] = size
        return x.new_zeros(shape)
    return x.index_select(dim, torch.arange(size) % x.size(dim))


def other_tensors(x: Tensor) -> Iterator[Tensor]:
    """Yield tensors of the same dtype that differ in one size or in the number of dimensions."""
    for dim in range(x.dim()):
        for size in (0, 1, x.size(dim) - 1, x.size(dim) + 1, 2 * x.size(dim), 5 * x.size(dim) + 3):
            if size >= 0 and size != x.size(dim):
                yield resized(x, dim, size)
    yield x.unsqueeze(0)
    yield x.unsqueeze(-1)
    if x.dim() > 0:
        yield x[:0].reshape(0)
        yield x.reshape(-1)
        if x.size(0) > 0:
            yield x[0].clone()


def others(value: Any, type_name: str) -> Iterator[Any]:
    """Yield other values of an argument."""
    if isinstance(value, Tensor):
        yield from other_tensors(value)
        if "Optional" in type_name:
            yield None
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int) and "number" not in type_name:
        yield from (0, -1, -3, 1, value + 1, value - 1, 2 * value, 7, 100)
    elif isinstance(value, (list, tuple)) and not all(isinstance(v, bool) for v in value):
        for i, v in enumerate(value):
            for other in others(v, ""):
                yield [*value[:i], other, *value[i + 1 :]]
        yield list(value[:-1])
        yield [*value, *value[-1:]]
        yield []


def other_elements(value: Any, type_name: str) -> Iterator[Any]:
    """Yield tensors of integers with one element, the first or the last, that may be no index of anything."""
    if isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            for other in other_elements(v, ""):
                yield [*value[:i], other, *value[i + 1 :]]
    elif isinstance(value, Tensor) and value.dtype in FAR and value.numel() > 0:
        far = FAR[value.dtype]
        for place in (0, -1) if value.numel() > 1 else (0,):
            for element in (far, -far, -1, value.max().item() + 1, 1000):
                other = value.clone(memory_format=torch.contiguous_format)
                other.view(-1)[place] = element
                yield other


def changed(
    call: Call, other: Callable[[Any, str], Iterator[Any]]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield the call's arguments with one of them changed."""
    types = [str(a.real_type) for a in call.overload._schema.arguments]
    for i, value in enumerate(call.args):
        for changed_value in other(value, types[i]):
            yield (*call.args[:i], changed_value, *call.args[i + 1 :]), call.kwargs
    for name, value in call.kwargs.items():
        for changed_value in other(value, ""):
            yield call.args, {**call.kwargs, name: changed_value}


def is_far(way: tuple[Any, Any]) -> bool:
    """Whether there is an element beyond every size."""
    return any(
        isinstance(x, Tensor) and x.dtype in FAR and x.numel() > 0 and bool((x.abs() == FAR[x.dtype]).any())
        for x in tree_leaves(way)
    )


def shown(value: Any) -> Any:
    """Return a short description of arguments."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def overload_of(name: str) -> torch._ops.OpOverload:
    """Return the operator named like ``aten::add.out``."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def compiled_allocator(folder: str) -> str:
    """Return the allocator library."""
    source, library = Path(folder, "guard.c"), Path(folder, "guard.so")
    source.write_text(ALLOCATOR)
    command = [
        os.environ.get("CC", "cc"),
        "-O1",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-pthread",
    ]
    subprocess.run(command, check=True)
    return str(library)


def on_xpu(x: Any) -> Any:
    """Copy a tensor with its strides; replace devices in other values."""
    if isinstance(x, Tensor):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="xpu").copy_(x)
    return torch.device("xpu") if isinstance(x, torch.device) else x


def make_calls(cases: Path, library: str, first: int) -> None:
    """In a separate process: make the calls from number ``first`` on, and report each number first.

    A number with "silent" reports that the call, with an element beyond every size, gave a result.
    """
    torch.xpu.memory.change_current_allocator(torch.xpu.memory.XPUPluggableAllocator(library, "take", "give"))
    libc = ctypes.CDLL(None)
    for number, (name, args, kwargs) in enumerate(torch.load(cases, weights_only=False)):
        if number < first:
            continue
        print(number, flush=True)
        libc.alarm(SECONDS)
        there, options = tree_map(on_xpu, (args, kwargs))
        with contextlib.suppress(Exception):  # as it should
            overload_of(name)(*there, **options)
            torch.xpu.synchronize()
            if is_far((args, kwargs)):
                print(number, "silent", flush=True)
        torch.xpu.synchronize()
    libc.alarm(0)
    sys.stdout.flush()
    os._exit(0)


def recorded_calls(operators: list[str], every: int) -> dict[str, list[Call]]:
    """Return the calls that samples make, by ATen operator; of all operators if none is named."""
    # They ask for the device, after which no allocator can be set.
    from tests.ops.recorded import OPERATORS, Call, record

    calls: dict[str, list[Call]] = {}
    for info in OPERATORS:
        name = info.formatted_name
        if name in operators if operators else zlib.crc32(name.encode()) % every == 0:
            for overload, kept in record(info).items():
                if overload.namespace == "aten":
                    known = calls.setdefault(overload.name(), [])
                    known += [Call(c.overload, *c.on("cpu")) for c in kept[: CALLS - len(known)]]
    return calls


def misfits(
    calls: dict[str, list[Call]], changes: int, sizes: bool = True, silent: list[str] | None = None
) -> Iterator[str]:
    """Make the calls with changed arguments; return a line for each that ended the process, and print a count.

    Parameters
    ----------
    calls: by operator.
    changes: of sizes, of each operator, and as many of elements of integers.
    sizes: change those, too.
    silent: gets the operators that took an element beyond every size without an error.
    """
    cases = []
    for name, kept in sorted(calls.items()):
        draw = random.Random(zlib.crc32(name.encode()))
        for other in (others, other_elements) if sizes else (other_elements,):
            ways = [way for call in kept for way in changed(call, other)]
            if name in UNCHECKED_LISTS:
                ways = [way for way in ways if not any(isinstance(x, list) and not x for x in way[0])]
            cases += [(name, *way) for way in draw.sample(ways, min(len(ways), changes))]
    with tempfile.TemporaryDirectory() as folder:
        library, file, first = compiled_allocator(folder), Path(folder, "cases"), 0
        torch.save(cases, file, pickle_protocol=5)
        while first < len(cases):
            command = [
                sys.executable,
                __file__,
                "--cases",
                str(file),
                "--library",
                library,
                "--first",
                str(first),
            ]
            ran = subprocess.run(command, capture_output=True, text=True)
            lines = [line.split() for line in ran.stdout.splitlines()]
            if silent is not None:
                silent += [cases[int(line[0])][0] for line in lines if line[1:] == ["silent"]]
            if ran.returncode == 0:
                break
            assert lines, ran.stderr[-2000:]
            last = int(lines[-1][0])
            name, args, kwargs = cases[last]
            ended = signal.Signals(-ran.returncode).name if ran.returncode < 0 else ran.returncode
            yield f"{ended} {name}({', '.join(map(shown, args))}, { ({k: shown(v) for k, v in kwargs.items()}) })"
            first = last + 1
    print(f"{len(calls)} operators, {len(cases)} calls", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--changes", type=int, default=40, help="number of changed calls per ATen operator")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--indices", action="store_true")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--library")
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    if given.cases:
        make_calls(given.cases, given.library, given.first)
    failures = 0
    silent: list[str] = []
    calls = recorded_calls(given.operators, given.every)
    for failure in misfits(calls, given.changes, not given.indices, silent):
        print(failure, flush=True)
        failures += 1
    if given.indices:
        print("silent:", *sorted(set(silent)))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
