import pytest
import torch
from openxpu import _bridge
from processes import run_python

# These tests hand the fallback operators of their own, so that they don't depend on what has a kernel.
library = torch.library.Library("torchvision", "FRAGMENT")
library.define("openxpu_pair(Tensor a, Tensor[] more) -> (Tensor, Tensor[])")
library.define("openxpu_add_(Tensor(a!) self, float value) -> Tensor(a!)")
library.define("openxpu_out(Tensor a, *, Tensor(a!) out) -> Tensor(a!)")
library.define("openxpu_view(Tensor(a) a) -> Tensor(a)")
library.define("openxpu_random(Tensor a, *, Generator? generator=None) -> Tensor")
library.impl("openxpu_pair", lambda a, more: (a + 1, [m * 2 for m in more]), "CPU")
library.impl("openxpu_add_", lambda a, value: a.add_(value), "CPU")
library.impl("openxpu_out", lambda a, out: torch.mul(a, 3, out=out), "CPU")
library.impl("openxpu_view", lambda a: a.t(), "CPU")
library.impl("openxpu_random", lambda a, generator: torch.rand(a.shape, generator=generator), "CPU")
ops = torch.ops.torchvision

pytestmark = pytest.mark.filterwarnings("ignore:The operator 'torchvision")


def test_results_come_back():
    a, b = torch.arange(3.0, device="xpu"), torch.ones(2, device="xpu")
    first, rest = ops.openxpu_pair(a, [a, b])
    assert first.device == rest[0].device == a.device
    assert first.tolist() == [1, 2, 3]
    assert [t.tolist() for t in rest] == [[0, 2, 4], [2, 2]]


def test_writes_arrive():
    a = torch.zeros(2, 3, device="xpu")
    assert ops.openxpu_add_(a.t(), 2.0).data_ptr() == a.data_ptr()
    assert a.tolist() == [[2.0] * 3] * 2


def test_out_is_resized():
    out = torch.empty(0, device="xpu")
    result = ops.openxpu_out(torch.ones(2, 3, device="xpu"), out=out)
    assert result is out or result.data_ptr() == out.data_ptr()
    assert out.tolist() == [[3.0] * 3] * 2


def test_tensors_on_other_devices_are_refused():
    here, there = torch.ones(2, device="xpu"), torch.ones(2)
    for a, out in ((here, there), (there, here)):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            ops.openxpu_out(a, out=out)
    with pytest.raises(RuntimeError, match="got more is on cpu"):
        ops.openxpu_pair(here, [here, there])
    assert ops.openxpu_pair(here, [torch.tensor(2.0)])[1][0].item() == 4  # a number


def test_strides_of_a_written_tensor_stay():
    base = torch.zeros(4, 6, device="xpu")
    ops.openxpu_out(torch.ones(2, 3, device="xpu"), out=base[::2, ::2])
    assert base.nonzero().tolist() == [[i, j] for i in (0, 2) for j in (0, 2, 4)]


def test_views_stay_views():
    a = torch.zeros(2, 3, device="xpu")
    view = ops.openxpu_view(a)
    assert view.data_ptr() == a.data_ptr() and view.shape == (3, 2)
    view[0, 1] = 5
    assert a[1, 0].item() == 5


def test_generators():
    a = torch.zeros(10, device="xpu")
    torch.xpu.manual_seed(1)
    first, second = ops.openxpu_random(a), ops.openxpu_random(a)
    assert not torch.equal(first, second)
    torch.xpu.manual_seed(1)
    assert torch.equal(ops.openxpu_random(a), first)
    generator = torch.Generator("xpu").manual_seed(4)
    third = ops.openxpu_random(a, generator=generator)
    generator.manual_seed(4)
    assert torch.equal(ops.openxpu_random(a, generator=generator), third)


def test_calls_are_counted():
    _bridge.fallback_counts(True)
    a = torch.zeros(2, 2, device="xpu")
    ops.openxpu_view(a), ops.openxpu_view(a)
    assert _bridge.fallback_counts()["torchvision::openxpu_view"] == 2


def test_other_namespaces_are_refused():
    mine = torch.library.Library("openxpu_test", "DEF")
    mine.define("twice(Tensor a) -> Tensor")
    mine.impl("twice", lambda a: a * 2, "CPU")
    with pytest.raises(NotImplementedError, match="openxpu_test::twice"):
        torch.ops.openxpu_test.twice(torch.ones(2, device="xpu"))


SCRIPT = """
import warnings
warnings.simplefilter("always")
x = torch.ones(4).to("xpu")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        x * x
from openxpu import _bridge
print(len([w for w in seen if "runs on the CPU" in str(w.message)]), sum(_bridge.fallback_counts().values()))
"""


def test_one_warning_an_operator(capfd):
    library.define("openxpu_once(Tensor a) -> Tensor")
    library.impl("openxpu_once", lambda a: a + 1, "CPU")
    for _ in range(3):
        ops.openxpu_once(torch.ones(2, device="xpu"))
    # PyTorch makes its C++ warnings Python's in torch.mul and the like; those of torch.ops go to stderr.
    assert capfd.readouterr().err.count("The operator 'torchvision::openxpu_once' has no kernel for xpu") == 1


def test_forced_fallback():
    assert run_python(SCRIPT).stdout.split() == ["0", "0"]
    forced = run_python(SCRIPT, env={"PYTORCH_XPU_FALLBACK_OP": "mul.Tensor"})
    assert forced.stdout.split() == ["1", "3"]
    debug = run_python(
        SCRIPT, env={"PYTORCH_XPU_FALLBACK_OP": "mul.Tensor", "PYTORCH_DEBUG_XPU_FALLBACK": "1"}
    )
    assert debug.stdout.split() == ["3", "3"]


def test_fallback_switched_off():
    script = "torch.ops.aten.mul.Tensor(torch.ones(2).to('xpu'), 2)"
    off = run_python(
        script, env={"PYTORCH_XPU_FALLBACK_OP": "mul.Tensor", "PYTORCH_ENABLE_XPU_FALLBACK": "0"}, status=None
    )
    assert off.returncode != 0
    assert "NotImplementedError: The operator 'aten::mul.Tensor' has no kernel for xpu" in off.stderr
