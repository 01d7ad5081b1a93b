"""One request and its whole answer before a deadline, whatever the server does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any  # Any: a server's JSON

from ..foreign_json import read_json
from .address import Address
from .answer import body_of, chunks_end, head_of

MOST_BYTES = 4 * 2**20
_HANDSHAKE_S = 2.0
"""For TLS, before asking whether the port speaks plain HTTP."""


class PlainHttpError(Exception):
    """A port that was to speak TLS speaks HTTP."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    data: bytes
    raw: bytes
    """All of it, as it came."""

    def json(self) -> Any:
        """None if it is no JSON."""
        try:
            return read_json(self.data)
        except ValueError:
            return None


def request(address: Address, method: str, path: str, key: str, body: bytes, timeout_s: float) -> Reply:
    """Send a request over a new connection and wait for all of its answer, for so long in all.

    Raises OSError (TimeoutError, ssl.SSLError) for the connection, PlainHttpError, and ValueError, which says
    what is wrong, for an answer that is no HTTP or larger than MOST_BYTES.
    """
    deadline_s = time.monotonic() + timeout_s
    with contextlib.closing(_connected(address, deadline_s)) as connection:
        connection.settimeout(_left_s(deadline_s))
        connection.sendall(_head(address, method, path, key, body) + body)
        return _answer(connection, deadline_s)


def _head(address: Address, method: str, path: str, key: str, body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.host_header}", "User-Agent: gputui"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def _answer(connection: socket.socket, deadline_s: float) -> Reply:
    raw, head, scanned, is_whole = bytearray(), None, 0, False
    while not is_whole:
        connection.settimeout(_left_s(deadline_s))
        data = connection.recv(1 << 16)
        raw += data
        if len(raw) > MOST_BYTES:
            raise ValueError(f"it sends more than {MOST_BYTES >> 20} MiB")
        while head is None and (head := head_of(bytes(raw))) is not None and head.status < 200:
            raw, head = raw[head.size :], None  # 103 and the like come before the answer
        if head is not None and head.is_chunked:
            scanned, is_whole = chunks_end(raw, max(scanned, head.size))
        elif head is not None and head.content_length is not None:
            is_whole = len(raw) - head.size >= head.content_length
        if not data:
            break
    if head is None:
        raise ValueError("it closed the connection without an answer" if not raw else "its answer is cut off")
    return Reply(head.status, head.headers, body_of(bytes(raw), head)[0], bytes(raw))


def _left_s(deadline_s: float) -> float:
    """Raises TimeoutError if nothing is left."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _connected(address: Address, deadline_s: float) -> socket.socket:
    """Connect, with TLS if that is wanted: a server of plain HTTP may wait for more of what it cannot read,
    so it is soon asked."""
    context = address.ssl_context()
    if context is None:
        return _tcp(address, deadline_s)
    try:
        return _with_tls(context, address, min(time.monotonic() + _HANDSHAKE_S, deadline_s))
    except ssl.SSLCertVerificationError:
        raise
    except (TimeoutError, ssl.SSLError) as error:
        if _speaks_plain_http(address, min(time.monotonic() + _HANDSHAKE_S, deadline_s)):
            raise PlainHttpError from error
        if isinstance(error, ssl.SSLError):
            raise
        return _with_tls(context, address, deadline_s)


def _tcp(address: Address, deadline_s: float) -> socket.socket:
    return socket.create_connection((address.host, address.port), _left_s(deadline_s))


def _with_tls(context: ssl.SSLContext, address: Address, deadline_s: float) -> socket.socket:
    plain = _tcp(address, deadline_s)
    try:
        plain.settimeout(_left_s(deadline_s))
        return context.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise


def _speaks_plain_http(address: Address, deadline_s: float) -> bool:
    try:
        with contextlib.closing(_tcp(address, deadline_s)) as connection:
            connection.sendall(_head(address, "GET", f"{address.base}/models", "", b""))
            return _answer(connection, deadline_s).status < 500
    except (OSError, ValueError):
        return False
