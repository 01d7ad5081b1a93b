"""A server that sends what it is told: anything, drop by drop, or without an end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

MODELS = json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]}).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
Answer = Callable[[str, Callable[[bytes], None]], None]
"""Answers a request for a path by what it sends."""


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server whose every connection has a thread; its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads: list[threading.Thread] = []
    is_over = threading.Event()

    def serve(connection: socket.socket) -> None:
        def send(data: bytes) -> None:
            if is_over.is_set():
                raise BrokenPipeError
            connection.sendall(data)

        with connection, suppress(OSError):
            answer(connection.recv(1 << 16).decode("latin-1").split(" ")[1], send)

    def accept() -> None:
        with suppress(OSError):
            while True:
                one = threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True)
                one.start()
                threads.append(one)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in (thread, *threads):
            one.join(5)


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def drop_by_drop(data: bytes) -> Answer:
    def answer(path: str, send: Callable[[bytes], None]) -> None:
        for at in range(len(data)):
            send(data[at : at + 1])
            time.sleep(0.05)  # the drops are what is tested

    return answer


def without_end(head: bytes, piece: bytes) -> Answer:
    def answer(path: str, send: Callable[[bytes], None]) -> None:
        send(head)
        while True:
            send(piece)

    return answer


def once(data: bytes, then_silent: bool = False) -> Answer:
    def answer(path: str, send: Callable[[bytes], None]) -> None:
        send(data)
        while then_silent:
            time.sleep(0.05)
            send(b"")  # until the test is over

    return answer
