"""What real servers do to a client, each once: what the client makes of it, against what the server did."""

from __future__ import annotations

import time

import pytest
from asked_server import ask
from model_server import Behaviour, serving

from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.answer import (
    CUT,
    FAILED,
    OK,
    REFUSED,
    REJECTED,
    UNFINISHED,
)
from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import ServerError, accepted_load, find_server

_MS = 1_000_000


@pytest.mark.parametrize(
    "place", ["no_choices", "null_choices", "absent_choices", "last_choice", "every_chunk"]
)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_the_number_of_tokens_is_found_wherever_the_usage_is(place: str, api: str) -> None:
    (asked,) = ask(Behaviour(usage=place), api=api, tokens=7)
    assert (asked.answer.outcome, asked.answer.usage.output) == (OK, 7)
    assert asked.answer.usage.prompt == 4


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        (Behaviour(), (OK, 200, 10, 10, "length", "")),
        (Behaviour(usage="missing"), (OK, 200, 10, None, "length", "")),
        (Behaviour(tokens_per_event=4), (OK, 200, 3, 10, "length", "")),
        (Behaviour(events_per_write=100), (OK, 200, 10, 10, "length", "")),
        (Behaviour(ping=True), (OK, 200, 10, 10, "length", "")),
        (Behaviour(newline="\r\n"), (OK, 200, 10, 10, "length", "")),
        (Behaviour(framing="until_close"), (OK, 200, 10, 10, "length", "")),
        (Behaviour(natural_length=4, honours_ignore_eos=False), (OK, 200, 4, 4, "stop", "")),
        (Behaviour(natural_length=4), (OK, 200, 10, 10, "length", "")),
        (Behaviour(fault="error_event"), (FAILED, 200, None, None, None, "InternalServerError")),
        (Behaviour(fault="error_data"), (FAILED, 200, None, None, None, "InternalServerError")),
        (Behaviour(fault="cut"), (CUT, 200, None, None, None, "its last event")),
        (
            Behaviour(fault="cut", framing="until_close"),
            (CUT, 200, None, None, None, "its last event"),
        ),
        (Behaviour(fault="no_done"), (CUT, 200, 10, 10, "length", "its last event")),
        (Behaviour(fault="429", retry_after_s=2), (REFUSED, 429, 0, None, "", "HTTP 429")),
        (Behaviour(fault="503", retry_after_s=2), (REFUSED, 503, 0, None, "", "HTTP 503")),
        (Behaviour(fault="500", retry_after_s=2), (FAILED, 500, 0, None, "", "HTTP 500")),
        (Behaviour(context_tokens=8), (REJECTED, 400, 0, None, "", "exceed_context_size_error")),
        (Behaviour(streams=False), (FAILED, 200, 0, None, "", "without streaming")),
    ],
    ids=lambda value: (
        ", ".join(f"{k}={v}" for k, v in vars(value).items() if v != vars(Behaviour())[k])
        if isinstance(value, Behaviour)
        else ""
    ),
)
def test_an_answer_has_the_outcome_the_tokens_and_the_events_that_the_server_sent(
    does: Behaviour, expected: tuple[str, int, int | None, int | None, str | None, str]
) -> None:
    """None: as far as it got."""
    outcome, status, events, tokens, finish, reason = expected
    for asked in ask(does, requests=2, tokens=10):
        answer = asked.answer
        assert (answer.outcome, answer.status, answer.usage.output) == (outcome, status, tokens)
        assert events in (None, len(answer.output_ns))
        assert finish in (None, answer.finish_reason)
        assert reason in answer.reason
        assert answer.retry_after == ("2" if does.retry_after_s and status > 400 else "")
        assert answer.is_streamed == does.streams


def test_a_role_sent_on_accept_is_not_the_first_token() -> None:
    (asked,) = ask(Behaviour(role_chunk="accepted", prefill_s=0.08))
    assert asked.exchange.stamps_ns[0] - asked.exchange.sent_ns < 60 * _MS  # it came at once
    assert asked.first_s >= 0.08


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_output_is_counted_once_and_has_the_time_to_the_answer_beside_ttft(name: str) -> None:
    does = Behaviour(reasoning_field=name, reasoning_tokens=8, decode_s=0.04)
    (asked,) = ask(does, tokens=10)
    assert len(asked.answer.output_ns) == 10
    assert (asked.answer.usage.output, asked.answer.usage.reasoning) == (10, 8)
    assert asked.first_s < 0.25  # the first of reasoning, not that of the answer at 320 ms
    first_s, answer_s = asked.sample.ttft_s, asked.sample.answer_s
    assert first_s is not None
    assert answer_s is not None
    assert answer_s - first_s > 0.2  # of 320 ms, less what the first was read late on a busy box


