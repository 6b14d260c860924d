"""Devices that PyTorch counts and their properties, on machines simulated by a fake driver."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from processes import run, run_python

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a fake driver without devices of its own and return its folder."""
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests/c/fake_driver.c"
    own = set(re.findall(r"\b(cl\w+)\(", re.sub(r"//.*", "", source.read_text())))
    names = re.findall(r"\bX\([^,]*, *(cl\w+),", (ROOT / "src/cl/api.h").read_text())
    assert {"clFinish", "clEnqueueNDRangeKernel"} <= {*names}
    stubs = folder / "stubs.c"
    stubs.write_text("".join(f"int {name}(void) {{ return -30; }}\n" for name in names if name not in own))
    library = folder / "libintelocl.so"
    options = ["-shared", "-fPIC", "-w", f"-I{ROOT / 'src'}", source, stubs, "-o", library]
    run([COMPILER, *options])
    return folder


# The part of pyzes that PyTorch calls, over devices listed by address in a variable; a handle is an index.
PYZES = """
import os
from ctypes import Structure, c_bool, c_int32, c_int64, c_uint32, c_void_p
ADDRESSES = [a for a in os.environ["FAKE_ZES"].split(",") if a]
ZE_RESULT_SUCCESS, ZE_RESULT_ERROR_NOT_AVAILABLE = 0, 5
ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES, ZES_STRUCTURE_TYPE_PCI_PROPERTIES = 1, 2
ZES_STRUCTURE_TYPE_DEVICE_EXT_PROPERTIES, ZES_STRUCTURE_TYPE_TEMP_PROPERTIES, ZES_TEMP_SENSORS_GPU = 3, 4, 1
class zes_driver_handle_t(c_void_p): pass
class zes_device_handle_t(c_void_p): pass
class zes_temp_handle_t(c_void_p): pass
class zes_pci_address_t(Structure): _fields_ = [(n, c_uint32) for n in ("domain", "bus", "device", "function")]
class zes_pci_properties_t(Structure):
    _fields_ = [("stype", c_int32), ("pNext", c_void_p), ("address", zes_pci_address_t)]
class zes_device_properties_t(Structure):
    _fields_ = [("stype", c_int32), ("pNext", c_void_p), ("numSubdevices", c_uint32)]
class zes_device_ext_properties_t(Structure):
    _fields_ = [("stype", c_int32), ("pNext", c_void_p), ("flags", c_uint32)]
class zes_temp_properties_t(Structure):
    _fields_ = [("stype", c_int32), ("pNext", c_void_p), ("type", c_int32), ("onSubdevice", c_bool),
                ("subdeviceId", c_uint32)]
def _give(values, count, handles):
    if handles is not None:
        for i, value in enumerate(values): handles[i] = value
    count._obj.value = len(values)
    return 0
def zesInit(flags): return int(os.environ.get("FAKE_ZES_ERROR", 0))
def zesDriverGet(count, handles): return _give([1], count, handles)
def zesDeviceGet(driver, count, handles): return _give(range(100, 100 + len(ADDRESSES)), count, handles)
def zesDeviceGetProperties(device, properties): return 0
def zesDevicePciGetProperties(device, properties):
    domain, bus, rest = ADDRESSES[device.value - 100].split(":")
    numbers = [domain, bus, *rest.split(".")]
    properties._obj.address = zes_pci_address_t(*(int(n, 16) for n in numbers))
    return 0
def zesDeviceEnumTemperatureSensors(device, count, handles): return _give([device.value + 1000], count, handles)
def zesTemperatureGetProperties(sensor, properties):
    properties._obj.type = ZES_TEMP_SENSORS_GPU
    return 0
def zesTemperatureGetState(sensor, value):
    value._obj.value = sensor.value
    return 0
"""


def ask(driver: Path, script: str, devices: str, modules: Path | None = None, **variables: str) -> str:
    """Run a script in a process that sees only these devices, and finds modules in this folder."""
    environment = {name: "" for name in ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "OPENXPU_HOST_MEMORY")}
    environment |= {
        "OPENXPU_DRIVER_PATH": str(driver),
        "FAKE_DEVICES": devices,
        "OCL_ICD_VENDORS": os.devnull,  # no drivers of this machine
        "OPENXPU_DEVICE": "rusticl,neo,nvidia,a processor",
    }
    path = f"import sys; sys.path.insert(0, {str(modules)!r})\n" if modules else ""
    return run_python(path + script, env=environment | variables).stdout.strip()


COUNTS = """
before = torch.xpu.is_available(), torch.xpu.device_count()
try: torch.xpu.init()
except RuntimeError as error: print("error:", error)
print(before == (torch.xpu.is_available(), torch.xpu.device_count()), *before, torch.accelerator.device_count())
"""


