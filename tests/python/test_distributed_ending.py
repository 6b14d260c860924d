"""Processes that end while their collectives are under way: each test starts two."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from processes import run_python
from ranks import begin, environment, kind, rank, results

COUNT = 60


def begun(later: bool = False) -> list[torch.Tensor]:
    """Begin many collectives, of which the other rank begins its part when this one is through, or never."""
    begin(seconds=120)
    dist.all_reduce(torch.zeros(1))
    if rank() == 1:
        time.sleep(100 if later else 1)
    tensors = []
    for _ in range(COUNT):
        tensors.append(torch.full((1 << 18,), rank() + 1.0, device="xpu"))
        work = dist.all_reduce(tensors[-1], async_op=True)
    if rank() == 1:
        work.wait()
        assert all((x == 3).all() for x in tensors)
    Path(sys.argv[2], f"issued{rank()}").touch()
    return tensors


def by_exit() -> None:
    """End as PyTorch's own tests do: return from the main function."""
    begun()
    sys.exit(0)


def child(own_rank: int) -> None:
    """Body of a multiprocessing process: such processes run no atexit handlers."""
    sys.argv[1] = str(own_rank)
    by_exit() if own_rank == 0 else begun()


class SlowStore(dist.Store):
    """A store that answers late, so that its rank connects late, and that records the keys it was asked for."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self.store = store

    def get(self, key: str) -> bytes:
        time.sleep(0.5)
        Path(sys.argv[2], "got" + key.replace("/", "_")).touch()
        return self.store.get(key)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=60)) -> None:
        self.store.wait(keys, timeout)

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)


def leaves_at_once() -> None:
    """Join a group and leave it at once; the last rank asks late for the others' addresses."""
    number, ranks = int(sys.argv[1]), int(sys.argv[4])
    store: dist.Store = dist.FileStore(str(Path(sys.argv[2], "store")), ranks)
    if number == ranks - 1:
        store = SlowStore(store)
    wait = timedelta(seconds=60)
    dist.init_process_group("xccl", store=store, rank=number, world_size=ranks, timeout=wait)
    asked = len(list(Path(sys.argv[2]).glob("got*")))
    dist.destroy_process_group()
    print("left after", asked if asked < ranks - 1 else "all")


def said(name: str) -> list[str]:
    return [each[""] for each in results(__file__, 2, name)]


def test_all_is_waited_for() -> None:
    """Rank 0 ends at once: the collectives it started are completed for rank 1, and neither process is aborted."""
    assert [text.splitlines()[-1] for text in said("whole")] == ["issued", "issued"]
    assert not [text for text in said("whole") if "terminate" in text or "Error" in text]


def test_a_rank_that_leaves_at_once() -> None:
    """The rank leaves only when all are connected: closing earlier would be an error on the rank that connects last."""
    said = [each[""] for each in results(__file__, 4, "leaves")]
    assert [text.splitlines()[-1:] for text in said] == [["left after all"]] * 4, said


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_of_multiprocessing(way: str) -> None:
    with tempfile.TemporaryDirectory() as shared:
        done = run_python(Path(__file__), "0", shared, way, "2", env=environment(), timeout=200)
    assert done.stdout == "[0, 0]\n", done.stderr
    assert "terminate" not in done.stderr and "Error" not in done.stderr, done.stderr


def test_an_exception_ends_at_once() -> None:
    """The exit status tells the launcher, which ends the other ranks; the group's timeout would be 120 s."""
    with tempfile.TemporaryDirectory() as shared:
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(r), shared, "raises", "2"],
                env=environment(),
                stderr=subprocess.PIPE,
                text=True,
            )
            for r in range(2)
        ]
        try:
            while not Path(shared, "issued0").exists():
                assert processes[0].poll() is None, processes[0].communicate()[1]
                time.sleep(0.05)
            text = processes[0].communicate(timeout=20)[1]
        finally:
            processes[1].kill()
            processes[1].communicate()
    assert processes[0].returncode == 1, text
    assert text.rstrip().endswith("ValueError: its own") and "terminate" not in text, text


def test_after_another_was_killed() -> None:
    """The error caused by the other rank's death ends the process like any other error."""
    with tempfile.TemporaryDirectory() as shared:
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(r), shared, "killed", "2"],
                env=environment() | {"TORCH_FR_DUMP_TEMP_FILE": f"{shared}/trace_"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for r in range(2)
        ]
        text = [process.communicate(timeout=150)[1] for process in processes]
    assert [process.returncode for process in processes] == [-signal.SIGKILL, 1], text[1]
    assert "failed on rank 1" in text[1] and "terminate" not in text[1] and "Fatal" not in text[1], text[1]


if __name__ == "__main__":
    if kind() in ("fork", "spawn"):
        context = multiprocessing.get_context(kind())
        processes = [context.Process(target=child, args=(r,)) for r in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes])
    elif kind() == "killed":
        begin(seconds=120)
        dist.all_reduce(torch.zeros(1))
        works = []
        if rank() == 0:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(COUNT):
            works.append(dist.all_reduce(torch.ones(1 << 18, device="xpu"), async_op=True))
        del works[1:]
        works[0].wait()
    elif kind() == "leaves":
        leaves_at_once()
    elif kind() == "raises":
        begun(later=True)
        raise ValueError("its own")
    else:
        begun()
        print("issued")
