"""``triton.language.extra.intel``, as programs written for Intel's Triton import it."""

from . import libdevice
from .utils import convert_custom_float8, globaltimer, num_threads, num_warps, smid

__all__ = ["convert_custom_float8", "globaltimer", "libdevice", "num_threads", "num_warps", "smid"]
