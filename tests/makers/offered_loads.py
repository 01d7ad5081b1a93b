"""Loads as a worker offers them, without a supervisor: what it reports, and what theory says of it."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any  # Any: messages of the channel

from model_server import Behaviour
from queue_theory import waits_s

from gputui.worker.channel import Channel
from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.load_launch import LoadLaunch

LOAD = PlannedLoad("", "completions", "made-up-1b", output_tokens=10, kind="open", prompt_tokens=20)


class _Heard(Channel):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: object) -> None:
        self.messages.append({"kind": kind, **fields})


@dataclass(frozen=True)
class Offered:
    """What one launch reported."""

    messages: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["kind"] == kind]

    @property
    def end(self) -> tuple[str, str]:
        """Outcome and reason."""
        return self.messages[-1]["outcome"], self.messages[-1]["reason"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Requests of all steps, in the order in which they were due."""
        return [row for message in self.of_kind("requests") for row in message["rows"]]

    def figure(self, key: str) -> float | None:
        return next((message["value"] for message in self.of_kind("figure") if message["key"] == key), None)


def offer(url: str, seconds: float, seed: int = 0, **changed: Any) -> Offered:
    """Offer a load for so long, from this process, and return when all is reported."""
    described = {
        "cases": [{"load": asdict(replace(LOAD, url=url, **changed))}],
        "allowance_s": seconds,
        "replicate": 0,
        "seed": seed,
    }
    heard = _Heard()
    LoadLaunch(described, heard, time.monotonic_ns()).run()
    return Offered(heard.messages)


def capacity_per_s(does: Behaviour, tokens: int) -> float:
    return does.slots / service_s(does, tokens)


def service_s(does: Behaviour, tokens: int) -> float:
    return does.prefill_s + (tokens - 1) * does.decode_s


@dataclass(frozen=True)
class Errors:
    """Times of the requests of an open load that count, as predicted from when each was due, and as seen."""

    predicted_s: list[float]
    seen_s: list[float]

    @property
    def median_s(self) -> float:
        return statistics.median(abs(s - p) for p, s in zip(self.predicted_s, self.seen_s, strict=True))

    @property
    def means_s(self) -> tuple[float, float]:
        return statistics.fmean(self.predicted_s), statistics.fmean(self.seen_s)

    def quantiles_s(self, share: float) -> tuple[float, float]:
        rank = int(share * len(self.seen_s))
        return sorted(self.predicted_s)[rank], sorted(self.seen_s)[rank]


def first_tokens(does: Behaviour, offered: Offered) -> Errors:
    """TTFT of each counted request of one open load, predicted and seen. The server must be idle before."""
    rows = offered.rows
    due_s = [row["due_ns"] * 1e-9 for row in rows]
    services = [service_s(does, LOAD.output_tokens)] * len(rows)
    waits = waits_s(due_s, services, does.slots)
    pairs = [
        (wait + does.prefill_s, (row["first_ns"] - row["due_ns"]) * 1e-9)
        for wait, row in zip(waits, rows, strict=True)
        if row["counts"] and row["outcome"] == "ok"
    ]
    return Errors([predicted for predicted, _ in pairs], [seen for _, seen in pairs])
