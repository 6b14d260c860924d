"""Frozen models on xpu: the fused operators that Inductor chooses for them, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close
from torch import Tensor, nn

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("fresh_compiler")
CONVOLUTION, BINARY, INPLACE = (
    "mkldnn._convolution_pointwise.default",
    "mkldnn._convolution_pointwise.binary",
    "mkldnn._convolution_pointwise_.binary",
)


@pytest.fixture(autouse=True)
def freezing() -> Iterator[None]:
    import torch._inductor.config

    with torch._inductor.config.patch(freezing=True, fx_graph_cache=False), torch.no_grad():
        yield


class Block(nn.Module):
    """A convolution with batch norm and an activation."""

    def __init__(
        self,
        end: Callable[[Tensor], Tensor] = F.relu,
        dims: int = 2,
        channels: tuple[int, int] = (8, 8),
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.conv = getattr(nn, f"Conv{dims}d")(*channels, 3, padding=1, bias=False, groups=groups)
        self.norm = getattr(nn, f"BatchNorm{dims}d")(channels[1])
        nn.init.uniform_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.norm(self.conv(x)))


def check(model: nn.Module, x: Tensor, wanted: str | None, dtype: torch.dtype = torch.float32) -> str:
    """Check the result of a frozen model and that it calls the operator; return the generated code."""
    from torch._inductor.utils import run_and_get_code

    model, x = model.eval().to(dtype), x.to(dtype)
    want = model.double()(x.double())
    model = model.to(dtype).to("xpu")
    y, programs = run_and_get_code(torch.compile(model), x.to("xpu"))
    times = {torch.float32: 0.5, torch.bfloat16: 1.5, torch.float16: 1.25}
    assert_close(y, want, dtype=dtype, times=times, relative_to="largest", floor=1)
    if wanted:
        assert f"torch.ops.{wanted}(" in programs[0]
        assert "extern_kernels.convolution" not in programs[0]
    return programs[0]


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "'none', [None], ''": lambda x: x,
    "'relu', [None], ''": F.relu,
    "'swish', [None], ''": F.silu,
    "'gelu', [None], 'none'": F.gelu,
    "'gelu', [None], 'tanh'": lambda x: F.gelu(x, approximate="tanh"),
    "'leaky_relu', [0.1], ''": lambda x: F.leaky_relu(x, 0.1),
    "'hardtanh', [": F.relu6,
}


def test_what_follows() -> None:
    """All activations in one network: the calls differ in their attributes."""
    program = check(nn.Sequential(*map(Block, ENDS.values())), torch.randn(2, 8, 9, 11), CONVOLUTION)
    for text in ENDS:
        assert text in program
    assert program.count(f"torch.ops.{CONVOLUTION}(") == len(ENDS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    assert "'swish', [None], ''" in check(Block(F.silu), torch.randn(2, 8, 9, 11), CONVOLUTION, dtype)


class Residuals(nn.Module):
    """Residuals that may be overwritten, one that is used later, and one that is broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Block(lambda x: x) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.parts[0](x) + torch.sin(x))
        y = F.relu(self.parts[1](y) + x)
        y = self.parts[2](y) - x
        return self.parts[3](y) + x.mean((2, 3), keepdim=True)


def test_residuals() -> None:
    program = check(Residuals(), torch.randn(2, 8, 9, 11), BINARY)
    assert program.count(f"torch.ops.{INPLACE}(") == 1 and program.count(f"torch.ops.{BINARY}(") == 3
    assert program.count("'add', 1.0, 'relu'") == 2 and program.count("'sub', ") == 1


@pytest.mark.parametrize(
    ("dims", "channels", "groups", "shape", "last"),
    [
        (2, (1, 6), 1, (3, 1, 9, 8), False),  # channels first or last alike
        (2, (8, 4), 1, (2, 8, 1, 1), True),
        (3, (4, 6), 2, (2, 4, 5, 6, 3), True),
    ],
    ids=str,
)
def test_layouts(
    dims: int, channels: tuple[int, int], groups: int, shape: tuple[int, ...], last: bool
) -> None:
    x = torch.randn(shape)
    if last:
        x = x.to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    model = nn.Sequential(
        Block(F.silu, dims=dims, channels=channels, groups=groups),
        Block(F.relu, dims=dims, channels=(channels[1], 4)),
    )
    check(model, x, CONVOLUTION)


def test_what_stays_as_it_is() -> None:
    """Not fused, as in PyTorch's own XPU build: transposed convolutions, linear layers."""
    check(nn.Sequential(nn.ConvTranspose2d(8, 6, 3, 2), nn.ReLU()), torch.randn(2, 8, 5, 6), None)
    layers = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 9), nn.ReLU(), nn.Linear(9, 3), nn.SiLU()
    check(nn.Sequential(*layers), torch.randn(5, 16), None, torch.bfloat16)


def test_changing_sizes() -> None:
    model = Block(F.silu).eval()
    want = [model.double()(torch.full((2, 8, n, 7), 0.5, dtype=torch.float64)) for n in (6, 9)]
    compiled = torch.compile(model.float().to("xpu"), dynamic=True)
    for n, expected in zip((6, 9), want, strict=True):
        got = compiled(torch.full((2, 8, n, 7), 0.5, device="xpu"))
        assert_close(got, expected, dtype=got.dtype, rtol=1e-5, atol=1e-5)


class Bottleneck(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            Block(channels=(16, 8)), Block(channels=(8, 8)), Block(lambda x: x, channels=(8, 16))
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.parts(x))


def test_a_network() -> None:
    model = nn.Sequential(
        Block(channels=(3, 16)),
        nn.MaxPool2d(2),
        Bottleneck(),
        Bottleneck(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    program = check(model, torch.randn(4, 3, 20, 18), CONVOLUTION, torch.bfloat16)
    assert program.count(f"torch.ops.{CONVOLUTION}(") == 5 and program.count("'add', 1.0, 'relu'") == 2
