"""Indices out of range in every operator with indices: an error, and nothing else is written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inner_run import passes
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
ROWS, GUARD = 4, 3  # rows of the destination, and of the guard areas before and after it


def wide(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the index of each row for all of its elements."""
    return i[:, None].expand(v.shape)


def reduced(name: str, scatter: bool, include_self: bool) -> Function:
    """Return scatter_reduce_ or index_reduce_ along dimension 0."""
    if scatter:
        return lambda x, i, v: x.scatter_reduce_(0, wide(i, v), v, name, include_self=include_self)
    return lambda x, i, v: x.index_reduce_(0, i, v, name, include_self=include_self)


WRITING: dict[str, Function] = {
    "index_add": lambda x, i, v: x.index_add_(0, i, v),
    "index_add, alpha": lambda x, i, v: x.index_add_(0, i, v, alpha=2),
    "index_add, columns": lambda x, i, v: x.t().index_add_(1, i, v.t()),
    "index_copy": lambda x, i, v: x.index_copy_(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill_(0, i, 5),
    "scatter": lambda x, i, v: x.scatter_(0, wide(i, v), v),
    "scatter, value": lambda x, i, v: x.scatter_(0, wide(i, v), 5),
    "scatter, add": lambda x, i, v: x.scatter_(0, wide(i, v), v, reduce="add"),
    "scatter, multiply": lambda x, i, v: x.scatter_(0, wide(i, v), v, reduce="multiply"),
    "scatter_add": lambda x, i, v: x.scatter_add_(0, wide(i, v), v),
    "scatter_add, index without strides": lambda x, i, v: x.scatter_add_(0, wide(i, v).contiguous(), v),
    "scatter_add, columns": lambda x, i, v: x.t().scatter_add_(1, wide(i, v).t().contiguous(), v.t()),
    "index_put": lambda x, i, v: x.index_put_((i,), v),
    "index_put, sums": lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    "index_put, two sums": lambda x, i, v: x.index_put_((i, i * 0), v[:, 0], accumulate=True),
    "index_put, two sums, the second wrong": lambda x, i, v: x.index_put_(
        (i * 0, i * 1000), v[:, 0], accumulate=True
    ),
    "index_put, two sums of rows": lambda x, i, v: x.view(2, ROWS // 2, -1).index_put_(
        (i * 0, i), v, accumulate=True
    ),
    "index_put, columns": lambda x, i, v: torch.ops.aten.index_put_(x.t(), [None, i], v.t(), True),
    "put": lambda x, i, v: x.put_(i * 1000, v[:, 0]),
    "put, sums": lambda x, i, v: x.put_(i * 1000, v[:, 0], accumulate=True),
}
WRITING |= {
    f"{'scatter' if scatter else 'index'}_reduce, {name}, {include_self}": reduced(
        name, scatter, include_self
    )
    for scatter in (True, False)
    for name in ("prod", "mean", "amax", "amin", *(["sum"] if scatter else []))
    for include_self in (True, False)
}
INTO_NOTHING = {
    name: f
    for name, f in WRITING.items()
    if not name.startswith(("put", "index_put")) and "columns" not in name
}


def refuses(function: Callable[[], object]) -> None:
    with pytest.raises(
        (IndexError, RuntimeError),
        match=r"out of (range|bounds)|empty tensor|should be|max.* ind|lass values|inconsistent|negative|ascend|"
        r"final offset|[Pp]ivots|allocated size",
    ):
        function()
        torch.xpu.synchronize()


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        (torch.float32, 1),
        (torch.float32, 16),
        (torch.float32, 100),
        (torch.int64, 3),
        (torch.bfloat16, 1),
        (torch.complex64, 40),
    ],
    ids=lambda x: str(x).removeprefix("torch."),
)
def test_destination(name: str, dtype: torch.dtype, columns: int) -> None:
    """One index out of range, alone and among others: all other memory is unchanged."""
    if dtype.is_complex and ("am" in name or "reduce" in name or "index_put" in name and "columns" in name):
        pytest.skip("no order of complex numbers")
    before = torch.arange(1, (ROWS + 2 * GUARD) * columns + 1).view(-1, columns).to(dtype)
    for beyond in (ROWS, ROWS + 5, -ROWS - 5):
        for others in ((), (2,), (2,) * 40):
            memory = before.to("xpu")
            indices = torch.tensor([*others, beyond, *others])
            values = torch.full((indices.numel(), columns), 3, dtype=dtype)
            at = indices.to("xpu")
            refuses(lambda m=memory, i=at, v=values: WRITING[name](m[GUARD : GUARD + ROWS], i, v.to("xpu")))
            after = memory.cpu()
            kept = torch.ones(len(before), dtype=torch.bool)
            # Valid elements may or may not have been written when the error is detected.
            if others:
                kept[GUARD : GUARD + ROWS] = False
                kept[GUARD + 1 if "two" not in name else GUARD + 3] = "put" not in name or "two" in name
            assert torch.equal(after[kept], before[kept]), (beyond, others)


