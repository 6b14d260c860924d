"""tools/run_suite.py, on a file of tests written for CUDA."""

import json
import re
import zlib
from pathlib import Path

import pytest
from processes import run_python

TOOL = Path(__file__).resolve().parents[2] / "tools" / "run_suite.py"
SUITE = """
import os
import torch
from torch.testing._internal.common_cuda import device_of_old
from torch.testing._internal.common_device_type import (
    dtypes, dtypesIfCUDA, instantiate_device_type_tests, onlyCPU, onlyCUDA)
from torch.testing._internal.common_utils import TestCase

class TestFew(TestCase):
    @dtypes(torch.double)
    @dtypesIfCUDA(torch.float, torch.half)
    def test_sum(self, device, dtype):
        self.assertEqual(torch.ones(3, device=device, dtype=dtype).sum().item(), 3)
    @onlyCUDA
    def test_for_one(self, device):
        self.assertTrue(torch.ones(3).cuda().is_cuda and torch.cuda.is_available())
    @onlyCPU
    def test_for_the_other(self, device):
        pass
    def test_differs(self, device):
        self.assertEqual(torch.ones(3, device=device).device.type, "cpu")
    def test_asks_for_cudas_own(self, device):
        self.assertTrue(device == "cpu" or torch.cuda.FloatTensor is not None)
    def test_ends(self, device):
        if "cuda" in device:
            os._exit(3)
    def test_nothing(self, device):
        self.assertEqual(device_of_old, "cuda" if device == "cpu" else torch.device(device).type)

instantiate_device_type_tests(TestFew, globals())
"""


@pytest.mark.extended
def test_a_file_for_cuda_runs_on_xpu_beside_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "test_few.py").write_text(SUITE)
    machinery = tmp_path / "machinery"  # of an older PyTorch, with a name that ours lacks
    machinery.mkdir()
    (machinery / "common_cuda.py").write_text('device_of_old = "cuda"\n')
    command = [TOOL, "--out", str(tmp_path / "out"), str(tmp_path)]
    command += ["--machinery", str(machinery)]
    done = run_python(*command, status=1)
    row = next(line for line in done.stdout.splitlines() if line.startswith("| `test_few.py`"))
    # ran, without memory of the device; the CPU passes, of these; beyond the CPU's
    assert re.findall(r"\d+\.?\d*", row) == ["5", "1", "2", "0", "0.0", "3", "3", "1"], done.stdout
    failed = re.findall(r"^- \S+::(\w+): ([\w ]+):", done.stdout, re.MULTILINE)
    assert failed == [
        ("test_differs_xpu", "failed"),
        ("test_ends_xpu", "crashed"),
        ("test_asks_for_cudas_own_xpu", "not counted"),
    ]
    # nothing is left to do
    again = run_python(*command, "--report", timeout=60, status=None)
    assert again.stdout == done.stdout


RANKS = """
import torch
import torch.distributed as dist
from torch.testing._internal.common_cuda import TEST_CUDA
from torch.testing._internal.common_distributed import MultiProcessTestCase, requires_nccl, skip_if_lt_x_gpu

class TestRanks(MultiProcessTestCase):
    world_size = 2
    def setUp(self):
        super().setUp()
        self._spawn_processes()
    def join(self):
        assert TEST_CUDA and dist.is_nccl_available()
        store = dist.FileStore(self.file_name, 2)
        dist.init_process_group("nccl", store=store, rank=self.rank, world_size=2)
        torch.cuda.set_device(self.rank)
    @requires_nccl()
    @skip_if_lt_x_gpu(2)
    def test_sum(self):
        self.join()
        x = torch.full((3,), float(self.rank)).cuda()
        dist.all_reduce(x)
        self.assertEqual(x.tolist(), [1.0] * 3)
        self.assertEqual(x.device, torch.device("cuda", self.rank))
    @skip_if_lt_x_gpu(2)
    def test_fails(self):
        self.join()
        assert self.rank == 0, "rank 1"
    @skip_if_lt_x_gpu(3)
    def test_of_three(self):
        pass
"""


