"""Packages: models exported to a file, run by a C program that has libxpu and no PyTorch."""

from __future__ import annotations

import copy
import ctypes
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openxpu
import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from openxpu import _run_package, _tile, cli
from openxpu._package import PackageError
from openxpu._run_package import Package
from processes import run as run_command
from torch import Tensor, nn
from torch.export import Dim

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build ``examples/c/package.c`` as its header says, linked against libxpu alone."""
    compiler = shutil.which("cc")
    assert compiler
    program = tmp_path_factory.mktemp("runner") / "package"
    library = Path(openxpu.library_path())
    command = [compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", ROOT / "examples/c/package.c"]
    command += ["-I", ROOT / "include", "-I", ROOT / "src/ops", library, f"-Wl,-rpath,{library.parent}"]
    run_command([*command, "-o", program])
    return program


Run = Callable[..., list[Tensor]]


@pytest.fixture
def run(runner: Path, tmp_path: Path) -> Run:
    """Run a package on inputs in its own process and return its outputs."""

    def with_inputs(path: str, *inputs: Tensor) -> list[Tensor]:
        names = []
        for i, x in enumerate(inputs):
            names.append(str(tmp_path / f"in{i}.npy"))
            np.save(names[-1], x.detach().cpu().numpy())
        loaded = tmp_path / "loaded"
        env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(loaded)}
        done = run_command([runner, path, *names], cwd=tmp_path, env=env)
        mapped = "".join(file.read_text() for file in tmp_path.glob("loaded.*"))
        assert "libxpu" in mapped
        assert "torch" not in mapped.replace(str(tmp_path), "")
        assert "libpython" not in mapped
        outputs = [
            line for line in done.stdout.splitlines() if line.startswith("output") and line.endswith(".npy")
        ]
        return [torch.from_numpy(np.load(tmp_path / name)) for name in outputs]

    return with_inputs


def close(got: Tensor, exact: Tensor) -> None:
    """Assert equality with the float64 reference up to rounding: 1e-6 of its norm."""
    assert_close(got, exact, dtype=got.dtype, rtol=1e-6, relative_to="norm", device=None)


class Block(nn.Module):
    """A transformer's block with a mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Tokens (batch, length, width) to the same."""
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Maps tokens and their mask to one unit vector per text, as MiniLM does."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(100, 48), nn.Embedding(64, 48)
        self.block, self.norm = Block(48, 3), nn.LayerNorm(48)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, length) twice to (batch, width)."""
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(self.block(x, mask[:, None, None, :].bool()))
        weight = mask.unsqueeze(-1).to(x.dtype)
        return F.normalize((x * weight).sum(1) / weight.sum(1), dim=-1)


@pytest.mark.extended
def test_an_encoder_with_two_open_sizes(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Encoder().eval()
    ids, mask = torch.randint(0, 100, (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    sizes = {0: Dim("batch", max=16), 1: Dim("length", max=64)}
    exported = torch.export.export(model, (ids, mask), dynamic_shapes={"ids": sizes, "mask": sizes})
    path = openxpu.package(exported, tmp_path / "encoder.xpk")
    exact = copy.deepcopy(model).double()
    for batch, length in ((3, 7), (1, 64), (16, 1), (5, 33)):
        ids, mask = torch.randint(0, 100, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
        mask[0, length // 2 + 1 :] = 0
        (got,) = run(path, ids, mask)
        close(got, exact(ids, mask))


def test_sizes_out_of_range_are_refused(runner: Path, tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    exported = torch.export.export(
        model, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("rows", min=2, max=8)},)
    )
    path = openxpu.package(exported, tmp_path / "linear.xpk")
    for shape, text in (
        ((9, 4), "input.size(0) <= 8"),
        ((1, 4), "input.size(0) >= 2"),
        ((3, 5), "has size 5"),
    ):
        np.save(tmp_path / "in.npy", np.zeros(shape, np.float32))
        done = run_command([runner, path, tmp_path / "in.npy"], cwd=tmp_path, status=1)
        assert text in done.stderr


class Halves(nn.Module):
    """Returns the sum of the two halves of x's rows, and y's rows without the first three."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Map (2 n, width) and (3 m + 3, width) to (n, width) and (3 m, width)."""
        half = x.shape[0] // 2
        return x[:half] + x[half:], y[3:] * 2.0


