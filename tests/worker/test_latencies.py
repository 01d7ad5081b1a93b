"""Percentiles and open-loop arrivals, against textbook results and on a manual clock."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from gputui.worker import steps
from gputui.worker.contract import Value
from gputui.worker.steps import (
    Stopwatched,
    open_loop,
    open_loop_figures,
    open_loop_values,
    percentile,
    percentile_value,
    requests_for,
)


class Clock:
    """Advances when something waits or works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def served(
    per_s: float, service_s: float, *, at_once: int = 1, length_s: float = math.inf, seed: int = 0
) -> tuple[tuple[int, list[float]], list[int]]:
    clock = Clock()
    together: list[int] = []

    def serve(requests: int) -> None:
        together.append(requests)
        clock.pass_by(service_s)

    found = open_loop(per_s, serve, at_once, length_s=length_s, seed=seed, clock=clock, wait=clock.pass_by)
    return found, together


def test_a_percentile_is_the_smallest_value_that_so_large_a_share_does_not_exceed() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.01, 0.2, 0.21, 0.5, 0.8, 0.99, 1.0)] == [
        1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0,
    ]  # fmt: skip


def test_p99_is_reported_from_459_requests_and_the_median_from_7() -> None:
    assert [requests_for(share) for share in (0.5, 0.9, 0.99)] == [7, 44, 459]
    assert percentile_value([1.0] * 458, 0.99) == Value(None, 458, "458 requests; p99 needs 459")
    assert percentile_value([1.0] * 458 + [2.0], 0.99) == Value(1.0, 459)
    assert percentile_value([], 0.5) == Value(None, 0, "0 requests; p50 needs 7")


def test_requests_come_at_the_requested_rate_and_at_the_same_times_for_a_seed() -> None:
    (sent, latencies_s), _ = served(200.0, 0.004, length_s=4.0, seed=3)
    assert sent == pytest.approx(800, rel=0.1)
    assert latencies_s == served(200.0, 0.004, length_s=4.0, seed=3)[0][1]
    assert latencies_s != served(200.0, 0.004, length_s=4.0, seed=4)[0][1]


@pytest.mark.parametrize("load", [0.25, 0.5, 0.75])
def test_one_at_a_time_requests_wait_as_the_formula_for_such_queues_says(load: float) -> None:
    # M/D/1 (Pollaczek-Khinchine): mean wait = load x service / (2 (1 - load)).
    service_s = 0.01
    waits = []
    for seed in range(60):
        (sent, latencies_s), _ = served(load / service_s, service_s, seed=seed)
        assert len(latencies_s) == sent == steps.ENOUGH_REQUESTS
        waits += [latency - service_s for latency in latencies_s]
    assert min(waits) > -1e-9
    assert fmean(waits) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.08)


def test_a_stall_is_felt_by_all_who_were_to_be_sent_in_it() -> None:
    clock, calls = Clock(), [0]

    def serve(requests: int) -> None:
        calls[0] += 1
        clock.pass_by(1.0 if calls[0] == 100 else 0.0001)

    _, latencies_s = open_loop(100.0, serve, 1, length_s=9.0, seed=1, clock=clock, wait=clock.pass_by)
    late = sum(latency > 0.1 for latency in latencies_s)
    assert 60 <= late <= 130  # about the 100 a second that arrived meanwhile, not the one being served


def test_whoever_waits_is_served_together_but_no_more_than_fit() -> None:
    (_, latencies_s), together = served(1000.0, 0.02, at_once=8, length_s=2.0)
    assert max(together) == 8
    assert min(together) >= 1
    assert sum(together) == len(latencies_s)


def test_a_load_that_cannot_be_served_ends_in_bounded_time_and_has_no_percentiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _ = served(100.0, 0.1, length_s=3.0)
    sent, answered = found[0], len(found[1])
    assert answered < sent
    monkeypatch.setattr(steps, "open_loop", lambda *_, **__: found)
    values = open_loop_values(100.0, lambda requests: None, 1, length_s=3.0, seed=0)
    assert set(values) == {figure.key for figure in open_loop_figures()}
    grew = f"the queue grew: {sent - answered} of {sent} unanswered"
    assert values["p50_at_90_s"] == Value(None, answered, grew)


def test_the_time_of_every_call_is_noted() -> None:
    calls: list[int] = []
    noted = Stopwatched(lambda: calls.append(1))
    noted()
    noted()
    assert (len(noted.taken_s), len(calls)) == (2, 2)
    assert min(noted.taken_s) >= 0
