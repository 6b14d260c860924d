"""Several processes train one vision transformer, each on its part of the images.

Start it with ``torchrun --nproc-per-node 2 examples/python/distributed.py``. It prints the loss over all images after
each step, and whether all processes have the same weights at the end.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from models import VisionTransformer
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
IMAGES = 16  # in each process


def main() -> None:
    """Trains for some steps, and compares the processes' weights."""
    dist.init_process_group()  # xpu's backend, since that is the accelerator
    rank = dist.get_rank()
    torch.xpu.set_device(rank % torch.xpu.device_count())
    torch.manual_seed(0)
    model = VisionTransformer(image=16, patch=4, channels=3, classes=10, width=64, depth=2, heads=4)
    net = DistributedDataParallel(model.to("xpu"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    torch.manual_seed(1 + rank)
    images = torch.randn(IMAGES, 3, 16, 16, device="xpu")
    labels = torch.randint(10, (IMAGES,), device="xpu")
    for step in range(STEPS):
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the processes meanwhile
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        print(f"process {rank}, step {step}: loss {mean.item():.6f}\n", end="", flush=True)

    weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    first = weights.clone()
    dist.broadcast(first, 0)
    same = "equal" if torch.equal(first, weights) else "differ from"
    print(f"process {rank}: weights {same} process 0's\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
