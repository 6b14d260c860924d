"""CUDA graph trees for xpu (``mode="reduce-overhead"``).

PyTorch keeps the graphs of a device's compiled functions in a tree (``torch/_inductor/cudagraph_trees.py``):
the order of recording, which outputs are where in one memory pool, and which are alive. The module names
``torch.cuda`` and functions of CUDA builds. Each has an xpu counterpart, so its source is executed with the
names replaced, once per process: some versions of PyTorch miscount a reference to what the module stores for
autograd's threads, and storing it twice would free it while it is in use.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_log = logging.getLogger("torch._inductor.cudagraph_trees")

_DEVICE = "_openxpu_device"  # replaces torch.cuda
_FUNCTIONS = "_openxpu_functions"  # replaces functions of torch._C
_TREES = "torch._inductor.cudagraph_trees"
# Modes in which torch.cond becomes a CUDA graph node. Not available here: the host decides.
_CONDITIONS = {"ControlFlowOpWarmupDispatchMode", "CUDAGraphCaptureControlFlowOpDispatchMode"}


class _Device:
    """torch.xpu under CUDA's names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.xpu, name)

    @property
    def CUDAGraph(self) -> type:  # noqa: N802
        return torch.xpu.XPUGraph

    @staticmethod
    def graph(graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "") -> Any:
        """Capture; operations that can't be recorded are rejected in every mode."""
        return torch.xpu.graph(graph, pool=pool, stream=stream)


def _nothing(*_: object) -> None:
    """Replace the clearing of cuBLAS and cuDNN caches, which don't exist here."""


def _functions() -> dict[str, Callable[..., Any]]:
    from openxpu import _bridge

    return {
        "_cuda_beginAllocateCurrentThreadToPool": _bridge._xpu_beginAllocateCurrentThreadToPool,
        "_cuda_endAllocateToPool": _bridge._xpu_endAllocateToPool,
        "_cuda_releasePool": _bridge._xpu_releasePool,
        "_cuda_getCheckpointState": _bridge.pool_state,
        "_cuda_setCheckpointPoolState": lambda _, *given: _bridge.restore_pool(*given),
        "_cuda_checkPoolLiveAllocations": _bridge.pool_holds,
        "_cuda_cudaCachingAllocator_raw_delete": _bridge.raw_delete,
        "_cuda_clearCublasWorkspaces": _nothing,
        "_cuda_get_conv_benchmark_empty_cache": _nothing,
        "_cudnn_set_conv_benchmark_empty_cache": _nothing,
        "_cuda_isHistoryEnabled": _bridge.records_history,
        "_construct_CUDA_Tensor_From_Storage_And_Metadata": _bridge.tensor_in,
        "_free_And_Remove_DeleterFn": _bridge.free_and_remove_deleter,
        "_has_Standard_Deleter": _bridge.has_standard_deleter,
        "_set_storage_access_error_msg": _bridge.set_access_error,
        "_set_storage_data_ptr_access_error_msg": _bridge.set_storage_access_error,
        "_tensors_data_ptrs_at_indices_equal": _bridge.addresses_are,
    }


class _ForXpu(ast.NodeTransformer):
    """Replaces CUDA's names by xpu's; names without a counterpart are collected in ``unknown``."""

    def __init__(self, known: dict[str, Callable[..., Any]]) -> None:
        self.known = known
        self.unknown: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # noqa: N802
        self.generic_visit(node)
        match node:
            case ast.Attribute(ast.Name("torch"), "cuda"):
                return ast.copy_location(ast.Name(_DEVICE, ast.Load()), node)
            case ast.Attribute(ast.Attribute(ast.Name("torch"), "_C"), name) if name in self.known:
                functions = ast.copy_location(ast.Name(_FUNCTIONS, ast.Load()), node)
                return ast.copy_location(ast.Subscript(functions, ast.Constant(name), ast.Load()), node)
            case ast.Attribute(ast.Attribute(ast.Name("torch"), "_C"), name):
                if name.startswith(("_cuda_", "_cudnn_")) or not hasattr(torch._C, name):
                    self.unknown.add(name)
            case ast.Attribute(_, "is_cuda"):
                node.attr = "is_xpu"
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:  # noqa: N802
        if node.value == "cuda":
            node.value = "xpu"
        return node


