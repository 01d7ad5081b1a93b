"""Where a server is: the parts of its URL, and the connection settings that follow from them."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit


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
