"""Libraries of SYCL kernels, which can't work on libxpu's streams, stay unloaded where SYCL's runtime is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from processes import run, run_python

COMPILER = os.environ.get("CC", "cc")

# How bitsandbytes looks for its library: until 0.49 by one name, since 0.50 by the year of torch.version.xpu first.
LOADER = """
import ctypes, os, torch
def find(folder):
    year = os.path.join(folder, f"libbitsandbytes_xpu{torch.version.xpu[:4]}.so")
    return year if BY_YEAR and os.path.exists(year) else os.path.join(folder, "libbitsandbytes_xpu.so")
try:
    lib = ctypes.cdll.LoadLibrary(find(os.path.dirname(__file__)))
except OSError:
    lib = None
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with libraries that need SYCL's runtime, which leaves a file where it is loaded or called."""
    folder = tmp_path_factory.mktemp("sycl")
    package = folder / "bitsandbytes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    runtime, kernels = folder / "sycl.c", folder / "kernels.c"
    runtime.write_text(
        f"""#include <stdio.h>
static void note(void) {{ FILE *file = fopen("{folder}/touched", "w"); if (file) fclose(file); }}
__attribute__((constructor)) static void loaded(void) {{ note(); }}
void submit(void *queue) {{ note(); }}
"""
    )
    kernels.write_text("void submit(void *); void cdequantize_blockwise_fp16_nf4(void *q) { submit(q); }\n")
    build = [COMPILER, "-shared", "-fPIC"]
    run([*build, runtime, "-Wl,-soname,libsycl.so.8", "-o", folder / "libsycl.so.8"])
    for name in ("xpu", "xpu2025", "xpu2026"):
        target = package / f"libbitsandbytes_{name}.so"
        link = [f"-L{folder}", "-l:libsycl.so.8", f"-Wl,-rpath,{folder}", "-o", target]
        run([*build, kernels, *link])
    return folder


@pytest.mark.parametrize("by_year", [False, True])
def test_bitsandbytes_goes_without(libraries: Path, by_year: bool) -> None:
    (libraries / "bitsandbytes/cextension.py").write_text(f"BY_YEAR = {by_year}\n{LOADER}")
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(libraries)!r})
from bitsandbytes.cextension import lib
print(lib, "LoadLibrary" in vars(ctypes.cdll))
"""
    assert run_python(script).stdout.split() == ["None", "False"]
    assert not (libraries / "touched").exists()


def test_the_stub_tells(libraries: Path) -> None:
    script = f"import ctypes; ctypes.CDLL({str(libraries / 'bitsandbytes/libbitsandbytes_xpu.so')!r})"
    run_python(script)
    assert (libraries / "touched").exists()
    (libraries / "touched").unlink()


def test_the_version_is_of_no_binary() -> None:
    version = torch.version.xpu
    assert version is not None
    assert len(version) == 8
    assert int(version) >= 20260000  # what programs ask for
    assert int(version[:4]) >= 2090  # bitsandbytes' "xpu2026", kernels' "xpu20253" are of years
