"""The classes that torch.xpu expects in torch._C, and functions that newer PyTorch adds to torch.xpu."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch

from openxpu import _bridge, _sensors

_XPU = int(torch._C._autograd.DeviceType.XPU)


class _XpuStreamBase(torch.Stream):
    """Base class of torch.xpu.Stream."""

    def __new__(
        cls,
        priority: int = 0,
        stream_id: int = 0,
        device_index: int = 0,
        device_type: int = 0,
        stream_ptr: int = 0,
    ) -> _XpuStreamBase:
        if stream_ptr:
            stream_id, device_index, device_type = _bridge._xpu_getStreamFromExternal(
                stream_ptr, device_index
            )
        elif not (stream_id or device_index or device_type):
            torch.xpu._lazy_init()
            stream_id, device_index, device_type = _bridge.new_stream(-1, priority)
        return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)

    @property
    def sycl_queue(self) -> int:
        """The stream's cl_command_queue, under torch.xpu's name."""
        return _bridge.stream_queue(self.device_index, self.stream_id)

    @property
    def priority(self) -> int:
        """The priority; lower is more urgent."""
        return _bridge.stream_priority(self.device_index, self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return (1, -1)


class _XpuEventBase(torch.Event):
    """Base class of torch.xpu.Event."""

    def __new__(cls, enable_timing: bool = False, interprocess: bool = False) -> _XpuEventBase:
        if interprocess:
            _later("torch.xpu.Event(interprocess=True)")
        return super().__new__(cls, "xpu", enable_timing=enable_timing)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the device time from this event to ``end_event`` in milliseconds."""
        return _bridge.elapsed_time(self.event_id, end_event.event_id)

    def ipc_handle(self) -> NoReturn:
        """Raise an error: events can't be shared between processes."""
        _later("torch.xpu.Event.ipc_handle")

    @classmethod
    def from_ipc_handle(cls, device: Any, ipc_handle: bytes) -> NoReturn:
        """Raise an error: events can't be shared between processes."""
        _later("torch.xpu.Event.from_ipc_handle")

    @property
    def sycl_event(self) -> int:
        """The event's handle, 0 before it is first recorded, under torch.xpu's name."""
        return self.event_id


class _XPUuuid:
    """A device's unique id."""

    def __init__(self, digits: str) -> None:
        self.bytes = list(bytes.fromhex(digits))

    def __str__(self) -> str:
        digits = bytes(self.bytes).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    __repr__ = __str__


class _XpuDeviceProperties(SimpleNamespace):
    """Device properties: the fields of libxpu's table, under the same names."""

    uuid: _XPUuuid

    def __repr__(self) -> str:
        fields = vars(self) | {
            "total_memory": f"{self.total_memory >> 20}MB",
            "device_id": hex(self.device_id),
        }
        return f"_XpuDeviceProperties({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def _architecture(fields: dict[str, Any]) -> int:
    """Return SYCL's number of a device's architecture, with which programs compare it.

    The first byte is the family, the last is 0. In between is the vendor's number: Intel's IP version, or
    NVIDIA's compute capability with its decimal digits as hexadecimal ones.
    """
    number: int = fields["architecture"]
    if fields["type"] == "cpu":
        return 0x03 << 56  # x86_64
    if fields["type"] == "gpu" and number and fields["vendor_id"] == 0x8086:
        return number << 8
    if fields["has_inline_ptx"] and number:
        return 0x01 << 56 | int(str(number), 16) << 8
    return -(0x67 << 56)  # unknown, 0x99 << 56 as a signed number in PyTorch


_properties: dict[int, _XpuDeviceProperties] = {}


def _get_device_properties(device: int) -> _XpuDeviceProperties:
    """Return the device's properties, always the same object."""
    if device not in _properties:
        fields: dict[str, Any] = _bridge.device_properties(device)
        fields["uuid"] = _XPUuuid(fields["uuid"])
        # PyTorch divides by the number of subslices: without any, use the compute units.
        fields["gpu_subslice_count"] = fields["gpu_subslice_count"] or fields["max_compute_units"]
        # PyTorch's additional names.
        fields["multi_processor_count"] = fields["gpu_subslice_count"]
        fields["is_integrated_gpu"] = fields["is_integrated"]
        fields["architecture"] = _architecture(fields)
        fields.setdefault("memory_clock_rate", 0)
        fields.setdefault("memory_bus_width", 0)
        _properties[device] = _XpuDeviceProperties(**fields)
    return _properties[device]


