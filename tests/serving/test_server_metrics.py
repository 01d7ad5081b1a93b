"""What `/metrics` of several engines says of queue and caches; texts with the names that they document."""

from __future__ import annotations

import pytest
from model_server import Behaviour, serving

from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import METRIC_NAMES, during, metrics_in, read_metrics, share_of

_VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 24.0
vllm:num_requests_running{engine="1",model_name="m"} 20.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 72.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 72.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.97
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.41
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 8.128902e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.789056823729462e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 81289.02
vllm:num_preemptions_total{engine="0",model_name="m"} 17.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:cache_config_info{block_size="16",note="a \\"quoted\\" value}"} 1.0
process_cpu_seconds_total 12.5
"""
_VLLM_OLD = """\
vllm:num_requests_running{model_name="m"} 3.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.4217
vllm:num_preemptions_total{model_name="m"} 17.0
"""
_SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 50000.0
sglang:prompt_tokens_total{model_name="m",is_streaming="false"} 5000.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 400
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.007507552643049313
sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0
sglang:num_retracted_requests_total{model_name="m"} 3.0
"""
_LLAMA = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 22
# HELP llamacpp:prompt_tokens_cached_total Number of prompt tokens reused from the cache
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 66
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:n_busy_slots_per_decode 1
"""
_TGI = """\
tgi_batch_current_size 12
tgi_queue_size 3
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_VLLM, (44.0, 72.0, 0.97, 81289.02, 8128902.0, 17.0)),
        (_VLLM_OLD, (3.0, None, 0.4217, None, None, 17.0)),
        (_SGLANG, (4.0, 7.0, 0.28, 400.0, 55000.0, 3.0)),
        (_LLAMA, (4.0, 2.0, None, 66.0, 88.0, None)),
        (_TGI, (12.0, 3.0, None, None, None, None)),
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
