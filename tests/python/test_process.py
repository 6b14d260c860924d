import pytest
from processes import SOURCE, run_python

ROOT = SOURCE.parent
NO_DEVICE = {"OPENXPU_DEVICE": "no such device"}


def test_import_makes_no_opencl_call():
    out = run_python(
        "print(any('libintelocl' in line or 'libOpenCL' in line for line in open('/proc/self/maps')))"
    )
    assert out.stdout.split() == ["False"]
    used = run_python(
        "torch.xpu.device_count(); print(any('libintelocl' in l or 'OpenCL' in l for l in open('/proc/self/maps')))"
    )
    assert used.stdout.split() == ["True"]


def test_import_is_cheap():
    # Calls of Python and C functions, which are the same on every machine; torch's own import makes 200 times as many.
    script = """
import sys
calls = 0

def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")

sys.setprofile(count)
openxpu._autoload()
sys.setprofile(None)
print(calls)
"""
    assert int(run_python(script, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout) <= 10000


def test_import_brings_nothing_else_in():
    script = """
import sys
before = set(sys.modules)
openxpu._autoload()
print(*(name for name in set(sys.modules) - before if name.partition(".")[0] != "openxpu"))
print(*(f"openxpu.{name}" in sys.modules for name in ("_aoti", "_fusion", "_graph_trees", "_sharding")))
"""
    out = run_python(script, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout
    assert out.splitlines() == ["", "False False False False"]


def test_without_a_device():
    out = run_python(
        "print(torch.xpu.is_available(), torch.xpu.device_count(), torch.accelerator.is_available())",
        env=NO_DEVICE,
    )
    assert out.stdout.split() == ["False", "0", "False"]
    assert out.stderr == ""
    failed = run_python("torch.ones(1, device='xpu')", env=NO_DEVICE, status=None)
    assert "No OpenCL device matches OPENXPU_DEVICE" in failed.stderr
    works = run_python("torch.manual_seed(1); print(torch.ones(2).sum().item())", env=NO_DEVICE)
    assert works.stdout.split() == ["2.0"]


def test_a_cuda_build_is_left_alone():
    out = run_python(
        """
import sys
torch.version.cuda = "13.0"
openxpu._autoload()
from triton.backends import backends  # imports every backend; torch.optim brings Triton in, too
weight = torch.ones(3, requires_grad=True)
weight.sum().backward()
torch.optim.AdamW([weight]).step()
print("openxpu._bridge" in sys.modules, backends["xpu"].driver.is_active(), torch.xpu.is_available())
torch.ones(1, device="xpu")
""",
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        status=None,
    )
    assert out.stdout.split() == ["False", "False", "False"]
    assert "openxpu run script.py" in out.stderr


def test_fork_after_first_use():
    out = run_python("""
import os, sys
torch.ones(1, device="xpu")
pid = os.fork()
if pid == 0:
    assert torch.xpu._is_in_bad_fork()
    try:
        torch.ones(1, device="xpu")
    except RuntimeError as error:
        sys.stdout.write(str(error)); sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
""")
    assert "Cannot re-initialize XPU in forked subprocess" in out.stdout
    assert "'spawn' start method" in out.stdout


def test_fork_before_first_use():
    out = run_python("""
from torch.multiprocessing import get_context

def work(model, x):
    torch.testing.assert_close(model.to("xpu")(x.to("xpu")).cpu(), model.cpu()(x))

model, x = torch.nn.Linear(3, 4), torch.rand(2, 3)
for _ in range(2):
    process = get_context("fork").Process(target=work, args=(model, x))
    process.start(); process.join()
    assert process.exitcode == 0
print(torch.xpu.is_initialized(), torch.xpu.device_count() > 0)
""")
    assert out.stdout.split() == ["False", "True"]


def test_exit_right_after_backward():
    # Autograd's thread drops the pass's Python objects after backward() has returned. On one processor it often
    # comes to that when Python is already being taken down: half of these processes aborted.
    script = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
x = torch.randn(4, 4, device="xpu", requires_grad=True)
y = (x @ x).relu().sum()
gradient = torch.ones_like(y)
with torch.autograd.set_multithreading_enabled(True):  # as on GPUs
    y.backward(gradient)
"""
    for _ in range(6):
        run_python(script)  # and the exit status is 0


def test_lazy_seeding():
    out = run_python("""
torch.xpu.manual_seed(11)
assert not torch.xpu.is_initialized()
a = torch.rand(3, device="xpu")
torch.xpu.manual_seed(11)
print(torch.equal(a, torch.rand(3, device="xpu")))
""")
    assert out.stdout.split() == ["True"]


def test_the_compiler_starts_without_pytorch(tmp_path):
    # As the installed command does: with the package's metadata on the path, and no `import torch` before.
    site = tmp_path / "site"
    run_python(ROOT / "tools/link_package.py", site)
    program = (
        "import sys; from openxpu.cli import main; status = main(sys.argv[1:]);"
        "print([name for name in ('torch', 'rich', 'numpy') if name in sys.modules], file=sys.stderr);"
        "sys.exit(status)"
    )
    module = ROOT / "tests/tile/ir/vadd.ttir"
    done = run_python(program, "compile", module, bare=True, env={"PYTHONPATH": f"{site}:{SOURCE}"})
    assert "__kernel" in done.stdout
    assert done.stderr.split() == ["[]"]


def test_importing_the_package_alone():
    for before, after in (("", "import torch"), ("import torch", "")):
        use = "print(openxpu.is_loaded(), torch.ones(2, device='xpu').sum().item())"
        script = f"{before}\nimport openxpu\n{after}\n{use}"
        assert run_python(script, bare=True).stdout.split() == ["True", "2.0"]
    assert run_python("import openxpu; print(openxpu.is_loaded())", bare=True).stdout.split() == ["True"]
    assert "Intel" in run_python("import openxpu; print(openxpu.no_device_hint())", bare=True).stdout


def test_what_is_loaded_late_can_be_named_early(tmp_path):
    # Files and pickles name torch.xpu before anything has used the device.
    file = tmp_path / "tensors.pt"
    run_python(f"""
import pickle
x = torch.arange(3.0, device="xpu")
torch.save([x, torch.nn.Parameter(x)], {str(file)!r})
names = [torch.xpu.Stream, torch.xpu.Event, torch.xpu.MemPool, torch.xpu.get_device_properties, torch.device("xpu")]
open({str(file)!r} + ".pickle", "wb").write(pickle.dumps(names))
""")
    out = run_python(f"""
import pickle
names = pickle.load(open({str(file)!r} + ".pickle", "rb"))
assert not torch.xpu.is_initialized()
assert names[:3] == [torch.xpu.Stream, torch.xpu.Event, torch.xpu.MemPool]
assert issubclass(names[0], torch.Stream) and names[0]().query()
print(*(x.device for x in torch.load({str(file)!r})), sum(torch.load({str(file)!r})).sum().item())
""")
    assert out.stdout.split() == ["xpu:0", "xpu:0", "6.0"]


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_command_line(command):
    out = run_python(f"import sys; from openxpu.cli import main; sys.exit(main(['{command}']))")
    assert "xpu:0" in out.stdout
    none = run_python(
        f"import sys; from openxpu.cli import main; sys.exit(main(['{command}']))", env=NO_DEVICE, status=None
    )
    assert none.returncode == 1
    assert "OPENXPU_DEVICE" in none.stdout


def test_command_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, openxpu, torch\nprint(torch.ones(2, device='xpu').sum().item(), sys.argv[1:])\n"
    )
    out = run_python(f"from openxpu.cli import main; main(['run', {str(script)!r}, '--flag', 'x'])")
    assert out.stdout.strip() == "2.0 ['--flag', 'x']"


def test_autoload_can_be_switched_off():
    out = run_python(
        "print(torch.xpu.is_available(), openxpu.is_loaded())", env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )
    assert out.stdout.split() == ["False", "False"]


def test_device_listed_twice():
    run_python(
        """
assert torch.xpu.device_count() == 2
a = torch.arange(6.0, device="xpu:1").view(2, 3)
assert torch.xpu.memory_allocated(0) == 0 < torch.xpu.memory_allocated(1)
b = a.to("xpu:0")
assert b.device.index == 0 and torch.equal((b @ b.t()).cpu(), a.cpu() @ a.cpu().t())
torch.xpu.set_device(1)
assert torch.empty(1, device="xpu").device.index == 1
try:
    torch.xpu.set_device(2)
except RuntimeError as error:
    assert "must be 0 to 1" in str(error)
else:
    raise AssertionError
""",
        env={"OPENXPU_DEVICE": "cpu,cpu"},
    )
    one = {"OPENXPU_DEVICE": "cpu,intel"}  # two words that name one device
    run_python("assert torch.xpu.device_count() == 1", env=one)
