"""The flight recorder: entries and dumps of two processes, and the report of PyTorch's own analyzer."""

from __future__ import annotations

import json
import os
import pickle
import socket
import time
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
from processes import run_python
from ranks import Cases, check, entering, folder, rank, results, run

CASES: Cases = {}
case = entering(CASES)
RING = 40
Entry = dict[str, Any]


def library() -> Any:
    return torch._C._distributed_c10d


def dumped(**settings: bool) -> dict[str, Any]:
    return pickle.loads(library()._dump_xccl_trace(**settings))


def backend() -> Any:
    return dist.group.WORLD._get_backend(torch.device("xpu"))


def forget() -> None:
    from openxpu import _distributed

    _distributed.reset_trace()
    dist.all_reduce(torch.zeros(1))


def entries_of(call: Callable[[], object]) -> list[Entry]:
    """Return the entries that a call records."""
    forget()
    call()
    return dumped()["entries"]


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes, device="xpu")


CALLS: dict[str, tuple[Callable[[], object], list[list[int]], list[list[int]]]] = {
    # what is called, and the sizes of its inputs and outputs in one entry
    "all_reduce": (lambda: dist.all_reduce(ones(3, 4)), [[3, 4]], [[3, 4]]),
    "broadcast": (lambda: dist.broadcast(ones(3, 4), 1), [[3, 4]], [[3, 4]]),
    "reduce": (lambda: dist.reduce(ones(5), 1), [[5]], [[5]]),
    "all_gather": (lambda: dist.all_gather([ones(3, 2), ones(3, 2)], ones(3, 2)), [[3, 2]], [[2, 3, 2]]),
    "_all_gather_base": (lambda: dist.all_gather_into_tensor(ones(6, 2), ones(3, 2)), [[3, 2]], [[6, 2]]),
    "reduce_scatter": (lambda: dist.reduce_scatter(ones(3), [ones(3), ones(3)]), [[2, 3]], [[3]]),
    "_reduce_scatter_base": (lambda: dist.reduce_scatter_tensor(ones(3), ones(6)), [[6]], [[3]]),
    "all_to_all": (lambda: dist.all_to_all([ones(2), ones(3)], [ones(2), ones(3)]), [[5]], [[5]]),
    "all_reduce_barrier": (lambda: backend().barrier().wait(), [], []),
}


@case(*CALLS)
def entry(name: str) -> None:
    call, inputs, outputs = CALLS[name]
    if name == "all_to_all":
        sizes = [(2, 3), (3, 2)][rank()]

        def call() -> None:
            dist.all_to_all([ones(n) for n in sizes], [ones(n) for n in sizes])

    before = time.time_ns()
    number = backend()._get_sequence_number_for_group()
    (found,) = entries_of(call)
    assert found["profiling_name"] == f"xccl:{name}"
    assert (found["input_sizes"], found["output_sizes"]) == (inputs, outputs)
    assert found["input_dtypes"] == ["Float"] * len(inputs)
    assert found["output_dtypes"] == ["Float"] * len(outputs)
    assert found["collective_seq_id"] == number + 1
    assert not found["is_p2p"]
    assert found["process_group"] == ("0", "default_pg")
    assert found["state"] == "completed" and found["retired"]
    assert found["timeout_ms"] == 30_000
    times = [found[f"time_{kind}_ns"] for kind in ("created", "discovered_started", "discovered_completed")]
    assert before <= times[0] <= times[1] <= times[2] <= time.time_ns()
    assert any(Path(frame["filename"]).name == Path(__file__).name for frame in found["frames"])


@case()
def lists_of_different_sizes() -> None:
    """One entry for each rank's tensor and an empty one, as with NCCL."""
    parts = [ones(1, 2), ones(2, 2)]
    found = entries_of(lambda: dist.all_gather(parts, parts[rank()]))
    assert [each["profiling_name"] for each in found] == [
        *["xccl:_broadcast_oop"] * 2,
        "xccl:ALLGATHER_coalesced",
    ]
    assert [each["output_sizes"] for each in found] == [[[1, 2]], [[2, 2]], []]
    assert len({each["collective_seq_id"] for each in found}) == 1


