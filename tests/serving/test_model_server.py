"""The server of known behaviour does what it says: its queue against theory, and the bytes that it sends."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from command_line import wait_until
from model_server import Behaviour, Message, serving
from queue_theory import waits_s


def _ask(port: int, **request: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = {"prompt": "a b c", "max_tokens": 4, "stream": True, **request}
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def _chunks(text: str) -> list[Message]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def test_services_begin_and_tokens_leave_when_theory_says() -> None:
    does = Behaviour(slots=2, prefill_s=0.03, decode_s=0.01)
    with serving(does) as server:
        body = json.dumps({"prompt": "a", "max_tokens": 4, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
        for client in clients:
            client.sendall(head + body)
        for client in clients:
            with client:
                while not client.recv(65536).endswith(b"\r\n0\r\n\r\n"):
                    pass
    arrivals = [served.arrived_s for served in server.served]
    waits = waits_s(arrivals, [does.prefill_s + 3 * does.decode_s] * 6, does.slots)

    for served, wait_s in zip(server.served, waits, strict=True):
        assert served.started_s == pytest.approx(served.arrived_s + wait_s, abs=1e-9)
        due_s = [served.arrived_s + wait_s + does.prefill_s + token * does.decode_s for token in range(4)]
        assert all(sent >= due for sent, due in zip(served.sent_s, due_s, strict=True))


def test_an_answer_that_is_cut_off_has_no_end() -> None:
    with serving(Behaviour(fault="cut")) as server, pytest.raises(http.client.IncompleteRead):
        _ask(server.port)
    assert server.served[0].ended == "cut"


def test_a_prompt_that_was_there_before_costs_no_prefill_and_says_so() -> None:
    does = Behaviour(caches_prompts=True, prefill_s=0.2)
    with serving(does) as server:
        usages = [
            _chunks(_ask(server.port, stream_options={"include_usage": True})[1])[-1]["usage"]
            for _ in range(2)
        ]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [0, 2]
    first, second = (served.sent_s[0] - served.arrived_s for served in server.served)
    assert first >= 0.2
    assert second < first


def test_a_client_that_goes_away_frees_its_slot() -> None:
    with serving(Behaviour(slots=1, prefill_s=60)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "stream": True}))
        wait_until(lambda: server.running == 1, "no answer begins")
        connection.close()
        wait_until(lambda: server.running == 0, "the slot stays taken")
    assert server.served[0].ended == "abandoned"


def test_pieces_of_an_event_arrive_one_by_one() -> None:
    with serving(Behaviour(pieces_of=5)) as server:
        _, text = _ask(server.port, max_tokens=5)
    words = "".join(chunk["choices"][0]["text"] for chunk in _chunks(text) if chunk["choices"])
    assert words == "to är 漢字🙂 end. "
