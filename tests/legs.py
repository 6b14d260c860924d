"""Runs suites of tests leg by leg: `legs.py check`, `test`, `all`, `intel`, `simulated`, or the names of legs.

Every leg runs, whatever became of those before it; what failed is listed at the end, and the exit status is then 1. A
leg's output goes to the terminal and to build/legs/NAME.log. A leg is skipped when its command ends with status 77,
which says that the machine lacks something. `--list` names the legs and their commands.

A leg is meant to take at most 20 minutes on two cores with nothing else to do; the list at the end marks those that
took more than 40 minutes of processor time. Long suites are sampled to that end: OPENXPU_TEST_EVERY (see
tests/conftest.py) in a leg's command is the sample.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from processes import POISONED_HEAP

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "legs"
SKIPPED = 77
BUDGET = 2 * 20 * 60  # seconds of processor time
LIMIT = 3 * 3600  # seconds, after which a leg hangs

# three processes keep two cores busy while one of them waits for ranks, compilers or files
PYTEST = "OMP_WAIT_POLICY=passive .venv/bin/python -m pytest -q -n 3 --dist worksteal --timeout 600"
# How `make test` runs most tests: with pairs of parameters (tests/sampling.py), and without the optimizer of the
# driver's compiler, which takes most of the time. "optimized" and "c" test what it optimizes, `make test-all` all.
QUICK = "OPENXPU_TEST_PAIRS=1 OPENXPU_BUILD_OPTIONS=-cl-opt-disable"
POISON = " ".join(f"{name}={value}" for name, value in POISONED_HEAP.items())
ALL_SAMPLES = f"OPENXPU_TEST_ALL=1 {PYTEST.replace('600', '3600')}"
UNITS = "build/tests/c/test_"

CHECK = {
    "lint-changed": "tools/lint.sh --changed",
    "c-units": "ctest --test-dir build -j 2 -L fake --output-on-failure",
    "families": f"{PYTEST} tests/check",
}
TEST = {
    "lint": "make -s lint",
    "c": "ctest --test-dir build -j 3 --output-on-failure -LE extended",
    "optimized": f"OPENXPU_TEST_PAIRS=1 {PYTEST} tests/check tests/intel_cpu",
    "ops": f"{QUICK} OPENXPU_POISON=ff {POISON} {PYTEST} tests/ops",
    "python": f"{QUICK} {PYTEST} tests/python --ignore tests/python/test_sharing.py",
    # in processes without graphs of other tests, whose memory can't be shared
    "sharing": f"{QUICK} {PYTEST} tests/python/test_sharing.py",
    "tile": f"{QUICK} {PYTEST} tests --ignore tests/ops --ignore tests/python"
    " --ignore tests/check --ignore tests/intel_cpu --ignore tests/sim",
}
# the same for `make test-all`: all parameters, the driver's optimizer; "lint" has nothing to leave out
FULL = {
    f"{name}-all": re.sub("^(OPENXPU_(TEST_PAIRS|BUILD_OPTIONS)=\\S+ )+| -LE extended$", "", command)
    for name, command in TEST.items()
    if name != "lint"
}
FULL["c-all"] = "OPENXPU_TEST_ALL=1 " + FULL["c-all"]
LONG = {
    "docs": "make -s docs",
    "tidy": "make -s tidy",
    "bridge-alone": ".venv/bin/python tools/check_alone.py",
    "address-sanitizer": "tests/sanitize.sh address",
    "thread-sanitizer": "tests/sanitize.sh thread",
    "collective-races": "tests/sanitize.sh collectives",
    "pocl-c": "tests/pocl.sh c",
    "pocl-ops": "OPENXPU_POISON=7f tests/pocl.sh ops",
    "without-fp64": f"OPENXPU_TEST_PAIRS=1 OPENXPU_HIDE_EXTENSIONS=cl_khr_fp64 {PYTEST} tests/ops",
    "wheel": "tests/wheel.sh",
    "mingw": "tests/mingw.sh",
    "corpus": "build/tests/tile/build_all build/ttir",
    "matrix": f"{UNITS}matrix 300",
    "attention-host": f"OPENXPU_MATRIX=fma {UNITS}attention",
    "quantized": f"{UNITS}quantized 100",
    "quantized-xmx": f"OPENXPU_MATRIX=xmx {UNITS}quantized 60",
    "quantized-ptx": f"OPENXPU_MATRIX=ptx {UNITS}quantized 60",
    "quantized-conv": f"{UNITS}quantized_conv",
    "attention-ptx": f"OPENXPU_MATRIX=ptx {UNITS}attention 100",
    "conv-ptx": f"OPENXPU_MATRIX=ptx {UNITS}conv 100",
    "conv-none": f"OPENXPU_MATRIX=none {UNITS}conv 400",
    "conv-xmx": f"OPENXPU_MATRIX=xmx {UNITS}conv",
    "conv-xmx8": f"OPENXPU_MATRIX=xmx8 {UNITS}conv",
    "attention-xmx": f"OPENXPU_MATRIX=xmx {UNITS}attention",
    "attention-xmx8": f"OPENXPU_MATRIX=xmx8 {UNITS}attention",
    "conv-fma": f"OPENXPU_MATRIX=fma {UNITS}conv 80",
    "attention-fma": f"OPENXPU_MATRIX=fma {UNITS}attention 60",
    "matrix-xmx": f"OPENXPU_MATRIX=xmx {UNITS}matrix 1000",
    "matrix-xmx-pvc": f"OPENXPU_MATRIX=xmx OPENXPU_BUILD_OPTIONS=-DNO_BLOCK_OFFSETS {UNITS}matrix",
    "matrix-xmx8": f"OPENXPU_MATRIX=xmx8 {UNITS}matrix 500",
    "matrix-fma": f"OPENXPU_MATRIX=fma {UNITS}matrix 1000",
    "matrix-dot": f"OPENXPU_MATRIX=dot {UNITS}matrix 500",
    "miscompilation": ".venv/bin/python tests/intel_cpu/miscompilation.py --corpus 20 --programs 200",
    "loops": ".venv/bin/python tests/intel_cpu/loops.py --kernels 6000",
    "operators": ".venv/bin/python tests/intel_cpu/operators.py --every 40",
    # -s: otherwise pytest loses what Python says of a crash
    "random-problems": f"OPENXPU_TEST_PROBLEMS=5000 {POISON} .venv/bin/python -m pytest -q -s --timeout 3600 "
    "tests/ops/test_random_problems.py",
    "misfits": "PYTORCH_ENABLE_XPU_FALLBACK=0 .venv/bin/python tests/ops/misfits.py --changes 60",
    "samples": f"{ALL_SAMPLES} tests/ops/test_pointwise_opinfo.py tests/ops/test_reduce.py tests/ops/test_float8.py",
    "samples-compiled": f"OPENXPU_TEST_EVERY=2 {ALL_SAMPLES} tests/python/test_compile_opinfo.py",
    "samples-layers": f"{ALL_SAMPLES} tests/ops/test_grouped.py tests/ops/test_joined.py "
    "tests/ops/test_portable_products.py tests/ops/test_quantized_layers.py",
    "samples-rest": f"{ALL_SAMPLES} tests/python/test_adding.py tests/ops/test_gpu_plans.py "
    "tests/python/test_decoding.py",
}
INTEL = {f"intel-{part}": f"tests/intel/run.sh {part}" for part in ("kernels", "matrix", "corpus", "driver")}
SIM = {
    "sim": "tests/sim/run.sh smoke",
    "sim-planted": "tests/sim/run.sh planted-bmg planted-lnl",
    "sim-ops": "tests/sim/run.sh ops",
    "sim-triton": "tests/sim/run.sh triton",
} | {
    f"sim-c-{product}": f"tests/sim/run.sh c-{product}"
    for product in ("bmg", "lnl", "ptl", "pvc", "dg2", "mtl", "tgllp")
}
SUITES = {
    "check": CHECK,
    "test": TEST,
    "all": {"lint": TEST["lint"]} | FULL | LONG | SIM,
    "intel": INTEL,
    "simulated": SIM,
}
LEGS = CHECK | TEST | FULL | LONG | INTEL | SIM


@dataclass(frozen=True)
class Outcome:
    """The outcome of a leg, its wall-clock time and its CPU time in seconds."""

    name: str
    what: str  # "passed", "skipped", or why it failed
    seconds: float
    processor: float

    @property
    def failed(self) -> bool:
        """Whether the leg neither passed nor was skipped."""
        return self.what not in ("passed", "skipped")

    def line(self) -> str:
        """Return the leg's line of the summary."""
        late = ", over the budget of 20 minutes on two cores" if self.processor > BUDGET else ""
        return (
            f"{self.name:<18} {self.what}, {self.seconds / 60:.1f} min, "
            f"CPU {self.processor / 60:.1f} min{late}"
        )


