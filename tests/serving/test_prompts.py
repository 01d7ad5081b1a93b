"""What is asked: words that no two prompts share, the prompts of a file, and what else a request has."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_server import Behaviour, serving
from offered_loads import offer

from gputui.errors import GputuiError
from gputui.services.serving.plan import PreparedServe, ServeOptions, body_from, prepare_serve
from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.request import FilePrompts, Prompts, around_prompt, prompts_in

_HELLO = '{"text": "Say \\"hello\\", \\u00e9t\\u00e9"}'


def _file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_no_two_prompts_share_a_sentence_and_their_lengths_are_those_of_every_box() -> None:
    here, there = (Prompts(600, 0, os.urandom(16), 1.2, "0 1") for _ in range(2))
    ours, theirs = ([one.next().split() for _ in range(100)] for one in (here, there))

    assert [len(words) for words in ours] == [len(words) for words in theirs]
    lengths = sorted(len(words) for words in ours)
    assert 375 <= lengths[0] < 420 < 580 < lengths[-1] <= 625
    assert len(Prompts(600, 0, b"", 1.2, "0 1").usual().split()) == 500
    runs = [tuple(words[at : at + 6]) for words in ours + theirs for at in range(len(words) - 5)]
    assert len(set(runs)) == len(runs)


def test_a_file_is_sent_in_one_order_on_every_box_and_again_from_the_first(tmp_path: Path) -> None:
    path = _file(tmp_path, *(json.dumps({"text": f"question {n}"}) for n in range(20)), "")
    prompts, digits = prompts_in(path, "completions")
    here, there, later = (FilePrompts(prompts, seed) for seed in ("0 1", "0 1", "0 2"))
    order = [here.next() for _ in range(40)]
    assert order == [there.next() for _ in range(40)]
    assert order[:20] == order[20:] != [later.next() for _ in range(20)]
    assert sorted(order[:20]) == sorted(prompts)
    assert digits != prompts_in(_file(tmp_path, _HELLO), "chat")[1]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_request_has_the_text_of_the_file_and_what_the_user_adds(api: str, tmp_path: Path) -> None:
    (prompt,), _ = prompts_in(_file(tmp_path, _HELLO), api)
    extra = '{"temperature": 0, "note": "@", "ignore_eos": false}'
    before, after = around_prompt(PlannedLoad("", api, "@", 9, extra=extra, prompts_path="p.jsonl"))
    plain = json.loads(before + prompt + after)

    text = 'Say "hello", été'
    asked = plain.pop("messages", [{"role": "user", "content": plain.pop("prompt", None)}])
    assert asked == [{"role": "user", "content": text}]
    assert plain == {
        "model": "@",
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": False,
        "temperature": 0,
        "note": "@",
    }


_TURNS = '{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}'


@pytest.mark.parametrize(
    ("lines", "api", "said"),
    [
        ((), "chat", "it has no prompt"),
        ((_HELLO, "{"), "chat", "line 2: it is not JSON"),
        (("[1]",), "chat", "line 1: a line is"),
        (('{"text": ""}',), "chat", "line 1: a line is"),
        (('{"text": 7}',), "chat", "line 1: a line is"),
        (('{"messages": []}',), "chat", "line 1: a line is"),
        (('{"messages": [{"role": "user"}]}',), "chat", "line 1: a line is"),
        (('{"text": "a", "messages": [{"role": "user", "content": "b"}]}',), "chat", "line 1: a line is"),
        ((_TURNS,), "completions", "line 1: messages need --api chat"),
        (("[" * 5000,), "chat", "line 1: "),
        (('{"text": "' + "x" * 2**20 + '"}',), "chat", "line 1: it has more than 1048576 bytes"),
        (('{"text": "\\ud800"}',), "chat", "line 1: "),
    ],
)
def test_a_file_that_is_not_of_prompts_says_which_line_and_repeats_none_of_it(
    lines: tuple[str, ...], api: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"line|no prompt") as caught:
        prompts_in(_file(tmp_path, *lines), api)
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 150


def test_what_is_no_file_of_text_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b'{"text": "\xe9"}')
    for name, said in (("pipe", "not a file"), ("gone", "not a file"), ("latin", "line 1: it is not UTF-8")):
        with pytest.raises(ValueError, match=said):
            prompts_in(tmp_path / name, "chat")


@given(st.binary(max_size=200))
def test_any_bytes_are_prompts_or_a_reason(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "p.jsonl"
        path.write_bytes(data)
        try:
            prompts, _ = prompts_in(path, "chat")
        except ValueError:
            return
    assert all(json.loads(prompt) for prompt in prompts)


def test_a_body_is_an_object_without_what_a_load_needs() -> None:
    for text, said in (
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"stream": false}', "stream is what gputui itself sets"),
        ('{"a": NaN}', "is not JSON"),
    ):
        with pytest.raises(GputuiError, match=said):
            body_from(text)
    assert body_from('{"b": 1, "a": {"c": 2}}') == '{"a": {"c": 2}, "b": 1}'


def _prepared(tmp_path: Path, *, prompts: Path | None = None, body: str = "{}") -> PreparedServe:
    with serving(Behaviour()) as server:
        url = f"http://127.0.0.1:{server.port}"
        return prepare_serve(ServeOptions(url, users=(1,), prompts=prompts, body=body, db=tmp_path / "a.db"))


def test_a_load_pairs_only_with_one_of_the_same_prompts_and_body(tmp_path: Path) -> None:
    path = _file(tmp_path, _TURNS)
    plans = [
        _prepared(tmp_path).spec.plan,
        _prepared(tmp_path, prompts=path).spec.plan,
        _prepared(tmp_path, body='{"temperature": 0}').spec.plan,
    ]
    keys = {plan.cases[0].case.work.key for plan in plans}
    assert len(keys) == 3
    assert keys & {_prepared(tmp_path, prompts=path).spec.plan.cases[0].case.work.key}
    assert "temperature" not in json.dumps([list(plan.cases[0].case.work.parameters) for plan in plans])
    path.write_text(_TURNS.replace("b", "c"), "utf-8")
    assert _prepared(tmp_path, prompts=path).spec.plan.cases[0].case.work.key not in keys
    with pytest.raises(GputuiError, match=r"--prompts .*gone: it is not a file"):
        _prepared(tmp_path, prompts=tmp_path / "gone")


def test_a_server_gets_the_conversations_of_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, _TURNS, _HELLO)
    with serving(Behaviour(slots=4, decode_s=0.001)) as server:
        url = f"http://127.0.0.1:{server.port}"
        extra = '{"temperature": 0}'
        offered = offer(url, 1.5, api="chat", kind="closed", users=2, prompts_path=str(path), extra=extra)
        requests = [served.request for served in server.served]
    assert offered.end[0] == "ok"
    assert {len(request["messages"]) for request in requests} == {1, 2}
    assert {request["temperature"] for request in requests} == {0}
    path.write_text("no longer", "utf-8")
    with serving(Behaviour()) as server:
        gone = offer(f"http://127.0.0.1:{server.port}", 1, api="chat", prompts_path=str(path))
    assert gone.end[0] == "failed"
    assert gone.end[1].startswith("the file of prompts: line 1: it is not JSON")