def _later(what: str) -> NoReturn:
    raise NotImplementedError(f"{what} is not available in openxpu yet")


class _xpu_XPUAllocator:  # noqa: N801 (torch.xpu's name)
    """An allocator: libxpu's own, or two C functions of the user.

    ``void *take(size_t size, int device, cl_command_queue queue)`` returns memory that kernels of the device
    can address (any memory, for a CPU device). ``void give(void *memory, size_t size, int device,
    cl_command_queue queue)`` frees it. In a pool they are called with libxpu's lock held.
    """

    def __init__(self, take: int = 0, give: int = 0) -> None:
        self.functions = take, give


_current_allocator = _xpu_XPUAllocator()


class _XPUMemPool:
    """Base class of torch.xpu.MemPool: a private pool on the current device."""

    def __init__(
        self,
        allocator: _xpu_XPUAllocator | None = None,
        is_user_created: bool = True,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        torch.xpu._lazy_init()
        self._id: tuple[int, int] = _bridge.new_pool_id(is_user_created)
        self._allocator = allocator
        self._device = torch.xpu.current_device()
        functions = allocator.functions if allocator is not None else (0, 0)
        _bridge.make_pool(self._device, *self._id, *functions, use_on_oom, no_split)
        weakref.finalize(self, _bridge.drop_pool, self._device, self._id).atexit = False

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id, as snapshots show it: (0, n) if a user created it."""
        return self._id

    @property
    def allocator(self) -> _xpu_XPUAllocator | None:
        """The allocator of the pool's segments, if not the driver."""
        return self._allocator

    @property
    def device(self) -> int:
        """The pool's device."""
        return self._device

    def use_count(self) -> int:
        """Return the number of users: this object, and each that allocates from the pool."""
        return _bridge.pool_users(self._device, self._id)


def _custom_allocator(take: int, give: int) -> _xpu_XPUAllocator:
    return _xpu_XPUAllocator(take, give)


def _change_current_allocator(allocator: _xpu_XPUAllocator) -> None:
    global _current_allocator
    if torch.xpu.is_initialized():
        raise RuntimeError("Can't swap an already initialized allocator")
    if any(allocator.functions):
        _bridge.plug_in(*allocator.functions)
    _current_allocator = allocator


def _sleep(cycles: int) -> NoReturn:
    _later("torch.xpu._sleep")


def enter(target: ModuleType) -> None:
    """Add the classes, and functions that only raise, to torch._C."""
    for cls in (_XpuStreamBase, _XpuEventBase, _XPUuuid, _XpuDeviceProperties, _XPUMemPool):
        setattr(target, cls.__name__, cls)
    target._xpu_XPUAllocator = _xpu_XPUAllocator
    target._XPUGraph = _bridge.Graph
    target._xpu_sleep = _sleep
    target._xpu_customAllocator = _custom_allocator
    target._xpu_changeCurrentAllocator = _change_current_allocator
    target._xpu_getAllocator = lambda: _current_allocator


def _name_events() -> None:
    """Label device activity as xpu's in the profiler: builds without xpu call it CUDA's."""
    event = torch._C._autograd._KinetoEvent
    original = event.device_type
    kinds = torch._C._autograd.DeviceType
    cuda, xpu = kinds.CUDA, kinds.XPU

    def device_type(self: torch._C._autograd._KinetoEvent) -> torch._C._autograd.DeviceType:
        kind = original(self)
        return xpu if kind == cuda else kind

    event.device_type = device_type


def _sensor(name: str) -> Callable[..., NoReturn]:
    """Provide a function of torch.xpu that this PyTorch lacks."""

    def function(device: object = None) -> NoReturn:  # noqa: ARG001 (torch.xpu's signature)
        raise NotImplementedError(f"torch.xpu.{name} needs PyTorch 2.13 or newer")

    function.__name__ = name
    return function


def extend(xpu: ModuleType) -> None:
    """Add to torch.xpu what it imports from elsewhere."""
    _name_events()
    for name in (
        "temperature",
        "power_draw",
        "clock_rate",
        "utilization",
        "memory_usage",
        "device_memory_used",
    ):
        if not hasattr(xpu, name):
            setattr(xpu, name, _sensor(name))
    xpu._get_device_properties = _get_device_properties
    _sensors.enter(xpu)
