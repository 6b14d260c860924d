"""Process groups for xpu tensors: backends "xccl" (over Gloo) and "mpi".

torch.distributed has the names (``ProcessGroupXCCL``, ``is_xccl_available``, "xccl" as xpu's default), but
only Intel's builds implement them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any, NamedTuple

from openxpu import _flight_recorder, _mpi, _shutdown


@functools.cache
def _library() -> ModuleType:
    """Load the extension with the collectives of xpu tensors, which registers c10d's operators."""
    from openxpu import _distributed

    return _distributed


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _library().ProcessGroupXCCL)

    @property
    def Options(cls) -> Any:  # noqa: N802  torch.distributed's name
        """Options that torch.distributed sets first; `is_high_priority_stream` is ignored."""
        return _library().Options


class ProcessGroupXCCL(metaclass=_Meta):
    """The backend class in torch.distributed; a call creates a backend over Gloo with the same ranks."""

    def __new__(cls, store: Any, rank: int, size: int, options: Any = None) -> Any:
        """Connect to the other ranks."""
        from torch.distributed.constants import default_pg_timeout
        from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo

        _shutdown.watch()
        if options is None:
            options = cls.Options()
            options._timeout = default_pg_timeout
        transport = ProcessGroupGloo(store, rank, size, timeout=options._timeout)
        transport.options.global_ranks_in_group = options.global_ranks_in_group
        transport.options.group_name = options.group_name
        _meet(transport, rank, size)
        backend = _library().ProcessGroupXCCL(transport, PrefixStore("xccl", store), options, cls)
        backend._set_sequence_number_for_group()
        return backend


def _meet(transport: Any, rank: int, size: int) -> None:
    """Wait until all ranks have all of their connections.

    Gloo returns when this rank has its own. If a process then left the group, its connections would close,
    and a rank still connecting would report an error. NCCL connects lazily, so programs may do that.
    """
    from torch.distributed import DistNetworkError

    try:
        transport.barrier().wait()
    except RuntimeError as error:
        raise DistNetworkError(
            f"xccl: rank {rank} of {size} connected, but another rank exited or failed before all ranks "
            f"had connected: {error}"
        ) from error


class _Making(NamedTuple):
    """The group being created, which torch.distributed doesn't pass to MPI's backend."""

    store: Any
    rank: int
    size: int
    ranks: list[int]
    name: str
    timeout: timedelta
    made: list[Any]


class _MpiMeta(_Meta):
    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) and getattr(instance, "name", str)() == "mpi"


class ProcessGroupMPI(metaclass=_MpiMeta):
    """The MPI backend class in torch.distributed, for xpu and CPU tensors."""

    making: list[_Making] = []

    def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
        """Connect to the other ranks."""
        from torch.distributed.distributed_c10d import PrefixStore

        timeout = options._timeout
        _mpi.start(timeout)
        transport = _library().MpiTransport(PrefixStore("mpi", store), rank, size, timeout)
        backend = _library().ProcessGroupXCCL(transport, PrefixStore("xccl", store), options, cls)
        backend._set_sequence_number_for_group()
        return backend

    @classmethod
    def create(cls, ranks: list[int]) -> Any:
        """Create a group's backend, once for all its devices."""
        making = cls.making[-1]
        if not making.made:
            options = cls.Options()
            options._timeout = making.timeout
            options.global_ranks_in_group = ranks
            options.group_name = making.name
            making.made.append(cls(making.store, making.rank, making.size, options))
        return making.made[0]


def _names_mpi(backend: Any) -> bool:
    return backend is not None and "mpi" in re.split("[:,]", str(backend).lower())


