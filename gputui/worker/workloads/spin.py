"""SHA-256 over a fixed number of bytes: a known amount of real work, with the standard library alone."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

from ..contract import Request, Size, Step, Workload

PIECE_BYTES = 2**18  # hashlib releases the interpreter lock above 2 KiB, so threads run in parallel


def _size(pieces: int) -> Size:
    return Size(
        parameters={"algorithm": "sha256", "pieces": pieces, "piece_bytes": PIECE_BYTES},
        units_per_step=float(pieces * PIECE_BYTES),
        flops_per_step=None,
        bytes_per_step=pieces * PIECE_BYTES,
        memory_bytes=PIECE_BYTES,
    )


def build(request: Request) -> Step:
    """Hash `pieces` equal pieces on `threads` threads.

    GPUTUI_SPIN_WORK=1.5 makes every step do 1.5 times the work it reports: a slowdown of known size, to see
    whether a comparison finds it.
    """
    pieces = round(request.integer("pieces") * float(os.environ.get("GPUTUI_SPIN_WORK", "1")))
    piece = bytes(request.seed % 251 for _ in range(PIECE_BYTES))

    def hash_pieces(count: int) -> None:
        for _ in range(count):
            hashlib.sha256(piece).digest()

    if request.threads == 1:
        return Step(lambda: hash_pieces(pieces))

    pool = ThreadPoolExecutor(request.threads)
    shares = [len(range(i, pieces, request.threads)) for i in range(request.threads)]
    return Step(lambda: list(pool.map(hash_pieces, shares)))


WORKLOAD = Workload(
    name="spin",
    version=1,
    title="hashing",
    question="How fast is one CPU thread without torch?",
    workload_class="host",
    unit="B",
    sizes={"mini": _size(32), "base": _size(256)},
    precisions=("fp32",),
    device_classes=("cpu",),
    needs_torch=False,
    build=build,
)