def run(name: str, command: str, limit: float = LIMIT) -> Outcome:
    """Run a leg to its end, or kill it and its child processes after ``limit`` seconds."""
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"== {name}: {command}", flush=True)
    start, used = time.monotonic(), processor_time()
    with (LOGS / f"{name}.log").open("wb") as log:
        leg = subprocess.Popen(
            ["bash", "-c", command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        )
        reader = threading.Thread(target=copy, args=(leg.stdout, (log, sys.stdout.buffer)))
        reader.start()
        try:
            status = leg.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # after Ctrl-C too, which a leg, with a session of its own, doesn't get
            kill(leg)
            reader.join()
    if status is None:
        what = f"FAILED: not done after {limit / 60:.0f} minutes"
    else:
        what = {0: "passed", SKIPPED: "skipped"}.get(status, f"FAILED ({status})")
    return Outcome(name, what, time.monotonic() - start, processor_time() - used)


def copy(source: IO[bytes], places: tuple[IO[bytes], ...]) -> None:
    """Write each line of ``source`` to all ``places`` as it comes."""
    for line in source:
        for place in places:
            place.write(line)
            place.flush()


def kill(leg: subprocess.Popen[bytes]) -> None:
    """Kill a leg and all processes of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leg.pid, signal.SIGKILL)
    leg.wait()


def processor_time() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def summary(outcomes: list[Outcome]) -> str:
    """Return the list of legs, failed ones last, and the counts."""
    lines = [outcome.line() for outcome in sorted(outcomes, key=lambda outcome: outcome.failed)]
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(outcome.what == "skipped" for outcome in outcomes)
    passed = len(outcomes) - failed - skipped
    return "\n".join([*lines, f"{passed} legs passed, {skipped} skipped, {failed} failed"])


def main() -> int:
    """Run the legs of the suites and names given, each once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"suites ({', '.join(SUITES)}) or legs")
    parser.add_argument(
        "--list", action="store_true", help="list the legs and their commands, and run nothing"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SUITES and name not in LEGS]
    if unknown:
        parser.error(f"no suite or leg is called {', '.join(unknown)}; --list names them")
    chosen: dict[str, str] = {}
    for name in arguments.names or ([*SUITES] if arguments.list else ["test"]):
        chosen |= SUITES.get(name) or {name: LEGS[name]}
    if arguments.list:
        print("\n".join(f"{name:<18} {command}" for name, command in chosen.items()))
        return 0
    os.environ["PATH"] = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ.setdefault("OPENXPU_DRIVER_PATH", str(ROOT / ".venv" / "lib"))
    outcomes: list[Outcome] = []
    try:
        for name, command in chosen.items():
            outcomes.append(run(name, command))
    finally:
        print(f"\n== legs\n{summary(outcomes)}", flush=True)
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
