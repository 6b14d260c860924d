"""Share tensors of CPU devices between processes, with PyTorch's mechanism for the CPU.

When shared, such a storage uses the memory of a CPU storage. PyTorch sends, counts and frees that one, with
either of its strategies; the receiver wraps it in an xpu storage.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import UntypedStorage

# PyTorch is not imported at module level: a new process may import this module first, to unpickle a storage.


def _suits(shared: Any) -> bool:
    """Return whether the current strategy can send the storage: the same one shared it."""
    from torch.multiprocessing import get_sharing_strategy

    try:
        shared._get_shared_fd()
    except RuntimeError:  # it has a name
        return get_sharing_strategy() == "file_system"
    return get_sharing_strategy() != "file_system"


def _share(storage: UntypedStorage) -> UntypedStorage:
    """Return the CPU storage that holds an xpu storage's memory; move the memory there if needed."""
    from torch import UntypedStorage

    from openxpu import _bridge

    _bridge.check_shareable(storage.device.index)
    shared: UntypedStorage | None = _bridge.shared_storage(storage)
    if shared is None or not _suits(shared):
        shared = UntypedStorage._new_shared(storage.nbytes(), device="cpu")
        _bridge.move_storage(storage, shared)
    return shared


def _key(shared: UntypedStorage, index: int) -> tuple[str, int, int]:
    """Return the key of the xpu storage over a CPU storage in PyTorch's cache."""
    return "xpu", index, shared._cdata


def _check_device(index: int) -> None:
    """Raise an error unless this process has the device."""
    import torch

    torch.xpu._lazy_init()
    count = torch.xpu.device_count()
    if index >= count:
        raise RuntimeError(
            f"another process sent a tensor of xpu:{index}, but this process has {count} "
            f"device{'s' if count > 1 else ''}. Set OPENXPU_DEVICE to the same value in both"
        )


def rebuild_empty(index: int) -> UntypedStorage:
    """Create a storage without memory."""
    import torch

    _check_device(index)
    return torch.UntypedStorage(0, device=f"xpu:{index}")


def rebuild_storage(
    index: int, rebuild: Callable[..., UntypedStorage], arguments: tuple[Any, ...]
) -> UntypedStorage:
    """Create the storage that another process sent, or return the one received before."""
    from torch.multiprocessing import reductions

    from openxpu import _bridge

    shared = rebuild(*arguments)
    _check_device(index)
    key = _key(shared, index)
    storage: UntypedStorage | None = reductions.storage_from_cache(None, key)
    here = None if storage is None else _bridge.shared_storage(storage)
    if storage is None or here is None or here._cdata != shared._cdata:  # moved since, or the id was reused
        storage = _bridge.storage_over(shared, index)
        reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _reducer(reductions: Any, share: Callable[..., UntypedStorage]) -> Callable[[UntypedStorage], Any]:
    """Return a pickling function for storages: PyTorch's, extended to xpu."""
    from torch.multiprocessing import get_sharing_strategy

    from openxpu import _bridge

    own = reductions.reduce_storage

    def reduce_storage(storage: UntypedStorage) -> Any:
        if storage.device.type != "xpu":
            return own(storage)
        index = storage.device.index
        if storage.nbytes() == 0 and get_sharing_strategy() != "file_system":
            _bridge.check_shareable(storage.device.index)
            return rebuild_empty, (index,)
        shared = share(storage)
        reduced = own(shared)
        reductions.shared_cache[_key(shared, index)] = reductions.StorageWeakRef(storage)
        return rebuild_storage, (index, *reduced)

    return reduce_storage


def _extend(kind: Any) -> Callable[[UntypedStorage], UntypedStorage]:
    """Extend the storages' own methods to xpu; return the function that shares."""
    from torch.storage import _share_memory_lock_protected

    from openxpu import _bridge

    share: Callable[[UntypedStorage], UntypedStorage] = _share_memory_lock_protected(_share)
    own_share, own_is_shared, own_resize = kind.share_memory_, kind.is_shared, kind.resize_
    own_new_shared = kind._new_shared.__func__

    def share_memory_(self: UntypedStorage, *arguments: Any, **named: Any) -> UntypedStorage:
        if self.device.type != "xpu":
            return own_share(self, *arguments, **named)
        share(self)
        return self

    def is_shared(self: UntypedStorage) -> bool:
        if self.device.type != "xpu":
            return own_is_shared(self)
        return _bridge.shared_storage(self) is not None

    def _new_shared(cls: type[UntypedStorage], size: int, *, device: Any = "cpu") -> UntypedStorage:
        import torch

        place = torch.device(device)
        if place.type != "xpu":
            return own_new_shared(cls, size, device=place)
        torch.xpu._lazy_init()
        index = torch.xpu.current_device() if place.index is None else place.index
        return _bridge.storage_over(own_new_shared(cls, size, device="cpu"), index)

    def resize_(self: UntypedStorage, size: int) -> UntypedStorage:
        # PyTorch moves xpu storages without checking
        if self.device.type == "xpu" and not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable")
        return own_resize(self, size)

    share_memory_.__doc__ = own_share.__doc__
    kind.resize_ = resize_
    kind.share_memory_ = share_memory_
    kind.is_shared = is_shared
    kind._new_shared = classmethod(_new_shared)
    return share


def enter(reductions: Any) -> None:
    """Enable sharing of xpu storages and sending them with torch.multiprocessing."""
    from torch import UntypedStorage

    reductions.reduce_storage = _reducer(reductions, _extend(UntypedStorage))
    reduction.register(UntypedStorage, reductions.reduce_storage)
