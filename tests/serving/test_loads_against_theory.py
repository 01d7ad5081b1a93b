"""Loads on a server of known behaviour, against what queueing theory says of it.

Precise figures are printed by `tests/benchmarks/serving_theory.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from statistics import median
from typing import Any  # Any: fields of a load

import pytest
from model_server import Behaviour, served_by, serving_process
from offered_loads import LOAD, Offered, capacity_per_s, first_tokens, offer, service_s
from simulated_search import limit_in_theory

from gputui.worker.serving.client import LagProbe

pytestmark = pytest.mark.slow
_DOES = Behaviour(slots=8, prefill_s=0.04, decode_s=0.002)
_CAPACITY_PER_S = capacity_per_s(_DOES, LOAD.output_tokens)
_TOLERANCE_S = (
    0.01  # of a median; a busy box is late by milliseconds, a wrong clock by a service time or more
)


def _offer(does: Behaviour, seconds: float, **load: Any) -> Offered:
    """Offer a load, and again for longer while this box is too busy for the client or for the budget."""
    for attempt in range(4):
        with serving_process(does) as url:
            offered = offer(url, seconds * (1 + attempt), **load)
        if offered.end[0] != "skipped":
            break
    return offered


def test_first_tokens_and_gaps_are_those_that_theory_predicts() -> None:
    for _ in range(4):  # a wrong clock is late in each of them, a busy box in some
        offered = _offer(_DOES, 2.5, rate_per_s=0.8 * _CAPACITY_PER_S)
        if offered.end == ("ok", "") and first_tokens(_DOES, offered).median_s < _TOLERANCE_S:
            break

    assert offered.end == ("ok", "")
    (step,) = offered.of_kind("load_step")
    assert 0 < step["server_running"] <= _DOES.slots
    assert step["prefix_hit_share"] == 0.0
    times = first_tokens(_DOES, offered)
    assert len(times.seen_s) > 60
    assert median(s - p for p, s in zip(times.predicted_s, times.seen_s, strict=True)) > -0.001
    assert times.median_s < _TOLERANCE_S
    tpot_s = offered.figure("tpot_p50_s")
    assert tpot_s == pytest.approx(_DOES.decode_s, rel=0.2)


def test_beyond_its_capacity_a_server_is_called_overloaded_and_no_percentile_is_claimed() -> None:
    for _ in range(4):  # on a busy box the client may be late in some
        with serving_process(_DOES) as url:
            offered = offer(url, 4.0, rate_per_s=2.0 * _CAPACITY_PER_S)
            arrived_s = [served.arrived_s for served in served_by(url)][2:]  # two were sent alone before
        # The arrivals are those that were planned: a server that is behind does not slow them.
        pairs = zip(arrived_s, offered.rows, strict=False)
        late_s = median(at - row["due_ns"] * 1e-9 for at, row in pairs)
        if late_s < _TOLERANCE_S:
            break

    outcome, reason = offered.end
    assert outcome == "unsupported"
    assert reason.startswith("overloaded at 275.862 requests/s: the queue grew, from ")
    assert offered.of_kind("figure") == []
    assert offered.of_kind("load_step")[0]["is_overloaded"]
    assert late_s < _TOLERANCE_S


def test_users_get_the_first_token_of_an_idle_server_however_many_wait_elsewhere() -> None:
    """As many users as slots: nobody waits, so TTFT is the prefill, and the rate is the capacity."""
    offered = _offer(_DOES, 2.5, kind="closed", users=8)

    assert offered.figure("ttft_p50_s") == pytest.approx(_DOES.prefill_s, abs=_TOLERANCE_S)
    rate = offered.figure("requests_per_s")
    assert rate is not None
    assert 0.6 * _CAPACITY_PER_S < rate <= 1.02 * _CAPACITY_PER_S


def test_prompts_are_new_to_a_cache_and_the_cache_is_asked() -> None:
    does = Behaviour(slots=4, prefill_s=0.08, caches_prompts=True)
    offered = _offer(does, 2.5, kind="closed", users=2)

    share, first_s = offered.figure("cached_share"), offered.figure("ttft_p50_s")
    assert share is not None
    assert first_s is not None
    assert share < 0.1  # two prompts may begin with the same word
    assert first_s >= 0.9 * does.prefill_s


def test_a_shared_prefix_is_in_the_cache_and_the_share_is_reported() -> None:
    does = Behaviour(slots=4, prefill_s=0.08, caches_prompts=True)
    offered = _offer(does, 2.5, kind="closed", users=2, prompt_tokens=40, shared_tokens=20)

    assert offered.figure("cached_share") == pytest.approx(0.5, abs=0.1)


def test_what_a_server_refuses_is_counted_and_never_a_time_of_zero() -> None:
    does = Behaviour(slots=8, prefill_s=0.05, fault="429", fault_after=2, fault_every=3)
    offered = _offer(does, 2.5, rate_per_s=60)

    refused = [row for row in offered.rows if row["outcome"] == "refused"]
    assert refused
    assert {row["first_ns"] for row in refused} == {None}
    share = offered.figure("failed_share")
    assert share == pytest.approx(1 / 3, abs=0.1)
    first_s = offered.figure("ttft_p50_s")
    assert first_s is not None
    assert first_s >= does.prefill_s


def test_a_server_without_usage_is_not_measured_by_counting_events() -> None:
    outcome, reason = _offer(Behaviour(usage="missing"), 2.5, kind="closed", users=1).end
    assert outcome == "unsupported"
    assert "usage" in reason


def test_the_limit_that_a_search_finds_is_that_of_the_queue() -> None:
    """Of 100 such searches in virtual time, 8 find no limit, the others 0.74 to 1.25 times the true one."""
    does = Behaviour(slots=4, prefill_s=0.02, decode_s=0.004)
    load = replace(LOAD, kind="search", ttft_s=0.05)
    for seed in range(4):
        offered = _offer(does, 28, kind="search", ttft_s=load.ttft_s, seed=seed)
        if offered.end == ("ok", ""):
            break

    assert offered.end == ("ok", "")
    (block,) = offered.of_kind("block")
    found_per_s = block["steps"] / (block["wall_ns"] * 1e-9)
    assert found_per_s == pytest.approx(limit_in_theory(does, load), rel=0.4)


def test_a_client_that_is_slower_than_the_server_says_so_and_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its event loop is held up for 15 ms again and again, as by a client without enough CPU."""
    start = LagProbe.start

    def held_up(probe: LagProbe) -> None:
        start(probe)
        loop = asyncio.get_running_loop()

        def hold_up() -> None:
            until_s = loop.time() + 0.015
            while loop.time() < until_s:
                pass
            loop.call_later(0.01, hold_up)

        hold_up()

    monkeypatch.setattr(LagProbe, "start", held_up)
    for seconds in (2.5, 5.0, 10.0):
        with serving_process(_DOES) as url:
            outcome, reason = offer(url, seconds, kind="closed", users=2).end
        if not reason.startswith("too slow for its"):  # on a busy box, no request fits into its window
            break
    assert outcome == "skipped"
    assert reason.startswith("the client was the bottleneck")


def test_answers_that_arrive_in_one_piece_have_no_time_per_token() -> None:
    """As from a proxy that buffers: the time to the first token is then that of all."""
    does = Behaviour(slots=4, prefill_s=0.15, decode_s=0.005, events_per_write=1000)
    offered = _offer(does, 2.5, kind="closed", users=2)

    assert offered.end == ("ok", "")
    assert offered.figure("tpot_p50_s") is None
    first_s = offered.figure("ttft_p50_s")
    assert first_s is not None
    assert first_s >= service_s(does, LOAD.output_tokens)
