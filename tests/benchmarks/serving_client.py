"""What the client of serve-bench costs and how late it is, beside aiohttp with json:

    python tests/benchmarks/serving_client.py [--seconds S] [--rates N,N] [--streams N,N]

A server in a process of its own writes chat chunks of 240 bytes to all streams, evenly in time, each with the
instant of its write. Lag is the client's stamp minus that instant. CPU is that of the client's process while
tokens arrive, and after it for reading what was recorded. All share the CPUs of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import ClassVar

STAMP = re.compile(rb'"t=(\d+)')
CLIENTS = ("ours", "ours, asyncio", "aiohttp, json", "aiohttp, json, uvloop")


def chunk(now_ns: int) -> bytes:
    """One event of 240 bytes in chunked coding."""
    plain = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "made-up-1b",
        "choices": [
            {"index": 0, "delta": {"content": f"t={now_ns} "}, "logprobs": None, "finish_reason": None}
        ],
    }
    event = b"data: %s" % json.dumps(plain).encode()
    event = event.ljust(238) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


class Streams(asyncio.Protocol):
    """Answers every request with a stream that lasts as long as all do."""

    open: ClassVar[list[asyncio.Transport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        if self.read.endswith(b"}"):
            self.read = b""
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self.open.append(self.transport)


async def serve(streams: int, rate: float, seconds: float) -> None:
    """Write `rate` events a second, in turn to `streams` streams, once so many are open."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Streams, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    while len(Streams.open) < streams:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    begun_s = loop.time()
    sent = 0
    while (at_s := loop.time() - begun_s) < seconds:
        due = int(at_s * rate)
        while sent < due:
            Streams.open[sent % streams].write(chunk(time.monotonic_ns()))
            sent += 1
        await asyncio.sleep(0.001)
    end = b"data: [DONE]\n\n"
    for transport in Streams.open:
        transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))
    await asyncio.sleep(1)


async def ours(port: int, streams: int) -> tuple[float, float, list[float]]:
    """CPU seconds while tokens arrive and after it, and lags in seconds."""
    from gputui.worker.serving import PlannedLoad
    from gputui.worker.serving.client import Client, Exchange, without_collections

    done = asyncio.Event()

    def on_end(exchange: Exchange) -> None:
        if not client.waiting:
            done.set()

    client = Client(PlannedLoad(f"http://127.0.0.1:{port}", "chat", "made-up-1b", 10), "", on_end)
    await client.open(streams)
    with without_collections():
        for index in range(streams):
            client.send(index, b"hello", time.monotonic_ns())
        await asyncio.sleep(0.2)
        begun_s = time.process_time()
        await done.wait()
        cpu_s = time.process_time() - begun_s
    begun_s = time.process_time()
    lags = []
    for exchange in client.exchanges:
        assert exchange.answer().outcome == "ok"
    parsing_s = time.process_time() - begun_s
    for exchange in client.exchanges:
        for stamp_ns, read in zip(exchange.stamps_ns, exchange.reads, strict=True):
            lags += [(stamp_ns - int(sent)) * 1e-9 for sent in STAMP.findall(read)]
    return cpu_s, parsing_s, lags


async def aiohttp_json(port: int, streams: int) -> tuple[float, float, list[float]]:
    """As load generators commonly do it: parse each line when it comes."""
    import aiohttp

    lags: list[float] = []
    connector = aiohttp.TCPConnector(limit=0)

    async def one(session: aiohttp.ClientSession) -> None:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        async with session.post(url, json={"model": "made-up-1b", "stream": True}) as answer:
            async for line in answer.content:
                now_ns = time.monotonic_ns()
                if line.startswith(b"data: {"):
                    content = json.loads(line[6:])["choices"][0]["delta"]["content"]
                    lags.append((now_ns - int(content[2:])) * 1e-9)

    gc.freeze()
    async with aiohttp.ClientSession(connector=connector) as session:
        tasks = [asyncio.create_task(one(session)) for _ in range(streams)]
        await asyncio.sleep(0.2)
        begun_s = time.process_time()
        await asyncio.gather(*tasks)
        return time.process_time() - begun_s, 0.0, lags


def measure(client: str, port: int, streams: int) -> None:
    """Run one client in this process and print its figures as JSON."""
    if client == "ours" or client.endswith("uvloop"):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    load = ours(port, streams) if client.startswith("ours") else aiohttp_json(port, streams)
    cpu_s, parsing_s, lags = loop.run_until_complete(load)
    lags.sort()
    found = {
        "tokens": len(lags),
        "cpu_us": 1e6 * cpu_s / len(lags),
        "parsing_us": 1e6 * parsing_s / len(lags),
        "p50_ms": 1e3 * lags[len(lags) // 2],
        "p99_ms": 1e3 * lags[int(0.99 * len(lags))],
    }
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rates", default="1000,5000,10000")
    parser.add_argument("--streams", default="50,200,500")
    given = parser.parse_args()
    missing = [name for name in ("uvloop", "aiohttp") if find_spec(name) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}. Install with: pip install {' '.join(missing)}")
    print(f"{'client':<22}{'streams':>8}{'tok/s':>8}{'CPU us':>8}{'after':>7}{'p50 ms':>8}{'p99 ms':>8}")
    for streams in map(int, given.streams.split(",")):
        for rate in map(float, given.rates.split(",")):
            for client in CLIENTS:
                one(client, streams, rate, given.seconds)


def one(client: str, streams: int, rate: float, seconds: float) -> None:
    command = [sys.executable, __file__]
    with subprocess.Popen(
        [*command, "serve", str(streams), str(rate), str(seconds)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            done = subprocess.run(
                [*command, "client", client, port, str(streams)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=seconds + 60,
            )
        finally:
            server.kill()
    found = json.loads(done.stdout)
    print(
        f"{client:<22}{streams:>8}{found['tokens'] / seconds:>8.0f}{found['cpu_us']:>8.1f}"
        f"{found['parsing_us']:>7.1f}{found['p50_ms']:>8.2f}{found['p99_ms']:>8.2f}",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
    elif sys.argv[1:2] == ["client"]:
        measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
