"""Runs Khronos' OpenCL-CTS on a simulated GPU and on Intel's CPU runtime, and compares the results.

    python tests/sim/cts.py ~/OpenCL-CTS/build/test_conformance basic subgroups
    python tests/sim/cts.py ~/OpenCL-CTS/build/test_conformance --on lnl math_brute_force --only 'half_.*'

The suite's sources are not part of this repository, so pass the folder that has its built test groups; without
names of groups, all of GROUPS that are built run. Each sub-test runs in a process of its own with a time limit.
Interpreted lanes are 1,000 times slower than a GPU's: the suite's reduced modes are used (ARGUMENTS), on both
devices. Results are appended to one file per device in the output folder, which has the logs, too. An
interrupted run resumes where it stopped; `--again` repeats the sub-tests that did not pass.

A sub-test fails, too, if the simulator reports a fault. Sub-tests are skipped if the device lacks a feature. The
exit status is 1 if one that passes on the CPU neither passes on the GPU nor is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CPU = "cpu"

# What makes a group quick, before and behind the name of the sub-test. A last number is that of elements.
ARGUMENTS: dict[str, tuple[list[str], list[str]]] = {
    "conversions": (["-w", "-[4096]", "-1"], []),  # scalars
    "half": (["-w", "-[4096]"], []),
    # scalars; 16 host threads divide the buffers into small ones
    "math_brute_force": (["-w", "-[128]", "-1", "-t", "16"], []),
}
TYPES = "uchar char ushort short uint int half float double ulong long".split()
OTHERS: tuple[list[str], list[str]] = (["-w"], ["1024"])
GROUPS = "basic integer_ops subgroups atomics c11_atomics workgroups half conversions math_brute_force"
COLUMNS = ["passed", "failed", "timeout", "skipped", "not run"]


class Group:
    """One test program of the suite."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.program = next(filter(Path.is_file, (folder / name).glob("test_*")), folder / name / "unbuilt")

    def tests(self) -> list[str]:
        """List the sub-tests; those of conversions are the pairs of types."""
        if self.name == "conversions":
            return [f"{to}_{source}" for to in TYPES for source in TYPES]
        output = subprocess.run([self.program, "--list"], capture_output=True, text=True, check=False).stdout
        return re.findall(r"^\s+(\w+)$", output.rpartition("Test names:")[2], re.MULTILINE)

    def command(self, test: str) -> list[str]:
        """Return the command line of a sub-test."""
        before, behind = ARGUMENTS.get(self.name, OTHERS)
        names = [test]
        if self.name == "conversions":
            to, source = test.split("_")
            saturations = [""] if to in ("half", "float", "double") else ["", "_sat"]
            roundings = ("", "_rte", "_rtp", "_rtn", "_rtz")
            names = [f"{to}{sat}{rounding}_{source}" for sat in saturations for rounding in roundings]
        return [str(self.program), *before, *names, *behind]


