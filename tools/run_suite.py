"""Runs test files written for another device on xpu, and compares the results with the CPU or CUDA.

    python tools/run_suite.py ~/pytorch/test test_indexing.py nn/test_pooling.py
    python tools/run_suite.py --written-for xpu ~/torch-xpu-ops/test/regressions
    python tools/run_suite.py --as-is ~/peft tests/test_lora_variants.py

PyTorch's test files are neither in its packages nor in this repository, so pass the folder that has them.
Without file names, all test_*.py of the folder run. In a copy of each file, the device's name is replaced
(torch.cuda, "cuda", .cuda(), is_cuda), and torch.testing is patched for the target device: CUDA-only tests
run on xpu, dtypes listed for CUDA are used, and tests that CUDA skips or is expected to fail are run too.

Tests run in slices, each in a process of its own. A test that exceeds the time limit or crashes its process
fails; the rest of its slice continues in another process. Results are appended to one file per device and
test file in the output folder. An interrupted run resumes where it stopped; `--again` repeats failed tests.

`--rounds 20` runs all tests of a process twenty times, round after round, so that PyTorch is imported only
once. Each round has its own result: "name (2)" is the second one.

Suites that detect their device (torch.accelerator, torch.xpu) run with `--as-is`: in place, from their own
folder, with their conftest.py and without replacements. On the CPU the same files run in a PyTorch without
openxpu. Without file names, all test_*.py below the folder run. `--skips` counts the reasons for skipped
tests.

Files of an older PyTorch may import names that torch.testing does not have. `--machinery` names the folder of
their own torch/testing/_internal, which then supplies those names.

Tests of torch.distributed start one process per rank. These are forked from a process that has already
imported PyTorch and the test file, but has not used the device (suite_ranks.py). Such tests count as using
the device. List the device once per rank: `OPENXPU_DEVICE=cpu,cpu`.

A test that fails because it requires a CUDA-only feature (legacy types, cuDNN by name, the nondeterminism of
a kernel) is listed with that feature and is not counted. The final table counts a test if it allocated device
memory or failed; tests of pure Python code say nothing about xpu. The exit status is 1 if a test fails on xpu
but passes on the other device.
"""

from __future__ import annotations

import argparse
import collections
import copy
import importlib
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

HEAVY = "OPENXPU_SUITE_MEMORY"
SETTINGS = "OPENXPU_SUITE"
SPREAD = "OPENXPU_SUITE_SPREAD"
UNTUNED = "OPENXPU_SUITE_UNTUNED"
AS_IS = "any"  # the source device of a suite that detects its device


# --- replacing the device ----------------------------------------------------------------------------------


def moved(text: str, source: str, target: str) -> str:
    """Replace the device `source` by `target` in a test file's text."""
    if source == target:
        return text
    rules: tuple[tuple[str, str], ...] = (
        (rf"\btorch\.{source}\b(?!\.(amp|jiterator))", f"torch.{target}"),
        (rf"""(["']){source}(?=\1|:)""", rf"\1{target}"),
        (rf"""(["'])_{source}\1""", rf"\1_{target}\1"),
        (rf"""(?<=backward_){source}(?=["'])""", target),
        (rf"\.{source}\(", f".{target}("),
        (rf"\bis_{source}\b", f"is_{target}"),
    )
    if source == "cuda" and target == "xpu" and "torch.distributed" in text:
        rules += RULES_OF_GROUPS
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


