"""The ``openxpu`` command: info, doctor, report, run, simulate, warm, tune, compile, export, run-package."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openxpu import _simulate

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.table import Table

# `compile` and `run` should start fast: slow imports (torch, rich) are local.


def _size(count: float) -> str:
    """Format a number of bytes: 1536 → "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _folder_size(folder: Path) -> tuple[int, int]:
    """Return the number of files and bytes below ``folder``."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def _table(*headers: str, title: str | None = None) -> Table:
    """Return an empty table that never cuts a word short."""
    from rich.table import Table

    table = Table(title=title)
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def _print_tuning(console: Console, device: int) -> None:
    """Print the tuning table of a device."""
    from rich.padding import Padding

    from openxpu import _tune

    console.print(f"tuning of xpu:{device}", style="italic")
    for line in _tune.Table(device):
        console.print(f"{line.name} = {line.shown} {line.unit} ({line.source}, bench/{line.benchmark})")
        console.print(Padding(line.text, (0, 0, 0, 4)), highlight=False)


def _rates(device: int) -> Table | None:
    """Return the rates of matrix tiles, formatted; None if there are none."""
    from openxpu import _tune

    tuning = _tune.Table(device)
    table = _table(
        "products",
        "tile",
        *_tune.LAYOUTS,
        "from",
        title="rates: multiply-adds per microsecond and compute unit",
    )
    for products in tuning.kinds():
        for tile in tuning.tiles(products):
            rates = (
                f"{rate:,.0f}" if line else "" for rate, line in zip(tile.rates, tile.lines, strict=True)
            )
            table.add_row(products.shown, tile.name, *rates, tile.source)
    return table if table.row_count else None


def _products(device: int) -> str:
    """Return what multiplies products of each dtype, one line each."""
    from openxpu import _tile

    xpu, unit = _tile.library(), ctypes.c_char_p()
    xpu.xpu_dtype_name.restype = ctypes.c_char_p
    by: dict[str, list[str]] = {}
    number = 0
    while (name := xpu.xpu_dtype_name(number).decode()) != "unknown":
        plain = ""
        for tf32 in (False, True):
            if xpu.xpu_gemm_engine(device, number, ctypes.c_bool(tf32), ctypes.byref(unit)):
                break  # the dtype can't be multiplied
            text = (unit.value or b"").decode()
            if text != plain:
                by.setdefault(text, []).append(f"{name} with tf32 allowed" if tf32 else name)
            plain = text
        number += 1
    return "\n".join(f"{', '.join(names)}: {text}" for text, names in by.items())


def _print_missing_gpu(console: Console) -> None:
    """Say why no GPU is listed, where libxpu knows it."""
    from openxpu import _bridge

    if hint := _bridge.no_gpu_hint():
        console.print("No GPU.", style="yellow", end=" ")
        console.print(hint, markup=False, highlight=False, soft_wrap=True)


def info(tuning: bool = False) -> int:
    """Print devices, features, drivers, memory and the kernel cache; with `tuning`, the parameters too."""
    import torch
    from rich.console import Console
    from rich.table import Table

    import openxpu
    from openxpu import _tune

    console = Console()
    console.print(f"openxpu {openxpu.__version__}, PyTorch {torch.__version__}")
    if not openxpu.is_loaded():
        try:
            torch.xpu.init()
        except Exception as error:  # shown as text
            console.print(f"[red]xpu is not available:[/red] {error}")
        return 1
    from openxpu import _bridge

    if not torch.xpu.is_available():
        console.print(f"[red]No device.[/red] {_bridge.no_device_hint()}")
        return 1
    for index in range(torch.xpu.device_count()):
        properties = torch.xpu.get_device_properties(index)
        free, total = torch.xpu.mem_get_info(index)
        table = Table(title=f"xpu:{index}  {properties.name}", show_header=False, title_justify="left")
        table.add_row("type", properties.type)
        table.add_row("platform", f"{properties.platform_name} ({properties.version})")
        table.add_row("driver", properties.driver_version)
        table.add_row(
            "memory", f"{_size(free)} free of {_size(total)}; allocated as {properties.memory.upper()}"
        )
        table.add_row("compute units", str(properties.max_compute_units))
        table.add_row("work-group", f"up to {properties.max_work_group_size} work-items")
        table.add_row("subgroups", ", ".join(map(str, properties.sub_group_sizes)) or "none")
        able = [
            name.removeprefix("has_")
            for name, value in vars(properties).items()
            if name.startswith("has_") and value
        ]
        table.add_row("has", ", ".join(able))
        table.add_row("matrix products", _products(index))
        console.print(table)
        if tuning:
            _print_tuning(console, index)
            rates = _rates(index)
            if rates:
                console.print(rates)
        if problem := _tune.Table(index).problem():
            console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    _print_missing_gpu(console)
    cache = Path(_bridge.cache_dir())
    files, size = _folder_size(cache) if cache.is_dir() else (0, 0)
    console.print(f"kernel cache: {cache} ({files} files, {_size(size)})")
    return 0


def doctor() -> int:
    """Run a self-test on each device and print what fails."""
    import torch
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from openxpu import _self_test

    if not torch.xpu.is_available():
        return info()
    console = Console()
    failures = 0
    for index in range(torch.xpu.device_count()):
        table = Table(
            "check",
            "result",
            "time",
            title=f"xpu:{index}  {torch.xpu.get_device_name(index)}",
            title_justify="left",
        )
        for result in _self_test.run(index):
            failures += bool(result.error)
            shown = f"[red]{escape(result.error)}[/red]" if result.error else "[green]ok[/green]"
            table.add_row(result.name, shown, f"{result.seconds:.2f} s")
        console.print(table)
    _print_missing_gpu(console)
    if failures:
        console.print(f"[red]{failures} checks failed.[/red] `openxpu info` describes the devices.")
    return 1 if failures else 0


def run(program: Sequence[str]) -> int:
    """Run a Python program with xpu as PyTorch's accelerator, even in a CUDA build of PyTorch."""
    environment = dict(os.environ, OPENXPU_ACCELERATOR="1")
    if _is_cuda_build():
        library = str(Path(__file__).with_name("_accelerator.so"))
        environment["LD_PRELOAD"] = ":".join(filter(None, [library, os.environ.get("LD_PRELOAD")]))
    os.execve(sys.executable, [sys.executable, *program], environment)