@pytest.mark.parametrize("sensors", [None, "", "0000:03:00.0", "0000:03:00.0,0000:04:00.0,0000:05:00.0"])
@pytest.mark.parametrize(
    "devices", ["", "rusticl", "cpu", "rusticl,rusticl", "neo,cpu", "rusticl,neo,nvidia"]
)
def test_counts_are_the_same_before_and_after(
    driver: Path, tmp_path: Path, devices: str, sensors: str | None
) -> None:
    if sensors is not None:  # pyzes is installed and reports these devices
        (tmp_path / "pyzes.py").write_text(PYZES)
    count = len(devices.split(",")) if devices else 0
    answer = ask(driver, COUNTS, devices, tmp_path, FAKE_ZES=sensors or "").splitlines()
    assert answer[-1] == f"True {count > 0} {count} {count}"
    assert (count > 0) == (len(answer) == 1)


def test_a_broken_pyzes_changes_nothing(driver: Path, tmp_path: Path) -> None:
    (tmp_path / "pyzes.py").write_text("raise OSError('no libze_loader.so.1')")
    assert ask(driver, COUNTS, "rusticl,cpu", tmp_path) == "True True 2 2"


TEMPERATURES = """
for device in range(torch.xpu.device_count()):
    try: print(int(torch.xpu.temperature(device)))
    except RuntimeError as error: print(type(error).__name__, error)
"""


@pytest.mark.parametrize("mask", ["", "1"])
def test_sensors_are_found_by_their_address(driver: Path, tmp_path: Path, mask: str) -> None:
    (tmp_path / "pyzes.py").write_text(PYZES)
    answer = ask(
        driver,
        TEMPERATURES,
        "rusticl@0000:05:00.0,rusticl@0001:af:1f.7,nvidia@0000:06:00.0,cpu",
        tmp_path,
        FAKE_ZES="0000:03:00.0,0001:af:1f.7,0000:05:00.0",
        ZE_AFFINITY_MASK=mask,
    ).splitlines()
    gpus = ["1102", "1101"][1 if mask else 0 :]
    assert answer[: len(gpus)] == gpus
    assert [line[:12] for line in answer[len(gpus) :]] == ["RuntimeError"] * 2
    assert "no sensors for device" in answer[-1]
    assert "cpu" in answer[-1]


def test_sensors_say_what_fails(driver: Path, tmp_path: Path) -> None:
    (tmp_path / "pyzes.py").write_text(PYZES)
    variables = {"FAKE_ZES": "", "FAKE_ZES_ERROR": "7"}
    assert "Sysman could not start (rc=7)" in ask(driver, TEMPERATURES, "rusticl", tmp_path, **variables)


NAMES = "print([torch.xpu.get_device_name(i) for i in range(torch.xpu.device_count())])"


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, [0, 1, 2, 3]),
        ({"ZE_AFFINITY_MASK": "0"}, [0, 2, 3]),
        ({"ZE_AFFINITY_MASK": "1"}, [1, 2, 3]),
        ({"ZE_AFFINITY_MASK": "1,0"}, [0, 1, 2, 3]),
        ({"ZE_AFFINITY_MASK": "5"}, [2, 3]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:1"}, [1]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:0,1"}, [0, 1]),
        ({"ONEAPI_DEVICE_SELECTOR": "opencl:gpu"}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "!opencl:cpu"}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "*:cpu"}, [3]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:*", "ZE_AFFINITY_MASK": "1"}, [1]),
    ],
)
def test_the_environment_chooses(driver: Path, variables: dict[str, str], seen: list[int]) -> None:
    kinds = ["rusticl", "rusticl", "nvidia", "cpu"]
    names = json.loads(ask(driver, NAMES, ",".join(kinds), **variables).replace("'", '"'))
    assert names == [f"{kinds[i]} {i}" for i in seen]


def test_a_mask_set_by_the_program_counts(driver: Path) -> None:
    script = "import os; os.environ['ZE_AFFINITY_MASK'] = '1'\n" + NAMES
    assert ask(driver, script, "rusticl,rusticl") == "['rusticl 1']"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:0.1"}, 'level_zero:0.1: "0.1" is a sub-device'),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero"}, "has no colon"),
        ({"ONEAPI_DEVICE_SELECTOR": "cuda:*", "OPENXPU_DEVICE": ""}, "matches ONEAPI_DEVICE_SELECTOR"),
        ({"ZE_AFFINITY_MASK": "3", "OPENXPU_DEVICE": ""}, "No OpenCL device matches ZE_AFFINITY_MASK"),
        ({"OPENXPU_HOST_MEMORY": "much"}, "OPENXPU_HOST_MEMORY=much: must be a fraction"),
    ],
)
def test_errors_name_the_variable(driver: Path, variables: dict[str, str], said: str) -> None:
    devices = "rusticl" if "OPENXPU_HOST_MEMORY" not in variables else "rusticl,cpu"
    assert said in ask(driver, COUNTS, devices, **variables)