# Names in torch.distributed and its test utilities. The last rules serve files of PyTorch before 2.13.
RULES_OF_GROUPS = (
    (r"\bcuda:nccl\b", "xpu:xccl"),
    (r"""(?<=["'])nccl(?=["'])""", "xccl"),
    (r"\brequires_nccl\b", "requires_accelerator_dist_backend"),
    (r"\bis_nccl_available\b", "is_xccl_available"),
    (r"\bProcessGroupNCCL\b", "ProcessGroupXCCL"),
    (r"\bBackend\.NCCL\b", "Backend.XCCL"),
    (r"(?<=dist\.)all_gather_into_tensor\b", "all_gather_single"),
    (r"(?<=dist\.)reduce_scatter_tensor\b", "reduce_scatter_single"),
    (r"(?<=torch\.distributed\.)all_gather_into_tensor\b", "all_gather_single"),
    (r"(?<=torch\.distributed\.)reduce_scatter_tensor\b", "reduce_scatter_single"),
    (r"\bCUDAInitMode\b", "DEVICEInitMode"),
    (r"\bcuda_init_mode\b", "device_init_mode"),
    (r"\b_num_cuda_retries\b", "_num_alloc_retries"),
    (r"(?<=DEVICEInitMode\.)CUDA_", "DEVICE_"),
    (r"\bShardedGradScaler\((?=init_scale)", 'ShardedGradScaler(device="xpu", '),
)


def copy_suite(folder: Path, files: list[str], to: Path, source: str, target: str) -> None:
    """Copy a folder; in its test files, replace the device `source` by `target`."""
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if path.name == "conftest.py" or not path.is_file():
            continue
        if path.name == "__init__.py" and name.parent.name == "functorch":  # would shadow PyTorch's package
            continue
        text = path.read_text(errors="replace")
        copy = to / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(moved(text, source, target) if str(name) in files else text)


# --- plug-in in the pytest process ------------------------------------------------------------------------


def _hide_broken(*packages: str) -> None:
    """Hide optional packages whose import fails, as if they were not installed."""
    for name in packages:
        try:
            importlib.import_module(name)
        except Exception:  # any kind of failure: a build for another NumPy, for instance
            sys.modules[name] = None  # type: ignore[assignment]  # find_spec reports it missing


def _module(name: str, path: Path, device: str) -> ModuleType:
    """Load a torch.testing module from its file with CUDA replaced by the device."""
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(moved(path.read_text(), "cuda", device), str(path), "exec"), module.__dict__)
    return module


def _fill_gaps(machinery: Path, suite: list[Path], device: str) -> None:
    """Take names that this PyTorch's torch.testing lacks from the suite's own version of it."""
    text = "".join(path.read_text(errors="replace") for path in suite)
    for name in sorted(
        set(re.findall(r"^ *from torch\.testing\._internal\.(\w+) import", text, re.MULTILINE))
    ):
        editions: list[ModuleType] = []

        def lookup(wanted: str, name: str = name, editions: list[ModuleType] = editions) -> Any:
            if wanted.startswith("__"):
                raise AttributeError(wanted)
            if not editions:
                editions.append(_module(f"suite.{name}", machinery / f"{name}.py", device))
            return getattr(editions[0], wanted)

        module = importlib.import_module(f"torch.testing._internal.{name}")
        vars(module)["__getattr__"] = lookup


