"""Schedules and traffic of collectives over up to 1,000 simulated ranks (`python bench/scale.py`).

Each algorithm is a list of rounds. A round states what every rank sends: the receiver and the pieces of the
buffer. From the rounds follow the bytes, messages and neighbors of a rank, and the time on a network. There a
message takes `latency` plus its bytes divided by `bandwidth`, and a rank sends one message at a time. MPI's
rings have one message in flight; direct algorithms have all of them in flight. For small numbers of ranks,
the contents of the pieces are tracked too: a schedule is valid only if every rank ends with the correct
result.

xpu's collectives over Gloo send directly from rank to rank. all_gather, reduce_scatter and small all_reduces
take one phase; in a large all_reduce each rank reduces a share and then distributes it. Each rank first
announces its operation to every other rank; small contents travel in the same message. MPI's algorithms are
those that MPICH selects by size (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
Operations in MPICH, 2005).

`--check` runs Gloo's collectives in 2 to 8 processes on this machine and compares the bytes sent by their
sockets with the model, exactly. Besides its contents each message has a header, a notice that it is available
and a notice that it is requested.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import stat
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

HEADER = 3 * 48  # bytes of headers: each message of Gloo and its two notices
SAYS = 256  # bytes of the announcement of an operation
INSIDE_MOST, INSIDE_LEAST, INSIDE_ALL = (
    16 << 10,
    1 << 10,
    256 << 10,
)  # most bytes of contents in the announcement; the last: times the ranks
PIECE_LEAST, PIECE_ALL = 64 << 10, 2 << 20  # least bytes of a pipelined piece; of all ranks' pieces
SHARE = 16  # elements; shares are multiples of it
STRAIGHT_TWO, STRAIGHT, STRAIGHT_ALL = (
    1 << 18,
    1 << 16,
    4 << 20,
)  # bytes: for two ranks, for more, times the ranks
SHORT_REDUCE = 2048  # bytes up to which MPICH's all_reduce uses recursive doubling
SHORT_GATHER, MEDIUM_GATHER = 80 << 10, 512 << 10  # bytes of all parts: Bruck, then doubling, then ring
LONG_SCATTER = 512 << 10  # bytes up to which MPICH's reduce_scatter uses recursive halving


@dataclass
class Round:
    """Simultaneous sends, as arrays of one length; a rank occurs at most once in `sender`."""

    sender: np.ndarray
    receiver: np.ndarray
    first: np.ndarray  # the first piece sent
    pieces: int  # number of pieces sent, wrapping around
    reduces: bool  # the receiver adds the data to its own
    sent: np.ndarray  # bytes
    waits: bool = False  # for all earlier rounds


@dataclass
class Plan:
    """The rounds of a collective for a given number of ranks and buffer size."""

    title: str
    rounds: Callable[[], Iterator[Round]]
    pieces: int  # pieces of the buffer, of equal size except the last
    neighbors: int  # most ranks that a rank sends to or receives from
    under_way: int = 1  # rounds in flight


def lengths(first: np.ndarray, pieces: int, each: int, total: int, of: int) -> np.ndarray:
    """Return the bytes of `pieces` consecutive pieces out of `of`, each of `each` bytes, within `total`."""
    index = (first[:, None] + np.arange(pieces)) % of * each
    return np.clip(total - index, 0, each).sum(axis=1)


# --- Gloo's ---


def pieces_of(ranks: int, size: int) -> list[int]:
    """Return the bytes of the pieces in which received data is reduced."""
    piece = -(-max(PIECE_LEAST, PIECE_ALL // max(ranks - 1, 1)) // 64) * 64
    return [min(piece, size - at) for at in range(0, size, piece)]


def messages_of(ranks: int, size: int, in_pieces: bool) -> list[int]:
    """Return the bytes of the messages that transfer `size` bytes, including the announcement."""
    if size <= max(INSIDE_LEAST, min(INSIDE_MOST, INSIDE_ALL // ranks)):
        return [SAYS + size]
    return [SAYS, *(pieces_of(ranks, size) if in_pieces else [size])]


def straight_shares(ranks: int, size: int, element: int) -> Plan:
    """Large all_reduce: each rank reduces its share of all buffers and distributes the result."""
    here = np.arange(ranks)
    elements = -(-size // element // ranks)
    length = -(-elements // SHARE) * SHARE * element
    shares = [int(n) for n in np.clip(size - here * length, 0, length)]
    first = [messages_of(ranks, share, in_pieces=True) for share in shares]
    then = [pieces_of(ranks, share) for share in shares]

    def rounds() -> Iterator[Round]:
        for lists, reduces in ((first, True), (then, False)):
            count = max(map(len, lists))
            for k in range(count):
                sizes = np.array([messages[k] if k < len(messages) else 0 for messages in lists])
                for i in range(1, ranks):
                    to = (here + i) % ranks
                    whose = to if reduces else here
                    is_last, waits = int(k + 1 == count), not reduces and k == 0 and i == 1
                    yield Round(here, to, whose, is_last, reduces, sizes[whose], waits)

    return Plan("shares", rounds, ranks, ranks - 1, under_way=(ranks - 1) * (max(map(len, first)) + 1))


def straight(ranks: int, size: int, _: int) -> Plan:
    """Small all_reduce: each rank sends its whole buffer to every other rank."""
    return go_straight(ranks, size, "all_reduce")


def straight_parts(ranks: int, size: int, _: int) -> Plan:
    """reduce_scatter: each rank sends every other rank the part that it keeps."""
    return go_straight(ranks, size // ranks, "reduce_scatter")


def straight_gather(ranks: int, size: int, _: int) -> Plan:
    """all_gather: each rank sends its part to every other rank."""
    return go_straight(ranks, size // ranks, "all_gather")


def go_straight(ranks: int, each: int, collective: str) -> Plan:
    """Send `each` bytes from every rank to every other; the last message completes the piece."""
    here = np.arange(ranks)
    messages = messages_of(ranks, each, in_pieces=collective != "all_gather")

    def rounds() -> Iterator[Round]:
        for k, size in enumerate(messages):
            for i in range(1, ranks):
                to = (here + i) % ranks
                first = {"all_reduce": 0 * here, "reduce_scatter": to, "all_gather": here}[collective]
                is_last = int(k + 1 == len(messages))
                yield Round(here, to, first, is_last, collective != "all_gather", np.full(ranks, size))

    pieces = 1 if collective == "all_reduce" else ranks
    return Plan("straight", rounds, pieces, ranks - 1, under_way=max((ranks - 1) * len(messages), 1))


# --- MPI's ---


def doubling(ranks: int, size: int, _: int) -> Plan:
    """Small all_reduce: exchange everything with a partner at twice the distance in each step."""
    power = 1 << (ranks.bit_length() - 1)
    rest = ranks - power
    extra = np.arange(rest)

    def rounds() -> Iterator[Round]:
        def all_of(sender: np.ndarray, receiver: np.ndarray, reduces: bool) -> Round:
            return Round(sender, receiver, np.zeros_like(sender), 1, reduces, np.full(len(sender), size))

        if rest:  # among the first ranks, odd ones act for their neighbors
            yield all_of(2 * extra, 2 * extra + 1, True)
        members = np.concatenate([2 * extra + 1, np.arange(2 * rest, ranks)])
        distance = 1
        while distance < power:
            yield all_of(members, members[np.arange(power) ^ distance], True)
            distance *= 2
        if rest:
            yield all_of(2 * extra + 1, 2 * extra, False)

    return Plan("MPI: recursive doubling", rounds, 1, power.bit_length() - 1 + bool(rest))


def rabenseifner(ranks: int, size: int, element: int) -> Plan:
    """Large all_reduce: recursive halving for the reduction, recursive doubling for the gather."""
    power = 1 << (ranks.bit_length() - 1)
    rest = ranks - power
    extra = np.arange(rest)
    each = -(-size // element // power) * element

    def rounds() -> Iterator[Round]:
        def some(sender: np.ndarray, receiver: np.ndarray, first: np.ndarray, n: int, reduces: bool) -> Round:
            return Round(sender, receiver, first, n, reduces, lengths(first, n, each, size, power))

        if rest:
            yield some(2 * extra, 2 * extra + 1, 0 * extra, power, True)
        members = np.concatenate([2 * extra + 1, np.arange(2 * rest, ranks)])
        index = np.arange(power)
        n = power
        while n > 1:  # send the half of n pieces that the partner keeps
            n //= 2
            partner = index ^ n
            yield some(members, members[partner], partner // n * n, n, True)
        while n < power:
            yield some(members, members[index ^ n], index // n * n, n, False)
            n *= 2
        if rest:
            yield some(2 * extra + 1, 2 * extra, 0 * extra, power, False)

    return Plan("MPI: Rabenseifner", rounds, power, power.bit_length() - 1 + bool(rest))


def bruck(ranks: int, size: int, _: int) -> Plan:
    """Small all_gather: send all data to a rank at twice the distance in each step."""
    here, part = np.arange(ranks), size // ranks

    def rounds() -> Iterator[Round]:
        have = 1
        while have < ranks:
            n = min(have, ranks - have)
            yield Round(here, (here - have) % ranks, here, n, False, np.full(ranks, n * part))
            have += n

    return Plan("MPI: Bruck", rounds, ranks, 2 * (ranks - 1).bit_length())


def ring(ranks: int, size: int, _: int) -> Plan:
    """Large all_gather: the parts go around a ring."""
    here, part = np.arange(ranks), size // ranks

    def rounds() -> Iterator[Round]:
        for i in range(ranks - 1):
            yield Round(here, (here + 1) % ranks, (here - i) % ranks, 1, False, np.full(ranks, part))

    return Plan("MPI: ring", rounds, ranks, 2)


def pairwise(ranks: int, size: int, _: int) -> Plan:
    """Large reduce_scatter: send each part directly to the rank that keeps it."""
    here, part = np.arange(ranks), size // ranks

    def rounds() -> Iterator[Round]:
        for i in range(1, ranks):
            to = (here + i) % ranks
            yield Round(here, to, to, 1, True, np.full(ranks, part))

    return Plan("MPI: pairwise", rounds, ranks, ranks - 1)


def halving(ranks: int, size: int, element: int) -> Plan:
    """Small reduce_scatter: recursive halving, for powers of two."""
    plan = rabenseifner(ranks, size, element)

    def rounds() -> Iterator[Round]:
        return (step for step in plan.rounds() if step.reduces)

    return Plan("MPI: halving", rounds, plan.pieces, plan.neighbors)


# --- selection ---

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def plan(engine: str, collective: str, ranks: int, size: int, element: int = 4) -> Plan:
    """Return the plan of `engine` ("gloo", "mpi") for a buffer of `size` bytes (all_gather: the result)."""
    if engine == "gloo":
        if collective == "all_gather":
            return straight_gather(ranks, size, element)
        if collective == "reduce_scatter":
            return straight_parts(ranks, size, element)
        is_small = size <= STRAIGHT_TWO if ranks == 2 else size <= min(STRAIGHT, STRAIGHT_ALL // ranks)
        return (straight if is_small else straight_shares)(ranks, size, element)
    is_power = ranks & (ranks - 1) == 0
    if collective == "all_reduce":
        return (doubling if size <= SHORT_REDUCE or size < element * ranks else rabenseifner)(
            ranks, size, element
        )
    if collective == "all_gather":
        return (bruck if size < (MEDIUM_GATHER if is_power else SHORT_GATHER) else ring)(ranks, size, element)
    return (halving if is_power and size < LONG_SCATTER else pairwise)(ranks, size, element)


# --- costs ---


@dataclass
class Cost:
    """The costs of the rank with the largest ones; `seconds` until the last rank finishes."""

    sent: int
    messages: int
    rounds: int
    seconds: float


def cost(what: Plan, ranks: int, latency: float, bandwidth: float) -> Cost:
    """Return the bytes, messages and time of a plan."""
    sent, messages, rounds = np.zeros(ranks, int), np.zeros(ranks, int), 0
    done = [np.zeros(ranks) for _ in range(what.under_way)]  # when each rank finished the last rounds
    free = np.zeros(ranks)  # when its last message was sent
    for step in what.rounds():
        goes = step.sent > 0
        sender, receiver = step.sender[goes], step.receiver[goes]
        sent[sender] += step.sent[goes]
        messages[sender] += 1
        begins = np.maximum(done[-1 if step.waits else 0], free)[sender]
        free[sender] = begins + step.sent[goes] / bandwidth
        now = done[-1].copy()
        now[sender] = np.maximum(now[sender], free[sender])
        now[receiver] = np.maximum(now[receiver], free[sender] + latency)
        done = [*done[1:], now]
        rounds += bool(goes.any())
    return Cost(int(sent.max()), int(messages.max()), rounds, float(done[-1].max()))


def holds(what: Plan, ranks: int, collective: str) -> bool:
    """Check that each rank ends with the correct result by counting the contributions to each piece."""
    has = np.zeros((ranks, what.pieces, ranks), int)  # rank, piece, contributor: count
    here = np.arange(ranks)
    if collective == "all_gather":
        each = what.pieces // ranks
        for rank in here:
            has[rank, rank * each : (rank + 1) * each, rank] = 1
    else:
        has[here, :, here] = 1
    own = (
        has.copy() if what.title in ("MPI: pairwise", "straight", "shares") else None
    )  # a rank sends only its own contribution for reduction
    for step in what.rounds():
        before = (has if own is None or not step.reduces else own).copy()
        for sender, receiver, first in zip(step.sender, step.receiver, step.first, strict=True):
            which = (first + np.arange(step.pieces)) % what.pieces
            if step.reduces:
                has[receiver, which] += before[sender, which]
            else:
                has[receiver, which] = before[sender, which]
    if collective == "all_gather":
        each = what.pieces // ranks
        wanted = np.repeat(np.eye(ranks, dtype=int), each, axis=0)
        return bool((has == wanted).all())
    if collective == "all_reduce":
        return bool((has == 1).all())
    return all((has[rank, rank] == 1).all() for rank in here)


# --- real processes ---


def on_the_wire() -> int:
    """Return the bytes sent by this process's TCP sockets."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    if len(info) >= 216:
                        sent, again = struct.unpack_from("QQ", info, 200)  # tcpi_bytes_sent, _retrans
                        total += sent - again
        except OSError:  # already closed
            continue
    return total


