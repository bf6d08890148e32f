"""What the C library keeps of freed memory is given back; after sources left that can be much. I/O: asks libc."""

from __future__ import annotations

import ctypes


def return_freed_memory() -> None:
    """Give free heap pages back to the system, where the C library knows how (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
