"""Fixtures that several files of this folder ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Each test compiles for itself, in this process."""
    with torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()