def warm(options: argparse.Namespace) -> int:
    """Build the kernels of common programs, or of the user's lists, into the cache."""
    import ctypes

    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from openxpu import _tile, _warm

    console = Console()
    if options.record:
        return _warm.record(options.arguments, Path(options.record), options.name)
    os.environ.setdefault("OPENXPU_DRIVER_PATH", os.path.join(sys.prefix, "lib"))
    count = ctypes.c_int()
    xpu = _tile.library()
    xpu.xpu_no_device_hint.restype = ctypes.c_char_p
    if xpu.xpu_device_count(ctypes.byref(count)) or not count.value:
        console.print(f"[red]No device.[/red] {xpu.xpu_no_device_hint().decode()}")
        return 1
    try:
        lists = [_warm.RequestList.parse(Path(path).read_text()) for path in options.arguments]
        devices = range(count.value) if options.device is None else [options.device]
        kinds = {device: _warm.kind_of(device) for device in devices}
    except (OSError, ValueError, RuntimeError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    status = 0
    for device, kind in kinds.items():
        wanted = [request for list_ in lists or [_warm.common()] for request in list_.commonest(kind)]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        start = time.perf_counter()
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(f"kernels for xpu:{device}", total=len(wanted))
            outcome = _warm.build(
                device, list(dict.fromkeys(wanted)), options.jobs, lambda task=task: progress.advance(task)
            )
        seconds = time.perf_counter() - start
        rest = outcome.wanted - outcome.built - len(outcome.errors)
        console.print(
            f"xpu:{device} ({kind}): {outcome.built} kernels built in {seconds:.1f} s, "
            f"{rest} were already cached",
            highlight=False,
        )
        if not wanted:
            console.print(f"No list has kernels for devices of kind {kind}; record one with --record.")
        for request, error in outcome.errors.items():
            status = 1
            first = error.strip().splitlines()[0] if error.strip() else "no reason given"
            label = (request.split("|")[3:4] or [request])[0]
            console.print(f"[red]{escape(label)}[/red] {escape(first)}", highlight=False)
    return status


def tune(options: argparse.Namespace) -> int:
    """Measure the tunable parameters on this machine, and save them beside the kernel cache."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from openxpu import _tune

    console = Console()
    if not torch.xpu.is_available():
        return info()
    if not 0 <= options.device < torch.xpu.device_count():
        console.print(f"[red]No device xpu:{options.device}.[/red]")
        return 1
    tuning = _tune.Table(options.device)
    if problem := tuning.problem():
        console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    questions = _tune.questions(options.device)
    pinned = {line.name for line in tuning if line.source == "pinned"}
    asked = [question for question in questions if question.name not in pinned]
    rated = [
        (products, along_k)
        for products in tuning.kinds()
        for along_k in _tune.layouts(options.device, products)
    ]
    if not asked and not rated:
        console.print(
            f"All parameters that can be measured on xpu:{options.device} are pinned; there is nothing to "
            f"tune."
        )
        return 0
    points = sum(len(question.points) for question in asked)
    tiles = sum(len(tuning.tiles(products)) for products, _ in rated)
    each = options.seconds / (points + tiles)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    table = _table("name", "before", "now", "unit", "speedup by size, small to large")
    found = _table("products", "", "fastest tile before", "now", "speedup")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=points + tiles)
        for products, along_k in rated:
            progress.update(task, description=f"{products.shown}, {_tune.LAYOUTS[along_k]}")
            rates = _tune.measure(options.device, products, along_k, each * len(tuning.tiles(products)))
            progress.advance(task, len(rates.tiles))
            first, last = rates.fastest
            gain = rates.after[last] / rates.after[first]
            names = (rates.tiles[first].name, rates.tiles[last].name)
            found.add_row(products.shown, _tune.LAYOUTS[along_k], *names, f"{gain:.2f}")
        for question in asked:
            progress.update(task, description=question.name)
            answer = _tune.ask(options.device, question, each, lambda: progress.advance(task))
            gains = " ".join(f"{math.exp(gain):.2f}" for gain in answer.gains)
            table.add_row(answer.name, answer.before.shown, answer.after.shown, answer.after.unit, gains)
    for results in (found, table):
        if results.row_count:
            console.print(results)
    try:
        console.print(f"saved to {tuning.keep()}", highlight=False)
    except RuntimeError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    return 0


def compile_ttir(options: argparse.Namespace) -> int:
    """Compile a Triton IR file: write OpenCL C, an image, or the module after a stage."""
    from openxpu import _tile

    try:
        program = _tile.compile_module(
            Path(options.file).read_bytes(),
            target=int(options.device) if options.device.isdigit() else options.device,
            file=options.file,
            num_warps=options.num_warps,
            comments=options.comments,
            dump_after=options.dump_after,
        )
    except (OSError, _tile.CompileError) as error:
        print(error, file=sys.stderr)
        return 1
    made = (
        program.image
        if options.image and not program.dump
        else (program.dump or program.source).encode(errors="replace")
    )
    if options.output:
        Path(options.output).write_bytes(made)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()
    if options.time:
        for stage, seconds in program.seconds.items():
            print(f"{stage:8} {seconds * 1e3:8.3f} ms", file=sys.stderr)
    return 0


def _load_exported(file: str) -> torch.export.ExportedProgram:
    """Load what torch.export.save wrote.

    PyTorch logs why a file can't be read, with a traceback, then tries its older format and raises an error
    about that. Here the first reason is the error's text, and isn't logged.
    """
    import logging
    import zipfile

    import torch

    reasons: list[BaseException] = []

    def is_of_use(record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith("Ran into the following error when deserializing"):
            return True
        reasons.extend(filter(None, (record.exc_info or ())[1:2]))
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(is_of_use)
    try:
        with open(file, "rb"):  # a missing file has a plain error
            return torch.export.load(file)
    except (RuntimeError, ValueError, zipfile.BadZipFile) as error:
        text = str(reasons[0] if reasons else error).splitlines()
        raise RuntimeError(f"could not load {file}: {text[0] if text else 'no reason given'}") from error
    finally:
        logger.removeFilter(is_of_use)


def export(options: argparse.Namespace) -> int:
    """Export a program saved with torch.export.save as a package."""
    import torch

    import openxpu

    if not openxpu.is_loaded() or not torch.xpu.is_available():
        print(openxpu.no_device_hint(), file=sys.stderr)
        return 1
    try:
        targets = options.target.split(",") if options.target else None
        exported = _load_exported(options.file)
        output = options.output or f"{options.file}.xpk"
        path = openxpu.package(exported, output, targets=targets, compiler=options.ocloc)
    except (OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{path}: {_size(os.path.getsize(path))}")
    return 0


def _is_cuda_build() -> bool:
    """Return whether PyTorch is a CUDA build, from its installed files, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return False
    return (Path(spec.submodule_search_locations[0]) / "lib" / "libtorch_cuda.so").exists()


def make_parser() -> argparse.ArgumentParser:
    """Return the command line parser."""
    parser = argparse.ArgumentParser(prog="openxpu", description="PyTorch's xpu device over OpenCL")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    informer = commands.add_parser(
        "info",
        help="list devices, drivers, memory and the kernel cache, or what to install if there is no device",
    )
    informer.add_argument(
        "--tuning", action="store_true", help="list the parameters that affect only speed, and their sources"
    )
    commands.add_parser("doctor", help="run a self-test on each device")
    reporter = commands.add_parser(
        "report", help="write what a device computes and how fast, to send or keep"
    )
    reporter.add_argument("--device", type=int, default=0, help="device index")
    reporter.add_argument("--seconds", type=float, default=60, help="approximate time to measure")
    reporter.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("openxpu-report"),
        help="the two files, without .json and .html (default: %(default)s)",
    )
    runner = commands.add_parser("run", help="run a Python program with xpu as PyTorch's accelerator")
    runner.add_argument("program", nargs=argparse.REMAINDER, help="script.py or -m module, and its arguments")
    _simulate.add_parser(commands)
    warmer = commands.add_parser(
        "warm", help="build the kernels of common programs ahead of time, so that first calls don't wait"
    )
    warmer.add_argument("--device", type=int, help="device index (default: all devices)")
    warmer.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of parallel build processes"
    )
    warmer.add_argument(
        "--record",
        metavar="LIST",
        help="run a Python program instead, and save the kernels that it uses to this list",
    )
    warmer.add_argument("--name", help="name of the recorded program in the list")
    warmer.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        help="lists to build (default: openxpu's own); with --record: script.py and its arguments",
    )
    tuner = commands.add_parser(
        "tune", help="measure speed-only parameters on this machine and save them next to the kernel cache"
    )
    tuner.add_argument("--device", type=int, default=0, help="device index")
    tuner.add_argument("--seconds", type=float, default=60, help="approximate time to measure")
    compiler = commands.add_parser("compile", help="compile a Triton IR file to OpenCL C")
    compiler.add_argument("file", help="kernel.ttir")
    compiler.add_argument(
        "--device",
        default="cpu",
        help="target (cpu, bmg, lnl, dg2, …) or the index of a device of this machine",
    )
    compiler.add_argument(
        "--image",
        action="store_true",
        help="write a kernel image for C programs instead: see xpu/image.h and examples/c/image.c",
    )
    compiler.add_argument("-o", "--output", help="output file (default: standard output)")
    compiler.add_argument("--num-warps", type=int, default=4, help="subgroups per program on a GPU")
    compiler.add_argument(
        "--comments",
        action="store_true",
        help="annotate the code with Triton operations and source lines",
    )
    compiler.add_argument("--time", action="store_true", help="print the time of each compiler stage")
    compiler.add_argument(
        "--dump-after",
        choices=("parse", "verify", "analyze", "layout", "emit"),
        help="print the module after this stage instead",
    )
    exporter = commands.add_parser(
        "export",
        help="convert an exported program to a package that libxpu runs without PyTorch: see xpu/package.h",
    )
    exporter.add_argument("file", help="model.pt2, written by torch.export.save")
    exporter.add_argument("-o", "--output", help="output file (default: the same name with .xpk)")
    exporter.add_argument(
        "--target",
        help="comma-separated targets, for example bmg,lnl,cpu (default: the device of this machine)",
    )
    exporter.add_argument(
        "--ocloc", help="path of ocloc, which compiles binaries for Intel GPUs (default: found in PATH)"
    )
    packaged = commands.add_parser("run-package", help="run a package on NumPy arrays, without PyTorch")
    packaged.add_argument("file", help="model.xpk")
    packaged.add_argument(
        "--input",
        action="append",
        metavar="X.NPY",
        help="an input array, once per input in order; without inputs, describe the package",
    )
    packaged.add_argument("--output", metavar="FOLDER", help="folder for output0.npy, output1.npy, …")
    packaged.add_argument(
        "--bench", action="store_true", help="run for one second and print the time of a run"
    )
    packaged.add_argument("--device", type=int, default=0, help="device index")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = make_parser()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"] and arguments[1:2] not in ([], ["-h"], ["--help"]):
        return run(arguments[1:])  # argparse would parse the program's options
    options = parser.parse_args(arguments)
    if options.command == "info":
        return info(options.tuning)
    if options.command == "simulate":
        return _simulate.simulate(options)
    if options.command == "report":
        from openxpu import _report

        return _report.main(options)
    if options.command == "tune":
        return tune(options)
    if options.command == "doctor":
        return doctor()
    if options.command == "warm":
        if options.record and not options.arguments:
            parser.error("warm --record: no program given")
        if options.jobs < 1:
            parser.error("warm: --jobs must be at least 1")
        return warm(options)
    if options.command == "compile":
        return compile_ttir(options)
    if options.command == "export":
        return export(options)
    if options.command == "run-package":
        from openxpu import _run_package

        return _run_package.main(options)
    parser.error("run: no program given")
    return 2


if __name__ == "__main__":
    sys.exit(main())
