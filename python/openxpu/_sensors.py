"""torch.xpu's sensors (temperature, power, …), read with the package pyzes, for libxpu's devices.

PyTorch uses pyzes' device list as its own, even for the device count, as it has only Level Zero devices. Here
the list is OpenCL's; a device's sensors are found by its PCI address.
"""

from __future__ import annotations

from ctypes import byref, c_uint32
from types import ModuleType
from typing import Any


def _sysman_devices(pyzes: ModuleType) -> dict[str, Any]:
    """Return Level Zero Sysman device handles by PCI address, "0000:03:00.0"."""

    def check(code: int, what: str) -> None:
        if code != pyzes.ZE_RESULT_SUCCESS:
            raise RuntimeError(f"Level Zero Sysman could not {what} (rc={code}).")

    def every(function: Any, kind: Any, what: str, *of: Any) -> Any:
        count = c_uint32(0)
        check(function(*of, byref(count), None), what)
        handles = (kind * count.value)()
        if count.value:
            check(function(*of, byref(count), handles), what)
        return handles

    check(pyzes.zesInit(0), "start")
    devices = {}
    for driver in every(pyzes.zesDriverGet, pyzes.zes_driver_handle_t, "list its drivers"):
        for device in every(pyzes.zesDeviceGet, pyzes.zes_device_handle_t, "list its devices", driver):
            properties = pyzes.zes_pci_properties_t()
            properties.stype = pyzes.ZES_STRUCTURE_TYPE_PCI_PROPERTIES
            check(pyzes.zesDevicePciGetProperties(device, byref(properties)), "return a device's PCI address")
            at = properties.address
            devices[f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.{at.function:x}"] = device
    return devices


def enter(xpu: ModuleType) -> None:
    """Make torch.xpu count libxpu's devices, and find their sensors."""
    if not hasattr(xpu, "_zes_ensure_device_infos"):
        return  # before PyTorch 2.13
    infos = xpu._cached_zes_device_infos

    def ensure_device_infos(device: int) -> None:
        if not infos:
            handles = _sysman_devices(xpu._import_pyzes())
            for index in range(xpu.device_count()):
                properties = xpu.get_device_properties(index)
                handle = handles.get(properties.pci_address)
                known = handle is not None
                integrated = properties.is_integrated_gpu
                infos.append(xpu._ZesDeviceInfo(handle, is_integrated=integrated) if known else None)
        if not 0 <= device < len(infos):
            raise RuntimeError(f"Device index {device} is out of range: it must be in [0, {len(infos)}).")
        if infos[device] is None:
            raise RuntimeError(
                f"Level Zero Sysman has no sensors for device {device}, {xpu.get_device_name(device)}."
            )

    parts: Any = xpu
    parts._zes_ensure_device_infos = ensure_device_infos
    parts._device_count_zes = lambda: -1  # "ask the device itself"
