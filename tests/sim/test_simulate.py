"""``openxpu simulate``: programs, their children and faults, on all products. `tests/sim/run.sh smoke` runs these."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from processes import Finished, run

HERE = Path(__file__).parent
DRIVER = os.environ.get("OPENXPU_SIM_TEST_DRIVER")
PRODUCTS = ("bmg", "bmg-g31", "lnl", "ptl", "wcl", "nvl-s", "pvc", "dg2", "mtl", "arl-h", "tgllp", "adl-p")

pytestmark = pytest.mark.skipif(not DRIVER, reason="tests/sim/run.sh fetches Intel's driver")


def simulate(*arguments: str | Path, status: int | None = 0, **variables: str) -> Finished:
    """Run ``openxpu simulate`` with arguments; variables go into its environment."""
    command = [sys.executable, "-m", "openxpu.cli", "simulate", "--driver", str(DRIVER), *map(str, arguments)]
    return run(
        command, status=status, env={"PYTHONPATH": f"{HERE}:{HERE.parents[1] / 'python'}", **variables}
    )


@pytest.mark.parametrize("product", ["tgllp", "adl-p", "arl-h"])
def test_streams_and_events(product: str) -> None:
    """Before Xe-HP the driver can't order queues of two priorities."""
    simulate("--device", product, HERE.parents[1] / "build/tests/c/test_api")


@pytest.mark.parametrize("product", PRODUCTS)
def test_adds(product: str) -> None:
    """A kernel runs on the product, with Intel's driver."""
    result = simulate("--device", product, HERE / "opencl_add.py")
    assert result.stdout.startswith("Intel(R)")
    assert result.stdout.endswith(" 9900\n")
    assert "Intel's driver" in result.stderr


def test_children() -> None:
    """Children are simulated, too, however they are started."""
    assert simulate(HERE / "children.py").stdout.count("passed") == 9


def test_status_after_a_fault() -> None:
    """A fault makes a program fail that does not notice it."""
    program = (
        "import opencl_add\n"
        "try: opencl_add.add(source=b'kernel void add(global int *x) { x[1L << 45] = 1; }')\n"
        "except RuntimeError as error: print(error)\n"
    )
    result = simulate(sys.executable, "-c", program, status=3)
    assert "fault" in result.stderr


def test_profile_names_kernels() -> None:
    """A profile counts what each kernel does, under the kernel's name."""
    report = simulate("--profile", HERE / "opencl_add.py").stderr
    assert "profile: kernel add at " in report


def test_own_status_is_kept() -> None:
    """Without a fault the exit status is the program's."""
    simulate("sh", "-c", "exit 5", status=5)


@pytest.mark.parametrize(
    "arguments",
    [("--device", "none", "true"), ("--check", "none", "true"), ("--sample", "8", "true"), ()],
)
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    """Wrong arguments are named before anything is fetched."""
    assert "openxpu simulate: " in simulate(*arguments, status=2).stderr


@pytest.mark.parametrize("product", ["bmg", "lnl"])
def test_doctor(product: str) -> None:
    """PyTorch works on the simulated product, as far as the self-test looks."""
    assert "ok" in simulate("--device", product, sys.executable, "-m", "openxpu.cli", "doctor").stdout


# Kernels of 640 work-items, 16 a subgroup, on x[i] = i; and what they do, computed from the source.
COUNTED = {
    "each element once": (
        "x[i] += (int)i;",
        {"global memory: loads": (640 // 16, 4 * 640), "global memory: stores": (640 // 16, 4 * 640)},
    ),
    # 4 subgroups; each of 7 turns loads x[7], which its lanes share, and a row; the last test loads x[7] again
    "a loop of x[7] turns": (
        "if (i >= 64) return; volatile global int *y = x; int sum = 0;"
        "for (int k = 0; k < y[7]; k++) sum += y[64 * k + i]; y[512 + i] = sum;",
        {
            "global memory: loads": (4 * (8 + 7), 4 * 8 * 4 + 4 * 7 * 64),
            "global memory: stores": (4, 4 * 64),
        },
    ),
    # 34 dwords apart, 16 lanes meet in 16 of 32 banks; 32 apart, in one: 15 more cycles each
    "local memory, rows apart": (
        "local int t[64 * 34]; t[34 * l] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); x[i] = t[34 * (63 - l)];",
        {"local memory: loads": (40, 4 * 640), "local memory: stores": (40, 4 * 640), "conflicts": (0,)},
    ),
    "local memory, in one bank": (
        "local int t[64 * 32]; t[32 * l] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); x[i] = t[32 * (63 - l)];",
        {"local memory: loads": (40, 4 * 640), "conflicts": (15 * (40 + 40),)},
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_profile(name: str) -> None:
    """Messages, bytes and conflicts are those that the source demands."""
    body, wanted = COUNTED[name]
    source = (
        "__attribute__((intel_reqd_sub_group_size(16), reqd_work_group_size(64, 1, 1)))"
        f"kernel void add(global int *x) {{ const size_t i = get_global_id(0), l = get_local_id(0); {body} }}"
    )
    program = f"import opencl_add; opencl_add.add(640, {source.encode()!r})"
    said = simulate("--profile", sys.executable, "-c", program).stderr
    for what, numbers in wanted.items():
        line = next(line for line in said.splitlines() if what in line)
        assert [int(n) for n in re.findall(r"\d+", line.partition(what)[2])] == [*numbers], said


def predicted(*options: str, count: int = 1 << 22) -> tuple[float, str, int]:
    """Return the predicted seconds, what limits them, and bytes of memory, of the addition of ``count`` numbers."""
    program = f"import opencl_add; opencl_add.add({count})"
    said = simulate(*options, "--profile", sys.executable, "-c", program).stderr
    found = re.search(r"predicted ([\d.]+) us, limited by (.*); memory (\d+) bytes", said)
    assert found, said
    return float(found[1]) / 1e6, found[2], int(found[3])


# bytes/s of memory, and measured share of it
@pytest.mark.parametrize(("product", "peak", "measured"), [("bmg", 456e9, 410e9), ("bmg-g31", 608e9, 532e9)])
def test_predictions(product: str, peak: float, measured: float) -> None:
    """A large launch takes as long as its memory traffic, from a few of its work-groups, too."""
    count = 1 << 22
    seconds, limit, traffic = predicted("--device", product, count=count)
    assert limit == "memory" and abs(traffic - 8 * count) < 0.01 * traffic
    assert traffic / peak < seconds and abs(traffic / measured / (seconds - 3e-6) - 1) < 0.02
    sampled, limit, part = predicted("--device", product, "--sample", "16", count=count)
    assert limit == "memory" and abs(sampled / seconds - 1) < 0.02 and abs(part / traffic - 1) < 0.01


def test_prediction_of_an_unknown_product() -> None:
    """Products without published rates get no prediction."""
    said = simulate("--device", "adl-p", "--profile", HERE / "opencl_add.py").stderr
    assert "predicted: no rates of this product are known" in said


def test_report(tmp_path: Path) -> None:
    """A report says that its device is simulated; all its values are right."""
    command = (sys.executable, "-m", "openxpu.cli", "report", "--seconds", "5", "-o", tmp_path / "report")
    simulate("--device", "bmg", *command)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["simulated"] == "bmg" and "B580" in report["device"]["name"]
    assert len(report["values"]) >= 40 and all(value["ok"] for value in report["values"])
    assert not any(check["error"] for check in report["checks"])
    assert "simulated" in (tmp_path / "report.html").read_text()
