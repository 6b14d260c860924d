"""``openxpu simulate``: run a program with Intel's GPU driver on a simulated GPU.

The driver and its compiler come from Debian's packages, unpacked once into the user's cache. ``libxesim.so``
(see ``docs/internals/simulator.md``) is preloaded into the program and its children. If the packages need a
newer C library than the host's, the program starts through theirs.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PRODUCTS = ("bmg", "bmg-g31", "lnl", "ptl", "wcl", "nvl-s", "pvc", "dg2", "mtl", "arl-h", "tgllp", "adl-p")
CHECKS = ("races", "memory", "uninitialized")
TESTED = (26, 27)  # the newest driver that the simulator's tests ran with
UNAVAILABLE = 77  # exit status if the packages can't be had: tests skip then

HERE = Path(__file__).parent
LIBRARY = HERE / "libxesim.so"
# The driver's debug keys. It reads them from the environment if the first one is set.
DRIVER_KEYS = {
    "NEOReadDebugKeys": "1",
    "EnableDirectSubmission": "0",  # batches come by ioctl,
    "CsrDispatchMode": "1",  # each as soon as it is enqueued: so it is with direct submission, too
    "OverrideEnableKmdNotify": "1",  # waits sleep in the kernel driver instead of polling memory:
    "OverrideKmdNotifyDelayMicroseconds": "100",  # the simulated GPU needs the processor
}
# With checks every buffer is a new object of its own, with a gap before and behind it.
SEPARATE_KEYS = {
    "ExperimentalSmallBufferPoolAllocator": "0",
    "EnableDeviceUsmAllocationPool": "0",
    "EnableHostUsmAllocationPool": "0",
    "ExperimentalEnableDeviceAllocationCache": "0",
    "ExperimentalEnableHostAllocationCache": "0",
    "ExperimentalEnableCustomLocalMemoryAlignment": str(1 << 20),
}
# Libraries that the driver brings and the host's C library can run if it is new enough.
OWN = re.compile(r"lib(ig[acd]|opencl-clang|LLVM|OpenCL|ocloc)")


@dataclass
class Driver:
    """Intel's driver, unpacked into ``folder``."""

    folder: Path

    @property
    def libraries(self) -> Path:
        """The folder of the packages' libraries."""
        return self.folder / "root" / "usr" / "lib" / "x86_64-linux-gnu"

    def version(self, package: str) -> str:
        """Return a package's version, "" if it is not there."""
        for line in (self.folder / "packages.txt").read_text().splitlines():
            name, _, version = line.partition(" ")
            if name == package:
                return version
        return ""

    def runs_with_host_libraries(self) -> bool:
        """Return whether the host's C library is as new as the one that the packages need."""
        host = _numbers(platform.libc_ver()[1])
        return platform.libc_ver()[0] == "glibc" and host >= _numbers(self.version("libc6"))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: "26.27.39122.14-1" → (26, 27)."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition(":")[2] or version)[:2])


def _cache() -> Path:
    """Return the folder for what is fetched, which is kept apart from compiled kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openxpu-simulate"


def _fetch(folder: Path) -> Driver | None:
    """Return the driver in ``folder``, fetched if it is not there; None if it can't be had."""
    if not (folder / "packages.txt").exists():
        print(f"openxpu simulate: fetching Intel's driver into {folder} (once)", file=sys.stderr)
        fetcher = HERE / "_fetch_intel_driver.sh"
        if subprocess.run(["bash", fetcher, folder], stdout=sys.stderr, check=False).returncode:
            return None
    driver = Driver(folder.resolve())
    vendors = driver.folder / "vendors"
    vendors.mkdir(exist_ok=True)
    (vendors / "intel.icd").write_text(f"{driver.libraries}/intel-opencl/libigdrcl.so\n")
    own = driver.folder / "own"
    if not own.exists():
        own.mkdir()
        for library in filter(lambda path: OWN.match(path.name), driver.libraries.iterdir()):
            (own / library.name).symlink_to(library)
    return driver


def _build() -> bool:
    """Build ``libxesim.so`` in a clone of the repository, if it is not there; wheels have it."""
    root = HERE.parents[1]
    if LIBRARY.exists():
        return True
    if not (root / "sim").is_dir() or not (root / "build" / "CMakeCache.txt").exists():
        return False
    cmake = (
        shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "cmake"
    )
    configure = [cmake, "-S", str(root), "-B", str(root / "build"), "-DOPENXPU_SIM=ON"]
    build = [cmake, "--build", str(root / "build"), "--target", "xesim"]
    return all(
        subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0
        for command in (configure, build)
    )


