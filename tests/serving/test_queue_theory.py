"""The recursion that predicts waits, against the closed form of M/D/1; and the made-up server against it."""

from __future__ import annotations

import itertools
import json
import random
import socket
import statistics

import pytest
from model_server import Behaviour, serving
from queue_theory import waits_s


@pytest.mark.parametrize(("load", "mean_wait"), [(0.5, 0.5), (0.8, 2.0)])
def test_the_mean_wait_at_one_slot_is_that_of_pollaczek_and_khinchine(load: float, mean_wait: float) -> None:
    draw = random.Random(22)
    arrivals = list(itertools.accumulate(draw.expovariate(load) for _ in range(300_000)))

    waits = waits_s(arrivals, [1.0] * len(arrivals), 1)

    assert statistics.fmean(waits) == pytest.approx(mean_wait, rel=0.03)


def test_a_request_waits_for_the_slot_that_is_free_first() -> None:
    # Two slots: the first is busy until 5, the second until 3, then until 5.
    assert waits_s([0, 1, 2, 2], [5, 2, 2, 1], 2) == [0, 0, 1, 3]


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