@case()
def sends_together() -> None:
    """The entries of a batch share one number; a further entry has the batch's state."""

    def call() -> None:
        x = ones(3)
        kind = dist.isend if rank() else dist.irecv
        for work in dist.batch_isend_irecv(
            [dist.P2POp(kind, x, 1 - rank()), dist.P2POp(kind, x[:2], 1 - rank())]
        ):
            work.wait()

    found = entries_of(call)
    way = "send 1->0" if rank() else "recv 0<-1"
    assert [each["profiling_name"] for each in found] == [f"xccl:{way}", f"xccl:{way}", "xccl:coalesced"]
    assert all(each["is_p2p"] for each in found)
    assert len({each["p2p_seq_id"] for each in found}) == 1
    assert found[-1]["state"] == "completed"
    assert found[0]["op_id"] + 1 == found[1]["op_id"]


@case()
def in_pieces() -> None:
    """A collective that is sent in chunks is one entry."""
    (found,) = entries_of(lambda: dist.all_reduce(ones(5 << 20)))
    assert found["input_sizes"] == [[5 << 20]]
    assert found["state"] == "completed"


@case()
def under_way() -> None:
    forget()
    if not rank():
        work = dist.all_reduce(ones(3), async_op=True)
        (found,) = dumped(onlyActive=True)["entries"]
        assert found["state"] == "started" and not found["retired"]
        assert found["time_discovered_completed_ns"] is None
        as_json = json.loads(library()._dump_xccl_trace_json(onlyActive=True))
        assert as_json["entries"][0]["time_discovered_completed_ns"] == 0
    dist.all_reduce(torch.zeros(1))
    if rank():
        work = dist.all_reduce(ones(3), async_op=True)
    work.wait()
    assert not dumped(onlyActive=True)["entries"]
    assert "entries" not in dumped(includeCollectives=False)


@case()
def ring() -> None:
    """The ring keeps the last entries, in order."""
    found = entries_of(lambda: [dist.all_reduce(ones(n + 1)) for n in range(RING + 5)])
    assert [each["input_sizes"] for each in found] == [[[n + 1]] for n in range(5, RING + 5)]
    assert [each["record_id"] for each in found] == list(range(5, RING + 5))
    assert not any("duration_ms" in each for each in found)


@case()
def groups() -> None:
    group = dist.new_group([1, 0], group_desc="a pair")
    group._enable_collectives_timing()
    (found,) = entries_of(lambda: dist.all_reduce(ones(3), group=group))
    assert found["process_group"] == (group.group_name, "a pair")
    assert found["duration_ms"] > 0
    dump = dumped()
    assert dump["pg_config"][group.group_name] == {
        "name": group.group_name,
        "desc": "a pair",
        "ranks": "[0, 1]",
    }
    assert dump["pg_status"][str(found["pg_id"])] == {
        "last_enqueued_collective": 1,
        "last_started_collective": 1,
        "last_completed_collective": 1,
    }
    assert dump["comm_lib_version"] == library().get_xccl_version()