@pytest.mark.extended
def test_ranks_of_a_file_for_cuda_are_processes_on_xpu(tmp_path: Path) -> None:
    (tmp_path / "test_ranks.py").write_text(RANKS)
    command = [TOOL, "--out", str(tmp_path / "out"), str(tmp_path), "--beside", "none"]
    command += ["--rounds", "2"]
    done = run_python(*command, env={"OPENXPU_DEVICE": "cpu,cpu", "GLOO_SOCKET_IFNAME": "lo"}, status=None)
    row = next(line for line in done.stdout.splitlines() if line.startswith("| `test_ranks.py`"))
    assert re.findall(r"\d+\.?\d*", row) == ["4", "0", "0", "0", "4", "2", "0"], done.stdout
    failed = re.findall(r"^- \S+::(\w+(?: \(\d\))?): ", done.stdout, re.MULTILINE)
    assert failed == ["test_fails", "test_fails (2)"]
    assert "rank 1" in (tmp_path / "out" / "xpu" / "test_ranks.py.jsonl").read_text()


LIBRARY = """
import pytest
import torch
import helper

device = str(torch.accelerator.current_accelerator() or "cpu")

@pytest.mark.parametrize("device", [device])
def test_doubles(device, one):
    assert helper.double(one.to(device)).tolist() == [2.0, 2.0]

@pytest.mark.parametrize("device", [device])
def test_only_on_the_cpu(device, one):
    assert one.to(device).device.type == "cpu"

def test_nowhere(one):
    assert one.to(device).sum() == 3

def test_wants_a_model():
    pytest.skip("needs model 17")
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 4})], key=[])
@triton.jit
def size_of_block(out, BLOCK: tl.constexpr):
    tl.store(out, BLOCK)

def test_first_configuration():
    out = torch.zeros(1, dtype=torch.int32, device="xpu")
    size_of_block[(1,)](out)
    assert out.item() == 8 and len(size_of_block.configs) == 1
"""


@pytest.mark.extended
def test_a_library_that_finds_its_device_runs_as_it_is(tmp_path: Path) -> None:
    suite = tmp_path / "library"
    (suite / "tests").mkdir(parents=True)
    (suite / "helper.py").write_text("def double(x):\n    return x + x\n")
    fixture = "import pytest\nimport torch\n\n@pytest.fixture\ndef one():\n    return torch.ones(2)\n"
    (suite / "tests" / "conftest.py").write_text(fixture)
    (suite / "tests" / "test_library.py").write_text(LIBRARY)
    (suite / "tests" / "test_kernel.py").write_text(KERNEL)
    (suite / "tests" / "test_broken.py").write_text("import no_such_package\n")
    command = [TOOL, "--as-is", "--out", str(tmp_path / "out"), str(suite)]
    command += ["--together", "--untuned", "--spread", "--skips", "--few-beside"]
    done = run_python(*command, status=1)
    row = next(line for line in done.stdout.splitlines() if line.startswith("| `library`"))
    # ran, without memory of the device; the CPU passes, of these; beyond the CPU's
    assert re.findall(r"\d+\.?\d*", row) == ["5", "0", "3", "2", "66.7", "0", "0", "0"], done.stdout
    failed = re.findall(r"^- \S+::(\S+): failed:", done.stdout, re.MULTILINE)
    assert failed == ["test_only_on_the_cpu[xpu]"], done.stdout
    assert "Skipped on xpu:\n- 1: Skipped: needs model N\n" in done.stdout
    log = (tmp_path / "out" / "xpu" / "library.jsonl").read_text().splitlines()
    order = [entry["test"] for entry in map(json.loads, log) if "::import" not in entry["test"]]
    assert order == sorted(order, key=lambda name: zlib.crc32(name.encode()))
    beside = (tmp_path / "out" / "cpu" / "library.jsonl").read_text()
    assert "test_nowhere" in beside and "test_doubles" not in beside  # only what failed on xpu