class Capability(dict[str, Any]):
    """Xpu's device capability: properties by name, and (0, 0) for tests that expect CUDA's version."""

    def __getitem__(self, key: Any) -> Any:
        """Return a property by name or a version number by index."""
        return 0 if isinstance(key, int) else super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the version numbers."""
        return iter((0, 0))

    def __lt__(self, other: tuple[int, ...]) -> bool:
        """Compare the numbers."""
        return (0, 0) < other

    def __ge__(self, other: tuple[int, ...]) -> bool:
        """Compare the numbers."""
        return (0, 0) >= other


def _move_machinery(source: str, device: str) -> None:
    """Patch torch.testing for the device before the suite's files import it."""
    _hide_broken("numba", "coverage")
    import torch
    from torch.testing._internal import common_cuda, common_device_type, common_utils

    instantiate = common_device_type.instantiate_device_type_tests
    every_device = {"cuda", "xpu", "cpu"}

    def for_this_device(
        generic: type, scope: dict[str, Any], except_for: Any = None, only_for: Any = None, **_: Any
    ) -> None:
        def names(value: Any) -> set[str]:
            return {value} if isinstance(value, str) else set(value or ())

        asked = names(only_for) or every_device
        if device not in asked or device in names(except_for):
            del scope[generic.__name__]
            return
        instantiate(generic, scope, only_for=(device,), allow_xpu=True)

    vars(common_device_type)["instantiate_device_type_tests"] = for_this_device
    # it checks memory and streams of torch.cuda
    setattr(common_utils.TestCase, "wrap_with_cuda_policy", lambda *_: None)  # noqa: B010
    limit = int(os.environ.get(HEAVY, "0")) << 30
    if limit:
        enough = common_device_type._has_sufficient_memory
        common_device_type._has_sufficient_memory = lambda d, size: size <= limit and enough(d, size)
    if device != "xpu":
        return

    common_device_type.onlyCUDA = common_device_type.onlyOn("xpu")
    by_name = common_device_type.dtypes

    class dtypes_of_cuda(by_name):  # type: ignore[valid-type]  # noqa: N801
        """Use the dtypes listed for CUDA on xpu, unless the file lists some for xpu."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, device_type="xpu")

        def __call__(self, function: Any) -> Any:
            if "xpu" in getattr(function, "dtypes", {}):
                return function
            return super().__call__(function)

    common_device_type.dtypesIfCUDA = dtypes_of_cuda
    common_cuda.TEST_CUDA = True
    common_cuda.TEST_MULTIGPU = torch.xpu.device_count() >= 2
    for name in ("FLASH_ATTENTION", "MEM_EFF_ATTENTION", "FUSED_ATTENTION", "FUSED_SDPA", "BF16"):
        setattr(common_cuda, f"PLATFORM_SUPPORTS_{name}", True)
    for name in [n for n in vars(common_cuda) if re.fullmatch(r"SM\d+OrLater", n)]:
        setattr(common_cuda, name, False)
    if source == "cuda":
        ask = torch.xpu.get_device_capability
        setattr(torch.xpu, "get_device_capability", lambda *args: Capability(ask(*args)))  # noqa: B010
    setattr(common_cuda, "tf32_is_not_fp32", lambda: False)  # noqa: B010  reads CUDA's properties
    setattr(common_device_type.XPUTestBase, "has_cudnn", lambda _: False)  # noqa: B010
    exec(moved(inspect.getsource(common_utils.to_gpu), "cuda", device), vars(common_utils))
    # module tests call .cuda() from common_nn
    spec = importlib.util.find_spec("torch.testing._internal.common_nn")
    assert spec and spec.origin
    sys.modules[spec.name] = _module(spec.name, Path(spec.origin), device)


class Rank(ForkServerProcess):
    """The process of a rank. It gets the environment at the time of `start`, as with `spawn`."""

    def start(self) -> None:
        """Save the environment and start the process."""
        self.environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        """Restore the environment and run the target."""
        os.environ.clear()
        os.environ.update(self.environment)
        super().run()


def _fork_ranks() -> None:
    """Fork ranks from a process that has imported everything; `spawn` would take seconds for each rank."""
    import torch.multiprocessing as processes

    get_context = processes.get_context

    def context(method: str | None = None) -> Any:
        if method != "spawn":
            return get_context(method)
        forking = get_context("forkserver")
        forking.set_forkserver_preload(["suite_ranks"])
        vars(forking)["Process"] = Rank
        Recorder.has_ranks = True
        return forking

    setattr(processes, "get_context", context)  # noqa: B010


ROUND = re.compile(r" \(\d+\)$")  # suffix of a test's name from the second round on


def _again(item: Any, number: int) -> Any:
    """Copy a pytest item for another round."""
    again = copy.copy(item)
    again._initrequest()  # gives it its own fixtures
    again.suite_round = number
    return again


class Recorder:
    """Logs the tests of a slice: a line of JSON at the start and at the end of each."""

    has_ranks = False  # the test has started processes that use the device

    def __init__(self, settings: dict[str, Any]) -> None:
        self.device = settings["device"]
        self.wanted = None if settings["tests"] is None else set(settings["tests"])
        self.alike = settings["alike"] if settings["alike"] is None else set(settings["alike"])
        self.listing, self.only = settings["listing"], settings["only"]
        self.with_file = settings["with_file"]
        self.unwanted, self.every = set(settings["unwanted"]), settings["every"]
        self.rounds, self.round = settings["rounds"], 1
        self.spread = bool(os.environ.get(SPREAD))
        self.log = open(settings["log"], "a", buffering=1)  # noqa: SIM115  closed with the process
        self.outcome: dict[str, Any] = {}

    def _write(self, **line: Any) -> None:
        self.log.write(json.dumps(line) + "\n")

    def _name(self, nodeid: str) -> str:
        name = nodeid if self.with_file else nodeid.split("::", 1)[1]
        return name if self.round == 1 else f"{name} ({self.round})"

    def _enter(self, item: Any) -> str:
        """Set the current round to the test's; return the test's name in that round."""
        self.round = getattr(item, "suite_round", 1)
        return self._name(item.nodeid)

    def _allocations(self) -> int:
        import torch

        module = getattr(torch, self.device)
        if self.device == "cpu" or not module.is_initialized():
            return 0
        return int(module.memory_stats().get("allocation.all.allocated", 0))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Select the slice's tests, repeat them for each round, and list them."""

        def is_wanted(item: Any) -> bool:
            name = self._enter(item)
            if self.wanted is not None:
                return name in self.wanted
            if self.alike is not None and same(name) not in self.alike:
                return False
            test = ROUND.sub("", name)
            if name in self.unwanted or zlib.crc32(same(test).encode()) % self.every:
                return False
            return bool(re.search(self.only, test))

        every = items + [_again(item, number) for number in range(2, self.rounds + 1) for item in items]
        items[:] = filter(is_wanted, every)
        if self.spread:
            items.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        self._write(tests=list(map(self._enter, items)))
        if self.listing:
            items.clear()

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that cannot be imported as a failed test."""
        if report.failed:
            name = f"{report.nodeid}::import"
            self._write(
                test=self._name(name), touched=False, seconds=0, outcome="failed", text=str(report.longrepr)
            )

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Set the round of the next test."""
        self._enter(item)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the start of a test."""
        self.outcome = {"outcome": "passed", "text": ""}
        self.before = self._allocations()
        Recorder.has_ranks = False
        self.began = time.time()
        self._write(begins=self._name(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Update the test's outcome, which is the worst of setup, call, subtests and teardown."""
        if report.failed:
            text = self.outcome["text"] + str(report.longrepr)
            if len(text) > 8000:
                text = text[:4000] + "\n[...]\n" + text[-3900:]
            self.outcome = {"outcome": "failed", "text": text}
        elif report.skipped and self.outcome["outcome"] == "passed":
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
            expected = hasattr(report, "wasxfail")
            self.outcome = {"outcome": "expected" if expected else "skipped", "text": reason[:300]}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record the end of a test."""
        try:
            touched = self._allocations() != self.before or Recorder.has_ranks
        except Exception:  # the device is unusable; later tests will report that
            touched = True
        seconds = round(time.time() - self.began, 2)
        self._write(test=self._name(nodeid), touched=touched, seconds=seconds, **self.outcome)


def _untune() -> None:
    """Make Triton's autotuners use their first configuration without building and timing the others."""
    from triton.runtime.autotuner import Autotuner

    start = Autotuner.__init__

    def first(self: Any, function: Any, names: Any, configs: Any, *args: Any, **options: Any) -> None:
        start(self, function, names, configs[:1], *args, **options)

    setattr(Autotuner, "__init__", first)  # noqa: B010


