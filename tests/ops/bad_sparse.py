"""Sparse tensors with out-of-range indices, made without PyTorch's checks: errors, and no kernel leaves its operands.

In a process of its own, with an allocator that puts the end of each block beside a page that nobody may touch
(misfits.py), makes tensors of each layout with indices wrong in one way, and applies every operation to each. Those of
REFUSING must raise, at the latest when the device is waited for; of the others each may give a result. Prints what it
does, so that the last line names a call that ended the process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "python"), str(Path(__file__).parent)]

import misfits
import openxpu  # noqa: F401
import torch
from torch import Tensor

Operation = Callable[[Tensor], object]

N, FAR = 6, 2**40
COMPRESSED = {
    "beyond": [0, 1, 99, 4, 4, 4, 4],
    "far": [0, 1, FAR, 4, 4, 4, 4],
    "negative": [0, -5, 2, 3, 4, 4, 4],
    "first": [3, 3, 3, 3, 4, 4, 4],
    "first negative": [-3, 1, 2, 3, 4, 4, 4],
    "last": [0, 1, 2, 3, 4, 4, 9],
    "last less": [0, 0, 0, 0, 0, 0, 2],
    "falling": [0, 4, 0, 4, 0, 4, 4],
    "all far": [FAR] * 7,
    "all far below": [-FAR] * 7,
}
PLAIN = {"size": [0, N, 1, 2], "negative": [0, -1, 1, 2], "far": [0, FAR, 1, 2], "far below": [-FAR, 0, 1, 2]}
COO = {
    "row": [[0, N], [0, 0]],
    "column": [[0, 0], [0, N]],
    "negative row": [[0, -1], [0, 0]],
    "negative column": [[0, 0], [0, -1]],
    "far row": [[0, FAR], [0, 0]],
    "far column": [[0, 0], [-FAR, 0]],
}
ROWS = (torch.sparse_csr, torch.sparse_bsr)
BLOCKS = (torch.sparse_bsr, torch.sparse_bsc)


def ones(*size: int) -> Tensor:
    return torch.ones(size, device="xpu")


def good() -> Tensor:
    return torch.eye(N).to_sparse_csr().to("xpu")


def narrow(x: Tensor) -> Tensor:
    """The same with 32 bit indices."""
    starts, among = (
        (x.crow_indices(), x.col_indices()) if x.layout in ROWS else (x.ccol_indices(), x.row_indices())
    )
    return torch.sparse_compressed_tensor(
        starts.int(), among.int(), x.values(), x.shape, layout=x.layout, check_invariants=False
    )


# Of all layouts.
PRODUCTS: dict[str, Operation] = {
    "product": lambda a: a @ ones(N, 3),
    "wide product": lambda a: a @ ones(N, 40),
    "product with a vector": lambda a: a @ ones(N),
    "product from the right": lambda a: ones(3, N) @ a,
    "addmm": lambda a: torch.addmm(ones(N, 3), a, ones(N, 3)),
    "addmv": lambda a: torch.addmv(ones(N), a, ones(N)),
    "linear": lambda a: torch.nn.functional.linear(ones(3, N), a),
    "transposed product": lambda a: a.t() @ ones(N, 3),
    "to_dense": lambda a: a.to_dense(),
    "dense sum": lambda a: ones(N, N) + a,
}
OF_COMPRESSED: dict[str, Operation] = PRODUCTS | {
    "to_sparse": lambda a: a.to_sparse(),
    "transposed to_dense": lambda a: a.t().to_dense(),
}
OF_CSR: dict[str, Operation] = {
    "sum of rows": lambda a: a.sum(1, keepdim=True),
    "sum of columns": lambda a: a.sum(0, keepdim=True),
    "sum of both": lambda a: a.sum((0, 1), keepdim=True),
    "prod": lambda a: torch._sparse_csr_prod(a, 0, keepdim=True),
    "sampled_addmm": lambda a: torch.sparse.sampled_addmm(a, ones(N, 4), ones(4, N)),
    "to_sparse_csc": lambda a: a.to_sparse_csc(),
    "to_sparse_bsr": lambda a: a.to_sparse_bsr((2, 2)),
    "to_sparse_bsc": lambda a: a.to_sparse_bsc((2, 2)),
    "sparse product": lambda a: a @ good(),
    "sparse product from the right": lambda a: good() @ a,
    "sum with another": lambda a: a + good(),
    "sum with itself": lambda a: a + a,
    "triangular_solve": lambda a: torch.triangular_solve(ones(N, 1), a),
    "softmax": lambda a: torch.sparse.softmax(a.to_sparse(), 1),
    "gradient": lambda a: (a @ ones(N, 3).requires_grad_()).sum().backward(),
    "sparse_mask": lambda a: ones(N, N).sparse_mask(a),
}
OF_COO: dict[str, Operation] = PRODUCTS | {
    "bmm": lambda a: torch.bmm(a.unsqueeze(0), ones(1, N, 3)),
    "coalesce": lambda a: a.clone()._coalesced_(False).coalesce(),
    "softmax": lambda a: torch.sparse.softmax(a, 1),
    "softmax of rows": lambda a: torch.sparse.softmax(a, 0),
    "coalesced sum": lambda a: (a + good().to_sparse()).coalesce(),
    "product with another": lambda a: a * good().to_sparse(),
    "sparse_mask": lambda a: a.sparse_mask(good().to_sparse()),
    "sparse_mask by it": lambda a: good().to_sparse().sparse_mask(a),
}
ANY: dict[str, Operation] = {
    "clone": lambda a: a.clone(),
    "abs": lambda a: a.abs(),
    "scaled": lambda a: a * 2,
    "product by element": lambda a: a * a,
    "dense product by element": lambda a: a * ones(N, N),
    "sum": lambda a: a.sum(),
    "row": lambda a: a[1],
    "column": lambda a: a.select(1, 1),
    "dense row": lambda a: a[1].to_dense(),
    "element": lambda a: a[1, 1],
    "cpu": lambda a: a.cpu(),
    "print": str,
    "csr": lambda a: a.to_sparse_csr() @ ones(N, 3),
    "csc": lambda a: a.to_sparse_csc() @ ones(N, 3),
    "bsr": lambda a: a.to_sparse_bsr((2, 2)) @ ones(N, 3),
    "bsc": lambda a: a.to_sparse_bsc((2, 2)) @ ones(N, 3),
    "index_select": lambda a: a.index_select(0, torch.tensor([1], device="xpu")),
    "sparse sum": lambda a: torch.sparse.sum(a, 0).to_dense(),
    "hspmm": lambda a: torch.hspmm(a, ones(N, 3)).to_dense(),
    "sspaddmm": lambda a: torch.sspaddmm(a, a, ones(N, N)).to_dense(),
    "cat": lambda a: torch.cat([a, a]).to_dense(),
    "broadcast": lambda a: torch._sparse_broadcast_to(a, (2, N, N)).to_dense(),
    "narrow indices": lambda a: narrow(a) @ ones(N, 3),
    "narrow indices, dense": lambda a: narrow(a).to_dense(),
}


def raises(make: Callable[[], Tensor], operation: Operation) -> bool:
    try:
        operation(make())
        torch.xpu.synchronize()
    except (IndexError, RuntimeError, ValueError, AttributeError):
        torch.xpu.synchronize()
        return True
    return False


def compressed(layout: torch.layout, starts: list[int], among: list[int]) -> Tensor:
    values = ones(len(among), 2, 2) if layout in BLOCKS else ones(len(among))
    rows, columns = (torch.tensor(x, device="xpu") for x in (starts, among))
    return torch.sparse_compressed_tensor(
        rows, columns, values, (N, N), layout=layout, check_invariants=False
    )


def coo(indices: list[list[int]], coalesced: bool) -> Tensor:
    x = torch.sparse_coo_tensor(torch.tensor(indices, device="xpu"), ones(2), (N, N), check_invariants=False)
    return x._coalesced_(True) if coalesced else x


def tensors() -> list[tuple[str, Callable[[], Tensor], dict[str, Operation]]]:
    """Each wrong tensor: its name, what makes it, and what must refuse it."""
    found: list[tuple[str, Callable[[], Tensor], dict[str, Operation]]] = []
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        refusing = OF_COMPRESSED | (OF_CSR if layout == torch.sparse_csr else {})
        blocks = layout in BLOCKS
        wrong = [
            (f"compressed {name}", [*starts[:3], starts[-1]] if blocks else starts, [0, 1, 1, 2])
            for name, starts in COMPRESSED.items()
        ]
        starts = [0, 1, 2, 4] if blocks else [0, 1, 2, 3, 4, 4, 4]
        wrong += [(f"plain {name}", starts, among) for name, among in PLAIN.items()]
        for name, starts, among in wrong:
            found.append((f"{layout}, {name}", lambda x=(layout, starts, among): compressed(*x), refusing))
    for name, indices in COO.items():
        for is_coalesced in (False, True):
            found.append((f"COO {is_coalesced}, {name}", lambda x=(indices, is_coalesced): coo(*x), OF_COO))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.xpu.memory.change_current_allocator(
            torch.xpu.memory.XPUPluggableAllocator(misfits.compiled_allocator(folder), "take", "give")
        )
        failed = 0
        for name, make, refusing in tensors():
            for called, operation in (refusing | ANY).items():
                print(f"{name}: {called}", flush=True)
                if not raises(make, operation) and called in refusing:
                    print("NO ERROR", flush=True)
                    failed += 1
    sys.stdout.flush()
    os._exit(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
