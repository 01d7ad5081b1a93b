"""LLM servers that answer wrongly, without an end or drop by drop: each ends in one line, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from command_line import gputui
from hostile_server import CHUNKED, EVENT, MODELS, Answer, answering, drop_by_drop, once, whole, without_end

from gputui.worker.serving import PlannedLoad, server
from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import ServerError, accepted_load, find_server, metrics_in, read_metrics

IDENTITIES: dict[str, tuple[Answer, str]] = {
    "deep JSON": (once(whole(b"[" * 100_000)), "no list of models"),
    "a negative chunk": (once(CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n"), "its chunks are malformed"),
    "a signed chunk": (once(CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n"), "its chunks are malformed"),
    "a chunk too large for any number": (once(CHUNKED + b"f" * 40 + b"\r\nx"), "its chunks are malformed"),
    "a huge chunk, then silence": (
        once(CHUNKED + b"7fffffff\r\nhello", then_silent=True),
        "no whole answer to GET /v1/models within 1 s",
    ),
    "chunk sizes without an end": (
        without_end(CHUNKED, b"0" * 65536),
        "its chunks are malformed",
    ),
    "a body without an end": (without_end(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), "more than 4 MiB"),
    "a head without an end": (
        without_end(b"HTTP/1.1 200 OK\r\n", b"x-a: " + b"y" * 1000 + b"\r\n"),
        "not HTTP",
    ),
    "hints without an end": (without_end(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100), "within 1 s"),
    "headers drop by drop": (
        drop_by_drop(b"HTTP/1.1 200 OK\r\nx-a: " + b"y" * 10_000),
        "no whole answer to GET /v1/models within 1 s",
    ),
    "a body drop by drop": (drop_by_drop(whole(MODELS + b" " * 10_000)), "within 1 s"),
    "a length in other digits": (
        once("HTTP/1.1 200 OK\r\nContent-Length: ²³\r\n\r\n".encode("latin-1")),
        "no list of models",
    ),
    "a status in other digits": (once("HTTP/1.1 ²00 OK\r\n\r\n".encode("latin-1")), "not HTTP"),
    "hints, and no answer": (once(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3), "without an answer"),
    "no answer at all": (once(b""), "closed the connection without an answer"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_server_that_says_wrongly_what_it_is_is_refused_in_one_line_and_in_time(name: str) -> None:
    answer, why = IDENTITIES[name]
    with answering(answer) as url:
        begun_s = time.monotonic()
        with pytest.raises(ServerError) as caught:
            find_server(address_of(url), "", time.monotonic() + 0.7)
        took_s = time.monotonic() - begun_s
    assert why in caught.value.message
    assert "\n" not in caught.value.message
    assert took_s < 8


def test_all_questions_together_have_one_deadline() -> None:
    """Each alone would be in time."""

    def answer(path: str, send: Callable[[bytes], None]) -> None:
        if path == "/v1/models":
            send(whole(MODELS.replace(b"vllm", b"library")))
        else:
            drop_by_drop(whole(b" " * 10_000))(path, send)

    with answering(answer) as url:
        begun_s = time.monotonic()
        found = find_server(address_of(url), "", time.monotonic() + 0.7)
        assert time.monotonic() - begun_s < 5
        with pytest.raises(ServerError, match="no whole answer to POST /v1/chat/completions within"):
            accepted_load(PlannedLoad(url, "chat", "m", 5), "", b"hello", time.monotonic() + 0.5)
        assert time.monotonic() - begun_s < 10
    assert (found.engine, found.models) == ("Ollama", ("m",))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"data: " + b"[" * 100_000 + b"\n\n", "the answer has no output"),
        (b'data: {"choices": ' + b'{"a":' * 100_000 + b"\n\n", "the answer has no output"),
        (EVENT.replace(b'"a"', rb'"\ud800"'), "the answer has no output"),
    ],
    ids=["deep", "deep objects", "half a character"],
)
def test_an_event_that_cannot_be_read_is_no_output(event: bytes, why: str) -> None:
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event + b"data: [DONE]\n\n"
    with answering(once(stream)) as url, pytest.raises(ServerError, match=why):
        accepted_load(PlannedLoad(url, "chat", "m", 5), "", b"hello", time.monotonic() + 5)


@pytest.mark.parametrize("count", ["-1", "1e308", str(2**40), "9" * 400, "true", '"5"', "[5]"])
def test_a_count_of_tokens_that_none_can_be_is_absent(count: str) -> None:
    usage = f'data: {{"choices": [], "usage": {{"completion_tokens": {count}}}}}\n\n'.encode()
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENT + usage
    with answering(once(stream + b"data: [DONE]\n\n")) as url:
        _, answer = accepted_load(PlannedLoad(url, "chat", "m", 5), "", b"hello", time.monotonic() + 5)
    assert (answer.outcome, answer.usage.output) == ("ok", None)


def test_metrics_that_come_drop_by_drop_or_out_of_range_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "METRICS_TIMEOUT_S", 0.3)
    line = b"vllm:num_requests_running 2\n"
    with answering(drop_by_drop(whole(line * 100))) as url:
        begun_s = time.monotonic()
        assert read_metrics(address_of(url), "") == {}
        assert time.monotonic() - begun_s < 8
    for value in ("NaN", "Inf", "-1", "1e308", "x" * 100_000):
        assert metrics_in(f"vllm:num_requests_running {value}\n") == {}
    assert metrics_in("vllm:kv_cache_usage_perc 7\nvllm:num_requests_running 2\n") == metrics_in(
        line.decode()
    )


def _drips_in_the_load(path: str, send: Callable[[bytes], None]) -> None:
    """Answers what is asked first, and then drop by drop."""
    if path == "/v1/models":
        send(whole(MODELS))
    elif path.endswith("completions"):
        drop_by_drop(b"HTTP/1.1 200 OK\r\nx-a: " + b"y" * 100_000)(path, send)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a body drop by drop", "drops in the load"])
def test_the_command_ends_in_time_with_one_line(name: str) -> None:
    answer = _drips_in_the_load if name == "drops in the load" else IDENTITIES[name][0]
    with answering(answer) as url:
        begun_s = time.monotonic()
        done = gputui("serve-bench", url, "--budget", "12", "--concurrency", "1", "--launches", "1")
        took_s = time.monotonic() - begun_s
    print(f"{name}: exit {done.returncode} after {took_s:.1f} s: {done.stderr.strip()}")
    assert done.returncode == 3, done.stderr
    assert took_s < 12 + 30
    assert done.stderr.count("gputui: ") == 1
    assert "bug" not in done.stderr