def test_hidden_reasoning_delays_the_first_output_and_is_among_the_tokens() -> None:
    (asked,) = ask(Behaviour(reasoning_tokens=8, decode_s=0.01), tokens=10)
    assert asked.first_s >= 0.08
    assert len(asked.answer.output_ns) == 2
    assert (asked.answer.usage.output, asked.answer.usage.reasoning) == (10, 8)


@pytest.mark.parametrize("size", [1, 61])
def test_characters_and_events_cut_between_reads_arrive_whole(size: int) -> None:
    (cut,) = ask(Behaviour(pieces_of=size), tokens=3)
    (whole,) = ask(Behaviour(), tokens=3)
    assert len(cut.exchange.reads) > 10
    assert (cut.answer.outcome, cut.answer.text) == (OK, "to är 漢字".encode())
    assert cut.answer.text == whole.answer.text
    assert whole.sample.answer_s is None, "without reasoning TTFT says it all"


def test_a_connection_that_was_closed_without_a_word_costs_the_next_request_nothing() -> None:
    for does, between in (
        (Behaviour(closing="silent"), None),
        (Behaviour(idle_close_s=0.02), lambda server: not server.open),
    ):
        asked = ask(does, requests=2, between=between)
        assert [each.answer.outcome for each in asked] == [OK] * 2


def test_a_cached_prompt_is_recorded_as_such() -> None:
    asked = ask(Behaviour(caches_prompts=True, prefill_s=0.1), requests=2)
    assert [each.answer.usage.cached for each in asked] == [0, 3]
    assert asked[0].first_s >= 0.1


def test_a_request_without_an_answer_is_unfinished_when_the_load_ends() -> None:
    (asked,) = ask(Behaviour(fault="hangs"), stop_when=lambda server: server.running == 1)
    assert asked.answer.outcome == UNFINISHED


def test_two_hundred_streams_at_once_do_not_wait_for_each_other() -> None:
    asked = ask(Behaviour(slots=200, prefill_s=0.3), requests=200, tokens=2, is_at_once=True)
    arrived = [each.served.arrived_s for each in asked if each.served]
    assert max(arrived) - min(arrived) < 0.3  # all were there before the first had an answer
    assert {each.answer.outcome for each in asked} == {OK}


@pytest.mark.parametrize(
    ("engine", "name", "version"),
    [
        ("vllm", "vLLM", "0.11.0"),
        ("llama.cpp", "llama.cpp", "b6800-0123456"),
        ("sglang", "SGLang", "0.5.4"),
        ("ollama", "Ollama", "0.12.6"),
        ("tgi", "TGI", "3.3.6"),
        ("plain", "", ""),
    ],
)
def test_an_engine_is_recognized_by_what_it_answers(engine: str, name: str, version: str) -> None:
    with serving(Behaviour(engine=engine)) as server:
        found = find_server(address_of(f"http://127.0.0.1:{server.port}"), "", time.monotonic() + 30)
    assert (found.engine, found.version, found.models) == (name, version, ("made-up-1b",))


@pytest.mark.parametrize("refuses", ["ignore_eos", "stream_options", "max_tokens"])
def test_a_strict_server_is_asked_without_what_it_does_not_know(refuses: str) -> None:
    does = Behaviour(refuses=("ignore_eos",) if refuses == "ignore_eos" else ("ignore_eos", refuses))
    with serving(does) as server:
        asked = PlannedLoad(f"http://127.0.0.1:{server.port}", "chat", does.model, 5)
        load, answer = accepted_load(asked, "", b"hello", time.monotonic() + 30)
    assert answer.outcome == OK
    assert not load.ignores_eos
    assert load.asks_usage == (refuses != "stream_options")
    assert (load.limit_name == "max_completion_tokens") == (refuses == "max_tokens")


def test_a_key_is_sent_and_a_missing_one_is_asked_for() -> None:
    does = Behaviour(api_key="sk-planted")
    (asked,) = ask(does)
    assert asked.answer.outcome == OK
    with serving(does) as server, pytest.raises(ServerError, match="wants a key"):
        find_server(address_of(f"http://127.0.0.1:{server.port}"), "", time.monotonic() + 30)
