"""What is asked where: a server's address, prompts, a request's bytes; and one request answered in full."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: JSON of a server or a file
from urllib.parse import urlsplit

from ..foreign_json import read_json
from . import PlannedLoad
from .answer import body_of, chunks_end, head_of

# --- where


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

    def path_of(self, api: str) -> str:
        return f"{self.base}/chat/completions" if api == "chat" else f"{self.base}/completions"

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
        base = base.removesuffix(ending)
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
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
            one.bind(place)
            return True
    return False


# --- what: words at random, or the lines of a file

_NOUNS = (
    "time year people way day man thing woman life child world school state family student group"
    " country problem hand part place case week company system program question work government number"
    " night point home water room mother area money story fact month lot right study book eye job word"
    " business issue side kind head house service friend father power hour game line end member law"
    " car city community name president team minute idea body information back parent face others"
    " level office door health person art war history party result change morning reason research girl"
    " guy moment air teacher force"
)
"""Frequent English nouns: one token each in most vocabularies."""
_WORDS = _NOUNS.split()
TOKENS_PER_WORD = 1.2
"""Before the server has counted any."""
LENGTHS = 0.25
"""Prompts are up to so much shorter or longer than the mean, each length as likely."""


class Prompts:
    """Prompts of words that are drawn anew for each, so that no two have a sentence in common.

    Of a shared prefix, the words are the same in every prompt of the profile, on every box.
    """

    def __init__(
        self,
        tokens: int,
        shared_tokens: int,
        words_seed: bytes,
        tokens_per_word: float,
        lengths_seed: str = "",
    ) -> None:
        """`words_seed`: of this launch alone, so that a server that stays up has not seen its prompts;
        `lengths_seed`: of this launch on every box."""
        self._draw = random.Random(words_seed)
        self._lengths = random.Random(lengths_seed)
        shared = max(round(shared_tokens / tokens_per_word), 0)
        self._prefix = "".join(f"{word} " for word in random.Random(7).choices(_WORDS, k=shared))
        self._words = max(round(tokens / tokens_per_word) - shared, 1)
        self.words = shared + self._words

    def usual(self) -> bytes:
        """One of the mean length."""
        return self._of(self._words)

    def next(self) -> bytes:
        return self._of(round(self._words * self._lengths.uniform(1 - LENGTHS, 1 + LENGTHS)))

    def _of(self, words: int) -> bytes:
        return f"{self._prefix}{' '.join(self._draw.choices(_WORDS, k=max(words, 1)))}".encode()


_MOST_FILE_BYTES, _MOST_LINE_BYTES = 64 * 2**20, 2**20
_WANTED = 'a line is {"text": "..."} or {"messages": [{"role": "user", "content": "..."}]}'


class FilePrompts:
    """The prompts of a file in an order that a seed decides, again from the first after the last."""

    words = 1

    def __init__(self, prompts: list[bytes], order_seed: str) -> None:
        self._prompts = random.Random(order_seed).sample(prompts, len(prompts))
        self._sent = 0

    def usual(self) -> bytes:
        """The longest."""
        return max(self._prompts, key=len)

    def next(self) -> bytes:
        self._sent += 1
        return self._prompts[(self._sent - 1) % len(self._prompts)]


def prompts_in(path: Path, api: str) -> tuple[list[bytes], str]:
    """The prompts of a JSONL file as requests have them, and a hash of all.

    Of chat each is a JSON value of `messages`, else a text within quotes. Raises OSError, and ValueError that
    names the line and repeats none of it.
    """
    if not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        data = file.read(_MOST_FILE_BYTES + 1)
    if len(data) > _MOST_FILE_BYTES:
        raise ValueError(f"it has more than {_MOST_FILE_BYTES >> 20} MiB")
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                found.append(_prompt(line, api))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    if not found:
        raise ValueError(f"it has no prompt: {_WANTED}")
    return found, hashlib.sha256(data).hexdigest()[:16]


def _prompt(line: bytes, api: str) -> bytes:
    try:
        plain = read_json(line, _MOST_LINE_BYTES)
    except json.JSONDecodeError:
        raise ValueError(f"it is not JSON: {_WANTED}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    text, messages = (plain.get("text"), plain.get("messages")) if isinstance(plain, dict) else (None, None)
    if isinstance(text, str) and text.strip() and messages is None:
        if api == "chat":
            return json.dumps([{"role": "user", "content": text}]).encode()
        return json.dumps(text)[1:-1].encode()
    if text is not None or not _are_messages(messages):
        raise ValueError(_WANTED)
    if api != "chat":
        raise ValueError("messages need --api chat")
    return json.dumps(messages).encode()


def _are_messages(plain: Any) -> bool:
    return (
        isinstance(plain, list)
        and len(plain) > 0
        and all(isinstance(one, dict) for one in plain)
        and all(isinstance(one.get(key), str) for one in plain for key in ("role", "content"))
    )


def around_prompt(load: PlannedLoad) -> tuple[bytes, bytes]:
    """The body of a request: what stands before the prompt, and after it.

    A prompt of letters and spaces needs no escapes; in chat, those of a file are whole values of `messages`.
    """
    plain: dict[str, object] = {"model": load.model, load.limit_name: load.output_tokens, "stream": True}
    if load.asks_usage:
        plain["stream_options"] = {"include_usage": True}
    if load.ignores_eos:
        plain["ignore_eos"] = True
    plain |= read_json(load.extra)
    mark, quote = "@", '"'
    if load.api != "chat":
        plain["prompt"] = mark
    elif load.prompts_path:
        plain["messages"], quote = mark, ""
    else:
        plain["messages"] = [{"role": "user", "content": mark}]
    before, _, after = json.dumps(plain).rpartition(f'"{mark}"')
    return f"{before}{quote}".encode(), f"{quote}{after}".encode()


# --- one request

_MOST_BYTES = 4 * 2**20
HANDSHAKE_S = 4.0
"""For TLS: a server of plain HTTP may wait for more of what it cannot read."""


class NoTlsError(OSError):
    """A port does not speak TLS, and why that seems so."""


@dataclass(frozen=True)
class Reply:
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

    Raises OSError (TimeoutError, NoTlsError) for the connection, and ValueError, which says what is wrong,
    for an answer that is no HTTP or too large.
    """
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.host_header}", "User-Agent: gputui"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    data = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
    deadline_s = time.monotonic() + timeout_s
    with contextlib.closing(_connected(address, deadline_s)) as connection:
        connection.settimeout(_left_s(deadline_s))
        connection.sendall(data)
        return _answer(connection, deadline_s)


def _connected(address: Address, deadline_s: float) -> socket.socket:
    connection = socket.create_connection((address.host, address.port), _left_s(deadline_s))
    context = address.ssl_context()
    if context is None:
        return connection
    try:
        connection.settimeout(min(_left_s(deadline_s), HANDSHAKE_S))
        return context.wrap_socket(connection, server_hostname=address.host)
    except OSError as error:
        connection.close()
        if isinstance(error, TimeoutError | ssl.SSLError) and not isinstance(error, ssl.CertificateError):
            raise NoTlsError(getattr(error, "reason", None) or "no handshake in time") from error
        raise


def _answer(connection: socket.socket, deadline_s: float) -> Reply:
    raw, head, scanned, is_whole = bytearray(), None, 0, False
    while not is_whole:
        connection.settimeout(_left_s(deadline_s))
        data = connection.recv(1 << 16)
        raw += data
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"it sends more than {_MOST_BYTES >> 20} MiB")
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
