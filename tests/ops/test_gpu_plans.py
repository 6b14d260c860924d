"""The GPU policy on the device at hand: the tests of families that work differently on CPUs.

Also devices without subgroups and fp16, on which OpenCL C rejects kernels that assign the type half.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from inner_run import needs_emulation, on_cpus, passes
from processes import run_python

HERE = Path(__file__).parent
# Test files by process: the tests of one dict share a process.
CHOSEN: list[dict[str, str]] = [
    {"test_lu.py": "", "test_cholesky.py": ""},
    {"test_rnn.py": "not float64", "test_softmax.py": "dtype2 or masked or extreme"},
    {"test_fft.py": ""},
    {"test_counting.py": "", "test_segment.py": "", "test_sort.py": "", "test_vision.py": "nms"},
    {
        "test_embedding.py": "not int32",
        "test_composed.py": "embedding_bag",
        "test_copy.py": "fill",
        "test_float8.py": "codes or floats or filled or large or layout or nansum or eq or where",
    },
]
PORTABLE = ("counting", "scatter")
EXTENSION = "cl_intel_required_subgroup_size"
# For CPU devices whose driver lets a kernel not choose its subgroup size: all but Intel's.
ANY_SIZE: dict[str | Path, str] = {
    HERE / "test_softmax.py": "masked or extreme",
    HERE / "test_norm.py": "test_layer_norm or test_rms_norm",
    HERE / "test_reduce.py": "test_backward or nothing",
    HERE / "test_gemm.py": "few_rows",
    HERE / "test_scatter.py": "index_add and float32",
    HERE.parent / "tile" / "test_triton.py": "softmax or reductions_along or scans or sort",
}


@pytest.mark.skipif(os.environ.get("OPENXPU_POLICY") == "gpu", reason="this is the inner run")
@pytest.mark.parametrize("files", CHOSEN, ids="-".join)
def test_as_gpus_do(files: dict[str, str]) -> None:
    passes(
        {HERE / name: keyword for name, keyword in files.items()},
        every=3,
        optimized="test_rnn.py" not in files,
        OPENXPU_POLICY="gpu",
    )


def test_transforms_by_kernels_of_their_length() -> None:
    chosen = "radices or several or graphs or 2058 or (long_rows and (65536 or 1021))"
    passes({HERE / "test_fft.py": chosen}, every=2, OPENXPU_POLICY="gpu", OPENXPU_TUNING="fft_length=1")


@on_cpus
@needs_emulation
@pytest.mark.skipif(os.environ.get("OPENXPU_MATRIX") == "ptx", reason="this is the inner run")
def test_as_units_do() -> None:
    """With emulated tensor cores."""
    layers = [
        "change or pixels or (shapes and 17)",
        "units_are_taken or forms_are_kept or (convolution_and_another and relu and 6 and int8)",
    ]
    passes(
        {
            HERE / "test_quantized_layers.py": " or ".join(layers),
            HERE / "test_gemm.py": "int8_products or tf32_is_allowed",
        },
        OPENXPU_MATRIX="ptx",
        OPENXPU_HOST_PROVIDER="0",
    )


@pytest.mark.skipif(os.environ.get("OPENXPU_MATRIX") == "fma", reason="this is the inner run")
def test_transforms_of_convolutions() -> None:
    passes(
        {HERE / "test_conv.py": "3_by_3 or many_pixels"},
        OPENXPU_MATRIX="fma",
        OPENXPU_HOST_PROVIDER="0",
        OPENXPU_TUNING=f"conv_winograd={1 << 62}",
    )


@pytest.mark.skipif(os.environ.get("OPENXPU_VARIANT") == "ref", reason="this is the inner run")
def test_as_devices_without_fp16_do() -> None:
    passes(
        {HERE / f"test_{name}.py": "float16 and not bfloat16" for name in PORTABLE},
        OPENXPU_POLICY="gpu",
        OPENXPU_VARIANT="ref",
    )


def test_the_hidden_extension_is_missing() -> None:
    program = "import torch; print(torch.xpu.get_device_properties().sub_group_sizes)"
    assert run_python(program, env={"OPENXPU_HIDE_EXTENSIONS": EXTENSION}).stdout.strip() == "[]"


@pytest.mark.skipif("OPENXPU_HIDE_EXTENSIONS" in os.environ, reason="this is the inner run")
def test_as_processors_without_subgroup_sizes_do() -> None:
    passes(ANY_SIZE, every=2, OPENXPU_HIDE_EXTENSIONS=EXTENSION)
