"""PyTorch's profiler on xpu: which kernels a model runs, how long they take, and a trace to look at.

The argument is the trace's file, else trace.json; https://ui.perfetto.dev and chrome://tracing show it.
"""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


def main(path: str = "trace.json") -> None:
    """Profiles a few steps of a transformer layer, after one that builds its kernels."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True).to("xpu")
    batch = torch.randn(8, 64, 128, device="xpu")
    layer(batch).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.XPU]) as recorded:
        for _ in range(3):
            layer(batch).sum().backward()
        torch.xpu.synchronize()
    print(
        recorded.key_averages().table(sort_by="self_xpu_time_total", row_limit=12, max_name_column_width=40)
    )
    recorded.export_chrome_trace(path)
    print(f"trace: {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
