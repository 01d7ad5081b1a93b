"""Collectives in loops, as nccl-tests times them, and whether every number that arrives is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any  # Any: torch's types, which may not be installed

from .timing import Stopwatch

_VALUES = 1000
"""Numbers are below this, plus the rank: sums over many ranks are exact in fp32."""
_WARM_OPERATIONS = 2


@dataclass(frozen=True)
class Kind:
    """One collective."""

    name: str
    title: str
    share_of_bus: Callable[[int], float]
    """What each link carries of the bytes, by ranks. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md."""


ALL_REDUCE = Kind("all_reduce", "all-reduce", lambda ranks: 2 * (ranks - 1) / ranks)
ALL_GATHER = Kind("all_gather", "all-gather", lambda ranks: (ranks - 1) / ranks)
SENDRECV = Kind("sendrecv", "send/receive", lambda ranks: 1.0)
KINDS = {kind.name: kind for kind in (ALL_REDUCE, ALL_GATHER, SENDRECV)}


def bus_bytes_per_s(kind: Kind, size_bytes: int, seconds: float, ranks: int) -> float:
    """Bytes per second on each link: independent of the number of ranks where the links are the limit.

    `size_bytes`: of an all-reduce, the numbers of a rank; of an all-gather, those of all; of send/receive,
    what a rank sends.
    """
    return size_bytes / seconds * kind.share_of_bus(ranks)


def numbers_of(rank: int, count: int, device: str) -> Any:
    """What a rank gives: neighbours differ, and so do ranks."""
    import torch

    return torch.arange(count, device=device) % _VALUES + float(rank)


def expected(kind: Kind, count: int, rank: int, ranks: int, device: str) -> Any:
    """What this rank must get of ranks that give `count` numbers each."""
    import torch

    if kind == ALL_REDUCE:
        return ranks * numbers_of(0, count, device) + ranks * (ranks - 1) / 2
    if kind == SENDRECV:
        return numbers_of((rank - 1) % ranks, count, device)
    return torch.cat([numbers_of(one, count, device) for one in range(ranks)])


def time_in_a_row(
    kind: Kind, size_bytes: int, times: int, device: str, stopwatch: Stopwatch
) -> tuple[float, bool]:
    """Seconds of an operation in a row of so many, on this rank, and whether its numbers are right.

    All ranks must call it. They are checked in an operation of their own: in a row, sums would grow.
    """
    from torch import distributed

    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    count = size_bytes // 4 // (ranks if kind == ALL_GATHER else 1)
    given, got = _buffers(kind, rank, ranks, count, device)
    operation = _operation(kind, rank, ranks, given, got)
    operation()
    is_right = bool((got == expected(kind, count, rank, ranks, device)).all())
    if kind == ALL_REDUCE:
        got.zero_()
    for _ in range(_WARM_OPERATIONS):
        operation()
    distributed.barrier()
    return stopwatch(operation, times).block_ns / 1e9 / times, is_right


def _buffers(kind: Kind, rank: int, ranks: int, count: int, device: str) -> tuple[Any, Any]:
    """What a rank gives, and where it gets; of an all-reduce the same."""
    import torch

    given = numbers_of(rank, count, device)
    if kind == ALL_REDUCE:
        return given, given
    return given, torch.zeros(count * (ranks if kind == ALL_GATHER else 1), device=device)


def _operation(kind: Kind, rank: int, ranks: int, given: Any, got: Any) -> Callable[[], object]:
    from torch import distributed

    if kind == ALL_REDUCE:
        return lambda: distributed.all_reduce(given)
    if kind == ALL_GATHER:
        return lambda: distributed.all_gather_into_tensor(got, given)

    def around() -> None:
        """To the next rank, from the one before."""
        both = [
            distributed.P2POp(distributed.isend, given, (rank + 1) % ranks),
            distributed.P2POp(distributed.irecv, got, (rank - 1) % ranks),
        ]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    return around
