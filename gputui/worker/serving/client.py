"""Sends requests and records the bytes of their answers, each read with its instant; parses none meanwhile.

A client that decodes JSON while 500 streams write measures itself. So a read costs one stamp and two appends,
and whether an answer has ended is seen from its last bytes. `answer` reads the recordings after the load.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import cast

from . import PlannedLoad
from .answer import UNFINISHED, UNREACHABLE, Head, ServerAnswer, chunks_end, head_of, read_answer
from .request import address_of, around_prompt

LAG_PERIOD_S = 0.01
CONNECT_TIMEOUT_S = 10.0
READ_LIMIT_BYTES = 16 * 2**20
"""Of one answer; a server that sends more is not one that streams tokens. Then only its beginning is kept."""
NEWEST = 3
FRESH_S = 4.0
"""uvicorn, and others, drop connections that were idle for five seconds."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, and the bytes of its answer as they came. All instants are monotonic nanoseconds."""

    index: int
    body: bytes
    """The prompt alone."""
    due_ns: int
    """When it was to be sent."""
    queued_ns: int = 0
    """When the client took it up."""
    sent_ns: int = 0
    """When its bytes were handed to the socket; 0 if they never were."""
    ended_ns: int = 0
    """When the answer was complete or the connection lost; 0 while neither is so."""
    in_flight: int = 0
    """Requests without an end at that time, this one not counted."""
    reads: list[bytes] = field(default_factory=list)
    stamps_ns: list[int] = field(default_factory=list)
    is_closed: bool = False
    is_stopped: bool = False

    def answer(self) -> ServerAnswer:
        """What the answer says; slow, so only after the load."""
        if not self.sent_ns:
            if self.is_stopped:
                return ServerAnswer(UNFINISHED, "the load was over")
            return ServerAnswer(UNREACHABLE, "no connection")
        return read_answer(self.reads, self.stamps_ns, was_closed=self.is_closed, was_stopped=self.is_stopped)


class _Connection(asyncio.Protocol):
    """One connection, which carries one exchange at a time. Only the event loop calls it."""

    __slots__ = ("_client", "_head", "_joined", "_scanned", "exchange", "idle_s", "is_open", "transport")

    def __init__(self, client: Client) -> None:
        self._client = client
        self.transport: asyncio.Transport
        self.exchange: Exchange | None = None
        self.is_open = False
        self.idle_s = 0.0
        self._head: Head | None = None
        self._joined = 0
        self._scanned = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its class
        self.is_open = True
        self.idle_s = time.monotonic()

    def send(self, exchange: Exchange, data: bytes) -> None:
        self.exchange = exchange
        self._head, self._joined, self._scanned = None, 0, 0
        exchange.sent_ns = time.monotonic_ns()
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        exchange = self.exchange
        if exchange is None:
            return
        exchange.stamps_ns.append(now_ns)
        exchange.reads.append(data)
        self._joined += len(data)
        try:
            if self._head is None:
                self._head = head_of(b"".join(exchange.reads))
                if self._head is None:
                    return
            if self._is_complete(exchange, self._head):
                self._end(exchange, now_ns)
        except ValueError:
            self.transport.abort()
        if self._joined > READ_LIMIT_BYTES:
            del exchange.reads[1:], exchange.stamps_ns[1:]
            self.transport.abort()

    def _is_complete(self, exchange: Exchange, head: Head) -> bool:
        if head.content_length is not None:
            return self._joined - head.size >= head.content_length
        if not head.is_chunked:
            return False  # it ends with the connection
        last = exchange.reads[-1]
        tail = last if len(last) >= 6 else b"".join(exchange.reads[-6:])
        if not tail.endswith(b"\n0\r\n\r\n"):
            return False  # most reads: the middle of an answer
        raw = b"".join(exchange.reads)  # a candidate: at most a few times per answer
        self._scanned, is_end = chunks_end(raw, max(self._scanned, head.size))
        return is_end

    def _end(self, exchange: Exchange, now_ns: int) -> None:
        head = self._head
        exchange.ended_ns = now_ns
        self.exchange = None
        self.idle_s = time.monotonic()
        if head is not None and head.closes:
            self.close()
        self._client.ended(exchange, self)

    def close(self) -> None:
        self.is_open = False
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.is_closed = True
            if not exchange.reads and not exchange.is_stopped and self._client.resend(exchange):
                return
            exchange.ended_ns = time.monotonic_ns()
            self._client.ended(exchange, self)


