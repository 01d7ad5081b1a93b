"""Servers behind TLS: with a certificate that is trusted, and with one that is not."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path

import pytest
from model_server import Behaviour, serving
from offered_loads import offer

from gputui.worker.serving import request
from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import TIMEOUT_S, ServerError, find_server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 and its key, in one file."""
    directory = tmp_path_factory.mktemp("tls")
    file, key = directory / "both.pem", directory / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    )
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)]
    subprocess.run([*command.split(), *more], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + key.read_bytes())
    return file


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


def test_a_trusted_server_is_measured_over_tls(
    certificate: Path, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(Behaviour(slots=2, prefill_s=0.005), context) as server:
        offered = offer(f"https://127.0.0.1:{server.port}", 0.8, kind="closed", users=2)

    assert offered.rows
    assert {row["outcome"] for row in offered.rows} <= {"ok", "unfinished"}


def test_https_to_a_port_of_plain_http_is_explained_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits for the end of a request that it cannot read."""
    monkeypatch.setattr(request, "HANDSHAKE_S", 0.3)
    with serving(Behaviour()) as server:
        begun_s = time.monotonic()
        with pytest.raises(ServerError, match="this port speaks http, without TLS") as caught:
            find_server(address_of(f"https://127.0.0.1:{server.port}"), "", time.monotonic() + 30)
        assert caught.value.hint == f"try http://127.0.0.1:{server.port}"
        assert time.monotonic() - begun_s < TIMEOUT_S / 2


@pytest.mark.parametrize(
    ("scheme", "why", "hint"),
    [
        ("http", "what answers there is not HTTP", "https://"),
        ("https", "its certificate is not trusted", "SSL_CERT_FILE"),
    ],
)
def test_tls_without_trust_or_asked_for_as_plain_http_is_explained(
    context: ssl.SSLContext, scheme: str, why: str, hint: str
) -> None:
    with serving(Behaviour(), context) as server, pytest.raises(ServerError, match=why) as caught:
        find_server(address_of(f"{scheme}://127.0.0.1:{server.port}"), "", time.monotonic() + 30)
    assert hint in caught.value.hint
