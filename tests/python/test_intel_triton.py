"""What programs for Intel's Triton ask of it: its driver's attributes, its libdevice, the set-up of its tutorials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from comparing import assert_close
from processes import run_python

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice as generic  # noqa: E402
from triton.language.extra.intel import libdevice  # noqa: E402
from triton.runtime import driver  # noqa: E402


def test_the_target_has_what_intels_has() -> None:
    target = driver.active.get_current_target()
    assert target.backend == "xpu"
    assert isinstance(target.arch["arch"], str)
    assert target.arch["arch"] != "cri"
    capability = torch.xpu.get_device_capability()
    for name in (
        "name platform_name vendor version driver_version device_id gpu_eu_count gpu_subslice_count has_fp64 "
        "max_work_group_size max_num_sub_groups sub_group_sizes architecture "
        "has_subgroup_matrix_multiply_accumulate has_subgroup_matrix_multiply_accumulate_tensor_float32"
    ).split():
        assert target.arch[name] == capability[name]
    assert target.arch["has_2d_block_io"] == capability["has_subgroup_2d_block_io"]
    assert target.arch["has_bfloat16_conversion"] == capability["has_bfloat16_conversions"]
    json.dumps(target.arch)  # kernels' metadata hold it


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        (0x0500400400, "bmg"),
        (0x0500400000, "bmg"),  # another revision
        (0x0500800000, "bmg"),
        (0x0501000400, "lnl"),
        (0x030F000700, "pvc"),
        (0x030DC00800, "dg2"),
        (0x0311C00400, "mtl"),
        (0x0312800400, "arl_h"),
        (0x0780000400, "ptl_h"),
        (0x0300000000000000, "unknown"),
        (0x0100000000009000, "unknown"),
        (-(0x67 << 56), "unknown"),
    ],
)
def test_names_of_architectures(architecture: int, name: str) -> None:
    from openxpu.triton.driver import _architecture_name

    assert _architecture_name({"architecture": architecture}) == name


def test_the_utilities_have_what_intels_have() -> None:
    properties = driver.active.utils.get_device_properties(0)
    assert properties["sub_group_sizes"][-1] >= 1
    assert isinstance(properties["sub_group_sizes"], tuple)
    assert properties["max_work_group_size"] == torch.xpu.get_device_properties(0).max_work_group_size
    numbers = "max_shared_mem multiprocessor_count sm_clock_rate mem_clock_rate mem_bus_width".split()
    assert all(isinstance(properties[name], int) for name in numbers)
    assert properties["max_shared_mem"] > 0
    assert properties["multiprocessor_count"] > 0
    utilities = driver.active.utils
    assert utilities.device_count == torch.xpu.device_count()
    x = torch.ones(100, dtype=torch.uint8, device="xpu")
    utilities.memset(x.data_ptr() + 10, 7, 50)
    utilities.wait()
    assert x.tolist() == [1] * 10 + [7] * 50 + [1] * 40
    assert utilities.get_last_selected_build_flags() == ""
    assert utilities.get_bandwidth(0) is None


def tutorial_02() -> None:
    properties = driver.active.utils.get_device_properties(driver.active.get_active_torch_device().index)
    lanes, group = properties["sub_group_sizes"][-1], properties["max_work_group_size"]
    slices = [i * 2**10 for i in (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)]
    assert (
        min(group // lanes, properties["multiprocessor_count"], properties["max_shared_mem"], len(slices)) > 0
    )
    assert not (triton.runtime.driver.active.get_current_target().backend == "hip")


def tutorial_03() -> None:
    assert triton.runtime.driver.active.get_current_target().backend == "xpu"
    size = 256 if triton.runtime.driver.active.get_current_target().arch["arch"] == "cri" else 512
    assert size == 512


def tutorial_09() -> None:
    assert torch.xpu.get_device_properties().total_memory > 0
    assert torch.xpu.get_device_properties("xpu").gpu_eu_count > 0
    assert isinstance(torch.xpu.get_device_name(), str)
    assert hasattr(tl, "make_tensor_descriptor")


@pytest.mark.parametrize("setup", [tutorial_02, tutorial_03, tutorial_09])
def test_tutorials_start(setup: Any) -> None:
    setup()


@pytest.mark.parametrize(
    "imports",
    [
        "import openxpu.triton.compiler, triton",
        "import openxpu.triton.driver, triton",
        "import openxpu.triton, triton",
        "from openxpu.triton.compiler import XPUBackend\nimport triton",
        "import triton, openxpu.triton.compiler",
        "import triton.language.extra.intel.libdevice, triton",
        "import openxpu.triton.intel.libdevice, triton",
        "import torch, openxpu.triton.compiler, triton",
    ],
)
def test_any_order_of_imports(imports: str) -> None:
    done = run_python(
        f"{imports}\nfrom triton.backends import backends; print(backends['xpu'].compiler.__name__)",
        bare=True,
    )
    assert done.stdout.strip() == "XPUBackend"


def test_torch_alone_does_not_import_triton() -> None:
    assert run_python("import sys; print('triton' in sys.modules)").stdout.strip() == "False"


def test_a_module_of_intels_own_comes_first(tmp_path: Path) -> None:
    script = f"""