def _enter_mpi(c10d: Any) -> None:
    """Register the MPI backend with torch.distributed, unless it has its own."""
    for name in ("torch._C._distributed_c10d", "torch.distributed"):
        sys.modules[name].__dict__["ProcessGroupMPI"] = ProcessGroupMPI
    c10d.ProcessGroupMPI = ProcessGroupMPI
    c10d._MPI_AVAILABLE = _mpi.is_there()
    c10d.Backend.backend_capability[c10d.Backend.MPI] = ["cpu", "xpu"]
    own = c10d.init_process_group
    signature = inspect.signature(own)
    helper = c10d._new_process_group_helper
    default: list[tuple[Any, int, int, Any]] = []

    @functools.wraps(own)
    def begin(*positional: Any, **named: Any) -> None:
        given = signature.bind(*positional, **named)
        given.apply_defaults()
        arguments = given.arguments
        if not _names_mpi(arguments["backend"]) or c10d.is_initialized():
            return own(*positional, **named)
        timeout = arguments["timeout"] or c10d.default_pg_timeout
        _mpi.start(timeout)  # or raises what is missing
        store, rank, size = arguments["store"], arguments["rank"], arguments["world_size"]
        if store is None:
            if arguments["init_method"] is None and rank < 0 and size < 0 and "RANK" not in os.environ:
                store, rank, size = _mpi.meet(timeout)
            else:
                method = arguments["init_method"] or "env://"
                store, rank, size = next(c10d.rendezvous(method, rank, size, timeout=timeout))
            store.set_timeout(timeout)
        arguments.update(store=store, rank=rank, world_size=size, init_method=None)
        if c10d.Backend(str(arguments["backend"])) == c10d.Backend.MPI:  # MPI provides rank and size
            default.append((c10d.PrefixStore("default_pg", store), rank, size, arguments["device_id"]))
            arguments.update(store=None, rank=-1, world_size=-1)
        try:
            return own(*given.args, **given.kwargs)
        finally:
            default.clear()

    @functools.wraps(helper)
    def make(
        size: int, rank: int, ranks: Any, backend: Any, store: Any, name: Any, *rest: Any, **named: Any
    ) -> Any:
        if not _names_mpi(backend):
            return helper(size, rank, ranks, backend, store, name, *rest, **named)
        timeout = named.get("timeout") or c10d.default_pg_timeout
        if default:
            store, rank, size, named["device_id"] = default[0]
        elif size < 0:  # called through an earlier import of init_process_group
            store, rank, size = _mpi.meet(timeout)
        making = _Making(c10d.PrefixStore(f"{name}/", store), rank, size, ranks, name, timeout, [])
        ProcessGroupMPI.making.append(making)
        try:
            made = helper(size, rank, ranks, backend, store, name, *rest, **named)
        finally:
            ProcessGroupMPI.making.pop()
        if making.made and len(set(c10d.BackendConfig(backend).device_backend_map.values())) == 1:
            made[0]._set_default_backend(c10d.ProcessGroup.BackendType.MPI)
        return made

    c10d.init_process_group = begin
    names = sys.modules["torch.distributed"].__dict__
    if names.get("init_process_group") is own:  # it is already imported
        names["init_process_group"] = begin
    c10d._new_process_group_helper = make


def _beside(group: Any) -> Any:
    """Return Gloo's CPU backend in a group that also has xpu; else None."""
    import torch
    from torch.distributed.distributed_c10d import ProcessGroupGloo

    cpu, xpu = torch.device("cpu"), torch.device("xpu")
    if not hasattr(group, "_device_types") or not {cpu, xpu} <= set(group._device_types):
        return None  # not in this group, or not both backends
    backend = group._get_backend(cpu)
    return backend if isinstance(backend, ProcessGroupGloo) else None


def _name_ranks(group: Any, size: int) -> None:
    """Set the ranks of the world group: Gloo takes an empty list for them, and fails to split it."""
    gloo = _beside(group)
    if gloo and not gloo.options.global_ranks_in_group:
        gloo.options.global_ranks_in_group = list(range(size))


