"""Eager PyTorch on xpu: a small network learns which points lie in a circle."""

import torch
from torch import nn


def main() -> None:
    """Trains on 1,024 points, and says how many new ones it gets right."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to("xpu")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    lossy = nn.BCEWithLogitsLoss()

    def points() -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.rand(1024, 2, device="xpu") * 2 - 1
        return at, (at.norm(dim=1, keepdim=True) < 0.7).float()

    at, inside = points()
    for step in range(121):
        optimizer.zero_grad()
        loss = lossy(network(at), inside)
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:3}  loss {loss.item():.3f}")
    at, inside = points()
    right = ((network(at) > 0) == inside.bool()).float().mean().item()
    print(f"{torch.xpu.get_device_name()}: {right:.1%} of new points right")


if __name__ == "__main__":
    main()
