"""What `/metrics` of several engines says of queue and caches; texts with the names that they document."""

from __future__ import annotations

import pytest
from engine_metrics import LLAMA, SGLANG, TGI, VLLM, VLLM_OLD
from model_server import Behaviour, serving

from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import METRIC_NAMES, during, metrics_in, read_metrics, share_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VLLM, (44.0, 72.0, 0.97, 81289.02, 8128902.0, 17.0)),
        (VLLM_OLD, (3.0, None, 0.4217, None, None, 17.0)),
        (SGLANG, (4.0, 7.0, 0.28, 400.0, 55000.0, 3.0)),
        (LLAMA, (4.0, 2.0, None, 66.0, 88.0, None)),
        (TGI, (12.0, 3.0, None, None, None, None)),
        ("process_cpu_seconds_total 12.5\nvllm:num_requests_running{} many\n", ()),
        ("<html>Not here</html>", ()),
    ],
)
def test_each_engine_says_it_under_its_own_names(text: str, said: tuple[float | None, ...]) -> None:
    assert metrics_in(text) == _said(*said)


def _said(*values: float | None) -> dict[str, float]:
    found = zip(METRIC_NAMES, values, strict=False)
    return {name: value for name, value in found if value is not None}


def test_counters_are_those_of_the_load_and_a_restart_leaves_none() -> None:
    before, at_end = _said(0.0, 0.0, 0.0, 100.0, 1000.0, 5.0), _said(8.0, 3.0, 0.9, 130.0, 2000.0, 7.0)
    load = during(before, at_end)
    assert load == _said(8.0, 3.0, 0.9, 30.0, 1000.0, 2.0)
    assert share_of(load, "prefix_hit_tokens", "prefix_tokens") == pytest.approx(0.03)
    restarted = during(before, at_end | {"prefix_hit_tokens": 1.0, "prefix_tokens": 20.0, "preemptions": 0.0})
    assert restarted == _said(8.0, 3.0, 0.9)
    assert during({}, at_end) == {}


def test_what_a_server_drafts_and_accepts_is_read_where_it_tells() -> None:
    text = (
        'vllm:spec_decode_num_draft_tokens_total{engine="0"} 200\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 130\n'
    )
    assert share_of(metrics_in(text), "accepted_tokens", "drafted_tokens") == pytest.approx(0.65)
    assert share_of(metrics_in(text.replace("200", "0")), "accepted_tokens", "drafted_tokens") is None


def test_a_server_without_metrics_says_nothing() -> None:
    with serving(Behaviour(engine="ollama")) as server:
        assert read_metrics(address_of(f"http://127.0.0.1:{server.port}"), "") == {}
    with serving(Behaviour()) as server:
        found = read_metrics(address_of(f"http://127.0.0.1:{server.port}"), "")
    assert found == _said(0.0, 0.0, None, 0.0, 0.0)
