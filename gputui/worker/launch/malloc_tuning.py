"""Keeps the C heap of a CPU pass from growing while it is watched."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Of mallopt, malloc.h of glibc."""


def keep_heap(reserve_bytes: int) -> bool:
    """Give the process so many bytes of touched memory, which it never returns; whether it could be done.

    The profiler keeps thousands of small pieces for each step, and leaves them between the large ones that
    operators free: those no longer fit, so the heap grows by 70 MB a step, and the kernel's zeroing of new
    pages is a third of the step (measured: 17 000 page faults and 300 ms against 160 ms; with this 0 and
    165 ms). Only glibc is known to do so, and to have mallopt.
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