def prepare() -> dict[str, Any]:
    """Prepare this process for the files in the settings that the environment names; return the settings."""
    settings: dict[str, Any] = json.loads(Path(os.environ[SETTINGS]).read_text())
    if os.environ.get(UNTUNED):
        _untune()
    if settings["source"] == AS_IS:
        return settings
    _move_machinery(settings["source"], settings["device"])
    files = [Path(file) for file in settings["files"]]
    if settings["machinery"]:
        target = "cuda" if settings["device"] == "cpu" else settings["device"]
        _fill_gaps(Path(settings["machinery"]), files, target)
    if settings["device"] == "xpu" and any("torch.distributed" in file.read_text() for file in files):
        _fork_ranks()
    return settings


def pytest_configure(config: Any) -> None:
    """Register the plug-in in a process that Slice starts with `-p run_suite`."""
    settings = prepare()
    config.pluginmanager.register(Recorder(settings))


# --- the processes ----------------------------------------------------------------------------------------


@dataclass
class Job:
    """One test file, or those of a folder, on one device."""

    device: str
    source: str
    name: str
    files: list[str]
    folder: Path
    log: Path
    machinery: str = ""
    rounds: int = 1
    alike: list[str] | None = None  # only tests with these names, ignoring the device in the name
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> None:
        """Read the results written so far; the last result of a test counts."""
        if not self.log.exists():
            return
        for line in self.log.read_text().splitlines():
            entry = json.loads(line)
            if "outcome" in entry:
                self.results[entry["test"]] = entry

    def record(self, **entry: Any) -> None:
        """Append a result."""
        with self.log.open("a") as log:
            log.write(json.dumps(entry) + "\n")