@pytest.mark.parametrize("name", INTO_NOTHING)
@pytest.mark.parametrize("columns", [1, 3, 64])
def test_empty_destination(name: str, columns: int) -> None:
    x, v = torch.zeros(0, columns, device="xpu"), torch.ones(10, columns, device="xpu")
    refuses(lambda: INTO_NOTHING[name](x, torch.zeros(10, dtype=torch.int64, device="xpu"), v))
    INTO_NOTHING[name](x, torch.zeros(0, dtype=torch.int64, device="xpu"), v[:0])  # nothing to write


@pytest.mark.parametrize("name", ["put", "put, sums", "index_put", "index_put, sums"])
def test_flat_empty_destination(name: str) -> None:
    x, v = torch.zeros(0, device="xpu"), torch.ones(1, device="xpu")
    with pytest.raises(IndexError):
        WRITING[name](
            x, torch.zeros(1, dtype=torch.int64, device="xpu"), v[:, None] if "index" not in name else v
        )


aten = torch.ops.aten


def ones(*size: int) -> torch.Tensor:
    return torch.ones(size, device="xpu")


def zeros(*size: int) -> torch.Tensor:
    return torch.zeros(size, device="xpu")


def wrong(i: torch.Tensor) -> torch.Tensor:
    """The index among ``i`` that is out of range."""
    return i[(i < 0) | (i >= ROWS)][:1]


def four(i: torch.Tensor) -> torch.Tensor:
    """ROWS indices, the wrong one among them."""
    return torch.cat([torch.arange(ROWS - 1, device="xpu"), wrong(i)])


def labels(i: torch.Tensor) -> torch.Tensor:
    """As the targets of a row."""
    return torch.cat([wrong(i), torch.full((ROWS - 1,), -1, device="xpu")])[None]


def starts(i: torch.Tensor) -> torch.Tensor:
    """As the starts of packed sequences, of which ROWS is the last that is right."""
    return F.pad(i + 1, (1, 0)).int()