def connections() -> int:
    """Return the number of connected TCP sockets of this process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    one.getpeername()
                    count += one.family in (socket.AF_INET, socket.AF_INET6)
        except OSError:
            continue
    return count


def rank_process(rank: int, ranks: int, folder: str, sizes: tuple[int, ...]) -> None:
    """Run one of the processes; record the bytes sent for each collective and size."""
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore", FutureWarning)  # names that PyTorch 2.13 deprecates
    torch.set_num_threads(1)
    os.environ["OPENXPU_SHARED_MEMORY"] = "0"  # as between machines: all data goes over sockets
    store = dist.FileStore(os.path.join(folder, "store"), ranks)
    dist.init_process_group("xccl", store=store, rank=rank, world_size=ranks)
    sent = {}
    for size in sizes:
        whole = torch.ones(size // 4 // ranks * ranks, device="xpu")
        part = torch.ones(whole.numel() // ranks, device="xpu")
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),
            "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole),
        }
        for name, call in calls.items():
            dist.barrier()
            time.sleep(0.1)  # until its last notices are sent
            before = on_the_wire()
            call()
            time.sleep(0.1)
            sent[f"{name} {4 * whole.numel()}"] = on_the_wire() - before
            dist.barrier()
    Path(folder, f"{rank}.json").write_text(json.dumps({"sent": sent, "connections": connections()}))
    dist.barrier()
    dist.destroy_process_group()


def check(console: Console, sizes: tuple[int, ...], numbers: tuple[int, ...]) -> int:
    """Compare the model with the process that sent most in each group; return the number of mismatches."""
    import torch.multiprocessing

    off = 0
    for ranks in numbers:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(rank_process, (ranks, folder, sizes), ranks)
            said = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(ranks)]
        table = Table(title=f"{ranks} processes, {said[0]['connections']} connections each: bytes per rank")
        for column in ("collective", "bytes", "messages", "contents", "model", "counted", ""):
            table.add_column(column, justify="right")
        for title in said[0]["sent"]:
            name, size = title.split()
            predicted = cost(plan("gloo", name, ranks, int(size)), ranks, 0, 1)
            model = predicted.sent + predicted.messages * HEADER
            counted = max(each["sent"][title] for each in said)
            off += counted != model
            cells = (name, size, predicted.messages, predicted.sent, model, counted)
            table.add_row(*map(str, cells), "off" if counted != model else "")
        console.print(table)
    return off


# --- the command ---


def table_of(console: Console, numbers: list[int], size: int, latency: float, bandwidth: float) -> None:
    """Print the costs of each collective."""
    table = Table(title=f"{size >> 10} KiB, {1e6 * latency:.0f} µs per message, {bandwidth / 1e9:.2f} GB/s")
    for column in ("collective", "ranks", "by", "messages", "kB sent", "ms"):
        table.add_column(column, justify="right")
    for collective in COLLECTIVES:
        for ranks in numbers:
            for engine in ("gloo", "mpi"):
                whole = max(size // 4 // ranks, 1) * 4 * ranks if collective != "all_reduce" else size
                what = plan(engine, collective, ranks, whole)
                came = cost(what, ranks, latency, bandwidth)
                cells = (
                    what.title,
                    str(came.messages),
                    f"{came.sent / 1e3:.1f}",
                    f"{1e3 * came.seconds:.2f}",
                )
                table.add_row(collective, str(ranks), *cells)
    console.print(table)


def main() -> int:
    """Return 0 if the schedules are valid and, with --check, every count equals the model's."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32, 128, 512, 1000])
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 12, 1 << 20, 1 << 26])
    parser.add_argument("--latency", type=float, default=30e-6, help="seconds per message")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second in each direction")
    parser.add_argument(
        "--check", action="store_true", help="compare the model with processes on this machine"
    )
    options = parser.parse_args()
    console = Console()
    wrong = 0
    for engine in ("gloo", "mpi"):
        for collective in COLLECTIVES:
            for ranks in (2, 3, 4, 5, 6, 7, 8, 12, 16):
                for size in (64 * ranks, 6000 * ranks, 100_000 * ranks):
                    if not holds(plan(engine, collective, ranks, size), ranks, collective):
                        console.print(
                            f"{engine}'s {collective} of {ranks} ranks, {size} bytes: wrong schedule"
                        )
                        wrong += 1
    if options.check:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        return 1 if wrong + check(console, (1 << 10, 1 << 16, 3 << 20), (2, 3, 4, 8)) else 0
    for size in options.bytes:
        table_of(console, options.ranks, size, options.latency, options.bandwidth)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