def test_a_device_that_fails_is_named(driver: Path) -> None:
    """It is left out; the error says why if no other device is left."""
    error = ask(driver, COUNTS, "neo!")
    assert "Intel(R) OpenCL Graphics" in error and "CL_OUT_OF_RESOURCES" in error
    assert ask(driver, COUNTS, "neo!,cpu") == "True True 1 1"


def test_properties_as_programs_compare_them(driver: Path) -> None:
    script = """
import json
print(json.dumps([{k: v for k, v in torch.xpu.get_device_capability(i).items()} for i in range(4)]))
"""
    bmg, lnl, other, cpu = json.loads(ask(driver, script, "rusticl@0000:03:00.0,neo,nvidia,cpu"))
    # SYCL's numbers of intel_gpu_bmg_g21, intel_gpu_lnl_m and x86_64
    assert bmg["architecture"] == 0x0000000500400400 == 21479031808
    assert lnl["architecture"] == 0x0000000501000400
    assert cpu["architecture"] == 0x0300000000000000
    assert other["architecture"] < 0  # unknown
    assert (bmg["architecture"] & 0xFF00000000) >> 32 == 5  # the generation
    assert (bmg["pci_address"], lnl["pci_address"]) == ("0000:03:00.0", "")
    assert [d["is_integrated_gpu"] for d in (bmg, lnl, other, cpu)] == [False, True, False, False]


MEMORY = "print([torch.xpu.mem_get_info(i) for i in range(torch.xpu.device_count())])"


def test_memory_of_each_kind(driver: Path) -> None:
    (bmg_free, bmg), (lnl_free, lnl), (host_free, host) = json.loads(
        ask(driver, MEMORY, "rusticl,neo,cpu").replace("(", "[").replace(")", "]")
    )
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) << 10
    assert bmg_free == bmg == 12 << 30  # no process is seen to use it
    assert lnl == 1 << 30
    assert lnl_free <= lnl  # the host's
    assert 0 < host_free <= host <= total * 3 // 4


@pytest.mark.parametrize(("setting", "bytes_"), [("64MiB", 64 << 20), ("100000K", 100000 << 10)])
def test_memory_of_a_host_by_setting(driver: Path, setting: str, bytes_: int) -> None:
    answer = ask(driver, MEMORY, "cpu", OPENXPU_HOST_MEMORY=setting)
    assert answer == f"[({bytes_}, {bytes_})]"
    answer = ask(driver, MEMORY, "cpu", OPENXPU_HOST_MEMORY=setting, OPENXPU_DEVICE="a processor,a processor")
    assert answer == str([(bytes_ // 2, bytes_ // 2)] * 2)  # each has half of the memory


# Simulates only the kernel's release: under WSL 1 no other file matters.
RELEASE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
FILE *fopen(const char *path, const char *mode) {
    char *release = getenv("FAKE_RELEASE");
    if (!strcmp(path, "/proc/sys/kernel/osrelease")) return fmemopen(release, strlen(release), mode);
    return ((FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen"))(path, mode);
}
"""
# The fake driver runs no kernels, so the doctor's checks are left out.
COMMANDS = """
from openxpu import _self_test
from openxpu.cli import main
_self_test.CHECKS.clear()
for command in ("info", "doctor"): main([command]); print("end of", command)
"""


@pytest.mark.parametrize(
    ("release", "devices", "said"),
    [
        ("4.4.0-19041-Microsoft", "", True),
        ("4.4.0-19041-Microsoft", "cpu", True),
        ("4.4.0-19041-Microsoft", "rusticl,cpu", False),
        ("6.12.57+deb13-amd64", "cpu", False),
    ],
)
def test_commands_say_why_wsl_has_no_gpu(
    driver: Path, tmp_path: Path, release: str, devices: str, said: bool
) -> None:
    library = tmp_path / "release.so"
    run([COMPILER, "-shared", "-fPIC", "-xc", "-", "-o", library], text=RELEASE)
    environment = {
        "OPENXPU_DRIVER_PATH": str(driver),
        "FAKE_DEVICES": devices,
        "FAKE_RELEASE": release,
        "OCL_ICD_VENDORS": os.devnull,
        "OPENXPU_DEVICE": "",
        "LD_PRELOAD": str(library),
    }
    printed = " ".join(run_python(COMMANDS, bare=True, env=environment).stdout.split())
    info, doctor, _ = re.split("end of (?:info|doctor)", printed)
    for text in (info, doctor):
        assert ("WSL 1 has no GPU" in text) == ("wsl --set-version" in text) == said, text
        assert ("No OpenCL device was found" in text) == (not devices), text