class Slice:
    """A pytest process that runs, or only lists, tests of a job; `tests` None means all without a result."""

    def __init__(
        self,
        job: Job,
        number: int,
        tests: list[str] | None = None,
        listing: bool = False,
        only: str = "",
        every: int = 1,
    ) -> None:
        self.job, self.tests = job, tests
        work = job.log.parent / "slices"
        work.mkdir(parents=True, exist_ok=True)
        stem = f"{job.log.stem}.{number}"
        self.log, self.output = work / f"{stem}.jsonl", work / f"{stem}.txt"
        self.log.write_text("")
        settings = work / f"{stem}.settings"
        plan = {
            "device": job.device,
            "source": job.source,
            "log": str(self.log.resolve()),
            "tests": tests,
            "alike": job.alike,
            "unwanted": list(job.results),
            "listing": listing,
            "with_file": len(job.files) > 1,
            "only": only,
            "every": every,
            "rounds": job.rounds,
            "machinery": job.machinery,
            "files": [str(job.folder / file) for file in job.files],
        }
        settings.write_text(json.dumps(plan))
        environment = dict(os.environ, PYTHONHASHSEED="0")
        environment[SETTINGS] = str(settings.resolve())
        paths = [str(Path(__file__).resolve().parent), str(job.folder), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        command = [sys.executable]
        if job.device == "xpu":
            command += ["-m", "openxpu.cli", "run"]
        else:
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        command += ["-m", "pytest", "-q", "-p", "run_suite", "-p", "no:cacheprovider"]
        if job.source != AS_IS:
            command += ["--noconftest"]
        command += ["--rootdir", str(job.folder), "-p", "no:warnings", "--continue-on-collection-errors"]
        command += [str(job.folder / file) for file in job.files]
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=job.folder if job.source == AS_IS else job.folder / Path(job.files[0]).parent,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.read = 0
        self.done: set[str] = set()
        self.current: str | None = None
        self.since = time.time()

    def kill(self) -> None:
        """Kill the process and all processes that its tests have started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def take(self) -> None:
        """Pass new results on to the job."""
        lines = self.log.read_text().splitlines(keepends=True)
        for line in lines[self.read :]:
            if not line.endswith("\n"):
                break
            self.read += 1
            entry = json.loads(line)
            self.since = time.time()
            if "tests" in entry:
                self.tests = entry["tests"]
            self.current = entry.get("begins")
            if "outcome" in entry:
                self.done.add(entry["test"])
                self.job.record(**entry)

    def over(self, limit: float) -> list[str] | None:
        """Return None while the process runs, then the tests that it did not finish."""
        ended = self.process.poll() is not None
        self.take()
        if not ended and time.time() - self.since <= (limit if self.current else 10 * limit):
            return None
        self.kill()
        if self.current:
            what = f"process ended with {self.process.returncode}" if ended else f"over {limit:.0f} s"
            tail = self.output.read_text(errors="replace")[-1500:] if ended else ""
            outcome = "crashed" if ended else "timeout"
            self.job.record(
                test=self.current, outcome=outcome, touched=True, seconds=limit, text=f"{what}\n{tail}"
            )
            self.done.add(self.current)
        elif not self.done:  # no result at all: there is nothing to run, or the file cannot be imported
            if self.process.returncode not in (0, 5):
                print(f"{self.job.name} on {self.job.device}: see {self.output}", flush=True)
            return []
        return [test for test in self.tests or [] if test not in self.done]


def listed(job: Job, only: str, every: int) -> list[str]:
    """Return the names of a job's tests that have no result yet."""
    process = Slice(job, 0, listing=True, only=only, every=every)
    try:
        process.process.wait()
        process.take()
    finally:
        process.kill()
    if process.tests is None or process.process.returncode not in (0, 5):
        print(f"{job.name} on {job.device}: see {process.output}", flush=True)
    return process.tests or []


def run(jobs: list[Job], options: argparse.Namespace) -> None:
    """Run the jobs' tests that have no result, in slices, several at a time."""

    def slices() -> Iterator[tuple[Job, list[str] | None]]:
        for job in jobs:
            job.read()
            if options.again:
                yield job, [t for t, r in job.results.items() if r["outcome"] in FAILED]
            elif options.processes == 1:
                yield job, None
            else:
                tests = listed(job, options.only, options.every)
                for begin in range(0, len(tests), options.slice):
                    yield job, tests[begin : begin + options.slice]

    waiting, running, number, left = slices(), list[Slice](), 0, list[tuple[Job, list[str] | None]]()
    more = True
    try:
        while True:
            while len(running) < options.processes and (left or more):
                following = left.pop() if left else next(waiting, None)
                if following is None:
                    more = False
                    break
                number += 1
                job, tests = following
                running.append(Slice(job, number, tests, only=options.only, every=options.every))
            if not running:
                break
            time.sleep(0.5)
            for slice_ in list(running):
                undone = slice_.over(options.timeout)
                if undone is not None:
                    running.remove(slice_)
                    if undone:
                        left.append((slice_.job, undone))
    finally:
        for slice_ in running:
            slice_.kill()
    for job in jobs:
        job.read()


# --- the table --------------------------------------------------------------------------------------------

FAILED = ("failed", "crashed", "timeout")
# CUDA-only features that a test may require. Such a failure says nothing about xpu.
OF_CUDA = (
    (r"module 'torch\.xpu' has no attribute '(\w+(Storage|Tensor)|CUDAGraph)'", "types that only CUDA has"),
    (r"(Typed|Untyped)Storage' object has no attribute 'xpu'", "types that only CUDA has"),
    (r"'PackedSequence' object has no attribute 'is_xpu'", "types that only CUDA has"),
    (
        r"expected a non-deterministic error, but it was not raised",
        "an operator that CUDA's kernel makes vary",
    ),
    (r"'CUDA error: device-side assert triggered' not found", "CUDA's assertions in kernels"),
    (r'"Cudnn" in str\(|cudnn_double_backward|_cudnn_rnn', "cuDNN by name"),
    (r"Torch not compiled with CUDA enabled", "CUDA by name"),
)


def asks_for_cuda(result: dict[str, Any]) -> str | None:
    """Return the CUDA-only feature that a failing test requires, by the failed statement and error."""
    text = "\n".join(re.findall(r"^[>E] .*", result["text"], re.MULTILINE))
    return next((what for pattern, what in OF_CUDA if re.search(pattern, text)), None)


def same(name: str) -> str:
    """Return a test's name without the device."""
    return re.sub("cuda|xpu|cpu", "@", name, flags=re.IGNORECASE)


def report(pairs: list[tuple[Job, Job]], show: Callable[[str], None]) -> bool:
    """Print the table of all files and the failing tests; return whether no test failed that should pass."""
    other = pairs[0][1].device
    show(
        f"| file | on xpu | no device memory | {other} passes | of these xpu passes | % "
        f"| beyond {other}'s: run | passed | ask for CUDA's own |"
    )
    show("|---|---|---|---|---|---|---|---|---|")
    failures: list[tuple[str, str, dict[str, Any]]] = []
    totals = [0] * 7
    for job, base in pairs:
        passes = {same(t) for t, r in base.results.items() if r["outcome"] == "passed"}
        known = {same(t) for t, r in base.results.items() if r["outcome"] not in ("skipped",)}
        ran = {t: r for t, r in job.results.items() if r["outcome"] not in ("skipped", "expected")}
        foreign = {t: what for t, r in ran.items() if r["outcome"] in FAILED and (what := asks_for_cuda(r))}
        counted = {
            t: r for t, r in ran.items() if t not in foreign and (r["touched"] or r["outcome"] in FAILED)
        }
        ours = {t: r for t, r in counted.items() if same(t) in passes or same(t).replace("_@", "") in passes}
        beyond = {
            t: r
            for t, r in counted.items()
            if same(t) not in known and same(t).replace("_@", "") not in known
        }
        good, more = (sum(r["outcome"] == "passed" for r in g.values()) for g in (ours, beyond))
        idle = len(ran) - len(counted) - len(foreign)
        row = [len(counted), idle, len(ours), good, len(beyond), more, len(foreign)]
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        show(_row(f"`{job.name}`", row))
        for group, kind in ((ours, f"{other} passes"), (beyond, f"not on {other}")):
            failures += [
                (f"{job.name}::{t}", kind, r) for t, r in sorted(group.items()) if r["outcome"] != "passed"
            ]
        failures += [
            (f"{job.name}::{t}", "asks for CUDA's own", {"outcome": "not counted", "text": what})
            for t, what in sorted(foreign.items())
        ]
    show(_row("all", totals))
    for kind in dict.fromkeys(kind for _, kind, _ in failures):
        show(f"\nFailed on xpu ({kind}):")
        for name, of, result in failures:
            if of == kind:
                show(f"- {name}: {result['outcome']}: {_reason(result['text'])}")
    return not any(kind == f"{other} passes" for _, kind, _ in failures)


def _row(name: str, row: list[int]) -> str:
    ran, idle, theirs, good, beyond, more, foreign = row
    share = f"{100 * good / theirs:.1f}" if theirs else "–"
    return f"| {name} | {ran} | {idle} | {theirs} | {good} | {share} | {beyond} | {more} | {foreign} |"


def _reason(text: str) -> str:
    """Return the most informative line of a failure's text."""
    errors = re.findall(r"^E +(\S.*)$", text, re.MULTILINE) or text.strip().splitlines()[:1]
    return errors[0][:200] if errors else ""


def left_out(jobs: list[Job]) -> collections.Counter[str]:
    """Count skipped and expected failures by reason, ignoring numbers in the reasons."""
    texts = [
        r["text"] for job in jobs for r in job.results.values() if r["outcome"] in ("skipped", "expected")
    ]
    return collections.Counter(re.sub(r"\d+", "N", text.strip() or "no reason")[:120] for text in texts)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog="See the head of this file for the rest."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*", help="files in the folder (default: all test_*.py)")
    parser.add_argument("--out", type=Path, default=Path("build/suites"))
    parser.add_argument("--beside", choices=("cpu", "cuda", "none"), default="cpu")
    parser.add_argument(
        "--few-beside",
        action="store_true",
        help="run on the other device only what fails on xpu; the rest counts as passing",
    )
    parser.add_argument("--together", action="store_true", help="run small files in one process, as one row")
    parser.add_argument("--only-device", help="run the tests of this device only")
    parser.add_argument("--written-for", choices=("cuda", "xpu"), default="cuda")
    parser.add_argument(
        "--as-is",
        dest="written_for",
        action="store_const",
        const=AS_IS,
        help="run the files unchanged, since they find their device",
    )
    parser.add_argument(
        "--untuned", action="store_true", help="make Triton's autotuners use their first configuration"
    )
    parser.add_argument(
        "--skips", action="store_true", help="also count the reasons why tests were skipped on xpu"
    )
    parser.add_argument(
        "--machinery", type=Path, help="torch/testing/_internal of the PyTorch that the files belong to"
    )
    parser.add_argument("--slice", type=int, default=400, help="tests per process")
    parser.add_argument("--processes", "-n", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--timeout", type=float, default=180, help="seconds per test")
    parser.add_argument("--memory", type=int, default=0, help="skip tests that declare a need for more GiB")
    parser.add_argument("--slow", action="store_true", help="also run tests that PyTorch marks as slow")
    parser.add_argument("--only", default="", help="regular expression that test names must match")
    parser.add_argument(
        "--every", type=int, default=1, help="run one test in N, chosen by a hash of its name"
    )
    parser.add_argument(
        "--spread", action="store_true", help="run in random order, so that an aborted run is a sample"
    )
    parser.add_argument("--rounds", type=int, default=1, help="number of runs of each test")
    parser.add_argument("--again", action="store_true", help="repeat failed tests")
    parser.add_argument("--report", action="store_true", help="run nothing; write the table")
    options = parser.parse_args()
    os.environ[HEAVY] = str(options.memory)
    os.environ[SPREAD] = "1" if options.spread else ""
    os.environ[UNTUNED] = "1" if options.untuned else ""
    os.environ["PYTORCH_TEST_WITH_SLOW"] = str(int(options.slow))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that started processes are ended
    as_is = options.written_for == AS_IS
    found = (options.folder.rglob if as_is else options.folder.glob)("test_*.py")
    files = options.files or sorted(str(path.relative_to(options.folder)) for path in found)
    groups = {options.folder.resolve().name: files} if options.together else {file: [file] for file in files}
    machinery = str(options.machinery.resolve()) if options.machinery else ""
    pairs = []
    for name, group in groups.items():
        jobs = []
        for device in ("xpu", "cpu" if options.beside == "none" else options.beside):
            out = options.out.resolve() / device
            log = out / f"{name.replace('/', '.')}.jsonl"
            folder = options.folder.resolve() if as_is else out / "moved"
            jobs.append(Job(device, options.written_for, name, group, folder, log, machinery, options.rounds))
        pairs.append((jobs[0], jobs[1]))
    chosen = [job for pair in pairs for job in reversed(pair[: 1 if options.beside == "none" else 2])]
    chosen = [job for job in chosen if options.only_device in (None, job.device)]
    for job in chosen:
        job.log.parent.mkdir(parents=True, exist_ok=True)
    if not options.report:
        for device in dict.fromkeys(job.device for job in chosen if not as_is):
            # on the CPU, a file written for CUDA runs unchanged
            target = "cuda" if device == "cpu" and options.written_for == "cuda" else device
            folder = next(job.folder for job in chosen if job.device == device)
            copy_suite(options.folder, files, folder, options.written_for, target)
        if options.few_beside:
            run([job for job in chosen if job.device == "xpu"], options)
            for job, base in pairs:
                job.read()
                base.alike = [
                    same(test) for test, result in job.results.items() if result["outcome"] in FAILED
                ]
            chosen = [base for _, base in pairs if base in chosen and base.alike]
        run(chosen, options)
    for pair in pairs:
        for job in pair:
            job.read()
    if options.few_beside:
        for job, base in pairs:
            good = {t: r for t, r in job.results.items() if r["outcome"] == "passed"}
            base.results = good | base.results
    succeeded = report(pairs, print)
    if options.skips:
        print("\nSkipped on xpu:")
        for reason, count in left_out([job for job, _ in pairs]).most_common():
            print(f"- {count}: {reason}")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