def _give_time(group: Any) -> None:
    """Copy the xpu backend's timeout to Gloo in a group made by a split, which got xpu's kind of options."""
    import torch

    gloo = _beside(group)
    if gloo:
        gloo._set_default_timeout(group._get_backend(torch.device("xpu")).options._timeout)


def _name_splits(c10d: Any) -> None:
    """Give a group made by a split the same name on all ranks.

    PyTorch 2.13 hashes the number of groups that a rank is in, which may differ between ranks; Gloo uses the
    name to meet in the store. NCCL splits without it.
    """
    split, name_of = c10d.split_group, c10d._process_group_name
    counts: dict[str, int] = {}
    splitting: list[str] = []

    @functools.wraps(split)
    def split_group(parent_pg: Any = None, split_ranks: Any = None, *rest: Any, **named: Any) -> Any:
        parent = parent_pg or (c10d._get_default_group() if c10d.is_initialized() else None)
        title = ""
        if isinstance(parent, c10d.ProcessGroup):
            title = parent.group_name
            for rank in itertools.chain(*(split_ranks or ())):  # Gloo would wait for it
                if not 0 <= rank < parent.size():
                    raise ValueError(
                        f"split_ranks: rank {rank} is out of range for a group of size {parent.size()}"
                    )
        counts[title] = counts.get(title, 0) + 1
        splitting.append(f"{title}:{counts[title]}")
        try:
            group = split(parent_pg, split_ranks, *rest, **named)
        finally:
            splitting.pop()
        if group is not None:
            _give_time(group)
        return group

    @functools.wraps(name_of)
    def name(ranks: list[int], use_hashed_name: bool) -> Any:
        if not splitting or not use_hashed_name:
            return name_of(ranks, use_hashed_name)
        text = f"{splitting[-1]}:{ranks}"
        return c10d.GroupName(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    c10d._process_group_name = name
    for module in ("distributed_c10d", "device_mesh", ""):  # modules that have already imported it
        names = getattr(sys.modules.get(f"torch.distributed.{module}".rstrip(".")), "__dict__", {})
        if names.get("split_group") is split:
            names["split_group"] = split_group


def enter(c10d: Any) -> None:
    """Register the backends with ``distributed_c10d``, once it has been imported."""
    if not c10d.is_gloo_available() or importlib.util.find_spec("openxpu._distributed") is None:
        return
    for name in ("torch._C._distributed_c10d", "torch.distributed"):
        sys.modules[name].__dict__["ProcessGroupXCCL"] = ProcessGroupXCCL
    c10d.ProcessGroupXCCL = ProcessGroupXCCL
    c10d._XCCL_AVAILABLE = True
    _flight_recorder.enter(sys.modules["torch._C._distributed_c10d"])

    own = c10d.BackendConfig.__init__

    @functools.wraps(own)
    def parse(self: Any, backend: Any) -> None:
        own(self, backend)
        backends = self.device_backend_map
        if "xpu" not in backends:
            return
        _library()  # other backends (fake) use the operators for these tensors
        if backends["xpu"] == c10d.Backend.GLOO:  # Gloo alone takes CPU tensors only
            backends["xpu"] = c10d.Backend.XCCL

    c10d.BackendConfig.__init__ = parse

    if not c10d.is_mpi_available():
        _enter_mpi(c10d)
    helper = c10d._new_process_group_helper

    @functools.wraps(helper)
    def make(size: int, rank: int, ranks: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        """Without a named backend PyTorch would ask the group for Gloo's, which an xpu-only group lacks."""
        if backend == c10d.Backend.UNDEFINED:
            devices = c10d.BackendConfig(backend).get_device_backend_map()
            if set(devices) == {"xpu"}:
                backend = c10d.Backend(devices["xpu"])
        made = helper(size, rank, ranks, backend, *rest, **named)
        _name_ranks(made[0], size)
        return made

    c10d._new_process_group_helper = make
    _name_splits(c10d)