def _environment(options: argparse.Namespace, driver: Driver) -> dict[str, str]:
    """Return the environment of the simulated program and its children."""
    environment = dict(os.environ)
    environment["OPENXPU_SIM_DEVICE"] = options.device
    for name in ("devices", "log", "seed", "check", "profile", "sample", "rings"):
        value = getattr(options, name)
        environment.pop(variable := f"OPENXPU_SIM_{name.upper()}", None)
        if value:
            environment[variable] = str(int(value)) if isinstance(value, bool) else str(value)
    environment["LD_PRELOAD"] = ":".join(filter(None, [str(LIBRARY), os.environ.get("LD_PRELOAD")]))
    environment["OCL_ICD_VENDORS"] = str(driver.folder / "vendors")
    environment.update(DRIVER_KEYS)
    if options.rings:
        environment.update(EnableDirectSubmission="-1", CsrDispatchMode="0")  # the driver's own choice
    if options.check:
        environment.update(SEPARATE_KEYS)
    if options.check or options.profile:  # the same library is a layer that learns names and sizes
        layers = [os.environ.get("OPENCL_LAYERS"), str(LIBRARY)]
        environment["OPENCL_LAYERS"] = ":".join(filter(None, layers))
    carried = ["LD_PRELOAD", "OCL_ICD_VENDORS", "OPENCL_LAYERS", *DRIVER_KEYS, *SEPARATE_KEYS]
    environment["OPENXPU_SIM_CARRIED"] = ",".join(carried)
    environment.setdefault("OPENXPU_DEVICE", "gpu")
    folders = [str(driver.libraries / "intel-opencl"), os.environ.get("LD_LIBRARY_PATH")]
    if driver.runs_with_host_libraries():
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(driver.folder / "own"), *folders]))
    else:
        environment["OPENXPU_SIM_LOADER"] = str((driver.libraries / "ld-linux-x86-64.so.2").resolve())
        environment["OPENXPU_SIM_LIBRARIES"] = f"{driver.libraries}:{driver.libraries}/intel-opencl"
    return environment


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``openxpu``."""
    parser = commands.add_parser(
        "simulate",
        help="run a program with Intel's GPU driver on a simulated GPU",
        usage="openxpu simulate [OPTIONS] PROGRAM|SCRIPT.py [ARGUMENTS]",
    )
    parser.add_argument(
        "--device", choices=PRODUCTS, default="bmg", help="product (default: bmg, an Arc B580)"
    )
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="number of devices (default: 1)")
    parser.add_argument(
        "--check",
        metavar="LIST",
        help=f"faults to look for in kernels, separated by commas: {', '.join(CHECKS)}",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="interleave the threads of work-groups in an order given by N"
    )
    parser.add_argument(
        "--rings",
        action="store_true",
        help="let the driver submit through rings in memory, as it does on hardware",
    )
    parser.add_argument(
        "--profile", action="store_true", help="count what each kernel does, and predict its time"
    )
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="with --profile: run N work-groups of each launch only; results are then wrong",
    )
    parser.add_argument(
        "--log", type=int, metavar="LEVEL", help="1: submissions, 2: memory, 3: commands, 4: instructions"
    )
    parser.add_argument(
        "--driver",
        type=Path,
        metavar="FOLDER",
        help="folder of the unpacked driver (default: in the user's cache)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def simulate(options: argparse.Namespace) -> int:
    """Replace this process by the simulated program; return an exit status if that fails."""
    unknown = set((options.check or "").split(",")) - {"", *CHECKS}
    what = "" if options.program else "no program is given"
    if unknown:
        what = f"there is no check {', '.join(sorted(unknown))}"
    elif options.sample and not options.profile:
        what = "--sample is for --profile only, because it makes results wrong"
    if what:
        print(f"openxpu simulate: {what}", file=sys.stderr)
        return 2
    if sys.platform != "linux" or platform.machine() != "x86_64":
        print("openxpu simulate: runs on Linux on x86-64 only", file=sys.stderr)
        return 1
    if not _build():
        print(
            "openxpu simulate: this installation has no libxesim.so: build with -DOPENXPU_SIM=ON",
            file=sys.stderr,
        )
        return 1
    driver = _fetch(options.driver or _cache() / "intel-driver")
    if not driver:
        print(
            "openxpu simulate: Intel's driver can't be had: it is fetched by apt from Debian sid",
            file=sys.stderr,
        )
        return UNAVAILABLE
    version, compiler = driver.version("intel-opencl-icd"), driver.version("libigc2")
    print(
        f"openxpu simulate: {options.device}, Intel's driver {version}, compiler {compiler}", file=sys.stderr
    )
    if _numbers(version) > TESTED:
        tested = ".".join(map(str, TESTED))
        print(f"openxpu simulate: warning: drivers up to {tested} are tested", file=sys.stderr)
    program = options.program[1:] if options.program[0] == "--" else options.program
    if program[0].endswith(".py"):
        program = [sys.executable, *program]
    sys.stderr.flush()
    # `env` starts the program by execvp, which the preloaded library interposes.
    os.execve("/usr/bin/env", ["env", *program], _environment(options, driver))
    return 1
