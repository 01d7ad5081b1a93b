"""Keeps the C heap of a CPU pass from growing while it is profiled."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Of mallopt, malloc.h of glibc."""


def keep_heap(reserve_bytes: int) -> bool:
    """Touch this many bytes of heap that the process never returns; returns whether that worked.

    The profiler allocates thousands of small objects per step between the large blocks that operators free.
    The large ones then no longer fit, so the heap grows by 70 MB a step, and the kernel's zeroing of new
    pages is a third of the step (measured: 17 000 page faults and 300 ms against 160 ms; with this 0 and 165
    ms). Only glibc is known to do so, and to have mallopt.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc, free = libc.mallopt, libc.malloc, libc.free
    except (AttributeError, OSError):
        return False
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    mallopt(_TRIM_THRESHOLD, -1)
    mallopt(_MMAP_MAX, 0)
    piece = malloc(reserve_bytes)
    if not piece:
        return False
    ctypes.memset(piece, 1, reserve_bytes)
    free(piece)
    return True
