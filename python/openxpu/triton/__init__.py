"""Triton's backend for xpu: Triton's front end, libxpu's Triton IR compiler, a launcher in C.

Triton finds it through the entry point group ``triton.backends``. It has no user interface.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_INTEL = "triton.language.extra.intel"


class _Finder(MetaPathFinder):
    """Finds ``triton.language.extra.intel``, which programs import, if Intel's Triton isn't installed."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002 (the protocol's)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find the folder ``intel`` beside this file, which contains its modules."""
        if name != _INTEL:
            return None
        folder = os.path.join(os.path.dirname(__file__), "intel")
        return importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )


sys.meta_path.append(_Finder())  # asked last

# Triton imports these modules while it is being imported, and needs them complete. If a program imports one
# of them first, Triton must be imported before it.
import triton  # noqa: E402, F401
