"""Fixtures shared by the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Compile in this process and without caches from other tests."""
    with torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()
