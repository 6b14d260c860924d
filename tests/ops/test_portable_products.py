"""The portable kernels of products, convolutions and attention, which CPU devices don't use by default.

One case of each kind of kernel; devices without a host provider run the whole suites with them.
"""

from __future__ import annotations

import os
from pathlib import Path

from inner_run import passes

HERE = Path(__file__).parent
CHOSEN = {
    "gemm": [
        "mm_layouts",
        "long_sums_round_less_on_cpus",
        "addmm_scalars_and_broadcast",
        "addmm_beta_zero_ignores_nan",
        "addmm_activation",
        "bmm_strides_not_contiguous",
        "conjugates",
        "vectors",
        "linear_gradients",
        "out_dtype",
        "int8_products",
        "empty",
    ],
    "conv": ["float32", "channels_last", "dtypes", "no_bias", "errors_are_pytorchs"],
    "fused": [
        "linear",
        "linear_of_all_shapes",
        "linear_binary",
        "linear_of_views",
        "convolution",
        "convolution_layouts",
        "convolution_binary",
        "what_is_combined_lies_anyhow",
        "wrong_convolutions",
    ],
    "attention": [
        "plain_and_causal",
        "shapes",
        "other_number_of_keys",
        "scale",
        "grouped_queries",
        "dropout",
    ],
}
LEFT_OUT = "float64 or bfloat16 or complex128 or uint8 or int16 or int64 or bool"
# Each epilogue of a convolution is a separate kernel; OPENXPU_TEST_ALL=1 runs all of them.
ENDINGS = "convolution_binary and not (relu-add or tanh-mul or None-div)"


def test_without_host_provider() -> None:
    left_out = LEFT_OUT if os.environ.get("OPENXPU_TEST_ALL") == "1" else f"{LEFT_OUT} or {ENDINGS}"
    tests: dict[str | Path, str] = {
        f"{HERE}/test_{family}.py::test_{name}": f"not ({left_out})"
        for family, names in CHOSEN.items()
        for name in names
    }
    others: dict[str | Path, str] = {
        HERE / "test_random_problems.py": "",
        HERE / "test_resample.py": "filters",
    }
    passes(tests | others, every=3, optimized=False, OPENXPU_HOST_PROVIDER="0", OPENXPU_TEST_PROBLEMS="3")
