"""Output for users: examples and commands print no warnings or debug output, in lines of at most 80 columns."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from pathlib import Path

import pytest
import torch
from processes import Finished, run_python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
sys.path.insert(0, str(EXAMPLES))

# The examples' own main functions, with less work.
SMALLER = {
    "main_job": """
from models import Decoder
digits = example.digits
example.sentences = lambda limit: [f"This is sentence number {i}." for i in range(33)]
example.digits = lambda: tuple(part[:64] for part in digits())
example.Decoder = lambda **sizes: Decoder(**{**sizes, "width": 32, "depth": 1, "heads": 2})
""",
    "compiled": """
from models import Decoder
example.MODELS = {"GPT-2 decoding": example.decoding}
example.Decoder = lambda *sizes: Decoder(64, 128, 32, 1, 2)
""",
    "low_precision": """
from dataclasses import replace
kinds = example.kinds()
example.sentences = lambda limit: [f"This is sentence number {i}." for i in range(4)]
for name, kind in kinds.items():
    kinds[name] = replace(kind, on_cpu=name == "fp32", cosine=0.9)
example.kinds = lambda: kinds
""",
    # with a constant and a tree of arguments, of which exporting used to warn
    "packaged": """
from random import Random
from string import ascii_letters
from types import SimpleNamespace
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.scale = torch.nn.Embedding(128, 384), torch.linspace(-1, 1, 384)
    def forward(self, input_ids, attention_mask):
        hidden = self.words(input_ids) * self.scale + torch.tensor([1.0, -1.0]).repeat(192)
        return SimpleNamespace(last_hidden_state=hidden)
class Encoder:
    def __init__(self, device):
        self.model = Model()
    def tokenizer(self, texts, **options):
        ids = torch.tensor([[ord(c) % 128 for c in text[-16:].rjust(16)] for text in texts])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
example.Encoder = Encoder
example.sentences = lambda limit: ["".join(Random(i).choices(ascii_letters, k=16)) for i in range(64)]
""",
    "distributed": "example.STEPS = 2",
}
CHARTS = {"main_job": "the seconds of each job", "compiled": "the milliseconds of a call"}


def run(program: str | Path, *arguments: str, folder: Path, status: int = 0, **environment: str) -> Finished:
    """Run a program in a folder, with its output formatted for a terminal of 80 columns."""
    # one thread: a team would only wait for its turn beside other tests
    variables = {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": None, "TORCH_LOGS": None}
    return run_python(
        program, *arguments, cwd=folder, env=variables | environment, timeout=600, status=status
    )


def check(done: Finished) -> None:
    """Fail if a program printed a warning, a line that is too wide or a truncated word."""
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not re.search(r"\S… *│|arning", done.stdout)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "compiled" else pytest.mark.extended) for name in SMALLER],
)
def test_examples(name: str, tmp_path: Path) -> None:
    if not all(map(importlib.util.find_spec, ("triton", "transformers", "sklearn", "torchao"))):
        pytest.skip("needs Triton, transformers, scikit-learn and torchao")
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import main_job
from pathlib import Path
main_job.BUILD = Path("build")
import {name} as example
{SMALLER[name]}
done = example.main()
if {name!r} == "main_job" and done == 1:
    done = 0  # nothing is learned from 64 digits
sys.exit(done)
""")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, str(program)] if name == "distributed" else [program]
    offline = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # workers are slow to start
    }
    done = run(*command, folder=tmp_path, **offline)
    check(done)
    text = " ".join(done.stdout.split())
    if name in CHARTS:
        assert f"chart: build/{name}.svg: {CHARTS[name]}" in text
        assert (tmp_path / "build" / f"{name}.svg").is_file()


def test_what_users_need_is_not_left_out(caplog: pytest.LogCaptureFixture) -> None:
    import quiet

    quiet.enter()
    text = "Failed to load /x/torchao/{}: Could not load this library: /x/torchao/{}"
    for library, is_shown in {
        "_C.abi3.so": True,
        "_C_cutlass_90a.abi3.so": False,
        "_C_mxfp8.cpython-310-x86_64-linux-gnu.so": False,
    }.items():
        caplog.clear()
        logging.getLogger("torchao").warning(text.format(library, library))
        assert bool(caplog.records) == is_shown, library
    tree = logging.getLogger("torch.utils._pytree")
    tree.addHandler(caplog.handler)  # PyTorch's loggers don't hand on what they log
    caplog.clear()
    tree.warning("%s is an Enum subclass and is now natively supported by torch.compile as …", "<enum 'K'>")
    assert not caplog.records
    tree.warning("something else")
    assert caplog.records
    tree.removeHandler(caplog.handler)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with model.pt2; its program has a constant and takes a dictionary."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.linspace(-1, 1, 8)

        def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"sum": x * self.scale + more["a"] * torch.tensor([1.0, 2.0]).repeat(4)}

    folder = tmp_path_factory.mktemp("exported")
    arguments = (torch.ones(4, 8), {"a": torch.ones(8)})
    torch.export.save(torch.export.export(Model(), arguments), folder / "model.pt2")
    return folder


COMMANDS = [
    "--help",
    "info",
    "info --tuning",
    "doctor",
    "simulate --help",
    "warm --help",
    "tune --help",
    f"compile {EXAMPLES.parent / 'c' / 'saxpy.ttir'} -o kernel.cl",
    "export model.pt2 -o model.xpk",
    "run-package model.xpk",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, exported: Path) -> None:
    done = run("-m", "openxpu.cli", *command.split(), folder=exported)
    if command.startswith("compile"):
        assert not done.stdout
        done.stdout = "\n"
    check(done)


def test_tuning_of_gpus_fits(exported: Path) -> None:
    unit = {"OPENXPU_MATRIX": "fma", "OPENXPU_HOST_PROVIDER": "0"}
    done = run("-m", "openxpu.cli", "info", "--tuning", folder=exported, **unit)
    check(done)
    assert "rates: multiply-adds" in done.stdout


@pytest.mark.parametrize("content", [None, b"", b"not a program", b"PK\x05\x06" + bytes(18)])
def test_files_that_are_no_programs(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    if content is not None:
        file.write_bytes(content)
    done = run("-m", "openxpu.cli", "export", str(file), folder=tmp_path, status=1)
    assert not done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and str(file) in lines[0]
