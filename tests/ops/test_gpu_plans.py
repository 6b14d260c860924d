"""What GPUs do, on the device at hand: the tests of the families that do otherwise on processors.

And what devices without subgroups and fp16 do: there OpenCL C refuses kernels that assign its type half.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .inner_run import passes

HERE = Path(__file__).parent
CHOSEN = {
    "test_softmax.py": "dtype2 or masked or extreme",
    "test_embedding.py": "not int32",
    "test_composed.py": "embedding_bag",
    "test_copy.py": "fill",
    "test_sort.py": "",
    "test_counting.py": "",
}
PORTABLE = ("counting", "scatter")


@pytest.mark.skipif(os.environ.get("OPENXPU_PLANS") == "gpu", reason="this is the inner run")
@pytest.mark.parametrize("file", CHOSEN)
def test_as_gpus_do(file: str) -> None:
    passes([str(HERE / file)], CHOSEN[file], OPENXPU_PLANS="gpu")


@pytest.mark.skipif(os.environ.get("OPENXPU_TIER") == "ref", reason="this is the inner run")
def test_as_devices_without_fp16_do() -> None:
    passes(
        [str(HERE / f"test_{name}.py") for name in PORTABLE],
        "float16 and not bfloat16",
        OPENXPU_PLANS="gpu",
        OPENXPU_TIER="ref",
    )
