"""A short run of the loop search, and proof that it finds each fault and survives crashes.

For the long run use ``python tests/intel_cpu/loops.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import run

sys.path.insert(0, str(Path(__file__).parent))
import loops

if not loops.run._xpu or loops.run.TARGETS[0] != "cpu":
    pytest.skip("Intel's CPU compiler has these faults", allow_module_level=True)

# Replaces the search: seed 7 crashes, 11 crashes in the unoptimized build, 21 is wrong.
FAKE = """
import os, sys
mend, *numbers = sys.argv[1:]
size, first, end, group, groups = map(int, numbers)
for number in range(group, group + groups):
    seeds = range(first + number * size, min(first + (number + 1) * size, end))
    print(f"begin {number} seeds {seeds[0]} to {seeds[-1]}", flush=True)
    if 7 in seeds:
        os.abort()
    if 11 in seeds:
        if size == 1:
            print("reference", flush=True)
        os.abort()
    print("DIFFERS seed 21" if 21 in seeds else "same", flush=True)
"""


def test_loops_are_right():
    compared, found = loops.findings(0, 24)
    assert compared == 24
    assert not found


@pytest.mark.parametrize("seed", [11580, 32985])
def test_accumulators_have_an_initial_value(seed):
    """The compiler made endless loops of these kernels (faults/unset.cl)."""
    assert loops.search("", seed, seed + 1) == loops.Sum(compared=1, skipped=0, found=[])


@pytest.mark.parametrize(("mend", "first", "count"), [("meet", 70, 12), ("hints", 70, 14), ("counts", 0, 12)])
def test_fault_is_found_without_its_workaround(mend, first, count):
    command = [*loops.WORKER, mend, str(count), str(first), str(first + count), "0", "1"]
    done = run(command, env={"OPENXPU_CACHE": "0", "CL_CONFIG_LLVM_OPTIONS": ""})
    assert "\nDIFFERS " in done.stdout


@pytest.mark.parametrize(
    ("first", "end", "compared", "skipped", "found"),
    [
        (100, 160, 60, 0, []),
        (0, 10, 9, 0, ["seeds 7 to 7: CRASHES the process (-6)"]),
        (8, 15, 6, 1, []),
        (0, 30, 28, 1, ["seeds 7 to 7: CRASHES the process (-6)", "seeds 20 to 29: DIFFERS seed 21"]),
        (16, 30, 14, 0, ["seeds 16 to 29: DIFFERS seed 21"]),
    ],
)
def test_crash_costs_one_group(monkeypatch, first, end, compared, skipped, found):
    monkeypatch.setattr(loops, "GROUP", 20)
    monkeypatch.setattr(loops, "WORKER", [sys.executable, "-c", FAKE])
    result = loops.search("", first, end)
    assert (result.compared, result.skipped) == (compared, skipped)
    assert sorted(result.found) == sorted(found)
