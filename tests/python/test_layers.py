"""tools/check_layers.py, on files that break its rules about operating systems and on files that don't."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


@pytest.fixture
def violations(tmp_path, monkeypatch):
    """What the tool says of a file with this name and text."""
    spec = importlib.util.spec_from_file_location("check_layers", TOOL)
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "ROOT", tmp_path)

    def of(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tool.violations(path)

    return of


HEADERS = [
    "pthread.h",
    "unistd.h",
    "sys/mman.h",
    "dlfcn.h",
    "dirent.h",
    "signal.h",
    "strings.h",
    "threads.h",
    "windows.h",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "name", ["src/runtime/a.c", "src/core/text.h", "src/ops/a.c", "src/tile/a.c", "include/xpu/a.h"]
)
def test_a_systems_header_is_refused(violations, name, header):
    (line,) = violations(name, f"#include <stdio.h>\n# include <{header}>\n")
    assert name in line and f"<{header}>" in line


@pytest.mark.parametrize("name", ["src/core/os.h", "src/core/os_posix.c", "src/core/os_windows.c"])
def test_the_systems_own_layer_may(violations, name):
    assert not violations(name, "#define _GNU_SOURCE\n#include <pthread.h>\n#include <windows.h>\n")


def test_a_systems_names_are_not_asked_for(violations):
    (line,) = violations("src/cl/a.c", "#define _GNU_SOURCE\n#include <string.h>\n")
    assert "_GNU_SOURCE" in line
    assert not violations("src/cl/a.c", '#include <stdatomic.h>\n#include <time.h>\n#include "core/os.h"\n')
    assert not violations("bridge/a.cpp", "#include <mutex>\n")
