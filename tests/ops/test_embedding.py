"""Embedding, forward and backward."""

from __future__ import annotations

import pytest
import torch
from comparing import assert_close
from torch.nn.functional import embedding, embedding_bag

from .indexing_samples import same


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:]
)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 3, -1])
def test_gradient(dtype: torch.dtype, scale: bool, padding: int | None) -> None:
    weight = torch.randn(11, 24, dtype=dtype, requires_grad=True)
    index = torch.randint(11, (4, 9))

    def gradient(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        weight = weight.detach().requires_grad_()
        out = embedding(index, weight, padding_idx=padding, scale_grad_by_freq=scale)
        (out * torch.arange(9.0, device=out.device)[:, None].to(dtype)).sum().backward()
        return torch.cat([out.detach().flatten(), weight.grad.flatten()])

    half = dtype.itemsize == 2
    same(gradient, weight.detach(), index, rtol=0.02 if half else 1e-6, atol=0.5 if half else 1e-6)
    same(gradient, weight.detach(), index.int(), rtol=0.02 if half else 1e-6, atol=0.5 if half else 1e-6)


def test_out_of_range() -> None:
    same(embedding, torch.tensor([11]), torch.randn(11, 4))
    same(embedding, torch.tensor([-1]), torch.randn(11, 4))


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_renorm(norm: float) -> None:
    weight, index = torch.randn(11, 24), torch.tensor([[1, 2, 2], [3, 1, 9]])
    same(lambda w, i: torch.embedding_renorm_(w, i, 1.5, norm), weight, index, rtol=1e-5, atol=1e-6)


def bags(lengths: list[int], rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and offsets of bags with these lengths."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return torch.randint(rows, (int(offsets[-1]),)), offsets


# many short ones, few long ones (split), some of both, empty ones at either end
LENGTHS = {
    "short": [3] * 70,
    "long": [3000, 1, 2500],
    "one": [20000],
    "mixed": [0, 5, 900, 1, 0, 33, 40, 0],
}


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=["int64", "int32"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_bags(lengths: str, mode: str, index: torch.dtype) -> None:
    torch.manual_seed(0)
    for dtype, width in ((torch.float64, 24), (torch.float32, 33), (torch.bfloat16, 40), (torch.float16, 1)):
        indices, offsets = (x.to(index) for x in bags(LENGTHS[lengths], 50))
        # few different values, so maxima are tied: the first one is chosen
        weight = torch.randint(-40, 40, (50, width)).to(dtype) / 8
        for padding in (None, 7):
            for last in (False, True):
                ends = offsets if last else offsets[:-1]
                number = ["sum", "mean", "max"].index(mode)
                arguments = (False, number, False, None, last, -1 if padding is None else padding)
                exact = torch._embedding_bag(weight.double(), indices, ends, *arguments)
                actual = torch._embedding_bag(weight.to("xpu"), indices.to("xpu"), ends.to("xpu"), *arguments)
                assert actual[0].dtype == dtype
                half = dtype.itemsize == 2
                torch.testing.assert_close(
                    actual[0].cpu().double(),
                    exact[0],
                    rtol=2**-8 if half else 2e-6,
                    atol=0.02 if half else 1e-6,
                )
                assert torch.equal(
                    actual[1].cpu(),
                    torch.arange(len(LENGTHS[lengths])).repeat_interleave(offsets.diff()).to(index),
                )
                if mode == "max":
                    empty = exact[2][: len(exact[0])] == 0  # for an empty bag the index is -1, as on CUDA
                    assert torch.equal(actual[3].cpu()[~empty], exact[3][~empty])
                    assert (actual[3].cpu()[empty] == -1).all()
                again = torch._embedding_bag(weight.to("xpu"), indices.to("xpu"), ends.to("xpu"), *arguments)
                assert torch.equal(actual[0], again[0])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_gradients_of_bags(lengths: str, mode: str) -> None:
    torch.manual_seed(0)
    indices, offsets = bags(LENGTHS[lengths], 50)
    indices[: len(indices) // 2] = 3  # half of the indices select one row
    serial = len(indices) * 2**-24  # error bound of sequential sums, as on CPU devices
    for dtype, width in ((torch.float64, 24), (torch.float32, 33), (torch.bfloat16, 8)):
        weight = torch.randn(50, width).to(dtype)
        for options in (
            {},
            {"padding_idx": 3},
            {"padding_idx": 8, "include_last_offset": True},
        ):
            ends = offsets if "include_last_offset" in options else offsets[:-1]

            def gradient(weight: torch.Tensor, indices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
                leaf = weight.detach().requires_grad_()
                out = embedding_bag(indices, leaf, ends, mode=mode, **options)  # noqa: B023
                rows = torch.arange(1, out.numel() + 1, dtype=torch.float64).cos().view_as(out)
                out.backward(rows.to(weight.dtype).to(out.device))
                return leaf.grad

            expected = gradient(weight.double(), indices, ends)
            actual = gradient(weight.to("xpu"), indices.to("xpu"), ends.to("xpu"))
            assert actual.dtype == dtype
            half = dtype.itemsize == 2
            assert_close(
                actual,
                expected,
                dtype=actual.dtype,
                rtol=0.02 if half else max(2e-5, serial),
                atol=0.02 if half else 2e-5 * len(indices) ** 0.5,
            )
            if mode == "max":  # deterministic on request, as scatter_add
                torch.use_deterministic_algorithms(True)
                actual = gradient(weight.to("xpu"), indices.to("xpu"), ends.to("xpu"))
            again = gradient(weight.to("xpu"), indices.to("xpu"), ends.to("xpu"))
            torch.use_deterministic_algorithms(False)
            assert torch.equal(actual, again)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_factors_of_bags(lengths: str) -> None:
    torch.manual_seed(0)
    indices, offsets = bags(LENGTHS[lengths], 50)
    for width in (1, 24, 33, 300):
        weight, factors = torch.randn(50, width), torch.randn(len(indices), 2)[:, 1]
        for padding in (None, 7):

            def run(w: torch.Tensor, f: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> list[torch.Tensor]:
                w, f = w.detach().requires_grad_(), f.detach().requires_grad_()
                out = embedding_bag(i, w, o, mode="sum", per_sample_weights=f, padding_idx=padding)  # noqa: B023
                out.backward(
                    torch.arange(1, out.numel() + 1, device=out.device).view_as(out).to(out.dtype).cos()
                )
                return [out.detach(), w.grad, f.grad]

            expected = run(weight.double(), factors.double(), indices, offsets[:-1])
            actual = run(weight.to("xpu"), factors.to("xpu"), indices.to("xpu"), offsets[:-1].to("xpu"))
            for mine, exact in zip(actual, expected, strict=True):
                assert_close(mine, exact, dtype=mine.dtype, rtol=1e-4, atol=1e-3)


def test_a_bag_that_begins_with_nan_is_nan() -> None:
    weight = torch.randn(6, 5)
    weight[2, 1:3] = torch.nan
    offsets = torch.tensor([0, 3, 5])
    for indices in (torch.tensor([2, 1, 0, 4, 2, 2, 2]), torch.tensor([1, 2, 0, 2, 4, 5, 1])):
        expected = torch._embedding_bag(weight, indices, offsets, False, 2)
        actual = torch._embedding_bag(weight.to("xpu"), indices.to("xpu"), offsets.to("xpu"), False, 2)
        for i in (0, 3):
            assert_close(actual[i], expected[i], equal_nan=True)


def test_layouts_of_bags() -> None:
    indices, offsets = bags([40, 2, 300], 20)
    weight = torch.randn(20, 20)
    for view in (lambda w: w[:, ::2], lambda w: w.t(), lambda w: w[:, 3:18], lambda w: w[0].expand(20, 20)):
        expected = embedding_bag(indices, view(weight), offsets[:-1])
        actual = embedding_bag(indices.to("xpu"), view(weight.to("xpu")), offsets[:-1].to("xpu"))
        assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_bags_with_indices_out_of_range() -> None:
    for bad in (-1, 11):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            embedding_bag(
                torch.tensor([1, bad], device="xpu"),
                torch.randn(11, 4, device="xpu"),
                torch.tensor([0], device="xpu"),
            )
            torch.xpu.synchronize()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("offsets", [[0], [0, 0, 2, 5], [0, 5, 5], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("padding", [-1, 2])
def test_bags_of_rows_without_elements(mode: str, last: bool, offsets: list[int], padding: int) -> None:
    torch.full((64,), 123456789, dtype=torch.int64, device="xpu")  # what uninitialized memory may hold
    index, starts = torch.tensor([1, 2, 1, 0, 2]), torch.tensor(offsets)
    number = {"sum": 0, "mean": 1, "max": 2}[mode]
    arguments = (False, number, False, None, last, padding)
    for width in (0, 3):
        weight = torch.randn(10, width)
        got = torch.ops.aten._embedding_bag(weight.to("xpu"), index.to("xpu"), starts.to("xpu"), *arguments)
        assert got[0].shape == (len(offsets) - last, width)
        if width == 0:
            bare = got
    # The bags and their sizes do not depend on the width.
    for without, with_some in zip(bare[1:3], got[1:3], strict=True):
        assert torch.equal(without.cpu(), with_some.cpu())


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("frequency", [False, True])
def test_gradients_of_bags_without_elements(mode: str, frequency: bool) -> None:
    torch.full((64,), 123456789, dtype=torch.int64, device="xpu")
    weight = torch.zeros(10, 0, device="xpu", requires_grad=True)
    index = torch.tensor([[1, 2, 1], [9, 0, 0]], device="xpu")
    scaled = frequency and mode != "max"
    torch.nn.functional.embedding_bag(index, weight, mode=mode, scale_grad_by_freq=scaled).sum().backward()
    assert weight.grad is not None and weight.grad.shape == (10, 0)
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        torch.nn.functional.embedding_bag(index + 1, weight, mode=mode)
        torch.xpu.synchronize()
