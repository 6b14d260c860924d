"""Search for wrong code from Intel's CPU compiler in the op library (for Triton kernels: miscompilation.py).

    python tests/intel_cpu/operators.py [--every N] [--only PATTERN] [--folder FOLDER] [--jobs N]

The script first runs operators (operator_calls.py) in processes that build kernels with ``-cl-opt-disable``
and stores the results in the folder. It then runs them in processes with normal builds and prints the
differences. Work that is already complete in the folder is not repeated. OPENXPU_VARIANT=ref and
OPENXPU_POLICY=gpu in the environment select other kernels.

Integers, and floats that were only moved, must be equal bit by bit. Other floats may differ by the rounding
of an operation or two (builds.TOLERANCE), relative to each element. A second bound applies where that fails.
If the operator runs in float64 on PyTorch's CPU device, an element may differ by as much as the largest error
of the unoptimized build anywhere in the result (a sum with cancellation loses digits in both builds).
Otherwise the bound is relative to the largest value of the result.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from builds import REFERENCE, TOLERANCE, differing, largest, supervise
from operator_calls import Call, Unit, calls, moved, units
from torch.utils._pytree import tree_leaves

CHUNK = 300  # units per process
NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
         torch.complex64: "f32", torch.complex128: "f64"}  # fmt: skip
DOUBLE = {
    torch.complex64: torch.complex128,
    **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64),
}

Results = list[torch.Tensor] | str


def on_xpu(x: torch.Tensor) -> torch.Tensor:
    """Copy a tensor and its whole storage to xpu, keeping offset and strides."""
    if x.layout != torch.strided or x.is_conj() or x.is_neg():
        return x.detach().to("xpu").requires_grad_(x.requires_grad)
    storage = x.detach().as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    at = x.size(), x.stride(), x.storage_offset()
    return storage.to("xpu").as_strided(*at).requires_grad_(x.requires_grad)


def in_double(x: torch.Tensor) -> torch.Tensor:
    """Convert a floating-point tensor to float64 or complex128."""
    return x.detach().to(DOUBLE.get(x.dtype, x.dtype)).requires_grad_(x.requires_grad)


def plain(x: torch.Tensor) -> torch.Tensor:
    """Return the values on the CPU."""
    x = x.detach()
    return (x if x.layout == torch.strided else x.to_dense()).cpu().resolve_conj().resolve_neg().contiguous()


def results(call: Call, place: Any) -> Results:
    """Return the results of a call and its gradients, or the error that it raises."""
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = moved((call.args, call.kwargs), place)
            if place is on_xpu:
                kwargs = {k: "xpu" if str(v) == "cpu" else v for k, v in kwargs.items()}
            else:
                kwargs = {k: DOUBLE.get(v, v) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()}
            made = [x for x in tree_leaves(call.function(*args, **kwargs)) if isinstance(x, torch.Tensor)]
            inputs = [
                x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad
            ]
            ends = [x for x in made if x.requires_grad]
            gradients: list[Any] = []
            if ends and inputs:
                torch.manual_seed(2)
                like = [
                    torch.randn(x.shape, dtype=x.dtype.to_complex() if x.is_complex() else torch.float32)
                    for x in ends
                ]
                upstream = [w.to(x.device, x.dtype) for w, x in zip(like, ends, strict=True)]
                gradients = list(torch.autograd.grad(ends, inputs, upstream, allow_unused=True))
            return [plain(x) for x in [*made, *gradients] if x is not None]
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def bits(x: torch.Tensor) -> np.ndarray:
    """Return each element as one integer, or two for complex dtypes."""
    if x.is_complex():
        x = torch.view_as_real(x)
    if x.dtype == torch.bool or x.element_size() == 1:
        return x.reshape(-1).view(torch.uint8).numpy()
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.reshape(-1).view(kind).numpy()


def numbers(x: torch.Tensor) -> np.ndarray:
    """Return each element as one float64, or two for complex dtypes; integers unchanged."""
    if x.is_complex():
        x = torch.view_as_real(x)
    return (x.double() if x.is_floating_point() else x).reshape(-1).numpy()


def is_moved(wanted: torch.Tensor, call: Call) -> bool:
    """Return whether all values of a result occur in the call's arguments or are 0."""
    given = [
        bits(plain(x))
        for x in tree_leaves((call.args, call.kwargs))
        if isinstance(x, torch.Tensor) and x.dtype == wanted.dtype
    ]
    return bool(given) and bool(np.isin(bits(wanted), np.concatenate([[0], *given])).all())


