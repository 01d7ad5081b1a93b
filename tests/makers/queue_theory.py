"""What a queue of known service times does, without running it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def waits_s(arrivals_s: Sequence[float], services_s: Sequence[float], slots: int) -> list[float]:
    """Seconds that each request waits for one of `slots`, first come first served.

    `arrivals_s` ascend. Kiefer and Wolfowitz 1955; with one slot it is Lindley's recursion.
    """
    free_s = [arrivals_s[0]] * slots
    waits = []
    for arrival_s, service_s in zip(arrivals_s, services_s, strict=True):
        start_s = max(arrival_s, free_s[0])
        heapq.heapreplace(free_s, start_s + service_s)
        waits.append(start_s - arrival_s)
    return waits
