"""Programs whose kernels `openxpu warm` builds, and their recording: src/ops/tables/common.requests.

Each is short and covers the operations of its kind: forward, backward and optimizer.
`tools/common_programs.py` records all of them, each in its own process, into the list for the kinds of
devices present; entries of other kinds are kept. `tools/common_programs.py NAME` runs one without recording.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from openxpu._warm import RequestList
from torch import Tensor, nn

ROOT = Path(__file__).parent.parent
LIST = ROOT / "src" / "ops" / "tables" / "common.requests"
sys.path.insert(0, str(ROOT / "examples" / "python"))
import main_job
from models import Decoder, ResNet, VisionTransformer


def train(
    model: nn.Module,
    inputs: tuple[int, ...],
    classes: int,
    half: torch.dtype | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    **options: float,
) -> None:
    """Two steps of classification, and an evaluation."""
    model.to("xpu")
    chosen = optimizer(model.parameters(), lr=1e-3, **options)
    scaler = torch.amp.GradScaler("xpu", enabled=half == torch.float16)
    labels = torch.randint(0, classes, inputs[:1]).to("xpu")
    for _ in range(2):
        x = torch.randn(inputs).to("xpu")
        with torch.autocast("xpu", half or torch.bfloat16, enabled=half is not None):
            loss = F.cross_entropy(model(x), labels)
        chosen.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(chosen)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(chosen)
        scaler.update()
    model.eval()
    with torch.no_grad(), torch.autocast("xpu", half or torch.bfloat16, enabled=half is not None):
        outputs = model(torch.randn(inputs).to("xpu"))
        (outputs.argmax(-1) == labels).float().mean().item()
        outputs.softmax(-1).cpu()


def digits(name: str, half: bool) -> None:
    """One epoch of the main job's training."""
    torch.manual_seed(0)
    model = VisionTransformer(8, 2, 1, 10, 64, 3, 4) if name == "vit" else ResNet(1, 10)
    main_job.train(model, "xpu", half, 1, lambda: None)


def vision(name: str, half: torch.dtype | None) -> None:
    """Larger images, in color."""
    if name == "vit":
        train(VisionTransformer(32, 4, 3, 10, 192, 2, 3), (8, 3, 32, 32), 10, half)
    else:
        train(ResNet(3, 10, (16, 32, 64)), (8, 3, 32, 32), 10, half, torch.optim.SGD, momentum=0.9)


def language(half: torch.dtype | None) -> None:
    """A causal transformer with dropout, trained on next tokens."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, 128), nn.Embedding(64, 128)
            layer = nn.TransformerEncoderLayer(128, 4, 512, 0.1, "gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(128)
            self.head = nn.Linear(128, 1000, bias=False)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            out: Tensor = self.head(self.norm(self.layers(x, mask, is_causal=True)))
            return out

    model = Model().to("xpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids = torch.randint(0, 1000, (4, 33)).to("xpu")
        with torch.autocast("xpu", half or torch.bfloat16, enabled=half is not None):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


def generation(half: torch.dtype | None) -> None:
    """A decoder with a KV cache."""
    model = Decoder(vocabulary=1000, room=64, width=128, depth=2, heads=4).eval().to("xpu", half)
    model.generate(torch.randint(0, 1000, (2, 16)).to("xpu"), 8).cpu()
    logits = torch.randn(2, 1000).to("xpu", half)
    best, _ = logits.topk(50)
    chosen = logits.masked_fill(logits < best[:, -1:], -torch.inf)
    torch.multinomial((chosen / 0.8).float().softmax(-1), 1).cpu()


def encoder() -> None:
    """Sentence embeddings."""
    main_job.Encoder("xpu").embed(main_job.sentences(8))


def recurrent() -> None:
    """LSTM and GRU."""
    for kind in (nn.LSTM, nn.GRU):
        net = kind(16, 32, batch_first=True).to("xpu")
        optimizer = torch.optim.Adam(net.parameters())
        F.mse_loss(net(torch.randn(4, 10, 16).to("xpu"))[0], torch.zeros(4, 10, 32).to("xpu")).backward()
        optimizer.step()


def convolutional() -> None:
    """Convolutions, pooling, upsampling."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(),
        nn.AvgPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(8, 4, 2, 2),
        nn.Hardswish(),
        nn.Dropout2d(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),
    )
    train(net, (4, 3, 16, 16), 10, None, torch.optim.Adam)


def regression(optimizer: str) -> None:
    """Small networks with other activations, losses and optimizers."""
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 1)).to("xpu")
    chosen = getattr(torch.optim, optimizer)(net.parameters(), lr=1e-3)
    x, y = torch.randn(64, 16).to("xpu"), torch.rand(64, 1).to("xpu")
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits):
        chosen.zero_grad()
        loss(net(x), y).backward()
        chosen.step()


