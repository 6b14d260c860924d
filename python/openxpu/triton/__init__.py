"""Triton's backend for xpu: Triton's own front end, libxpu's compiler from its IR to OpenCL C, a launcher in C.

Found by Triton through the entry point group ``triton.backends``; nothing here is to be called by users.
"""