import triton.language.extra as extra
extra.__path__.append({str(tmp_path)!r})
from triton.language.extra.intel import libdevice
print(libdevice)
"""
    (tmp_path / "intel").mkdir()
    (tmp_path / "intel/__init__.py").write_text("libdevice = 'own'")
    assert run_python(script, bare=True).stdout.strip() == "own"


@triton.jit
def unary(x, y, n, f: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, f(tl.load(x + i, i < n, 1)), i < n)


UNARY = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "rint": torch.round,
    "abs": torch.abs,
    "expm1": torch.expm1,
    "sinh": torch.sinh,
    "atan": torch.atan,
    "lgamma": torch.lgamma,
    "cbrt": lambda x: x ** (1 / 3),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_libdevice(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(0.05, 4, 200).to(dtype)
    y = torch.empty(200, dtype=dtype, device="xpu")
    unary[(1,)](x.to("xpu"), y, 200, getattr(libdevice, name), 256)
    expected = UNARY[name](x.double())
    error = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert_close(y, expected, dtype=y.dtype, rtol=error, atol=error)


@triton.jit
def binary(x, y, z, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + i, i < n, 1), tl.load(y + i, i < n, 1)
    tl.store(z + i, libdevice.pow(a, b) + generic.atan2(a, b) + libdevice.isnan(a).to(tl.float32), i < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_functions_of_two(dtype: torch.dtype) -> None:
    x, y = (torch.rand(300) + 0.5).to(dtype), (torch.rand(300) * 2).to(dtype)
    z = torch.empty(300, dtype=dtype, device="xpu")
    binary[(2,)](x.to("xpu"), y.to("xpu"), z, 300, 256)
    expected = x.double() ** y.double() + torch.atan2(x.double(), y.double())
    assert_close(z, expected, dtype=z.dtype, rtol=3e-3, atol=3e-3)


def test_names_of_libdevice() -> None:
    names = """abs acos acosh add_rn asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz copysign cos cosh cospi
        div_rn erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fast_expf fast_logf fdim ffs finitef float_as_int
        floor fma fmod hypot ilogb isinf isnan j0 j1 ldexp lgamma llrint log log10 log1p log2 logb mul24
        mulhi nearbyint nextafter norm3d normcdf popc pow rcbrt rcp_rn remainder rhypot rint round rsqrt sad saturatef
        scalbn signbit sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn""".split()
    assert not [name for name in names if not tl.core.is_builtin(getattr(libdevice, name))]
    assert set(names) <= set(libdevice.__all__)


@triton.jit
def counts(y):
    tl.store(y, tl.extra.intel.num_warps())
    tl.store(y + 1, tl.extra.intel.num_threads())


def test_a_kernel_asks_for_its_size() -> None:
    y = torch.zeros(2, dtype=torch.int32, device="xpu")
    counts[(1,)](y, num_warps=2)
    assert y.tolist() == [2, 2 * driver.active.get_current_target().warp_size]


@triton.jit
def clock(y):
    tl.store(y, tl.extra.intel.globaltimer())


def test_what_there_is_not_says_so() -> None:
    with pytest.raises(Exception, match="globaltimer: OpenCL C has no such function"):
        clock[(1,)](torch.zeros(1, dtype=torch.int64, device="xpu"))
