"""What a load looks like while it is offered, once a second, at next to no cost to the load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from .answer import read_answer
from .client import Client, Exchange

PERIOD_S = 1.0
_READ_BYTES = 8192
"""Of an answer, in which its first output should be; all of a long one takes milliseconds to read."""

_WITHOUT_OUTPUT = 3
"""Events of most streams: how it finished, the usage, and the end."""


class NowReport:
    """Reports on the requests of a client while its event loop runs. Used in the loop's thread."""

    def __init__(self, client: Client, send: Callable[..., None]) -> None:
        """From now on, `send` gets the fields of a message, once a second."""
        self._client = client
        self._send = send
        self._ended, self._at_ns = client.ended_count, time.monotonic_ns()
        self._later()

    def stop(self) -> None:
        self._handle.cancel()

    def _later(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(PERIOD_S, self._report)

    def _report(self) -> None:
        now_ns = time.monotonic_ns()
        glances = [glance(exchange) for exchange in self._client.newest]
        firsts = [first_s for first_s, _ in glances if first_s is not None]
        gaps = [gap_s for _, gap_s in glances if gap_s is not None]
        ended = self._client.ended_count
        self._send(
            in_flight=len(self._client.waiting),
            ended=ended - self._ended,
            over_ns=now_ns - self._at_ns,
            ttft_s=median(firsts) if firsts else None,
            event_gap_s=median(gaps) if gaps else None,
            t_ns=now_ns,
        )
        self._ended, self._at_ns = ended, now_ns
        self._client.newest.clear()
        self._later()


def glance(exchange: Exchange) -> tuple[float | None, float | None]:
    """Seconds to the first output of an answer, and between two of its events; None for what is not seen."""
    beginning: list[bytes] = []
    taken = 0
    for read in exchange.reads:
        beginning.append(read)
        taken += len(read)
        if taken >= _READ_BYTES:
            break
    if not beginning:
        return None, None
    stamps = exchange.stamps_ns[: len(beginning)]
    first_ns = read_answer(beginning, stamps, was_closed=False, was_stopped=True).first_ns
    if first_ns is None:
        return None, None
    events = sum(read.count(b"data:") for read in exchange.reads) - _WITHOUT_OUTPUT
    gap_s = (exchange.stamps_ns[-1] - first_ns) * 1e-9 / (events - 1) if events > 1 else None
    return (first_ns - exchange.due_ns) * 1e-9, gap_s
