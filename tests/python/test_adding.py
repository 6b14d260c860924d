"""The examples of docs/adding.md are complete: applied to a copy of the tree they build and run."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from processes import run, run_python

ROOT = Path(__file__).parents[2]


def examples():
    """Return the lines that the document's examples add, by file."""
    found = {}
    for block in re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "adding.md").read_text(), re.DOTALL):
        for path, lines in re.findall(r"/\* (\S+) \*/\n((?:(?!/\*).*\n)+)", block):
            found.setdefault(path, []).extend(lines.splitlines())
    return found


EXAMPLES = examples()
TABLES = ("src/ops/tables/pointwise.def", "src/ops/tables/reduce.def")


def same(line):
    return re.sub(r"\s+", " ", line).strip()


def without(text, lines):
    """Return the text without these lines, and how many lines were removed."""
    gone = {same(line) for line in lines}
    kept = [line for line in text.splitlines(True) if same(line) not in gone]
    return "".join(kept), len(text.splitlines()) - len(kept)


def add(path, lines):
    """Add lines to a file of the copy, at the place that the document gives."""
    text, _ = without(path.read_text(), lines)
    added = "".join(f"{line}\n" for line in lines)
    if path.name == "device.h":
        listed = "".join(f"    {line} \\\n" for line in lines)
        text = re.sub(r"(#define XPU_DEVICE_PROPERTIES\(X\) +\\\n)", lambda m: m[0] + listed, text, count=1)
    elif path.name == "capability.c":
        text = re.sub(r"( +p->has_fp16 = .*\n)", lambda m: m[0] + added, text, count=1)
    elif path.name == "ops.def":
        text = text.replace("#undef OP\n", added + "#undef OP\n")
    else:
        text = text.rstrip("\n") + "\n" + added
    assert all(line in text for line in lines)
    path.write_text(text)


def generated(tables, folder):
    """Return what the build generates from the tables: the kernels' source and the overloads."""
    script = ROOT / "bridge" / "generate.py"
    run_python(script, "--tables", tables, "--out", folder)
    kernels = "".join((folder / f"{kind}_kernels.cpp").read_text() for kind in ("pointwise", "reduce"))
    return kernels, set((folder / "overloads.txt").read_text().split())


def test_the_lines_make_kernels_and_registrations(tmp_path):
    """The overloads of the document's lines exist with these lines in the tables, and not without them."""
    for name in TABLES:
        text, count = without((ROOT / name).read_text(), EXAMPLES[name])
        assert count == len(EXAMPLES[name]), f"{name}: the document's line isn't the table's"
        (tmp_path / Path(name).name).write_text(text)
    kernels, overloads = generated(tmp_path, tmp_path / "without")
    wanted = {"hypot", "hypot.out", "hypot_", "count_nonzero.dim_IntList"}
    assert not wanted & overloads
    for name in TABLES:
        add(tmp_path / Path(name).name, EXAMPLES[name])
    more_kernels, more = generated(tmp_path, tmp_path / "with")
    assert more - overloads == wanted and not overloads - more
    for text in ("XPU_POINTWISE_HYPOT", "XPU_REDUCE_COUNT_NONZERO"):
        assert text not in kernels and text in more_kernels


@pytest.mark.parametrize(
    "line, complaint",
    [
        ('X(MORE, "amax.out", "f", in, one, LOWEST, MAX(a, x), MAX(a, b), a, 0)', "amax.out is AMAX's"),
        ('X(MORE, "linalg_qr.out", "f", in, one, ZERO, a + x, a + b, a, 0)', "knows A, mode"),
        ('X(MORE, "no_such.out", "f", in, one, ZERO, a + x, a + b, a, 0)', "no such overload"),
        ('X(MORE, "f", in)', "doesn't read like the others"),
    ],
)
def test_mistakes_in_a_line_are_told(line, complaint, tmp_path):
    for name in TABLES:
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "reduce.def").open("a") as file:
        file.write(line + "\n")
    script = ROOT / "bridge" / "generate.py"
    done = run_python(script, "--tables", tmp_path, "--out", tmp_path / "out", status=1)
    assert complaint in done.stderr


PROGRAM = """
import openxpu, torch
from pathlib import Path
assert Path(openxpu.__file__).is_relative_to({copy!r})
x, y = torch.randn(3, 5), torch.randn(5)
torch.testing.assert_close(torch.hypot(x.to("xpu"), y.to("xpu")).cpu(), torch.hypot(x, y))
z = torch.randint(0, 3, (4, 6))
assert torch.count_nonzero(z.to("xpu"), 1).tolist() == torch.count_nonzero(z, 1).tolist()
assert torch.xpu.get_device_properties().has_extended_atomic64 in (True, False)
"""

KERNEL = """
module {
  tt.func public @kernel(%arg0: !tt.ptr<f32>) attributes {noinline = false} {
    %0 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %1 = tt.splat %arg0 : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %2 = tt.addptr %1, %0 : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    %3 = tt.load %2 : tensor<16x!tt.ptr<f32>>
    %4 = math.asinh %3 : tensor<16xf32>
    tt.store %2, %4 : tensor<16x!tt.ptr<f32>>
    tt.return
  }
}
"""


@pytest.mark.skipif("OPENXPU_TEST_ALL" not in os.environ, reason="builds the project: minutes; make test-all")
@pytest.mark.timeout(3600)
def test_a_copy_with_all_examples(tmp_path):
    copy = tmp_path / "copy"
    files = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT).stdout
    for name in files.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    for name, lines in EXAMPLES.items():
        add(copy / name, lines)
    build = ["-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    env = {"CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    for command in (["-S", ".", "-B", "build", *build], ["--build", "build"]):
        run(["cmake", *command], cwd=copy, env=env, timeout=3600)

    env = {"PYTHONPATH": str(copy / "python"), "PYTORCH_ENABLE_XPU_FALLBACK": "0"}
    run_python(PROGRAM.format(copy=str(copy)), cwd=copy, env=env, bare=True)
    (copy / "kernel.ttir").write_text(KERNEL)
    assert "asinh(" in run_python("-m", "openxpu.cli", "compile", "kernel.ttir", cwd=copy, env=env).stdout