def difference(call: Call, built: Results, wanted: Results) -> str | None:
    """Describe where the results of two builds differ."""
    if isinstance(built, str) or isinstance(wanted, str):
        return (
            None
            if isinstance(built, type(wanted))
            else f"{built if isinstance(built, str) else 'no error'}, "
            f"not {wanted if isinstance(wanted, str) else 'a result'}"
        )
    if [(x.shape, x.dtype) for x in built] != [(x.shape, x.dtype) for x in wanted]:
        return "results of other shapes"
    right: Results | None = None
    for i, (b, w) in enumerate(zip(built, wanted, strict=True)):
        if np.array_equal(bits(b), bits(w)):
            continue
        got, want = numbers(b), numbers(w)
        if right is None:
            right = results(call, in_double)
        true = (
            numbers(right[i]).astype(np.float64)
            if isinstance(right, list) and len(right) > i and right[i].shape == w.shape
            else None
        )
        error: Any = 0
        if w.dtype in NAMES and not is_moved(w, call):
            tolerance = TOLERANCE[NAMES[w.dtype]]
            lost = tolerance * largest(want)
            if true is not None and true.size == want.size:
                with np.errstate(all="ignore"):
                    off = np.abs(want - true)
                lost = 4 * largest(off)
            error = np.maximum(tolerance * np.abs(want), lost)
        wrong = differing(got, want, error)
        if wrong.any():
            at = np.flatnonzero(wrong)
            told = f"; float64: {true[at[0]]}" if true is not None and true.size == want.size else ""
            where = f"result {i} ({w.dtype}), {at.size} of {wrong.size} from {at[0]} to {at[-1]}"
            return f"{where}: {got[at[0]]}, not {want[at[0]]}{told}"
    return None


def checked(call: Call) -> int:
    """Return a checksum that shows whether two processes make the same call."""
    sums = [
        zlib.crc32(bits(plain(x)).tobytes())
        for x in tree_leaves((call.args, call.kwargs))
        if isinstance(x, torch.Tensor)
    ]
    return zlib.crc32(repr(sums).encode())


def name_of(unit: Unit) -> str:
    """Return the name of a unit, which is also the name of its file in the folder."""
    return re.sub(r"[^\w.]", "_", f"{unit.name}-{str(unit.dtype).removeprefix('torch.')}")


def keep(unit: Unit, path: Path) -> str:
    """Store the results of a unit's calls."""
    kept = [(checked(call), results(call, on_xpu)) for call in calls(unit)]
    torch.save(kept, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    return "same"


def compare(unit: Unit, path: Path) -> str:
    """Compare the results of a unit's calls with the stored ones."""
    if not path.exists():
        return "skipped"
    kept = torch.load(path)
    wrong, count = [], 0
    for call, (given, wanted) in zip(calls(unit), kept, strict=True):
        if given != checked(call):
            return "FAILS processes make other samples"
        built = results(call, on_xpu)
        count += not isinstance(built, str)
        told = difference(call, built, wanted)
        if told:
            wrong.append(f"{call.name}: {told}")
    path.with_suffix(".done").write_text(f"{count}\n" + "\n".join(wrong))
    return "same" if not wrong else f"DIFFERS in {len(wrong)} calls: {wrong[0]}".replace("\n", " ")


def chosen(every: int, only: str) -> list[Unit]:
    """Return every Nth unit whose name matches the pattern."""
    return [u for u in units() if re.search(only, name_of(u))][::every]


def work(what: str, folder: str, every: int, only: str, first: int, count: int) -> None:
    """Run a range of units."""
    for i, unit in enumerate(chosen(every, only)[first : first + count], first):
        path = Path(folder) / f"{name_of(unit)}.pt"
        if path.with_suffix(".done").exists() or (what == "keep" and path.exists()):
            continue
        print(f"begin {i} {name_of(unit)}", flush=True)
        if what == "keep":
            print("reference", flush=True)
        try:
            print((keep if what == "keep" else compare)(unit, path), flush=True)
        except Exception as error:
            print(f"FAILS {type(error).__name__}: {str(error)[:300]!r}", flush=True)


def hunt(folder: Path, options: argparse.Namespace) -> int:
    """Distribute the work over processes; print the totals."""
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    size = len(chosen(options.every, options.only))
    chunk = min(CHUNK, -(-size // options.jobs))
    kinds = {
        "keep": {"OPENXPU_BUILD_OPTIONS": REFERENCE, "OPENXPU_CACHE_DIR": str(folder / "unoptimized")},
        "compare": {"OPENXPU_DUMP_KERNELS": str(folder / "sources")},
    }

    def both(first: int) -> list[str]:
        found = []
        for what, environment in kinds.items():
            command = [
                sys.executable,
                __file__,
                "--work",
                what,
                str(folder),
                str(options.every),
                options.only,
            ]
            environment["OPENXPU_HOST_PROVIDER"] = "0"
            found += supervise(command, first, min(chunk, size - first), environment)[2]
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        told = [line for found in pool.map(both, range(0, size, chunk)) for line in found]
    kept = [folder / f"{name_of(unit)}.done" for unit in chosen(options.every, options.only)]
    done = [path.read_text().split("\n") for path in kept if path.exists()]
    found = sum(bool(d[1]) for d in done) + sum(" DIFFERS in " not in line for line in told)
    print(
        f"operators: {len(done)} with a dtype compared in {sum(int(d[0]) for d in done)} calls and "
        f"{len(list((folder / 'sources').iterdir()))} kernels, {size - len(done)} skipped, {found} findings"
    )
    return found > 0


def main() -> int:
    """Start the search, or run as one of its workers."""
    if sys.argv[1:2] == ["--work"]:
        what, folder, every, only, first, count = sys.argv[2:]
        work(what, folder, int(every), only, int(first), int(count))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="test every Nth operator and dtype")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only operators whose names match")
    parser.add_argument("--folder", type=Path, help="folder for the results")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="operators-") as temporary:
        return hunt(options.folder or Path(temporary), options)


if __name__ == "__main__":
    sys.exit(main())