class Device:
    """A simulated product, or the CPU runtime, and the results on it by "group.test"."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.out = name, options.out / name
        self.environment = dict(os.environ)
        self.prefix: list[str] = []
        if name == CPU:
            loader_paths = [str(options.cpu.parent), os.environ.get("LD_LIBRARY_PATH")]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, loader_paths))
            self.environment["OCL_ICD_FILENAMES"] = self.environment["OCL_ICD_VENDORS"] = str(options.cpu)
        else:
            self.environment["PYTHONPATH"] = str(ROOT / "python")
            self.prefix = [str(Path(sys.executable).with_name("openxpu")), "simulate", "--device", name]
            self.prefix += ["--driver", str(options.driver)] if options.driver else []
        self.results: dict[str, dict[str, Any]] = {}
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = self.out / "results.jsonl"
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            result = json.loads(line)
            self.results[result["test"]] = result

    def outcome(self, key: str) -> str:
        """Return a sub-test's outcome, one of COLUMNS."""
        return str(self.results[key]["outcome"]) if key in self.results else "not run"

    def run(self, group: Group, test: str, limit: float) -> dict[str, Any]:
        """Run a sub-test and append its result."""
        key = f"{group.name}.{test}"
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, open(self.out / f"{key}.log", "wb") as log:
            verdict = Path(folder) / "verdict.json"
            process = subprocess.Popen(
                self.prefix + group.command(test),
                env={**self.environment, "CL_CONFORMANCE_RESULTS_FILENAME": str(verdict)},
                cwd=group.program.parent,  # some read files beside the program
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(limit)
                said = re.search(r'": "(pass|skip)"', verdict.read_text() if verdict.exists() else "")
                outcome = {"pass": "passed", "skip": "skipped"}[said[1]] if said and not status else "failed"
            except subprocess.TimeoutExpired:
                outcome = "timeout"
            finally:
                # the compiler, which runs in the program, holds off milder signals
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        result = {"test": key, "outcome": outcome, "seconds": round(time.monotonic() - begin, 1)}
        self.results[key] = result
        with open(self.file, "a") as file:
            file.write(json.dumps(result) + "\n")
        return result


def table(groups: list[Group], device: Device, base: Device) -> Iterator[str]:
    """Yield the lines of a product's table, and its sub-tests that fail."""
    columns = " | ".join(COLUMNS)
    yield f"| group | {CPU} passes | of these {device.name}: {columns} | % of those run | else: passed | failed |"
    yield "|---" * (len(COLUMNS) + 5) + "|"
    totals = [0] * (len(COLUMNS) + 3)
    for name in [*(group.name for group in groups), "all"]:
        row = totals
        if name != "all":
            outcomes: dict[bool, list[str]] = {True: [], False: []}
            for key in dict.fromkeys([*base.results, *device.results]):
                if key.startswith(f"{name}."):
                    outcomes[base.outcome(key) == "passed"].append(device.outcome(key))
            ours, others = outcomes[True], outcomes[False]
            row = [len(ours), *map(ours.count, COLUMNS), others.count("passed"), others.count("failed")]
            totals = [a + b for a, b in zip(totals, row, strict=True)]
        share = f"{100 * row[1] / (row[1] + row[2]):.1f}" if row[1] + row[2] else "–"
        yield f"| {name} | {' | '.join(map(str, [*row[:-2], share, *row[-2:]]))} |"
    for key in failures(groups, device):
        yield f"- {key}: {device.outcome(key)}; {CPU}: {base.outcome(key)}"


def failures(groups: list[Group], device: Device) -> list[str]:
    """Return the sub-tests that neither pass on the device nor are skipped there."""
    names = {group.name for group in groups}
    return [
        key
        for key, result in device.results.items()
        if key.partition(".")[0] in names and result["outcome"] not in ("passed", "skipped")
    ]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="test_conformance in the suite's build folder")
    parser.add_argument("groups", nargs="*", default=GROUPS.split())
    parser.add_argument("--on", default="bmg", help="products, separated by commas (default: bmg)")
    parser.add_argument("--only", default="", help="regular expression that names of sub-tests must match")
    parser.add_argument("--only-device", help="run on this device only; it may be cpu")
    parser.add_argument("--limit", type=float, default=300, help="seconds per sub-test")
    parser.add_argument("--again", action="store_true", help="repeat sub-tests that did not pass")
    parser.add_argument("--report", action="store_true", help="run nothing; print the table")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "cts")
    parser.add_argument("--driver", type=Path, help="folder of Intel's unpacked GPU driver")
    parser.add_argument("--cpu", type=Path, default=ROOT / ".venv" / "lib" / "libintelocl.so")
    options = parser.parse_intermixed_args()
    options.out, folder = options.out.resolve(), options.folder.resolve()
    groups = [group for name in options.groups if (group := Group(folder, name)).program.exists()]
    base, *products = (Device(name, options) for name in [CPU, *options.on.split(",")])
    undone = ("not run", "failed", "timeout") if options.again else ("not run",)
    devices = [device for device in (base, *products) if options.only_device in (None, device.name)]
    for group in groups if not options.report else ():
        for test in filter(re.compile(options.only).search, group.tests()):
            for device in devices:
                if device.outcome(f"{group.name}.{test}") in undone:
                    result = device.run(group, test, options.limit)
                    print(device.name, *result.values(), flush=True)
    for product in products:
        print("\n".join(table(groups, product, base)))
    failed = [key for product in products for key in failures(groups, product)]
    return int("passed" in map(base.outcome, failed))


if __name__ == "__main__":
    sys.exit(main())