def test_sizes_that_no_input_has_by_themselves(run: Run, runner: Path, tmp_path: Path) -> None:
    n, m = Dim("n", min=2, max=8), Dim("m", min=2, max=9)
    exported = torch.export.export(
        Halves(), (torch.randn(6, 5), torch.randn(9, 5)), dynamic_shapes=({0: 2 * n}, {0: 3 * m + 3})
    )
    path = openxpu.package(exported, tmp_path / "halves.xpk")
    for rows, others in ((6, 9), (4, 21), (16, 30), (14, 12)):
        x, y = torch.randn(rows, 5), torch.randn(others, 5)
        sums, rest = run(path, x, y)
        close(sums, x[: rows // 2].double() + x[rows // 2 :].double())
        close(rest, 2 * y[3:].double())
    for rows, others, text in (
        (7, 9, "x has size 7 in dimension 0, but the model expects 6"),
        (6, 10, "y has size 10 in dimension 0, but the model expects 9"),
        (18, 9, "x.size(0) / 2 <= 8"),
        (6, 33, "(y.size(0) - 3) / 3 <= 9"),
    ):
        for i, size in enumerate((rows, others)):
            np.save(tmp_path / f"wrong{i}.npy", np.zeros((size, 5), np.float32))
        files = [tmp_path / f"wrong{i}.npy" for i in range(2)]
        done = run_command([runner, path, *files], cwd=tmp_path, status=1)
        assert text in done.stderr


class Returns(nn.Module):
    """Returns a tensor and the result of a function of it."""

    def __init__(self, also: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.also = also

    def forward(self, x: Tensor) -> tuple[object, ...]:
        """Map x to twice itself, and more."""
        return x * 2.0, self.also(x), x - 1.0


@pytest.mark.parametrize(
    ("also", "text"),
    [
        (lambda x: 3, "output 1 is 3, not a tensor"),
        (lambda x: "name", "output 1 is 'name', not a tensor"),
        (lambda x: x.shape[0], "output 1, sym_size_int.*, is not a tensor"),
    ],
    ids=["number", "text", "size"],
)
def test_outputs_that_are_no_tensors_are_refused(
    tmp_path: Path, also: Callable[[Tensor], object], text: str
) -> None:
    exported = torch.export.export(Returns(also), (torch.ones(4),), dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(PackageError, match=text):
        openxpu.package(exported, tmp_path / "returns.xpk")


def test_none_among_outputs_is_left_out(run: Run, tmp_path: Path) -> None:
    exported = torch.export.export(Returns(lambda x: None), (torch.ones(4),))
    x = torch.randn(4)
    twice, less = run(openxpu.package(exported, tmp_path / "returns.xpk"), x)
    close(twice, 2 * x.double())
    close(less, x.double() - 1)


class Images(nn.Module):
    """Convolutions, grouped and transposed ones too, with batch norm; then patches and a transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.up = nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.ConvTranspose2d(16, 8, 2, 2)
        self.patches, self.block, self.head = nn.Conv2d(8, 24, 4, 4), Block(24, 2), nn.Linear(24, 5)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, 3, 16, 16) to logits (batch, 5) and the features before the patches."""
        x = F.relu(self.norm(self.conv1(images)))
        x = self.up(F.silu(self.conv2(x)) + x)
        return self.head(self.block(self.patches(x).flatten(2).transpose(1, 2)).mean(1)), x


@pytest.mark.extended
def test_a_vision_model_with_two_outputs(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Images()
    model(torch.randn(8, 3, 16, 16))  # statistics of the batch norm
    model.eval()
    images = torch.randn(2, 3, 16, 16)
    path = openxpu.package(torch.export.export(model, (images,)), tmp_path / "images.xpk")
    exact = copy.deepcopy(model).double()(images.double())
    for got, want in zip(run(path, images), exact, strict=True):
        close(got, want)


class Decoder(nn.Module):
    """Decodes one token at a time; the module holds the keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(50, 32), nn.Embedding(12, 32)
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)
        self.head = nn.Linear(32, 50, bias=False)
        self.register_buffer("keys", torch.zeros(1, 2, 12, 16))
        self.register_buffer("values", torch.zeros(1, 2, 12, 16))

    def forward(self, token: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Map a token (1, 1) at a place (1,) to the next token's logits (1, 50), and the largest's number."""
        x = self.token(token) + self.place(at)
        q, k, v = (t.view(1, 1, 2, 16).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        seen = torch.arange(12, device=at.device) <= at
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None, None, None])
        logits = self.head(x + self.out(y.transpose(1, 2).reshape(1, 1, 32)))[:, -1]
        return logits, logits.argmax(-1)


def test_a_decoder_keeps_its_cache_between_runs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Decoder().eval()
    example = (torch.tensor([[3]]), torch.tensor([0]))
    path = openxpu.package(torch.export.export(copy.deepcopy(model), example), tmp_path / "decoder.xpk")
    exact = copy.deepcopy(model).double()
    for _ in range(2):  # opened again it starts anew
        opened = Package(path)
        exact.keys.zero_()
        exact.values.zero_()
        token = 3
        for at in range(8):
            arrays = [np.array([[token]]), np.array([at])]
            prepared = opened.prepare(arrays)
            opened.run(prepared, 2)
            wanted, number = exact(*map(torch.from_numpy, arrays))
            logits, best = prepared[2]
            close(torch.from_numpy(logits), wanted)
            token = int(best[0])
            assert token == int(number)
        assert opened.memory()["state"] >= 2 * 2 * 12 * 16 * 4
        opened.close()


class Counter(nn.Module):
    """Counts its calls in a buffer of one element, which selects the row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(40.0).view(10, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Add the table's row of this time."""
        y = x + self.table[self.at]
        self.at.add_(1)
        return y


def test_a_place_of_one_element_goes_on(tmp_path: Path) -> None:
    path = openxpu.package(torch.export.export(Counter(), (torch.zeros(1, 4),)), tmp_path / "counter.xpk")
    opened = Package(path)
    prepared = opened.prepare([np.zeros((1, 4), np.float32)])
    seen = []
    for _ in range(5):
        opened.run(prepared, 1)
        seen.append(float(prepared[2][0][0, 0]))
    opened.close()
    assert seen == [0, 4, 8, 12, 16]


class Placed(nn.Module):
    """A linear layer and a counter of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.register_buffer("at", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the number of calls so far."""
        self.at.add_(1)
        return self.layer(x) + self.at


def test_a_place_beside_quantized_weights_goes_on(tmp_path: Path) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    x, model = torch.ones(1, 32), Placed()
    quantization.quantize_(model.layer, quantization.Int8WeightOnlyConfig())
    path = openxpu.package(torch.export.export(model, (x,)), tmp_path / "quantized.xpk")
    opened, wanted = Package(path), model.layer(x).detach()
    prepared = opened.prepare([x.numpy()])
    for time in range(1, 4):
        opened.run(prepared, 1)
        close(torch.from_numpy(prepared[2][0]), (wanted + time).double())
    opened.close()


def test_inputs_live_as_long_as_what_was_prepared(tmp_path: Path) -> None:
    path = openxpu.package(torch.export.export(nn.ReLU(), (torch.zeros(4),)), tmp_path / "relu.xpk")
    opened, given = Package(path), np.ones(4, np.float32)
    prepared, held = opened.prepare([given]), weakref.ref(given)
    del given
    assert held() is not None
    opened.run(prepared, 1)
    assert prepared[2][0].tolist() == [1, 1, 1, 1]
    del prepared
    assert held() is None
    opened.close()


class Window(nn.Module):
    """Has a buffer that is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.zeros(8)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[2:6])

    def forward(self, x: Tensor) -> Tensor:
        """Add to the part."""
        self.part.add_(x)
        return self.whole + 0


def test_a_changing_part_of_another_buffer_is_refused(tmp_path: Path) -> None:
    exported = torch.export.export(Window(), (torch.ones(4),))
    with pytest.raises(PackageError, match="part is mutated and shares memory with whole"):
        openxpu.package(exported, tmp_path / "window.xpk")


def test_the_command_line_exports_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    x = torch.randn(3, 6)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    assert cli.main(["export", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "model.xpk")]) == 0
    np.save(tmp_path / "x.npy", x.numpy())
    command = ["run-package", str(tmp_path / "model.xpk")]
    assert cli.main(command) == 0
    assert "input input: float32 [3, 6]" in capsys.readouterr().out
    assert (
        cli.main([*command, "--input", str(tmp_path / "x.npy"), "--bench", "--output", str(tmp_path / "new")])
        == 0
    )
    assert "runs: best" in capsys.readouterr().out
    got = torch.from_numpy(np.load(tmp_path / "new" / "output0.npy"))
    with torch.no_grad():
        compiled = torch.compile(copy.deepcopy(model).to("xpu"))(x.to("xpu")).cpu()
    assert torch.linalg.vector_norm(got - compiled) <= 1e-6 * torch.linalg.vector_norm(compiled)
    close(got, model.double()(x.double()))
    (tmp_path / "model.xpk").write_bytes((tmp_path / "model.xpk").read_bytes()[:5000])
    assert cli.main(command) == 1
    assert "cut off" in capsys.readouterr().err


def test_what_the_runner_lacks_is_named_at_export(tmp_path: Path) -> None:
    class Lacking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.inv(x) + torch.linalg.det(x)

    exported = torch.export.export(Lacking(), (torch.eye(3),))
    with pytest.raises(RuntimeError, match=r"lacks aten\.\w*linalg\w*inv\w*"):
        openxpu.package(exported, tmp_path / "lacking.xpk")
    assert not (tmp_path / "lacking.xpk").exists()


def test_sorted_numbers_views_and_constants(run: Run, tmp_path: Path) -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(12.0).view(3, 4).t())

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            values, places = torch.sort(x, dim=1, descending=True, stable=True)
            largest, _ = torch.topk(y, 3, dim=1)
            return values + 1, places, largest, self.table, x[1:, ::2], torch.bmm(y, y.transpose(1, 2)) * 2

    x, y = torch.randn(4, 300), torch.randn(3, 5, 2)
    model = Several()
    path = openxpu.package(torch.export.export(model, (x, y)), tmp_path / "several.xpk")
    for got, want in zip(run(path, x, y), model(x, y), strict=True):
        torch.testing.assert_close(got, want)


def test_inputs_are_changed_in_place_and_outputs_share(run: Run, tmp_path: Path) -> None:
    class Changing(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            x.add_(1)
            y = x.sin()
            return y, y, y[1], x

    x = torch.randn(4, 16)
    opened = Package(
        openxpu.package(torch.export.export(Changing(), (x.clone(),)), tmp_path / "changing.xpk")
    )
    assert opened.inputs[0].is_written
    given = x.clone().numpy()
    prepared = opened.prepare([given])
    opened.run(prepared, 1)
    opened.close()
    changed = x.clone()
    for got, want in zip([*prepared[2], given], [*Changing()(changed), changed], strict=True):
        torch.testing.assert_close(torch.from_numpy(got), want)


def test_one_file_for_several_kinds_of_devices(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Block(48, 3).eval(), torch.randn(2, 7, 48)
    exported = torch.export.export(model, (x,))
    # an offline compiler that records its arguments
    compiler, asked = tmp_path / "ocloc", tmp_path / "asked"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n'
        'while [ "$1" != -out_dir ]; do shift; done\ngrep -c kernel "$2"/kernel.cl > "$2"/kernel.bin\n'
    )
    compiler.chmod(0o755)
    path = openxpu.package(exported, tmp_path / "all.xpk", targets=["bmg", "cpu"], compiler=compiler)
    (got,) = run(path, x)
    close(got, copy.deepcopy(model).double()(x.double()))
    lines = asked.read_text().splitlines()
    data = Path(path).read_bytes()
    assert lines
    assert all("-device bmg -options -cl-std=CL3.0" in line for line in lines)
    assert data.count(b'"kind": "binary"') == len(lines) == data.count(b'"target": "bmg ') // 2
    assert data.count(b'"target": "cpu ') > 0
    # the weights once, and attention without the matrix of scores on each kind of device
    own = openxpu.package(exported, tmp_path / "own.xpk")
    sizes = [Package(name).memory()["weights"] for name in (path, own)]
    assert sizes[0] == sizes[1]
    assert b"attention" in data
    assert b"attention" in Path(own).read_bytes()
    with pytest.raises(RuntimeError, match="for another kind of device than"):
        Package(openxpu.package(exported, tmp_path / "bmg.xpk", targets=["bmg"]))
    with pytest.raises(ValueError, match="lnl"):
        openxpu.package(exported, tmp_path / "none.xpk", targets=["bmx"])
    # compiling for the current device still works
    compiled = torch.compile(copy.deepcopy(model).to("xpu"))(x.to("xpu")).cpu()
    close(compiled, copy.deepcopy(model).double()(x.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.uint8])
@pytest.mark.parametrize("device", ["cpu", "xpu"])
def test_dlpack_is_what_pytorch_takes_it_for(dtype: torch.dtype, device: str) -> None:
    xpu = _tile.library()
    inside = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    x = (torch.arange(40).view(5, 8) % 7).to(device, dtype)[1:, 2:].t()
    given = x.__dlpack__(max_version=(1, 0))
    # in the struct of version 1 the tensor is at byte 32
    version = inside(given, b"dltensor_versioned")
    at, got = ctypes.c_void_p(version + 32), _run_package.Tensor()
    assert xpu.xpu_package_tensor_from_dlpack(at, 0, ctypes.byref(got)) == 0
    assert (got.data, got.is_host, got.dims) == (x.data_ptr(), device == "cpu", 2)
    assert (list(got.size[:2]), list(got.stride[:2])) == (list(x.shape), list(x.stride()))

    # export: memory of libxpu, which the receiver frees
    stream, memory, managed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    source = x.cpu().contiguous()
    size = ctypes.c_size_t(source.nbytes)
    strides = (ctypes.c_int64 * _run_package.MAX_DIMS)(*source.stride())
    assert xpu.xpu_stream_default(0, ctypes.byref(stream)) == 0
    assert xpu.xpu_malloc(stream, size, ctypes.byref(memory)) == 0
    assert xpu.xpu_memcpy(stream, memory, ctypes.c_void_p(source.data_ptr()), size, True) == 0
    made = _run_package.Tensor(memory, False, got.dtype, 2, got.size, strides)
    assert xpu.xpu_package_tensor_to_dlpack(ctypes.byref(made), stream, ctypes.byref(managed)) == 0
    assert made.data is None
    back = torch.from_dlpack(capsule(managed, b"dltensor_versioned", None))
    assert back.dtype == dtype
    assert back.data_ptr() == memory.value
    assert torch.equal(back.cpu(), source)


def test_sizes_known_at_run_time_alone_are_refused(tmp_path: Path) -> None:
    class Found(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.nonzero()

    with pytest.raises(RuntimeError, match=r"lacks aten\.nonzero"):
        openxpu.package(torch.export.export(Found(), (torch.ones(3),)), tmp_path / "found.xpk")


class Experts(nn.Module):
    """A mixture of experts, two of eight per token: tokens sorted by expert, and grouped products.

    `counting`: how the groups' sizes are computed. `gathering`: how a token's two results are combined. No token goes
    to the last expert.
    """

    def __init__(self, counting: str, gathering: str, width: int = 32, hidden: int = 48) -> None:
        super().__init__()
        self.counting, self.gathering, self.experts = counting, gathering, 8
        self.router = nn.Linear(width, self.experts)
        self.up = nn.Parameter(torch.randn(self.experts, width, 2 * hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(self.experts, hidden, width) / hidden**0.5)
        with torch.no_grad():
            self.router.bias[-1] = -100
            self.up.data, self.down.data = self.up.bfloat16(), self.down.bfloat16()

    def chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give two weights and two experts a token."""
        weights, chosen = self.router(x.float()).softmax(-1).topk(2, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen

    def ends(self, chosen: Tensor, order: Tensor) -> Tensor:
        """Give the end of each expert's tokens."""
        if self.counting == "searchsorted":
            experts = torch.arange(self.experts, device=chosen.device)
            return torch.searchsorted(chosen[order], experts, right=True).to(torch.int32)
        if self.counting == "histc":
            counts = torch.histc(chosen.float(), self.experts, 0, self.experts - 1)
        elif self.counting == "one_hot":
            counts = F.one_hot(chosen, self.experts).sum(0)
        else:
            counts = torch.zeros(self.experts, dtype=torch.int64, device=chosen.device)
            counts = counts.scatter_add(0, chosen, torch.ones_like(chosen))
        return counts.cumsum(0).to(torch.int32)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (tokens, width) to the same, in bfloat16 between."""
        x = tokens.to(self.up.dtype)
        weights, chosen = self.chosen(x)
        order = chosen.flatten().argsort(stable=True)
        ends, token = self.ends(chosen.flatten(), order), order // 2
        gate, up = torch._grouped_mm(x[token], self.up, ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate) * up, self.down, ends) * weights.flatten()[order, None].to(x.dtype)
        if self.gathering == "index_add":
            y = torch.zeros_like(x).index_add(0, token, y)
        elif self.gathering == "scatter_add":
            y = torch.zeros_like(x).scatter_add(0, token[:, None].expand_as(y), y)
        else:
            y = torch.empty_like(y).index_put((order,), y).view(-1, 2, x.shape[1]).sum(1)
        return y.float()

    def exact(self, tokens: Tensor) -> Tensor:
        """Give all experts of all tokens in float64, times their weights."""
        x = tokens.to(torch.bfloat16)
        weights, chosen = self.chosen(x)
        assert not (chosen == self.experts - 1).any()
        gate, up = (x.double() @ self.up.double()).chunk(2, -1)
        y = (F.silu(gate) * up) @ self.down.double()
        share = torch.zeros(len(x), self.experts, dtype=torch.float64).scatter(1, chosen, weights.double())
        return (y * share.t()[:, :, None]).sum(0)


def run_here(path: str, *inputs: Tensor) -> list[Tensor]:
    """Run a package on inputs in this process and return its outputs."""
    opened = Package(path)
    prepared = opened.prepare([x.numpy() for x in inputs])
    opened.run(prepared, len(inputs))
    opened.close()
    return [torch.from_numpy(x) for x in prepared[2]]


class Extremes(nn.Module):
    """Returns results whose sizes are the minimum and maximum of the input's."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.size(0)
        return x.new_ones(torch.sym_min(rows, 6)) * 2, x.new_ones(torch.sym_max(rows, 3)) + x.square().sum()


def test_sizes_that_are_extremes_of_others(tmp_path: Path) -> None:
    exported = torch.export.export(
        Extremes(), (torch.randn(5, 2),), dynamic_shapes=({0: Dim("rows", max=16)},)
    )
    path = openxpu.package(exported, tmp_path / "extremes.xpk")
    for rows in (1, 3, 5, 6, 16):
        x = torch.randn(rows, 2)
        least, most = run_here(path, x)
        assert torch.equal(least, torch.full((min(rows, 6),), 2.0))
        assert most.shape == (max(rows, 3),)
        close(most, (1 + x.double().square().sum()).expand(most.shape))


@pytest.mark.extended
@pytest.mark.parametrize(
    "counting, gathering",
    [
        ("histc", "index_put"),
        pytest.param("one_hot", "index_add", marks=pytest.mark.extended),
        pytest.param("scatter_add", "scatter_add", marks=pytest.mark.extended),
        pytest.param("searchsorted", "index_add", marks=pytest.mark.extended),
    ],
)
@torch.no_grad()
def test_a_mixture_of_experts(run: Run, tmp_path: Path, counting: str, gathering: str) -> None:
    torch.manual_seed(0)
    model = Experts(counting, gathering)
    for is_open in (False, True):
        dynamic = ({0: Dim("tokens", max=64)},) if is_open else None
        exported = torch.export.export(model, (torch.randn(20, 32),), dynamic_shapes=dynamic)
        path = openxpu.package(exported, tmp_path / f"{is_open}.xpk")
        for tokens in (1, 64) if is_open else (20,):
            x = torch.randn(tokens, 32)
            exact = model.exact(x)
            (got,) = run(path, x)
            assert_close(got, exact, dtype=got.dtype, rtol=1e-2, relative_to="norm", device=None)
        if not is_open:
            compiled = torch.compile(copy.deepcopy(model).to("xpu"))(x.to("xpu")).cpu()
            (got,) = run_here(path, x)
            assert_close(got, compiled, dtype=got.dtype, rtol=1e-6, relative_to="norm", device=None)


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, marks=pytest.mark.extended), torch.bfloat16])
@torch.no_grad()
def test_a_block_of_experts_of_transformers(run: Run, tmp_path: Path, dtype: torch.dtype) -> None:
    """Compare grouped experts with the loop over experts in float64; one expert gets no token."""
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")

    class Wrapped(nn.Module):
        def __init__(self, implementation: str) -> None:
            super().__init__()
            config = transformers.MixtralConfig(hidden_size=64, intermediate_size=48)
            config._experts_implementation = implementation
            self.block = modeling.MixtralSparseMoeBlock(config)

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x.to(self.block.gate.weight.dtype)).float()

    torch.manual_seed(0)
    model, exact = Wrapped("grouped_mm").eval(), Wrapped("eager").eval()
    for p in model.parameters():
        p.normal_(std=0.2)
    model.block.gate.weight[5, 0] = -100  # where x is 1
    model.to(dtype)
    exact.double().load_state_dict(model.state_dict())
    given = torch.randn(2, 9, 64).index_fill(2, torch.tensor([0]), 1).to(dtype).float()
    for dynamic in (None, ({1: Dim("length", max=64)},)):
        path = openxpu.package(
            torch.export.export(model, (given,), dynamic_shapes=dynamic), tmp_path / "block.xpk"
        )
        for length in (1, 5) if dynamic else (9,):
            x = given[:, :length].contiguous()
            wanted = exact(x.double()).double()
            bound = 1e-6 if dtype is torch.float32 else 1e-2
            for got in (*run(path, x), *run_here(path, x)):
                assert_close(got, wanted, dtype=got.dtype, rtol=bound, relative_to="norm", device=None)


@pytest.mark.extended
@torch.no_grad()
def test_products_of_groups_of_each_kind(run: Run, tmp_path: Path) -> None:
    """Grouped along rows, columns and k, and batches; the ends are strided, rows are not multiples of 16 bytes."""

    class Each(nn.Module):
        def forward(self, a: Tensor, b: Tensor, batch: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
            a, b, batch = a.bfloat16(), b.bfloat16(), batch.bfloat16()
            ends = ends[:, 0]
            rows = torch._grouped_mm(a, batch.mT, ends)
            columns = torch._grouped_mm(batch, a.t(), ends)
            along_k = torch._grouped_mm(a.t(), b, ends)
            whole = torch._grouped_mm(batch, batch.mT)
            return tuple(t.float() for t in (rows, columns, along_k, whole))

    a, b, batch = (torch.randint(-3, 4, s).float() for s in ((40, 16), (40, 24), (4, 20, 16)))
    sizes = {0: Dim("rows", min=8, max=64)}
    rows = torch.tensor([[8, 7], [8, 7], [32, 7], [40, 7]], dtype=torch.int32)
    exported = torch.export.export(Each(), (a, b, batch, rows), dynamic_shapes=(sizes, sizes, None, None))
    path = openxpu.package(exported, tmp_path / "each.xpk")
    for ends in ([0, 20, 20, 40], [8, 8, 8, 8]):
        count = ends[-1]
        rows[:, 0] = torch.tensor(ends)
        parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        wanted = (
            torch.cat([a[p] @ batch[g].t() for g, p in enumerate(parts)]),
            torch.cat([batch[g] @ a.t()[:, p] for g, p in enumerate(parts)], 1),
            torch.stack([a.t()[:, p] @ b[p] for p in parts]),
            batch @ batch.mT,
        )
        for got, want in zip(run(path, a[:count], b[:count], batch, rows), wanted, strict=True):
            assert torch.equal(got, want.bfloat16().float())


class Counted(nn.Module):
    """A histogram without bounds, whose range is known only at run time."""

    def forward(self, x: Tensor) -> Tensor:
        """Count into four bins."""
        return torch.histc(x, 4)


class AddedTwice(nn.Module):
    """index_add in bfloat16 with alpha, for which Inductor generates no kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Add the first row to the last one, two times."""
        index = torch.tensor([2], device=x.device)
        return x.bfloat16().index_add(0, index, x[:1].bfloat16(), alpha=2)


@pytest.mark.parametrize(
    "model, text",
    [
        (Counted(), "a histogram from 0 to 0 is not supported: pass its bounds"),
        (AddedTwice(), "index_add.* with alpha"),
    ],
)
def test_arguments_that_the_runner_lacks_are_named(tmp_path: Path, model: nn.Module, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        openxpu.package(torch.export.export(model, (torch.ones(3, 2),)), tmp_path / "lacking.xpk")
