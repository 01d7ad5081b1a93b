"""Where a server is, how a request is written, and one to it, answered in full before a deadline."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any  # Any: a server's JSON
from urllib.parse import urlsplit

from ..foreign_json import read_json
from .answer import body_of, chunks_end, head_of


@dataclass(frozen=True)
class Address:
    """A server's address. Holds no password: `address_of` refuses a URL with one."""

    host: str
    port: int
    is_tls: bool
    base: str
    """Path before `/chat/completions`: `/v1`, or that of a proxy; no slash at the end."""

    @property
    def host_header(self) -> str:
        """As HTTP wants it: with the port unless it is the usual one, an IPv6 address in brackets."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_tls else 80) else f"{name}:{self.port}"

    @property
    def root(self) -> str:
        """Path of what lies beside `/v1`: `/metrics`, `/version`; usually empty."""
        return self.base[: -len("/v1")] if self.base.endswith("/v1") else self.base

    def ssl_context(self) -> ssl.SSLContext | None:
        """For TLS, with the system's certificates or those of $SSL_CERT_FILE; None without TLS."""
        return ssl.create_default_context() if self.is_tls else None


def address_of(url: str) -> Address:
    """The address in a URL such as `http://127.0.0.1:8000` or `https://api.example.com/v1`.

    Without a scheme it is http, without a path `/v1`. Raises ValueError with a sentence that never repeats a
    password.
    """
    text = url.strip()
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{parts.scheme}:// is neither http:// nor https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL must not contain a user or a password: name a key with --api-key-env")
    if parts.query or parts.fragment:
        raise ValueError("a URL of a server has no ? and no #")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port is not a number from 0 to 65535") from None
    if not parts.hostname:
        raise ValueError("it names no host")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("no host can have such a name") from None
    base = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        base = base[: -len(ending)] if base.endswith(ending) else base
    if not base.isascii() or any(character <= " " or character == "\x7f" for character in base):
        raise ValueError("its path has spaces, control characters or letters that are not ASCII")
    is_tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if is_tls else 80), is_tls, base or "/v1")


def is_own(host: str) -> bool:
    """Whether a host name leads to this box: a loopback address, or one that a socket can be bound to."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as one:
                one.bind(place)
        except OSError:
            continue
        return True
    return False


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


@dataclass(frozen=True)
class Body:
    """How a request is written for one server."""

    api: str
    """`chat` or `completions`."""
    model: str
    output_tokens: int
    limit_name: str = "max_tokens"
    """Or `max_completion_tokens`."""
    ignores_eos: bool = True
    """Whether to ask for exactly `output_tokens`."""
    asks_usage: bool = True
    extra: str = "{}"
    """A JSON object that is merged into the request."""
    has_messages: bool = False
    """Whether prompts are whole JSON values of `messages`, not letters within a text."""

    def around(self) -> tuple[bytes, bytes]:
        """What stands before the prompt, and after it. A prompt of letters and spaces needs no escapes."""
        plain: dict[str, object] = {"model": self.model, self.limit_name: self.output_tokens, "stream": True}
        if self.asks_usage:
            plain["stream_options"] = {"include_usage": True}
        if self.ignores_eos:
            plain["ignore_eos"] = True
        plain |= read_json(self.extra)
        mark, quote = "@", "" if self.has_messages else '"'
        if self.has_messages:
            plain["messages"] = mark
        elif self.api == "chat":
            plain["messages"] = [{"role": "user", "content": mark}]
        else:
            plain["prompt"] = mark
        before, _, after = json.dumps(plain).rpartition(f'"{mark}"')
        return f"{before}{quote}".encode(), f"{quote}{after}".encode()
