"""Arguments whose sizes don't fit each other give an error or a result, and no kernel leaves its operands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHANGES = os.environ.get("OPENXPU_TEST_CHANGES", "24")
FAMILIES = {
    "norm": "nn_functional_group_norm nn_functional_layer_norm nn_functional_batch_norm nn_functional_rms_norm",
    "embedding": "nn_functional_embedding_bag nn_functional_embedding nn_functional_nll_loss",
    "pool": "nn_functional_max_pool2d nn_functional_avg_pool2d nn_functional_adaptive_avg_pool2d",
}


@pytest.mark.skipif(
    torch.xpu.get_device_properties().type != "cpu", reason="pages are guarded in a processor's memory"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_that_do_not_fit(family: str) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("misfits.py")),
            *FAMILIES[family].split(),
            "--changes",
            CHANGES,
        ],
        env=os.environ | {"PYTORCH_ENABLE_XPU_FALLBACK": "0"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1500:]
