"""xpu raises the same errors for PyTorch's own samples of wrong arguments (OpInfo's error inputs)."""

from __future__ import annotations

import re

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo

# PyTorch's samples call whatever PyTorch warns of; a warning of ours, of a fallback, is listed
pytestmark = pytest.mark.filterwarnings("ignore", "default:The operator")

OPERATORS = [op for op in op_db if op.error_inputs_func and not op.name.startswith(("_refs", "jiterator"))]


def complaint(op: OpInfo, error: ErrorInput) -> str | None:
    """Return what is wrong with the operator's error, or ""."""
    sample = error.sample_input
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except error.error_type as raised:
        text = str(raised)
        return None if re.search(error.error_regex, text) else f"{text!r} is not {error.error_regex!r}"
    except Exception as raised:
        return f"{type(raised).__name__}, not {error.error_type.__name__}: {raised}"
    return f"no error; {error.error_regex!r} is expected"


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.formatted_name)
def test_error_inputs(op: OpInfo) -> None:
    # xpu must raise the errors that the CPU raises as expected; the CPU may lack others.
    of_cpu = [complaint(op, error) for error in op.error_inputs("cpu")]
    found = [complaint(op, error) for error in op.error_inputs("xpu")]
    if len(of_cpu) == len(found):
        found = [here for here, there in zip(found, of_cpu, strict=True) if there is None]
    assert not any(found), "\n".join(filter(None, found))
    torch.xpu.synchronize()
