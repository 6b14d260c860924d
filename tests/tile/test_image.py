"""Images of Triton kernels (``xpu/image.h``): the C example runs one; the bridge rejects bad ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import openxpu
import pytest
import torch
from comparing import assert_close
from openxpu import _bridge, _tile, cli
from processes import Finished
from processes import run as run_command

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

ROOT = Path(__file__).parents[2]
IS_CPU = torch.xpu.get_device_properties().type == "cpu"


@triton.jit
def saxpy(x, y, out, a, n, BLOCK: tl.constexpr):
    """Compute out = a*x + y; examples/c/saxpy.ttir is this kernel's Triton IR with blocks of 1024."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, a * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled ``examples/c/image.c``."""
    program = tmp_path_factory.mktemp("image") / "image"
    library = Path(openxpu.library_path())
    command = [
        os.environ.get("CC", "cc"),
        *("-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"),
        *(ROOT / "examples/c/image.c", library, f"-Wl,-rpath,{library.parent}", "-lm", "-o", program),
    ]
    run_command(command)
    return program


def run(program: Path, image: Path) -> Finished:
    """Run the example on an image."""
    return run_command([program, image], status=None)


def test_example_with_an_image_of_the_command_line(example: Path, tmp_path: Path) -> None:
    image = tmp_path / "saxpy.image"
    source = str(ROOT / "examples/c/saxpy.ttir")
    for device in ("cpu", "0") if IS_CPU else ("0",):
        assert cli.main(["compile", "--image", "--device", device, source, "-o", str(image)]) == 0
        done = run(example, image)
        assert done.returncode == 0, done.stderr
        assert "on 1000003 numbers: 0 differ" in done.stdout
    image.write_bytes(image.read_bytes()[:-1])
    assert "cut off or damaged" in run(example, image).stderr


def test_example_with_the_image_in_tritons_cache(example: Path, tmp_path: Path) -> None:
    x, y = torch.randn(5000, device="xpu"), torch.randn(5000, device="xpu")
    out = torch.empty_like(x)
    kernel = saxpy[(5,)](x, y, out, 0.5, 5000, BLOCK=1024)
    assert_close(out, 0.5 * x.cpu() + y.cpu())
    image = tmp_path / "saxpy.image"
    image.write_bytes(kernel.asm["zebin"])
    done = run(example, image)
    assert done.returncode == 0, done.stderr
    assert "0 differ" in done.stdout


def test_the_line_is_json_that_says_what_is_written() -> None:
    text = (ROOT / "examples/c/saxpy.ttir").read_bytes()
    compiled = _tile.compile_module(text)
    line, _, source = compiled.image.partition(b"\n")
    described = json.loads(line)
    assert described["xpu_image"] == 1
    assert described["target"].startswith("cpu is_cpu=1 ")
    assert described["code_size"] == len(source)
    assert [param[4] for param in described["params"]] == [0, 0, 1, 0, 0]
    assert compiled.params[2].is_written
    assert not _tile.compile_module(text, dump_after="layout").image


def test_the_bridge_refuses_what_is_no_image() -> None:
    image = _tile.compile_module((ROOT / "examples/c/saxpy.ttir").read_bytes(), target=0).image
    _bridge.TritonKernel(0, image)
    for bad, error in (
        (b"", "are not a kernel image"),
        (b'{"name": "k", "params_size": 16}\n', "are not a kernel image"),
        (image.replace(b'"xpu_image": 1', b'"xpu_image": 2'), "has format 2"),
        (image.replace(b"saxpy", b"sazpy"), "damaged"),
        (image[:-1], "cut off"),
    ):
        with pytest.raises((RuntimeError, ValueError, NotImplementedError), match=error):
            _bridge.TritonKernel(0, bad)
