"""The model of collectives over many ranks: its schedules, and its bytes beside those of processes."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import run_python
from ranks import environment

FILE = Path(__file__).parents[2] / "bench" / "scale.py"
spec = importlib.util.spec_from_file_location("scale", FILE)
scale = importlib.util.module_from_spec(spec)
sys.modules["scale"] = scale
spec.loader.exec_module(scale)


@pytest.mark.parametrize("engine", ["gloo", "mpi"])
@pytest.mark.parametrize("collective", scale.COLLECTIVES)
def test_every_rank_ends_with_what_it_should(engine, collective):
    for ranks in (2, 3, 5, 8, 11):
        for size in (64 * ranks, 6000 * ranks, 100_000 * ranks):
            assert scale.holds(scale.plan(engine, collective, ranks, size), ranks, collective)


def test_a_wrong_schedule_is_seen():
    plan = scale.plan("gloo", "all_reduce", 4, 4096)
    steps = list(plan.rounds())
    assert not scale.holds(dataclasses.replace(plan, rounds=lambda: iter(steps[1:])), 4, "all_reduce")
    other = [dataclasses.replace(step, receiver=(step.sender + 1) % 4) for step in steps]
    assert not scale.holds(dataclasses.replace(plan, rounds=lambda: iter(other)), 4, "all_reduce")


@pytest.mark.parametrize("ranks", [2, 8, 100, 1000])
def test_bytes_are_those_of_the_formulas(ranks):
    size = 4096 * ranks
    share = size * (ranks - 1) // ranks

    def sent(engine, collective):
        sent = scale.cost(scale.plan(engine, collective, ranks, size), ranks, 1e-5, 1e9).sent
        # without the announcements to each other rank
        return sent - (scale.SAYS * (ranks - 1) if engine == "gloo" else 0)

    if scale.plan("gloo", "all_reduce", ranks, size).title == "straight":
        assert sent("gloo", "all_reduce") == size * (ranks - 1)
    else:
        assert sent("gloo", "all_reduce") == 2 * share
    assert sent("gloo", "all_gather") == sent("mpi", "all_gather") == share
    assert sent("gloo", "reduce_scatter") == share
    if ranks & (ranks - 1) == 0:
        assert sent("mpi", "all_reduce") == 2 * share
    assert sent("mpi", "reduce_scatter") == share


def test_time_of_what_is_passed_on():
    # one latency to send the parts and one for the sums; for large sizes the bytes dominate
    small = scale.cost(scale.plan("gloo", "all_reduce", 100, 4096 * 100), 100, 1.0, 1e30)
    assert small.messages == 3 * 99 and small.seconds == pytest.approx(2)
    straight = scale.cost(scale.plan("gloo", "all_reduce", 100, 2000), 100, 1.0, 1e30)
    assert straight.messages == 99 and straight.seconds == pytest.approx(1)
    large = scale.cost(scale.plan("gloo", "all_reduce", 100, 1 << 28), 100, 1e-12, 1e9)
    assert large.seconds == pytest.approx(2 * 0.99 * (1 << 28) / 1e9, rel=1e-3)
    steps = scale.cost(scale.plan("mpi", "all_reduce", 128, 1 << 20), 128, 1.0, 1e30)
    assert (steps.messages, steps.seconds) == (14, pytest.approx(14))


@pytest.mark.extended
def test_bytes_of_processes():
    script = (
        f"import sys; sys.path.insert(0, {str(FILE.parent)!r})\n"
        "import scale\nfrom rich.console import Console\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(scale.check(Console(width=150), (1 << 10, 1 << 18), (2, 3)))\n"
    )
    done = run_python(script, bare=True, env=environment(), timeout=200)
    assert done.stdout.count("all_reduce") == 4


def test_of_one_thousand():
    came = scale.cost(scale.plan("gloo", "all_gather", 1000, 4 << 20), 1000, 3e-5, 1.25e9)
    assert came.rounds == 1998 and np.isfinite(came.seconds)
