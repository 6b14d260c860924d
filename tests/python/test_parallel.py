"""Parallel training on xpu: one group of processes runs all cases, and each case is a test.

The result of each method is compared with training the same model in one CPU process in double precision.
"""

from __future__ import annotations

import copy
import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import openxpu  # noqa: F401
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from comparing import assert_close
from processes import run_python
from ranks import Cases, check, entering, environment, folder, kind, rank, results, run
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

# By the number of processes; those of STAGED also where tensors are copied for the transport.
TWO: Cases = {}
FOUR: Cases = {}
STAGED: Cases = {}
by_two = entering(TWO)
by_two_in_both_memories = entering(TWO, STAGED)
by_four = entering(FOUR)

WORDS, LENGTH, BATCH, WIDTH = 50, 12, 8, 32
FEW = 5
# Of those methods whose whole curve is compared; kernels of GPUs take long on a processor.
STEPS = FEW if sys.argv[3:4] == ["staged"] else 50


class Block(nn.Module):
    """Attention and two linear layers; each layer that parallel plans shard has its own name."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (batch, length, WIDTH) to the same; under tensor parallelism this rank has a part of the heads."""
        y = self.norm1(x)
        q, k, v = (layer(y).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model() -> Model:
    torch.manual_seed(0)
    return Model()


def batch(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randint(WORDS, (BATCH, LENGTH), generator=generator) for _ in range(2)]


def loss_of(scores: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(
        scores.float().flatten(0, 1) if scores.is_xpu else scores.flatten(0, 1), words.flatten()
    )


def optimizer_of(parameters: object, **options: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9, **options)


@functools.cache
def reference(steps: int, optimizer: str = "SGD") -> tuple[list[float], Model]:
    """Return the losses of training in one process, and the trained model."""
    net = model().double()
    update = (
        optimizer_of(net.parameters()) if optimizer == "SGD" else torch.optim.AdamW(net.parameters(), lr=1e-2)
    )
    losses = []
    for step in range(steps):
        x, y = batch(step)
        loss = loss_of(net(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses, net


def mean(value: Tensor) -> float:
    value = value.detach().clone()
    dist.all_reduce(value, dist.ReduceOp.AVG)
    return value.item()


def part(tensor: Tensor, pieces: int | None = None, which: int | None = None) -> Tensor:
    """Return this rank's part of a batch, on xpu."""
    pieces = dist.get_world_size() if pieces is None else pieces
    return tensor.chunk(pieces)[rank() if which is None else which].to("xpu")


def train(
    net: nn.Module, steps: int, update: torch.optim.Optimizer | None = None, is_split: bool = True
) -> list[float]:
    """Train on this rank's part of each batch or on all of it; return the mean loss of each step."""
    update = update or optimizer_of(net.parameters())
    losses = []
    for step in range(steps):
        x, y = (part(t) if is_split else t.to("xpu") for t in batch(step))
        loss = loss_of(net(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(mean(loss) if is_split else loss.item())
    return losses


def alike(got: Sequence[float], steps: int, optimizer: str = "SGD", tolerance: float = 1e-5) -> None:
    assert list(got) == pytest.approx(reference(steps, optimizer)[0], rel=tolerance)


def same_weights(state: dict[str, Tensor], steps: int, optimizer: str = "SGD") -> None:
    """Fail unless the weights equal those of training in one process."""
    want = reference(steps, optimizer)[1].state_dict()
    assert state.keys() == want.keys()
    for name, x in state.items():
        full = x.full_tensor() if hasattr(x, "full_tensor") else x
        assert_close(full, want[name], dtype=full.dtype, rtol=0, atol=1e-4, device=None, what=name)


def same_on_all(net: nn.Module) -> None:
    for parameter in net.parameters():
        mine = parameter.detach().contiguous()
        all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_ranks, mine)
        for other in all_ranks:
            assert torch.equal(other, mine)


# --- replicas: DDP ---


def replica(net: nn.Module | None = None, **options: object) -> DistributedDataParallel:
    return DistributedDataParallel((net or model()).to("xpu"), bucket_cap_mb=0.02, **options)


@by_two_in_both_memories("plain", "static_graph", "bucket_views")
def ddp(name: str) -> None:
    options = {"static_graph": {"static_graph": True}, "bucket_views": {"gradient_as_bucket_view": True}}
    net = replica(**options.get(name, {}))
    alike(train(net, STEPS), STEPS)
    same_weights(net.module.state_dict(), STEPS)
    assert net._get_ddp_logging_data()["avg_backward_compute_time"] > 0  # by xpu's clock
    assert len(net._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")) > 1


@by_two()
def ddp_without_synchronization() -> None:
    net, alone = replica(), model()
    batches = [batch(step) for step in range(2)]
    for x, y in batches:
        loss_of(alone(x), y).backward()
    (x1, y1), (x2, y2) = ([part(t) for t in b] for b in batches)
    with net.no_sync():
        loss_of(net(x1), y1).backward()
    loss_of(net(x2), y2).backward()
    for got, want in zip(net.parameters(), alone.parameters(), strict=True):
        assert_close(got.grad, want.grad, rtol=1e-5, atol=1e-5)


@by_two()
def ddp_unused_parameters() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor, both: bool) -> Tensor:
            return self.b(self.a(x)) if both else self.a(x)

    torch.manual_seed(1)
    net = DistributedDataParallel(Branches().to("xpu"), find_unused_parameters=True)
    x = torch.full((2, 4), float(rank() + 1), device="xpu")
    for both in ([True, True], [False, False], [True, False]):
        net.zero_grad()
        net(x, both[rank()]).sum().backward()
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        assert len(gradients) == (4 if any(both) else 2)
        for gradient in gradients:
            everywhere = [torch.empty_like(gradient) for _ in range(2)]
            dist.all_gather(everywhere, gradient)
            assert torch.equal(*everywhere)


@by_two("replicas", "zero")
def uneven_inputs(name: str) -> None:
    """Rank 1 has one batch more than the others."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = replica()
    zero = name == "zero"
    update = (
        ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
        if zero
        else optimizer_of(net.parameters())
    )
    with Join([net, update]) if zero else net.join():
        for step in range(2 + rank()):
            x, y = (part(t) for t in batch(step))
            loss_of(net(x), y).backward()
            update.step()
            update.zero_grad()
    same_on_all(net)


@by_two_in_both_memories("all_reduce", "bf16", "fp16", "built_in", "power_sgd", "post_local_sgd")
def ddp_hook(name: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
        powerSGD_hook,
    )

    net = replica()
    if name == "power_sgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=8, start_powerSGD_iter=2)
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name == "post_local_sgd":
        state = post_localSGD_hook.PostLocalSGDState(None, dist.new_group([rank()]), start_localSGD_iter=100)
        net.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    elif name == "built_in":
        net._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    else:
        hooks = {
            "all_reduce": default_hooks.allreduce_hook,
            "bf16": default_hooks.bf16_compress_hook,
            "fp16": default_hooks.fp16_compress_hook,
        }
        net.register_comm_hook(None, hooks[name])
    exact = name in ("all_reduce", "post_local_sgd")
    rounds = {"bf16": 0.02, "fp16": 0.005, "built_in": 0.005}.get(name, 0.1)
    alike(train(net, FEW), FEW, tolerance=1e-5 if exact else rounds)
    same_on_all(net)


@by_two()
def ddp_mixed_precision() -> None:
    from torch.nn.parallel.distributed import _MixedPrecision

    net = replica(mixed_precision=_MixedPrecision(torch.bfloat16, torch.bfloat16))
    # PyTorch 2.13 reduces memory that nobody has written in the first step, on every device: its buckets are
    # converted to bf16 when the views that gradients go to are made already.
    loss_of(net(part(batch(0)[0])), part(batch(0)[1])).backward()
    alike(train(net, FEW), FEW, tolerance=0.02)
    same_on_all(net)


@by_two()
def ddp_under_autocast() -> None:
    net = replica()
    update = optimizer_of(net.parameters())
    scaler = torch.amp.GradScaler("xpu")
    losses = []
    for step in range(FEW):
        x, y = (part(t) for t in batch(step))
        with torch.autocast("xpu", dtype=torch.float16):
            loss = loss_of(net(x), y)
        update.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        losses.append(mean(loss))
    alike(losses, FEW, tolerance=0.02)
    same_on_all(net)


@by_two()
def composable_replicas() -> None:
    from torch.distributed._composable.replicate import replicate

    net = model().to("xpu")
    replicate(net)
    alike(train(net, FEW), FEW)


@by_two_in_both_memories()
def batch_norm_over_all() -> None:
    torch.manual_seed(1)
    alone = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone)).to("xpu")
    x = torch.randn(6, 2, 5, 5)
    alone(x).square().mean().backward()
    net = DistributedDataParallel(net)
    net(part(x)).square().mean().backward()
    for got, want in zip(net.parameters(), alone.parameters(), strict=True):
        assert_close(got.grad, want.grad, rtol=1e-5, atol=1e-5)
    assert_close(net.module[1].running_var, alone[1].running_var, rtol=1e-5, atol=1e-5)


@by_two()
def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = replica()
    update = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
    alike(train(net, FEW, update), FEW, "AdamW")
    held = sum(s["exp_avg"].numel() for s in update.optim.state.values())
    assert held < sum(p.numel() for p in net.parameters())
    update.consolidate_state_dict(0)
    if rank() == 0:
        assert len(update.state_dict()["state"]) == len(list(net.parameters()))


# --- shards: FSDP ---


def fsdp1(**options: object) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        model(), device_id=torch.xpu.current_device(), auto_wrap_policy=ModuleWrapPolicy({Block}), **options
    )


@by_two_in_both_memories("plain")
@by_two("original_parameters", "gradients_only", "cpu_offload", "mixed_precision", "no_shards")
def fsdp_by_wrapping(name: str) -> None:
    from torch.distributed.fsdp import (
        BackwardPrefetch,
        CPUOffload,
        FullStateDictConfig,
        FullyShardedDataParallel,
        MixedPrecision,
        ShardingStrategy,
        StateDictType,
    )

    half = torch.bfloat16
    options = {
        "plain": {},
        "original_parameters": {"use_orig_params": True},
        "gradients_only": {
            "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP,
            "backward_prefetch": BackwardPrefetch.BACKWARD_PRE,
            "forward_prefetch": True,
        },
        "cpu_offload": {"cpu_offload": CPUOffload(True)},
        "mixed_precision": {"mixed_precision": MixedPrecision(half, half, half)},
        "no_shards": {"sharding_strategy": ShardingStrategy.NO_SHARD},
    }[name]
    net = fsdp1(**options)
    if name == "mixed_precision":
        return alike(train(net, FEW), FEW, tolerance=0.02)
    steps = STEPS if name == "plain" else FEW
    alike(train(net, steps), steps)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=False)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT, config):
        same_weights(net.state_dict(), steps)
    return None


@by_two()
def fsdp_clips_gradients() -> None:
    net, alone = fsdp1(), model()
    x, y = batch(0)
    loss_of(net(x.to("xpu")), y.to("xpu")).backward()
    loss_of(alone(x), y).backward()
    want = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1).item()
    assert net.clip_grad_norm_(0.1).item() == pytest.approx(want, rel=1e-5)


def sharded(net: Model | None = None, **options: object) -> Model:
    from torch.distributed.fsdp import fully_shard

    net = net or model().to("xpu")
    for block in net.blocks:
        fully_shard(block, **options)
    return fully_shard(net, **options)


@by_two_in_both_memories("plain")
@by_two(
    "kept_after_forward", "mixed_precision", "cpu_offload", "pinned_offload", "prefetch_and_recomputation"
)
def fsdp(name: str) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    if name == "mixed_precision":
        for summed in (torch.float32, torch.bfloat16):
            net = sharded(mp_policy=MixedPrecisionPolicy(torch.bfloat16, summed))
            alike(train(net, FEW), FEW, tolerance=0.02)
        return
    net = model() if "offload" in name else model().to("xpu")
    if name == "prefetch_and_recomputation":
        apply_activation_checkpointing(net, check_fn=lambda layer: isinstance(layer, Block))
    net = sharded(
        net,
        **{
            "kept_after_forward": {"reshard_after_forward": False},
            "cpu_offload": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
            "pinned_offload": {"offload_policy": CPUOffloadPolicy()},
        }.get(name, {}),
    )
    if name == "prefetch_and_recomputation":
        net.blocks[0].set_modules_to_forward_prefetch([net.blocks[1]])
        net.blocks[1].set_modules_to_backward_prefetch([net.blocks[0]])
    steps = STEPS if name == "plain" else FEW
    alike(train(net, steps), steps)
    if name == "plain":
        same_weights(net.state_dict(), steps)


@by_two()
def fsdp_from_meta() -> None:
    """A model on the meta device is sharded first, then gets rank 0's weights."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    with torch.device("meta"):
        net = Model()
    net = sharded(net).to_empty(device="xpu")
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(net, model().state_dict() if rank() == 0 else {}, options=options)
    alike(train(net, FEW), FEW)


@by_four()
def fsdp_hybrid() -> None:
    net = sharded(mesh=init_device_mesh("xpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    alike(train(net, STEPS), STEPS)
    same_weights(net.state_dict(), STEPS)


# --- checkpoints ---


def states(net: nn.Module, update: torch.optim.Optimizer) -> dict[str, object]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, state = get_state_dict(net, update)
    return {"net": weights, "update": state}


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


@by_two_in_both_memories("at_once")
@by_two("in_the_background")
def checkpoint(name: str) -> None:
    import torch.distributed.checkpoint as saving
    from torch.distributed.checkpoint.state_dict import set_state_dict

    net = sharded()
    update = adam(net)
    train(net, 2, update)
    place = os.path.join(folder(), name)
    if name == "at_once":
        saving.save(states(net, update), checkpoint_id=place)
    else:
        group = dist.new_group(backend="gloo")
        saved = saving.async_save(states(net, update), checkpoint_id=place, process_group=group)
        saved.result()
    other = sharded()
    its = adam(other)
    loaded = states(other, its)
    saving.load(loaded, checkpoint_id=place)
    set_state_dict(other, its, model_state_dict=loaded["net"], optim_state_dict=loaded["update"])
    assert train(other, 2, its) == train(net, 2, update)


@by_four()
def checkpoint_for_other_shards() -> None:
    """A checkpoint of four shards is loaded by two replicas of two shards each, and by one process."""
    import torch.distributed.checkpoint as saving
    from torch.distributed.checkpoint.state_dict import set_state_dict

    net = sharded()
    update = adam(net)
    train(net, 2, update)
    saved = {key: x.full_tensor().cpu() for key, x in net.state_dict().items()}
    place = os.path.join(folder(), "of four")
    saving.save(states(net, update), checkpoint_id=place)
    mesh = init_device_mesh("xpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    other = sharded(mesh=mesh)
    its = adam(other)
    loaded = states(other, its)
    saving.load(loaded, checkpoint_id=place)
    set_state_dict(other, its, model_state_dict=loaded["net"], optim_state_dict=loaded["update"])
    assert train(other, 2, its) == pytest.approx(train(net, 2, update), rel=1e-5)
    whole = {"net": {k: torch.empty_like(v) for k, v in model().state_dict().items()}}
    saving.load(whole, checkpoint_id=place, no_dist=True)
    for key, x in saved.items():
        assert torch.equal(whole["net"][key], x)


# --- sharded tensors ---


@by_two_in_both_memories()
def sharded_tensors() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("xpu", (2,))
    x = torch.arange(35.0).view(5, 7)  # uneven both ways
    for before in (Shard(0), Shard(1), Replicate()):
        sharding = distribute_tensor(x.to("xpu"), mesh, [before])
        for after in (Shard(1), Shard(0), Replicate()):
            moved = sharding.redistribute(mesh, [after])
            assert torch.equal(moved.full_tensor().cpu(), x)
        assert sharding.sum().full_tensor().item() == x.sum().item()
        assert torch.equal((sharding @ sharding.t()).full_tensor().cpu(), x @ x.t())
    total = (distribute_tensor(x.to("xpu"), mesh, [Shard(0)]) * 2).sum(0)
    assert total.placements == (Partial(),)
    assert torch.equal(total.full_tensor().cpu(), 2 * x.sum(0))


@by_two()
def sharded_random_numbers() -> None:
    from torch.distributed.tensor import Replicate, Shard, rand, randn

    mesh = init_device_mesh("xpu", (2,))
    for make in (rand, randn):
        torch.manual_seed(5)
        first = make(8, 6, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        after = torch.xpu.get_rng_state()
        torch.manual_seed(5)
        again = make(8, 6, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        assert torch.equal(first, again)
        assert torch.equal(after, torch.xpu.get_rng_state())
        assert len(first.unique()) == first.numel()  # no part repeats another
        whole = make(8, 6, device_mesh=mesh, placements=[Replicate()]).to_local()
        both = [torch.empty_like(whole) for _ in range(2)]
        dist.all_gather(both, whole)
        assert torch.equal(*both)
    torch.manual_seed(6)
    layer = nn.Dropout(0.5)
    dropped = layer(
        torch.distributed.tensor.ones(64, 8, device_mesh=mesh, placements=[Shard(0)])
    ).full_tensor()
    assert not torch.equal(dropped[:32], dropped[32:])


def tensor_plan() -> dict[str, object]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    columns, rows = ColwiseParallel, RowwiseParallel
    return {"q": columns(), "k": columns(), "v": columns(), "o": rows(), "up": columns(), "down": rows()}


@by_two_in_both_memories()
def tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import parallelize_module

    net = model().to("xpu")
    for block in net.blocks:
        parallelize_module(block, init_device_mesh("xpu", (2,)), tensor_plan())
    alike(train(net, STEPS, optimizer_of(net.parameters(), foreach=False), False), STEPS)
    same_weights(net.state_dict(), STEPS)


@by_two("causal", "mask")
def attention_of_sharded_heads(name: str) -> None:
    """The heads are sharded; there is no communication."""
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("xpu", (2,))
    torch.manual_seed(2)
    given = [torch.randn(2, 4, 6, 8) for _ in range(3)]
    mask = torch.randn(2, 4, 6, 6) if name == "mask" else None
    alone = [t.clone().requires_grad_() for t in given]
    want = F.scaled_dot_product_attention(*alone, attn_mask=mask, is_causal=mask is None)
    want.square().sum().backward()
    q, k, v = (distribute_tensor(t.to("xpu"), mesh, [Shard(1)]).requires_grad_() for t in given)
    bias = None if mask is None else distribute_tensor(mask.to("xpu"), mesh, [Shard(1)])
    got = F.scaled_dot_product_attention(q, k, v, bias, is_causal=mask is None)
    assert got.placements == (Shard(1),)
    got.square().sum().backward()
    assert_close(got.full_tensor(), want, rtol=1e-5, atol=1e-5)
    for mine, its in zip((q, k, v), alone, strict=True):
        assert_close(mine.grad.full_tensor(), its.grad, rtol=1e-5, atol=1e-4)


@by_two()
def sequence_parallel() -> None:
    """Norms run on a part of the sequence, the loss on a part of the vocabulary."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    mesh = init_device_mesh("xpu", (2,))
    net = model().to("xpu")
    columns = functools.partial(ColwiseParallel, use_local_output=False)
    split = Shard(1)
    parallelize_module(
        net,
        mesh,
        {
            "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=split, use_local_output=False),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=split, output_layouts=Shard(-1), use_local_output=False),
        },
    )
    rows = functools.partial(RowwiseParallel, output_layouts=split, use_local_output=False)
    for block in net.blocks:
        plan = {"norm1": SequenceParallel(), "norm2": SequenceParallel(), "o": rows(), "down": rows()}
        for name in ("q", "k", "v", "up"):
            plan[name] = columns(input_layouts=split)
        parallelize_module(block, mesh, plan)
    update = optimizer_of(net.parameters(), foreach=False)
    losses = []
    for step in range(FEW):
        x, y = (t.to("xpu") for t in batch(step))
        with loss_parallel():
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
            update.zero_grad()
            loss.backward()
        update.step()
        losses.append(loss.full_tensor().item())
    alike(losses, FEW)
    same_weights(net.state_dict(), FEW)


@by_four()
def tensor_parallel_and_shards() -> None:
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = init_device_mesh("xpu", (2, 2), mesh_dim_names=("data", "tensor"))
    net = model().to("xpu")
    for block in net.blocks:
        parallelize_module(block, mesh["tensor"], tensor_plan())
    net = sharded(net, mesh=mesh["data"])
    update = optimizer_of(net.parameters(), foreach=False)
    losses = []
    for step in range(FEW):
        x, y = (part(t, 2, mesh["data"].get_local_rank()) for t in batch(step))
        loss = loss_of(net(x), y)
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(mean(loss))
    alike(losses, FEW)
    same_weights(net.state_dict(), FEW)


@by_two("causal", "whole", "efficient", "by_all_to_all")
def context_parallel(name: str) -> None:
    """Ring attention: each rank has a part of the sequence, and keys and values are passed around."""
    from torch.distributed.tensor.experimental import _attention as ring
    from torch.distributed.tensor.experimental import context_parallel as parts_of
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mesh = init_device_mesh("xpu", (2,))
    torch.manual_seed(4)
    given = [torch.randn(2, 3, 16, 8) for _ in range(3)]
    causal = name != "whole"
    alone = [t.double().requires_grad_() for t in given]
    want = F.scaled_dot_product_attention(*alone, is_causal=causal)
    want.square().sum().backward()
    q, k, v = mine = [t.to("xpu") for t in given]
    ring.set_rotate_method("alltoall" if name == "by_all_to_all" else "allgather")
    ring._cp_options.enable_load_balance = causal
    backend = SDPBackend.EFFICIENT_ATTENTION if name == "efficient" else SDPBackend.FLASH_ATTENTION
    with parts_of(mesh, buffers=mine, buffer_seq_dims=(2, 2, 2)), sdpa_kernel(backend):
        for t in mine:
            t.requires_grad_()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        out.square().sum().backward()
        got = [out.detach(), *(t.grad for t in mine)]
        for t in mine:
            t.requires_grad_(False)
    whole = ring.context_parallel_unshard(mesh, got, [2] * 4)
    for x, y in zip(whole, [want.detach(), *(t.grad for t in alone)], strict=True):
        assert_close(x, y, dtype=x.dtype, rtol=1e-5, atol=1e-4)


# --- pipelines ---


def pipeline(schedule: str, stages: int, steps: int) -> None:
    import torch.distributed.pipelining as pipelining

    net = model()
    layers = [net.words, *net.blocks, nn.Sequential(net.norm, net.head)]
    pieces = [layers] if stages == 1 else []
    if stages == 2:
        pieces = [layers[:2], layers[2:]]
    elif stages == 4:
        pieces = [[layer] for layer in layers]
    size = dist.get_world_size()
    mine = {i: nn.Sequential(*pieces[i]).to("xpu") for i in range(rank(), stages, size)}
    device = torch.device("xpu", torch.xpu.current_device())
    parts = [pipelining.PipelineStage(piece, i, stages, device) for i, piece in mine.items()]
    make = getattr(pipelining, schedule)
    plan = make(parts[0] if stages == size else parts, 4, loss_fn=loss_of)
    update = optimizer_of([p for piece in mine.values() for p in piece.parameters()])
    last = stages - 1 in mine
    losses = []
    for step in range(steps):
        x, y = (t.to("xpu") for t in batch(step))
        of_step: list[Tensor] = []
        given = (x,) if 0 in mine else ()
        if last:
            plan.step(*given, target=y, losses=of_step)
            losses.append(torch.stack(of_step).mean().item())
        else:
            plan.step(*given)
        update.step()
        update.zero_grad()
    if last:
        alike(losses, steps)


@by_two_in_both_memories("Schedule1F1B")
@by_two("ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS")
def pipeline_parallel(name: str) -> None:
    several = name in ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS")
    pipeline(name, 4 if several else 2, STEPS if name == "Schedule1F1B" else FEW)


@by_four()
def pipeline_of_four() -> None:
    pipeline("Schedule1F1B", 4, FEW)


# --- compiled ---


@by_two()
def compiled_collectives() -> None:
    import torch.distributed._functional_collectives as collectives

    def function(x: Tensor) -> Tensor:
        total = collectives.all_reduce(x * 2, "sum", dist.group.WORLD)
        return collectives.all_gather_tensor(total + 1, 0, dist.group.WORLD)

    x = torch.full((4,), float(rank() + 1), device="xpu")
    got = torch.compile(function, fullgraph=True)(x)
    assert torch.equal(got.cpu(), torch.full((8,), 7.0))


@by_two()
def compiled_replicas() -> None:
    """DDP's optimizer splits the graph at bucket boundaries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 5000)
        net = torch.compile(replica(), backend="aot_eager")
        alike(train(net, FEW), FEW)


@by_two()
def compiled_shards() -> None:
    from torch.distributed.fsdp import fully_shard

    net = model().to("xpu")
    for block in net.blocks:
        block.compile(backend="aot_eager")
        fully_shard(block)
    alike(train(fully_shard(net), FEW), FEW)


# --- a rank that is killed ---


def survive() -> None:
    """A program for torchrun: rank 1 is killed in the first run; the second resumes from the checkpoint."""
    dist.init_process_group()
    torch.xpu.set_device(rank() % torch.xpu.device_count())
    state = Path(sys.argv[2]) / "state.pt"
    begun = torch.load(state) if state.exists() else 0
    for step in range(begun, 4):
        x = torch.full((1000,), float(step), device="xpu")
        dist.all_reduce(x)
        assert x[0].item() == 2 * step
        if rank() == 0:
            torch.save(step + 1, state)
        dist.barrier()
        if step == 1 and rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    print(f"rank {rank()} ended, begun at {begun}\n", end="", flush=True)
    dist.destroy_process_group()


# --- the tests ---


@pytest.mark.parametrize("name", TWO)
def test_two(name: str) -> None:
    check(name, results(__file__, 2, "two"))


@pytest.mark.extended
@pytest.mark.parametrize("name", STAGED)
def test_staged(name: str) -> None:
    check(
        name,
        results(__file__, 2, "staged", (("OPENXPU_MEMORY", "buffer"), ("OPENXPU_DEVICE", "intel,intel"))),
    )


@pytest.mark.parametrize("name", FOUR)
def test_four(name: str) -> None:
    check(name, results(__file__, 4, "four"))


@pytest.mark.extended
def test_restart(tmp_path: Path) -> None:
    # PyTorch 2.13 keeps the store of the life before: Gloo may find the addresses of ranks that are dead in it
    fresh = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    arguments = [*command, __file__, "0", str(tmp_path), "survive"]
    done = run_python(*arguments, env=environment() | fresh, timeout=240)
    for each in range(2):
        assert f"rank {each} ended, begun at 2" in done.stdout


POOLS: dict[str, Callable[[], None]] = {
    "two": functools.partial(run, TWO),
    "four": functools.partial(run, FOUR),
    "staged": functools.partial(run, STAGED),
    "survive": survive,
}

if __name__ == "__main__":
    POOLS[kind()]()
