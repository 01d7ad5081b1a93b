"""Prints what a load on a server of known behaviour measures beside what theory says; and two traps."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from model_server import Behaviour, serving_process
from offered_loads import LOAD, capacity_per_s, first_tokens, offer

from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.client import Client, Exchange, event_loop

DOES = Behaviour(slots=8, prefill_s=0.05, decode_s=0.01)
LOADS = (0.5, 0.7, 0.95, 1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=600)
    requests = parser.parse_args().requests
    capacity = capacity_per_s(DOES, LOAD.output_tokens)
    print(
        f"{DOES.slots} slots, {1e3 * DOES.prefill_s:.0f} ms prefill, {1e3 * DOES.decode_s:.0f} ms a token,"
        f" {LOAD.output_tokens} tokens: {capacity:.1f} requests/s"
    )
    print(
        "ms, predicted / seen\nload  requests  mean TTFT        p99 TTFT         TPOT           median error"
    )
    for load in LOADS:
        against_theory(load, capacity, requests)
    cached_prompts()
    clock_behind_a_semaphore(1.1 * capacity, requests)


def against_theory(load: float, capacity: float, requests: int) -> None:
    rate = load * capacity
    with serving_process(DOES) as url:
        offered = offer(url, (requests / rate + 0.5) / 0.92, rate_per_s=rate)
    outcome, reason = offered.end
    if outcome == "unsupported":
        print(f"{load:4.2f}  {len(offered.rows):8}  {reason}")
        return
    times = first_tokens(DOES, offered)
    mean, p99 = times.means_s, times.quantiles_s(0.99)
    tpots = [
        (row["last_ns"] - row["first_ns"]) * 1e-9 / (row["output_tokens"] - 1)
        for row in offered.rows
        if row["counts"] and row["outcome"] == "ok"
    ]
    print(
        f"{load:4.2f}  {len(times.seen_s):8}  {_pair(*mean)}  {_pair(*p99)}"
        f"  {_pair(DOES.decode_s, fmean(tpots))}  {1e3 * times.median_s:6.2f}  {reason}"
    )


def _pair(predicted_s: float, seen_s: float) -> str:
    return f"{1e3 * predicted_s:6.1f} / {1e3 * seen_s:6.1f}"


def cached_prompts() -> None:
    """The same prompt again and again, as other tools send it by default, and as gputui sends prompts."""
    does = Behaviour(slots=8, prefill_s=0.2, decode_s=0.002, caches_prompts=True)
    with serving_process(does) as url:
        repeated = asyncio.run(
            _one_by_one(url, does, [b"tell me of the sea, the wind and the long way home"] * 20)
        )
        cold = offer(url, 5, kind="closed", users=1, prompt_tokens=200)
    seen_s = fmean(_from_sent(exchange) for exchange in repeated[1:])
    print("\nA server with a cache of prompts, 200 ms of prefill:")
    print(f"  one prompt repeated: TTFT {1e3 * seen_s:6.1f} ms")
    print(
        f"  gputui:              TTFT {1e3 * (cold.figure('ttft_p50_s') or 0):6.1f} ms,"
        f" {100 * (cold.figure('cached_share') or 0):.1f} % of prompt tokens from the cache"
    )


def clock_behind_a_semaphore(rate: float, requests: int) -> None:
    """Arrivals beyond the capacity, held back by the client so that as many are under way as slots."""
    loop, _ = event_loop()
    with serving_process(DOES) as url:
        exchanges = loop.run_until_complete(_held_back(url, rate, requests))
    loop.close()
    answers = [(exchange, exchange.answer()) for exchange in exchanges]
    print(f"\n110 % of the capacity, the client holds back what exceeds {DOES.slots}:")
    for title, instant in (("from send", "sent_ns"), ("from due", "due_ns")):
        first_ms = sorted(
            ((ans.first_ns or 0) - getattr(exchange, instant)) * 1e-6 for exchange, ans in answers
        )
        p99 = first_ms[int(0.99 * len(first_ms))]
        print(f"  clock {title:9}  mean TTFT {fmean(first_ms):7.1f} ms, p99 {p99:7.1f} ms")
    with serving_process(DOES) as url:
        offered = offer(url, (requests / rate + 0.5) / 0.92, rate_per_s=rate)
    print(f"  gputui: {offered.end[1]}")


async def _one_by_one(url: str, does: Behaviour, prompts: list[bytes]) -> list[Exchange]:
    ended = asyncio.Semaphore(0)
    client = Client(PlannedLoad(url, "completions", does.model, 10), "", lambda _: ended.release())
    for index, prompt in enumerate(prompts):
        client.send(index, prompt, 0)
        await ended.acquire()
    await client.close()
    return client.clear()


async def _held_back(url: str, rate: float, requests: int) -> list[Exchange]:
    """Poisson arrivals through a semaphore, as `vllm bench serve --max-concurrency` holds them back."""
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(DOES.slots)
    planned = PlannedLoad(url, "completions", DOES.model, LOAD.output_tokens)
    client = Client(planned, "", lambda _: slots.release())
    await client.open(DOES.slots)
    draw = random.Random(0)
    due_s = loop.time()
    for index in range(requests):
        due_s += draw.expovariate(rate)
        await asyncio.sleep(max(due_s - loop.time(), 0))
        await slots.acquire()
        client.send(index, b"some words", round(due_s * 1e9))
    for _ in range(DOES.slots):
        await slots.acquire()
    await client.close()
    return client.clear()


def _from_sent(exchange: Exchange) -> float:
    first_ns = exchange.answer().first_ns
    assert first_ns is not None
    return (first_ns - exchange.sent_ns) * 1e-9


if __name__ == "__main__":
    main()
