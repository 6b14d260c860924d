"""What GPUs do, on the device at hand: the tests of the families that do otherwise on processors."""

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


@pytest.mark.skipif(os.environ.get("OPENXPU_PLANS") == "gpu", reason="this is the inner run")
@pytest.mark.parametrize("file", CHOSEN)
def test_as_gpus_do(file: str) -> None:
    passes([str(HERE / file)], CHOSEN[file], OPENXPU_PLANS="gpu")