@case()
def beside_gloo() -> None:
    """PyTorch's own dump has the entries of both backends, ordered by time."""
    forget()
    dist.all_reduce(ones(3))
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(ones(5))
    for found in (
        pickle.loads(library()._dump_fr_trace()),
        json.loads(library()._dump_fr_trace_json()),
    ):
        last = found["entries"][-3:]
        assert [each["profiling_name"] for each in last] == [
            "xccl:all_reduce",
            "gloo:all_reduce",
            "xccl:all_reduce",
        ]
        assert [each["input_sizes"][0] for each in last] == [[3], [4], [5]]
        numbers = [each["record_id"] for each in found["entries"]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def analyzed(where: Path) -> str:
    arguments = ["torch.distributed.flight_recorder.fr_trace", where, "-p", "trace_"]
    done = run_python("-m", *arguments, status=None)
    return done.stdout + done.stderr


def whole(file: Path, since: int) -> bytes:
    """Return the dump if it has stacks and only entries after `since`, else b"" (file times may be ms early)."""
    try:
        text = file.read_bytes()
        entries = pickle.loads(text)["entries"]
    except (FileNotFoundError, EOFError, pickle.UnpicklingError):
        return b""
    is_it = entries and all("frames" in each and each["time_created_ns"] > since for each in entries)
    return text if is_it else b""


def copy_dumps(where: Path, since: int, to: Path) -> None:
    """Copy both ranks' dumps once complete: each failed rank has them rewritten, first without stacks."""
    to.mkdir()
    end = time.monotonic() + 30
    for r in range(2):
        while not (text := whole(where / f"trace_{r}", since)):
            assert time.monotonic() < end, f"rank {r} has not written a dump"
            time.sleep(0.1)
        (to / f"trace_{r}").write_bytes(text)


@case("absent", "other_size")
def analyzer(name: str) -> None:
    """All ranks dump a failure, also those that did not take part; PyTorch's analyzer finds the reason."""
    where = Path(folder())
    group = dist.new_group(timeout=timedelta(seconds=2), group_desc="of a failure")
    since = time.time_ns()
    forget()  # in step: whatever is entered from here on is newer than each rank's `since`
    dist.all_reduce(ones(3), group=group)
    if name == "absent":
        if not rank():
            with pytest.raises(RuntimeError):
                dist.all_reduce(ones(4), group=group)
    else:
        with pytest.raises(RuntimeError):
            dist.all_reduce(ones(4 + rank()), group=group)
    copies = where / f"{name}_{rank()}"
    copy_dumps(where, since, copies)
    if not rank():
        text = analyzed(copies)
        assert "of a failure" in text, text
        expected = {
            "absent": "Not all ranks joining collective, sequence number: 2",
            "other_size": "Collective sequence number: 2 has errors",
        }[name]
        assert expected in text, text
        assert ("missing ranks: {1}" in text) == (name == "absent"), text
        assert ("SIZE_OR_SYNTAX_MISMATCH" in text) == (name == "other_size"), text
        assert "test_flight_recorder.py" in text, text
    dist.all_reduce(torch.zeros(1))


@case()
def asked_through_a_pipe() -> None:
    forget()
    since = time.time_ns()
    dist.all_reduce(ones(7))
    file = Path(folder(), f"trace_{rank()}")
    file.unlink(missing_ok=True)
    with open(Path(folder(), f"ask_{rank()}.pipe"), "w") as pipe:
        pipe.write("1\n")
    end = time.monotonic() + 30
    while not (text := whole(file, since)):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert pickle.loads(text)["entries"][-1]["input_sizes"] == [[7]]


@case()
def page_of_the_debug_server() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = library()._WorkerServer("localhost", port)
    forget()
    dist.all_reduce(ones(3))
    for name, read in (("json", json.loads), ("pickle", pickle.loads)):
        page = f"http://localhost:{port}/handler/dump_nccl_trace_{name}?includestacktraces=false"
        with urllib.request.urlopen(urllib.request.Request(page, method="POST"), timeout=20) as response:
            (found,) = read(response.read())["entries"]
        assert found["profiling_name"] == "xccl:all_reduce" and "frames" not in found
    server.shutdown()


STAGED = (("OPENXPU_MEMORY", "buffer"),)


@pytest.mark.parametrize(
    "settings", [(), pytest.param(STAGED, marks=pytest.mark.extended)], ids=["in_place", "staged"]
)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    check(name, results(__file__, 2, "cases", (("TORCH_FR_BUFFER_SIZE", str(RING)), *settings)))


if __name__ == "__main__":
    os.environ["TORCH_FR_DEBUG_INFO_PIPE_FILE"] = os.path.join(folder(), "ask_")
    run(CASES)