class Client:
    """Requests to one server from the running event loop. Everything happens in that loop's thread.

    Connections are opened beforehand (`open`) and used again, unless the server closes them after an answer.
    """

    def __init__(self, load: PlannedLoad, key: str, on_end: Callable[[Exchange], None]) -> None:
        self._address = address = address_of(load.url)
        self._ssl = address.ssl_context()
        self._around = around_prompt(load)
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = (
            f"POST {address.path_of(load.api)} HTTP/1.1\r\nHost: {address.host_header}\r\n{authorization}"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\nUser-Agent: gputui\r\n"
            "Content-Length: "
        ).encode()
        self.on_end = on_end
        """Gets every exchange that has ended."""
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._resent: set[Exchange] = set()
        self.waiting: set[Exchange] = set()
        """Those taken up and not ended."""
        self.exchanges: list[Exchange] = []
        """All since `clear`, in the order in which they were taken up."""
        self.resent = 0
        """Requests that were sent again, as the server had closed their connection before it answered."""
        self.opened = 0
        """Connections that were opened when a request already waited for one."""
        self.ended_count = 0
        self.newest: deque[Exchange] = deque(maxlen=NEWEST)
        self.failure = ""
        """Why the last connection could not be opened."""

    @property
    def has_idle(self) -> bool:
        """Whether the server keeps connections open: those of llama.cpp occupy a thread each meanwhile."""
        self._drop_stale()
        return bool(self._idle)

    async def open(self, connections: int) -> None:
        """Open connections until there are so many idle ones. Raises OSError if one cannot be opened."""
        self._drop_stale()
        missing = connections - len(self._idle)
        for done in await asyncio.gather(*(self._connect() for _ in range(max(missing, 0)))):
            self._idle.append(done)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        made: _Connection
        _, made = await asyncio.wait_for(
            loop.create_connection(
                lambda: _Connection(self),
                self._address.host,
                self._address.port,
                ssl=self._ssl,
                server_hostname=self._address.host if self._ssl else None,
            ),
            CONNECT_TIMEOUT_S,
        )
        return made

    def send(self, index: int, body: bytes, due_ns: int) -> None:
        """Send a request with this prompt at once; `on_end` gets its exchange when it has ended."""
        exchange = Exchange(index, body, due_ns, time.monotonic_ns(), in_flight=len(self.waiting))
        self.waiting.add(exchange)
        self.exchanges.append(exchange)
        self._send(exchange)

    def resend(self, exchange: Exchange) -> bool:
        """Send once more what a closing connection swallowed; its clocks go on from `due_ns`."""
        if exchange in self._resent:
            return False
        self._resent.add(exchange)
        self.resent += 1
        exchange.is_closed = False
        exchange.sent_ns = 0
        self._send(exchange)
        return True

    def _send(self, exchange: Exchange) -> None:
        self._drop_stale()
        if self._idle:
            self._send_on(self._idle.popleft(), exchange)
            return
        self.opened += 1
        task = asyncio.get_running_loop().create_task(self._send_when_connected(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_when_connected(self, exchange: Exchange) -> None:
        try:
            connection = await self._connect()
        except (OSError, asyncio.TimeoutError) as error:
            self.failure = getattr(error, "strerror", None) or str(error) or type(error).__name__
            exchange.is_closed = True
            exchange.ended_ns = time.monotonic_ns()
            self._finish(exchange)
            return
        if exchange.is_stopped:
            connection.close()
            return
        self._send_on(connection, exchange)

    def _send_on(self, connection: _Connection, exchange: Exchange) -> None:
        before, after = self._around
        length = len(before) + len(exchange.body) + len(after)
        self._busy.add(connection)
        connection.send(exchange, b"%b%d\r\n\r\n%b%b%b" % (self._head, length, before, exchange.body, after))

    def ended(self, exchange: Exchange, connection: _Connection) -> None:
        self._busy.discard(connection)
        if connection.is_open:
            self._idle.append(connection)
        self._finish(exchange)

    def _finish(self, exchange: Exchange) -> None:
        self.waiting.discard(exchange)
        self.ended_count += 1
        self.newest.append(exchange)
        self.on_end(exchange)

    def _drop_stale(self) -> None:
        oldest_s = time.monotonic() - FRESH_S
        while self._idle and (not self._idle[0].is_open or self._idle[0].idle_s < oldest_s):
            self._idle.popleft().close()

    def stop(self) -> None:
        """Cut off what has not ended, which tells most servers to stop generating."""
        now_ns = time.monotonic_ns()
        for exchange in self.waiting:
            exchange.is_stopped = True
            exchange.ended_ns = now_ns
        self.waiting.clear()
        for connection in [*self._busy]:
            connection.exchange = None
            connection.close()
        self._busy.clear()

    def clear(self) -> list[Exchange]:
        """The exchanges so far, which are forgotten here."""
        found, self.exchanges = self.exchanges, []
        self._resent.clear()
        self.resent = self.opened = 0
        return found

    async def close(self) -> None:
        self.stop()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class LagProbe:
    """How late the event loop runs what is due: the client's own part in what it measures."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self.cpu_share = 0.0
        """Of one CPU, that this process used."""
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._begun = (0.0, 0.0)

    def start(self) -> None:
        self._begun = time.monotonic(), time.process_time()
        self._due_s = time.monotonic()
        self._again()

    def _again(self) -> None:
        now_s = time.monotonic()
        self.lags_s.append(max(now_s - self._due_s, 0.0))
        loop = asyncio.get_running_loop()
        self._due_s = now_s + LAG_PERIOD_S
        self._handle = loop.call_later(LAG_PERIOD_S, self._again)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        wall_s = time.monotonic() - self._begun[0]
        self.lags_s = self.lags_s[1:]
        self.cpu_share = (time.process_time() - self._begun[1]) / wall_s if wall_s > 0 else 0.0


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage collection meanwhile: one takes milliseconds in which no read is stamped."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def event_loop() -> tuple[asyncio.AbstractEventLoop, str]:
    """The fastest event loop that is installed, and its name: `uvloop 0.22.1`, or `asyncio`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop(), "asyncio"
    return uvloop.new_event_loop(), f"uvloop {version('uvloop')}"