UNARY = "neg abs exp log sqrt rsqrt tanh sigmoid relu sin cos floor round sign square reciprocal".split()
BINARY = "add sub mul div maximum minimum pow".split()
COMPARED = "eq ne lt le gt ge".split()
REDUCED = "sum mean amax amin argmax any all var norm prod cumsum".split()


def arithmetic(dtype: torch.dtype) -> None:
    """Operators on tensors, on a tensor and a scalar, on rows and columns."""
    a, b = (torch.rand(32, 48).mul(9).to("xpu", dtype) for _ in range(2))
    floating = dtype.is_floating_point
    functions: list[Callable[[], Tensor]] = [
        functools.partial(getattr(torch, name), a, b) for name in COMPARED
    ]
    if dtype != torch.bool:
        functions += [functools.partial(getattr(torch, name), a, b) for name in BINARY]
        functions += [
            lambda: a + 1,
            lambda: a * 2,
            lambda: a - b[:1],
            lambda: a * b[:, :1],
            lambda: a.clamp(1, 3),
        ]
    if floating:
        functions += [functools.partial(getattr(torch, name), a) for name in UNARY]
        functions += [lambda: F.gelu(a), lambda: F.silu(a), lambda: a.softmax(-1), lambda: a @ b.t()]
    functions += [
        lambda: torch.where(a == b, a, b),
        lambda: a.masked_fill(a == b, 1),
        lambda: a.t().contiguous(),
    ]
    functions += [
        lambda: torch.cat([a, b]),
        lambda: a[torch.tensor([1, 3], device="xpu")],
        lambda: a.sort()[0],
    ]
    for name in REDUCED:
        if floating or name in ("sum", "amax", "amin", "any", "all", "cumsum"):
            whole = functools.partial(getattr(torch, name), a)
            functions += [whole] if name not in ("cumsum",) else []
            functions += [functools.partial(whole, dim=0), functools.partial(whole, dim=1)]
    functions += [functools.partial(a.to, other) for other in DTYPES]
    functions += [lambda: torch.full((9,), 3, dtype=dtype, device="xpu"), lambda: torch.zeros_like(a)]
    for function in functions:
        function()
    if floating:
        torch.randn(100, device="xpu", dtype=dtype)
        torch.rand(100, device="xpu", dtype=dtype)
        F.dropout(a, 0.5)


DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
HALVES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

PROGRAMS: dict[str, Callable[[], None]] = {
    **{
        f"{n} on digits, {h}": functools.partial(digits, n, h == "bf16")
        for n in ("vit", "resnet")
        for h in ("fp32", "bf16")
    },
    **{f"{n}, {h}": functools.partial(vision, n, d) for n in ("vit", "resnet") for h, d in HALVES.items()},
    **{f"language model, {h}": functools.partial(language, d) for h, d in HALVES.items()},
    **{f"generation, {h}": functools.partial(generation, d) for h, d in HALVES.items()},
    "sentence encoder": encoder,
    "recurrent": recurrent,
    "convolutional": convolutional,
    **{f"regression, {o}": functools.partial(regression, o) for o in ("SGD", "Adam", "RMSprop", "Adagrad")},
    **{f"arithmetic, {d}".replace("torch.", ""): functools.partial(arithmetic, d) for d in DTYPES},
}


def record(name: str) -> list[tuple[str, str]]:
    """Run a program in its own process; return its requests, each with the kind of device."""
    with tempfile.NamedTemporaryFile("r") as recording:
        child = os.fork()  # this process has not used the device
        if not child:
            os.environ["OPENXPU_RECORD_KERNELS"] = recording.name
            try:
                PROGRAMS[name]()
                os._exit(0)
            except Exception:  # the parent says so
                traceback.print_exc()
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{name} failed")
        lines = recording.read().splitlines()
    return [(kind, request) for _, kind, request in (line.split("\t", 2) for line in lines)]


def main() -> None:
    """Run one program, or record all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=PROGRAMS)
    arguments = parser.parse_args()
    if arguments.name:
        PROGRAMS[arguments.name]()
        return
    known = RequestList.parse(LIST.read_text()) if LIST.exists() else RequestList()
    for name in PROGRAMS:
        requests = record(name)
        kinds = {kind for kind, _ in requests}
        others = (known.requests[number] for number in known.programs.get(name, []))
        known.add(name, [r for r in others if r[0] not in kinds] + requests)
        LIST.write_text(str(known))
        print(f"{name}: {len(requests)} requests, {len(known.requests)} in the list", flush=True)


if __name__ == "__main__":
    main()