def packed_attention(
    queries: torch.Tensor, keys: torch.Tensor, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    q = ones(ROWS, 2, 16).to(dtype)
    return aten._flash_attention_forward(q, q, q, queries, keys, ROWS, ROWS, 0.0, False, False)


def packed_gradient(queries: torch.Tensor, keys: torch.Tensor) -> object:
    q = ones(ROWS, 2, 16)
    right = torch.tensor([0, *[ROWS] * (queries.numel() - 1)], dtype=torch.int32, device="xpu")
    out, sums, seed, offset, _ = packed_attention(right, right)
    return aten._flash_attention_backward(
        q, q, q, q, out, sums, queries, keys, ROWS, ROWS, 0.0, False, seed, offset
    )


READING: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, x.size(1))),
    "take": lambda x, i: x.take(i * 1000),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "index, two": lambda x, i: x[i, i * 0],
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "embedding_bag, max": lambda x, i: F.embedding_bag(i[None], x, mode="max"),
    "embedding_bag, factors": lambda x, i: F.embedding_bag(
        i[None], x, mode="sum", per_sample_weights=torch.ones(1, i.numel(), device="xpu")
    ),
    "embedding_bag, offsets": lambda x, i: F.embedding_bag(torch.zeros(3, device="xpu").long(), x, i),
    "embedding_bag, last offset": lambda x, i: F.embedding_bag(
        torch.zeros(3, device="xpu").long(), x, F.pad(i, (1, 0)), include_last_offset=True
    ),
    "embedding_bag, for gradients": lambda x, i: aten._embedding_bag(x, i, zeros(1).long()),
    "embedding_renorm": lambda x, i: torch.embedding_renorm_(x, i, 1e9, 2.0),
    "embedding backward": lambda x, i: torch.ops.aten.embedding_dense_backward(
        torch.ones(i.numel(), x.size(1), device="xpu"), i, ROWS, -1, False
    ),
    "nll_loss": lambda x, i: F.nll_loss(x[:1, :ROWS].expand(i.numel(), -1), i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1, :ROWS].expand(i.numel(), -1), i),
    "index, unsafe": lambda x, i: torch.ops.aten._unsafe_index(x, [i]),
    "index, three": lambda x, i: x.view(ROWS, 4, 4)[i * 0, i * 0, i],
    "one_hot": lambda x, i: F.one_hot(i, ROWS),
    "nll_loss2d": lambda x, i: F.nll_loss(
        x[:1, :ROWS, None, None].expand(i.numel(), -1, 1, 1), i[:, None, None]
    ),
    "ctc_loss": lambda x, i: F.ctc_loss(
        torch.zeros(200, 1, ROWS, device="xpu"), i[None], [200], [i.numel()], blank=0
    ),
    "max_unpool2d": lambda x, i: torch.ops.aten.max_unpool2d(
        torch.ones(1, 1, 1, i.numel(), device="xpu"), i[None, None, None], [2, 2]
    ),
    "max_unpool3d": lambda x, i: torch.ops.aten.max_unpool3d(
        torch.ones(1, 1, 1, 1, i.numel(), device="xpu"),
        i[None, None, None, None],
        [1, 2, 2],
        [1, 1, 1],
        [0, 0, 0],
    ),
    "sparse": lambda x, i: torch.sparse_coo_tensor(
        i[None], torch.ones(i.numel(), device="xpu"), (ROWS,), check_invariants=True
    ),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:1, :ROWS].expand(i.numel(), -1), i),
    "multi_margin_loss backward": lambda x, i: aten.multi_margin_loss_backward(
        ones(), x[:1, :ROWS].expand(i.numel(), -1), i, 1, 1
    ),
    "nll_loss backward": lambda x, i: aten.nll_loss_backward(
        ones(), x[:1, :ROWS].expand(i.numel(), -1), i, None, 1, -100, ones()
    ),
    "nll_loss backward, factors": lambda x, i: aten.nll_loss_backward(
        ones(i.numel()), x[:1, :ROWS].expand(i.numel(), -1), i, ones(ROWS), 0, -100, ones()
    ),
    "nll_loss2d backward": lambda x, i: aten.nll_loss2d_backward(
        ones(), x[:1, :ROWS, None, None].expand(i.numel(), -1, 1, 1), i[:, None, None], None, 2, -100, ones()
    ),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(ones(1, ROWS), labels(i)),
    "multilabel_margin_loss backward": lambda x, i: aten.multilabel_margin_loss_backward(
        ones(), ones(1, ROWS), labels(i), 1, ones(1, ROWS)
    ),
    "ctc_loss backward": lambda x, i: aten._ctc_loss_backward(
        ones(1),
        zeros(200, 1, ROWS),
        i[None],
        [200],
        [i.numel()],
        ones(1),
        zeros(1, 200, 2 * i.numel() + 1),
        0,
    ),
    "max_pool2d backward": lambda x, i: (
        aten.max_pool2d_with_indices_backward(
            ones(1, 1, 1, i.numel()),
            zeros(1, 1, 1, ROWS),
            [1, 1],
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            i[None, None, None],
        )
        if i.numel() == ROWS
        else aten.max_pool2d_with_indices_backward(
            ones(1, 1, 2, 2),
            zeros(1, 1, 2, 2),
            [1, 1],
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            four(i).view(1, 1, 2, 2),
        )
    ),
    "max_pool2d backward, channels last": lambda x, i: aten.max_pool2d_with_indices_backward(
        *(x.to(memory_format=torch.channels_last) for x in (ones(1, 40, 2, 2), zeros(1, 40, 2, 2))),
        [1, 1],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        four(i).view(1, 1, 2, 2).expand(1, 40, 2, 2).contiguous(memory_format=torch.channels_last),
    ),
    "max_pool2d backward, halves": lambda x, i: aten.max_pool2d_with_indices_backward(
        ones(64, 1, 2, 2).half(),
        zeros(64, 1, 2, 2).half(),
        [1, 1],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        four(i).view(1, 1, 2, 2).repeat(64, 1, 1, 1),
    ),
    "max_pool3d backward": lambda x, i: aten.max_pool3d_with_indices_backward(
        ones(1, 1, 1, 2, 2),
        zeros(1, 1, 1, 2, 2),
        [1, 1, 1],
        [1, 1, 1],
        [0, 0, 0],
        [1, 1, 1],
        False,
        four(i).view(1, 1, 1, 2, 2),
    ),
    "adaptive_max_pool2d backward": lambda x, i: aten.adaptive_max_pool2d_backward(
        ones(1, 1, 2, 2), zeros(1, 1, 2, 2), four(i).view(1, 1, 2, 2)
    ),
    "adaptive_max_pool3d backward": lambda x, i: aten.adaptive_max_pool3d_backward(
        ones(1, 1, 1, 2, 2), zeros(1, 1, 1, 2, 2), four(i).view(1, 1, 1, 2, 2)
    ),
    "fractional_max_pool2d backward": lambda x, i: aten.fractional_max_pool2d_backward(
        ones(1, 1, 2, 2), zeros(1, 1, 2, 2), [1, 1], [2, 2], four(i).view(1, 1, 2, 2)
    ),
    "fractional_max_pool3d backward": lambda x, i: aten.fractional_max_pool3d_backward(
        ones(1, 1, 1, 2, 2), zeros(1, 1, 1, 2, 2), [1, 1, 1], [1, 2, 2], four(i).view(1, 1, 1, 2, 2)
    ),
    "segment_reduce": lambda x, i: torch.segment_reduce(x, "sum", offsets=F.pad(i + 1, (1, 0))),
    "segment_reduce, max": lambda x, i: torch.segment_reduce(
        x, "max", offsets=F.pad(i + 1, (0, 1), value=ROWS)
    ),
    "segment_reduce, a vector": lambda x, i: torch.segment_reduce(
        x[:, 0], "mean", offsets=F.pad(i + 1, (1, 0))
    ),
    "segment_reduce backward": lambda x, i: aten._segment_reduce_backward(
        ones(i.numel(), 16), ones(i.numel(), 16), x, "sum", offsets=F.pad(i + 1, (1, 0))
    ),
    "segment_reduce backward, max": lambda x, i: aten._segment_reduce_backward(
        ones(i.numel(), 16), ones(i.numel(), 16), x, "max", offsets=F.pad(i + 1, (1, 0))
    ),
    "segment_reduce backward, one column": lambda x, i: aten._segment_reduce_backward(
        ones(i.numel()), ones(i.numel()), x[:, 0].contiguous(), "mean", offsets=F.pad(i + 1, (1, 0))
    ),
    "grouped_mm": lambda x, i: torch._grouped_mm(x, ones(i.numel(), 16, 8), (i + 1).int()),
    "grouped_mm, halves": lambda x, i: torch._grouped_mm(
        x.bfloat16(), ones(i.numel(), 16, 8).bfloat16(), (i + 1).int()
    ),
    "grouped_mm, columns": lambda x, i: torch._grouped_mm(
        ones(i.numel(), 8, 16), ones(16, ROWS), (i + 1).int()
    ),
    "grouped_mm, along k": lambda x, i: torch._grouped_mm(ones(8, ROWS), ones(ROWS, 8), (i + 1).int()),
    "index_select backward": lambda x, i: aten.index_select_backward(ones(i.numel(), 16), [ROWS, 16], 0, i),
    "gather backward": lambda x, i: aten.gather_backward(
        ones(i.numel(), 16), x, 0, i[:, None].expand(-1, 16), False
    ),
    "cummax backward": lambda x, i: (
        aten.cummaxmin_backward(ones(i.numel()), ones(ROWS), i, 0)
        if i.numel() == ROWS
        else aten.cummaxmin_backward(ones(ROWS), ones(ROWS), four(i), 0)
    ),
    "max of a dimension, backward": lambda x, i: aten.value_selecting_reduction_backward(
        ones(i.numel()), 1, i, [i.numel(), ROWS], False
    ),
    "embedding_bag backward, max": lambda x, i: aten._embedding_bag_dense_backward(
        ones(1, 16), i, i * 0, ones(1).long(), i[:1].expand(16)[None] * 0 + wrong(i), ROWS, False, 2, None
    ),
    "embedding_bag backward, sum": lambda x, i: aten._embedding_bag_dense_backward(
        ones(1, 16), i, i * 0, ones(1).long(), zeros(1, 16).long(), ROWS, False, 0, None
    ),
    "embedding_bag backward, factors": lambda x, i: aten._embedding_bag_per_sample_weights_backward(
        ones(1, 16), x, i, zeros(1).long(), i * 0, 0
    ),
    "embedding_bag backward, bags": lambda x, i: aten._embedding_bag_per_sample_weights_backward(
        ones(1, 16), x, i * 0, zeros(1).long(), i, 0
    ),
    "searchsorted, sorter": lambda x, i: torch.searchsorted(ones(ROWS), ones(3), sorter=four(i)),
    "unsafe_index_put": lambda x, i: aten._unsafe_index_put(x, [i], ones(i.numel(), 16)),
    "repeat_interleave": lambda x, i: torch.repeat_interleave(i - ROWS - 1),
    "repeat_interleave, output_size": lambda x, i: torch.repeat_interleave(i.abs(), output_size=3),
    "bincount": lambda x, i: torch.bincount(i - ROWS - 1),
    "lu_solve": lambda x, i: torch.linalg.lu_solve(torch.eye(4, device="xpu"), four(i).int() + 1, ones(4, 1)),
    "lu_unpack": lambda x, i: torch.lu_unpack(torch.eye(4, device="xpu"), four(i).int() + 1),
    "ldl_solve": lambda x, i: torch.linalg.ldl_solve(
        torch.eye(4, device="xpu"), four(i).int() + 1, ones(4, 1)
    ),
    "flash attention, queries": lambda x, i: packed_attention(starts(i), starts(i * 0)),
    "flash attention, keys": lambda x, i: packed_attention(starts(i * 0), starts(i)),
    "flash attention, halves": lambda x, i: packed_attention(starts(i), starts(i * 0), torch.bfloat16),
    "flash attention backward": lambda x, i: packed_gradient(starts(i), starts(i * 0)),
    "flash attention backward, keys": lambda x, i: packed_gradient(starts(i * 0), starts(i)),
    "efficient attention": lambda x, i: aten._efficient_attention_forward(
        *[ones(1, ROWS, 2, 16)] * 3, None, starts(i), starts(i * 0), ROWS, ROWS, 0.0, 0, True
    ),
    "jagged_to_padded": lambda x, i: aten._jagged_to_padded_dense_forward(
        x, [F.pad(i + 1, (1, 0))], [8], 0.0
    ),
    "padded_to_jagged": lambda x, i: aten._padded_dense_to_jagged_forward(
        ones(i.numel(), 8, 16), [F.pad(i + 1, (1, 0))], ROWS
    ),
}


