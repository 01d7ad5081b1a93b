"""Requests to the made-up server, as the client and as the server saw them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from model_server import Behaviour, ModelServer, Served, serving

from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.answer import ServerAnswer
from gputui.worker.serving.client import Client, Exchange
from gputui.worker.serving.load import Sample


@dataclass(frozen=True)
class Asked:
    """One request, as the client and as the server saw it."""

    exchange: Exchange
    answer: ServerAnswer
    served: Served | None

    @property
    def sample(self) -> Sample:
        return Sample(self.exchange, self.answer, True)

    @property
    def first_s(self) -> float:
        """From the request's bytes to the first output, as the client saw it."""
        assert self.answer.first_ns is not None
        return (self.answer.first_ns - self.exchange.sent_ns) / 1e9


def ask(
    does: Behaviour,
    *,
    requests: int = 1,
    tokens: int = 10,
    api: str = "chat",
    prompt: bytes = b"tell me a story",
    between: Callable[[ModelServer], bool] | None = None,
    stop_when: Callable[[ModelServer], bool] | None = None,
    is_at_once: bool = False,
) -> list[Asked]:
    """Send requests one after the other over one client, or all at once.

    `between` must hold before each but the first; the load ends early once `stop_when` holds.
    """
    with serving(does) as server:
        planned = PlannedLoad(f"http://127.0.0.1:{server.port}", api, does.model, tokens)

        async def load() -> list[Exchange]:
            ended = asyncio.Semaphore(0)
            client = Client(planned, does.api_key, lambda _: ended.release())
            await client.open(requests if is_at_once else 1)
            for index in range(requests):
                while index and between and not between(server):
                    await asyncio.sleep(0.002)
                client.send(index, prompt, 0)
                while stop_when and not stop_when(server):
                    await asyncio.sleep(0.002)
                if stop_when:
                    client.stop()
                elif not is_at_once:
                    await asyncio.wait_for(ended.acquire(), 60)
            for _ in range(requests if is_at_once else 0):
                await asyncio.wait_for(ended.acquire(), 60)
            await client.close()
            return client.clear()

        exchanges = asyncio.run(load())
        served = [*server.served, *[None] * requests]
        return [
            Asked(exchange, exchange.answer(), was) for exchange, was in zip(exchanges, served, strict=False)
        ]
