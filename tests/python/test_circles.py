"""tools/check_circles.py, on object files and includes with and without circles, and on those of this build."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from processes import run

ROOT = Path(__file__).resolve().parents[2]
A_CALLS_B = {"a": "int b(void); int a(void) { return b(); }", "b": "int b(void) { return 1; }"}
CIRCLE = A_CALLS_B | {"b": "int a(void); int b(void) { return a(); }"}
THREE = CIRCLE | {
    "b": "int c(void); int b(void) { return c(); }",
    "c": "extern int (*const table[])(void); int c(void) { return table[0](); }",
    "a": "int b(void); int a(void) { return b(); } int (*const table[])(void) = {a};",
}

needs_tools = pytest.mark.skipif(not (shutil.which("cc") and shutil.which("nm")), reason="needs cc and nm")


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("check_circles", ROOT / "tools" / "check_circles.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(tool, tmp_path, monkeypatch, capsys):
    """Return the tool's messages for these files in src/x and this list of exceptions."""
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (tmp_path / "tools").mkdir()

    def of(texts, allowed, *options, folder="x"):
        for name, text in texts.items():
            source = tmp_path / "src" / folder / f"{name}.c"
            built = tmp_path / "build" / tool.OBJECTS / "src" / folder / f"{name}.c.o"
            for path in (source, built):
                path.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            run(["cc", "-c", source, "-o", built])
        (tmp_path / tool.LIST).write_text("# comment\n" + allowed)
        monkeypatch.setattr(sys, "argv", ["check_circles.py", str(tmp_path / "build"), *options])
        status = tool.main()
        said = capsys.readouterr().out.splitlines()
        assert status == bool(said)
        return said

    return of


@needs_tools
def test_calls_in_one_direction_are_no_circle(check):
    assert not check(A_CALLS_B, "")


@needs_tools
def test_a_new_circle_is_told_with_its_calls(check):
    assert check(CIRCLE, "") == [
        "src/x/a.c: is in a circle now: it uses src/x/b.c's b, and src/x/b.c uses its a",
        "src/x/b.c: is in a circle now: it uses src/x/a.c's a, and src/x/a.c uses its b",
    ]
    assert not check(CIRCLE, "src/x: a.c b.c\n")


@needs_tools
def test_a_new_member_is_told_also_if_it_uses_a_table(check):
    assert [line.split(":")[0] for line in check(THREE, "src/x: a.c b.c\n")] == ["src/x/c.c"]
    assert not check(THREE, "src/x: a.c b.c c.c\n")


@needs_tools
@pytest.mark.parametrize(
    ("texts", "allowed", "left"),
    [(A_CALLS_B, "src/x: a.c b.c\n", ""), (CIRCLE, "src/x: a.c b.c gone.c\n", "src/x: a.c b.c\n")],
)
def test_the_list_shrinks(check, tool, texts, allowed, left):
    (said,) = check(texts, allowed)
    assert said.startswith("tools/circles.txt: src/x: no longer in this circle: ")
    assert not check(texts, allowed, "--shrink")
    assert (tool.ROOT / tool.LIST).read_text() == "# comment\n" + left


@needs_tools
def test_shrinking_admits_nothing_new(check, tool):
    assert len(check(THREE, "src/x: a.c b.c\n", "--shrink")) == 1
    assert (tool.ROOT / tool.LIST).read_text() == "# comment\nsrc/x: a.c b.c\n"


@needs_tools
def test_folders_are_looked_at_apart(check):
    check({"a": CIRCLE["a"]}, "", folder="x")
    assert not check({"b": CIRCLE["b"]}, "", folder="y")


@needs_tools
def test_what_is_not_built_is_not_judged(check, tool):
    check(CIRCLE, "src/x: a.c b.c\n")
    for name in ("a.c", "b.c"):
        (tool.ROOT / "build" / tool.OBJECTS / "src" / "x" / f"{name}.o").unlink()
    assert not check({}, "src/x: a.c b.c\n")


@pytest.fixture
def check_includes(tool, tmp_path, monkeypatch):
    """Return the circles among the files of bridge/, given their includes."""
    monkeypatch.setattr(tool, "ROOT", tmp_path)

    def of(**texts):
        for name, headers in texts.items():
            path = tmp_path / "bridge" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'#include "{header}"\n' for header in headers.split()))
        graph = tool.includes()
        return tool.circles(graph), list(tool.differences(graph, tool.circles(graph), set()))

    return of


def test_includes_in_one_direction_are_no_circle(check_includes):
    assert not any(
        check_includes(a_h="", a_cpp="a.h b.h", b_h="c.h", b_cpp="b.h xpu/a.h", c_h="", c_cpp="c.h")
    )


def test_a_source_may_close_a_circle_of_includes(check_includes):
    found, told = check_includes(a_h="", a_cpp="a.h sub/b.h", sub__b_h="../a.h", sub__b_cpp="b.h")
    assert found == {("bridge", frozenset({"a", "sub/b"}))}
    assert told == [
        "bridge/a: is in a circle now: it uses bridge/sub/b's b.h, and bridge/sub/b uses its a.h",
        "bridge/sub/b: is in a circle now: it uses bridge/a's a.h, and bridge/a uses its b.h",
    ]


def test_a_header_alone_is_in_no_circle(check_includes):
    assert not any(check_includes(a_h="", a_c="common.h", common_h="a.h", b_c="common.h"))
    found, _ = check_includes(b_h="", b_c="common.h", common_h="a.h b.h")
    assert found == {("bridge", frozenset({"a", "b"}))}


@needs_tools
def test_this_build(tool):
    build = ROOT / "build"
    if not (build / tool.OBJECTS).is_dir():
        pytest.skip("no build folder")
    graph = tool.uses(tool.sources(build)) | tool.includes()
    assert len(graph) > 200
    assert not list(tool.differences(graph, tool.circles(graph), tool.listed()))