def run_for_xpu(trees: ModuleType, run: Callable[[ModuleType], None]) -> None:
    """Execute the graph tree module for xpu, or unchanged if openxpu lacks a name that it uses."""
    known = _functions()
    spec = trees.__spec__
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if spec is None or source is None:
        return run(trees)
    names = _ForXpu(known)
    tree = ast.fix_missing_locations(names.visit(ast.parse(source)))
    if names.unknown:
        _log.warning(
            "compiled functions run without graphs on xpu, because openxpu lacks functions that PyTorch %s "
            "uses: %s",
            torch.__version__,
            ", ".join(sorted(names.unknown)),
        )
        return run(trees)
    vars(trees).update({_DEVICE: _Device(), _FUNCTIONS: known})
    exec(compile(tree, spec.origin or _TREES, "exec", dont_inherit=True), vars(trees))
    for name in _CONDITIONS & vars(trees).keys():
        setattr(trees, name, contextlib.nullcontext)
    return None


def _has_trees() -> bool:
    return hasattr(importlib.import_module(_TREES), _DEVICE)


def run_without_trees(compiling: ModuleType) -> None:
    """Make Inductor record xpu functions without trees, if ``triton.cudagraph_trees`` is off."""
    own = getattr(compiling, "cudagraphify_impl", None)
    if own is None:
        return
    names = _ForXpu(_functions())
    tree = names.visit(ast.parse(inspect.getsource(own)))
    if names.unknown:
        return
    tree.body[0].name = for_xpu = "_openxpu_cudagraphify_impl"
    vars(compiling)[_DEVICE] = _Device()
    exec(compile(ast.fix_missing_locations(tree), compiling.__file__ or "", "exec"), vars(compiling))

    @functools.wraps(own)
    def record(model: Callable[..., Any], inputs: list[Any], *given: Any, **named: Any) -> Any:
        devices = {x.device.type for x in inputs if isinstance(x, torch.Tensor)}
        is_for_xpu = "xpu" in devices or not torch.cuda.is_available()
        return (getattr(compiling, for_xpu) if is_for_xpu else own)(model, inputs, *given, **named)

    vars(compiling)[own.__name__] = record


def allow_xpu(checks: ModuleType) -> None:
    """Make Inductor use graphs for functions on a single xpu device, as on a single CUDA device."""
    own = checks.check_multiple_devices_or_any_cpu_nodes

    def check(nodes: dict[torch.device, Any]) -> str | None:
        if any(device.type == "xpu" for device in nodes) and _has_trees():
            nodes = {
                torch.device("cuda", d.index) if d.type == "xpu" else d: node for d, node in nodes.items()
            }
        reason: str | None = own(nodes)
        return reason

    vars(checks)[own.__name__] = check


def name_device(backend: ModuleType) -> None:
    """Make Dynamo's backend "cudagraphs" work on xpu: it reads the device index for CUDA only."""

    def get_device_index(graph: Any) -> int | None:
        index: int | None = next(iter(backend.get_device_node_mapping(graph))).index
        return index

    vars(backend)[get_device_index.__name__] = get_device_index


def tell_reasons(output: ModuleType) -> None:
    """Make Inductor log why an xpu function runs without graphs, as for CUDA."""
    from torch._dynamo.utils import counters
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter as tell

    kind = output.CompiledFxGraph

    def skips() -> int:
        return counters["inductor"]["cudagraph_skips"]

    def is_for_xpu(graph: Any) -> bool:
        devices = getattr(graph, "device_types", ())
        return "xpu" in devices and "cuda" not in devices

    def telling(name: str) -> None:
        """It counts for xpu, but doesn't log."""
        own = getattr(kind, name)

        @functools.wraps(own)
        def run(self: Any, *given: Any, **named: Any) -> None:
            before = skips()
            own(self, *given, **named)
            if skips() > before and self.disabled_cudagraphs_reason and is_for_xpu(self):
                counters["inductor"]["cudagraph_skips"] -= 1  # it is counted twice
                tell(f"skipping cudagraphs due to {self.disabled_cudagraphs_reason}")

        setattr(kind, name, run)

    telling("__init__")
    telling("post_compile")
    own = getattr(output, "cudagraph_post_compile", None)
    if own is None:
        return

    @functools.wraps(own)
    def cudagraph_post_compile(inputs: Any, graph: Any, *given: Any, **named: Any) -> None:
        """It neither counts nor logs for xpu."""
        before = skips()
        own(inputs, graph, *given, **named)
        reasons = graph.cudagraph_info.cudagraph_fail_reasons
        if reasons and skips() == before and is_for_xpu(graph):
            tell(f"skipping cudagraphs due to {reasons}")

    vars(output)[own.__name__] = cudagraph_post_compile