@pytest.mark.parametrize("name", READING)
def test_source(name: str) -> None:
    """Operators that read by index reject those out of range, too, and don't change their inputs."""
    for beyond in (ROWS, -ROWS - 5):
        for others in ((), (2,), (2,) * 40):
            x = torch.arange(float(ROWS * 16), device="xpu").view(ROWS, 16)
            indices = torch.tensor([*others, beyond, *others], device="xpu")
            refuses(lambda x=x, i=indices: READING[name](x, i))
            assert torch.equal(x.cpu(), torch.arange(float(ROWS * 16)).view(ROWS, 16))


# Arguments that name positions, in ATen's schemas.
POSITIONS = re.compile(
    r"ind(ex|ices)|maximum_indices|(crow|ccol|col|row)_indices|(compressed|plain)_(indices|idx)|targets?|offsets?|offs"
    r"|offset2bag|sorter|(LU_)?pivots|(input_|target_)?lengths|batch_sizes|repeats|cu_seqlens_[qk]|cum_seq_[qk]"
)
# Those of them that need no test above, and why.
ELSEWHERE = {
    "values, not positions": """binary_cross_entropy binary_cross_entropy_backward
        binary_cross_entropy_with_logits huber_loss huber_loss_backward mse_loss mse_loss_backward smooth_l1_loss
        smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward""",
    "results": "_cummax_helper _cummin_helper",
    "numbers of a list, on the host": "_pack_padded_sequence _spdiags",
    "other backends'": """_cudnn_attention_backward _cudnn_attention_forward _cudnn_ctc_loss _use_cudnn_ctc_loss
        _use_miopen_ctc_loss miopen_ctc_loss _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_fused_attention_overrideable_backward _flash_attention_forward_no_dropout_inplace
        quantized_gru quantized_lstm""",
    "made of those tested": """index_put index_fill put embedding_renorm _index_put_impl _unsafe_index
        _unsafe_index_put _embedding_bag_backward""",
    "clamped, by PyTorch": "_unsafe_masked_index _unsafe_masked_index_put_accumulate",
    "nested tensors: test_nested.py": """_nested_from_padded_tensor _nested_view_from_buffer
        _nested_view_from_buffer_copy _nested_view_from_jagged _nested_view_from_jagged_copy""",
    "packed sequences of one kernel: those of flash attention": """_efficient_attention_backward
        _scaled_dot_product_flash_attention_backward""",
    "scaled products of groups: test_float8.py": "_scaled_grouped_mm _scaled_grouped_mm_v2",
    "sparse tensors: bad_sparse.py": """_convert_indices_from_csr_to_coo _validate_compressed_sparse_indices
        sparse_compressed_tensor _sparse_coo_tensor_with_dims_and_tensors""",
}


