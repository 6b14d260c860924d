"""tools/check_layers.py, on files that break its rules and on files that keep them, and the diagram that it draws."""

import importlib.util
import sys
import xml.dom.minidom
from pathlib import Path

import pytest
from processes import run

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("check_layers", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def violations(tool, tmp_path, monkeypatch):
    """Return the tool's messages for a file with this name and text."""
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


@pytest.fixture
def tree(tool, tmp_path, monkeypatch):
    """Make a tree of permitted dependencies and further files (name=text); return the edges that the tool finds."""
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    run(["git", "init", "-q"], cwd=tmp_path)

    def arrows(**more):
        files = {
            "src/core/status.c": "const char *xpu_last_error(void) {\n}\n",
            "src/cl/memory.c": '#include "core/status.h"\n',
            "src/runtime/stream.c": '#include "cl/cl.h"\nxpu_status xpu_stream_wait(int a,\n int b) {\n}\n',
            "src/ops/sort.c": "xpu_status xpu_sort(int a) {\n"
            "    return xpu_stream_wait(1, 2) && xpu_last_error();\n}\n",
            "bridge/sort.cpp": "void sort() { xpu_sort(1); }\n",
            "python/openxpu/a.py": "from openxpu import _bridge\n",
            **{name.replace("__", "/").replace("_dot_", "."): text for name, text in more.items()},
        }
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run(["git", "add", "-A"], cwd=tmp_path)
        return tool.arrows()

    return arrows


def test_arrows_are_what_sources_include_and_call(tool, tree):
    found = tree()
    assert found - tool.OUTSIDE == {
        ("src/cl", "src/core"),
        ("src/runtime", "src/cl"),
        ("src/ops", "src/runtime"),
        ("src/ops", "src/core"),
        ("bridge", "src/ops"),
        ("python/openxpu", "bridge"),
    }
    assert not tool.not_down(found)
    assert ("src/ops", "src/core") not in tool.direct(found)  # by way of runtime


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("src/cl/a.c", "int f(void) { return xpu_stream_wait(1, 2); }", "src/cl uses src/runtime"),
        ("src/tile/a.c", "int f(void) { return xpu_sort(1); }", "src/tile uses src/ops"),
        ("src/runtime/a.c", "int f(void) { return xpu_sort(1); }", "src/runtime uses src/ops"),
    ],
)
def test_a_call_upwards_or_sideways_is_refused(tool, tree, name, text, line):
    found = tool.not_down(tree(**{name.replace("/", "__").replace(".", "_dot_"): text}))
    assert [refused.split(",")[0] for refused in found] == [line]
    assert not tool.not_down(tree(**{name.replace("/", "__").replace(".", "_dot_"): f"/* {text} */"}))


def test_a_stale_picture_is_told(tool, tree, tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    picture = tmp_path / "docs" / "layers.svg"
    monkeypatch.setattr(sys, "argv", ["check_layers.py"])
    picture.write_text(tool.picture(tree()))
    xml.dom.minidom.parse(str(picture))
    assert tool.main() == 0 and not capsys.readouterr().out
    tree(src__tile__a_dot_c="int f(void) { return xpu_stream_wait(1, 2); }")
    assert tool.main() == 1 and "stale" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["check_layers.py", "--draw"])
    assert tool.main() == 0
    monkeypatch.setattr(sys, "argv", ["check_layers.py"])
    assert tool.main() == 0
