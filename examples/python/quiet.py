"""Hides what libraries log while the examples import them, and what no user of xpu can change."""

from __future__ import annotations

import logging
import re

# By logger, how the messages begin.
IDLE = {
    # transformers imports torchao, which loads its CUDA libraries on machines without CUDA as well
    "torchao": re.compile(r"Failed to load \S*/_C_(cutlass|mxfp8)"),
    # torchao registers its enums with PyTorch in a way that PyTorch has since deprecated
    "torch.utils._pytree": re.compile(
        r"<enum '\w+'> is an Enum subclass and is now natively supported by torch\.compile"
    ),
}


def is_of_use(record: logging.LogRecord) -> bool:
    """Return whether a message of one of these loggers is for the user."""
    return not IDLE[record.name].match(record.getMessage())


def enter() -> None:
    """Leave these messages out in this process."""
    for name in IDLE:
        logging.getLogger(name).addFilter(is_of_use)