class Called(TorchDispatchMode):
    """Keeps the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def of_positions() -> set[str]:
    """ATen's operators that take a tensor of positions, but for those made of others."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        takes = any(
            "Tensor" in str(a.real_type) and not a.is_out and POSITIONS.fullmatch(a.name)
            for a in schema.arguments
        )
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if takes and schema.name.startswith("aten::") and "hacked_twin" not in name:
            found |= {schema.name.removeprefix("aten::")} - composed(name)
    return found


def composed(name: str) -> set[str]:
    """The operator's name if it has no kernels of its own."""
    try:
        is_composed = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    except RuntimeError:  # it isn't registered
        is_composed = True
    return {name.removeprefix("aten::").partition(".")[0]} if is_composed else set()


def test_every_operator() -> None:
    """No operator that takes positions is missing above."""
    i, v = torch.tensor([ROWS], device="xpu"), ones(1, 16)
    with Called() as called:
        for read in READING.values():
            with contextlib.suppress(IndexError, RuntimeError):
                read(zeros(ROWS, 16), i)
                torch.xpu.synchronize()  # or the next call gets the error of a GPU
        for write in WRITING.values():
            with contextlib.suppress(IndexError, RuntimeError):
                write(zeros(ROWS, 16), i, v)
                torch.xpu.synchronize()
    elsewhere = {name.rstrip("_") for names in ELSEWHERE.values() for name in names.split()}
    tested = {name.rstrip("_") for name in called.names}
    missing = {name for name in of_positions() if name.rstrip("_") not in tested | elsewhere}
    assert not missing, missing


@pytest.mark.parametrize("late", ["0", "1"])
def test_other_devices(late: str) -> None:
    """The same with the GPU policy and with deferred errors, on a CPU device."""
    chosen = "float32-1- or float32-100- or test_source or empty"
    passes({__file__: chosen}, every=3, optimized=False, OPENXPU_POLICY="gpu", OPENXPU_DEFERRED_ERRORS=late)
