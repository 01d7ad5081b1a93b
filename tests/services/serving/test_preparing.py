"""What is checked before a load begins: options, keys, and what stands at the URL."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from model_server import Behaviour, serving

from gputui.errors import EXIT_MACHINE_LACKS, GputuiError, MachineLacks
from gputui.services.serving.plan import (
    PreparedServe,
    ServeOptions,
    prepare_serve,
    rates_from,
    shown_name,
    users_from,
)
from gputui.services.serving.profiles import Limits, find_request_profile, limits_from, read_request_profile
from gputui.services.serving.text import api_price_from

KEY = "sk-planted-0123456789"


def _prepared(tmp_path: Path, behaviour: Behaviour, **changed: object) -> PreparedServe:
    with serving(behaviour) as server:
        options = ServeOptions(f"http://127.0.0.1:{server.port}", db=tmp_path / "a.db")
        return prepare_serve(replace(options, **changed))  # type: ignore[arg-type]


def _refused(tmp_path: Path, behaviour: Behaviour, **changed: object) -> str:
    with pytest.raises(MachineLacks) as caught:
        _prepared(tmp_path, behaviour, **changed)
    assert caught.value.exit_code == EXIT_MACHINE_LACKS
    return f"{caught.value.message}: {caught.value.hint}"


def test_a_plan_has_every_load_once_per_launch_in_orders_that_differ(tmp_path: Path) -> None:
    prepared = _prepared(tmp_path, Behaviour(), users=(1, 2, 4), rates_per_s=(3.0,))
    plan = prepared.spec.plan

    assert [case.case.name for case in plan.cases] == [
        "serve:chat 1 user",
        "serve:chat 2 users",
        "serve:chat 4 users",
        "serve:chat 3 req/s",
        "serve:chat limit",
    ]
    orders = [[x.case_ids[0] for x in plan.launches if x.replicate == n] for n in range(3)]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert prepared.server.engine == "vLLM"
    assert prepared.is_here


def test_the_same_load_pairs_whatever_the_server_and_another_does_not(tmp_path: Path) -> None:
    def keys(**changed: object) -> list[str]:
        plan = _prepared(tmp_path, Behaviour(), users=(4,), **changed).spec.plan
        return [case.case.work.key for case in plan.cases]

    assert keys() == keys(seed=7, budget_s=30.0, launches=1)
    assert set(keys()).isdisjoint(keys(shared_tokens=100))
    assert keys(name="llama")[0] != keys()[0]
    assert keys(limits=Limits(ttft_s=0.2))[0] == keys()[0]
    assert keys(limits=Limits(ttft_s=0.2))[1] != keys()[1]


@pytest.mark.parametrize("refused", [("ignore_eos",), ("max_tokens", "ignore_eos")])
def test_a_strict_server_gets_only_what_it_knows(tmp_path: Path, refused: tuple[str, ...]) -> None:
    prepared = _prepared(tmp_path, Behaviour(refuses=refused))
    load = prepared.spec.plan.loads[0]

    assert not load.ignores_eos
    assert load.limit_name == ("max_completion_tokens" if "max_tokens" in refused else "max_tokens")
    assert any("ignore_eos" in note for note in prepared.notes)


def test_what_is_not_such_a_server_is_named(tmp_path: Path) -> None:
    with serving(Behaviour()) as server, pytest.raises(MachineLacks, match="not an OpenAI-compatible server"):
        prepare_serve(ServeOptions(f"http://127.0.0.1:{server.port}/other", db=tmp_path / "a.db"))


def test_a_missing_and_a_wrong_key_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "wants a key (HTTP 401)" in _refused(tmp_path, Behaviour(api_key=KEY))
    monkeypatch.setenv("WRONG", "sk-wrong-9876543210")
    text = _refused(tmp_path, Behaviour(api_key=KEY), key_name="WRONG")
    assert "refuses the key (HTTP 401): check what --api-key-env names" in text
    assert "sk-wrong" not in text
    monkeypatch.setenv("RIGHT", KEY)
    assert _prepared(tmp_path, Behaviour(api_key=KEY), key_name="RIGHT").server.engine == "vLLM"


def test_a_server_that_answers_to_any_model_is_noted(tmp_path: Path) -> None:
    """As llama.cpp does, which has one model whatever it is called."""
    prepared = _prepared(tmp_path, Behaviour(takes_any_model=True), model="gpt-4")
    assert prepared.notes[0].endswith("'gpt-4', but answers to it; it has made-up-1b")


@pytest.mark.parametrize(
    ("behaviour", "model", "said"),
    [
        (Behaviour(is_loading=True), "", "HTTP 503: the server is loading, overloaded or down: wait"),
        (Behaviour(streams=False), "", "no first token can be timed"),
        (Behaviour(), "other", "the server does not list model 'other', and .*: it has made-up-1b$"),
        (
            Behaviour(redirects_to="https://llm.example.com"),
            "",
            r"redirects \(HTTP 308\) to https://llm.example.com/v1/models: give that address: .*com/v1$",
        ),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused_with_the_reason(
    tmp_path: Path, behaviour: Behaviour, model: str, said: str
) -> None:
    assert re.search(said, _refused(tmp_path, behaviour, model=model))


def test_a_context_that_is_too_short_is_found_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(GputuiError, match="needs a context of 840 tokens, the server has 600"):
        _prepared(tmp_path, Behaviour(context_tokens=600))


@pytest.mark.parametrize("name", [KEY, "HTTP KEY", "ÄPFEL"])
def test_a_key_in_place_of_a_variable_is_not_repeated(tmp_path: Path, name: str) -> None:
    with pytest.raises(GputuiError) as caught:
        prepare_serve(ServeOptions("http://127.0.0.1:9", key_name=name, db=tmp_path / "a.db"))
    assert name not in f"{caught.value.message}{caught.value.hint}"
    assert "wants the name of an environment variable" in caught.value.message


def test_a_key_is_not_sent_unencrypted_to_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_KEY", KEY)
    with pytest.raises(GputuiError, match=r"would travel unencrypted to 192\.0\.2\.7:8000"):
        prepare_serve(ServeOptions("http://192.0.2.7:8000", key_name="LLM_KEY", db=tmp_path / "a.db"))


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("ftp://host", "neither http"),
        ("http://user:secret@host", "must not contain a user or a password"),
        ("http://host?key=secret", r"no \?"),
        ("http://host:99999", "port"),
    ],
)
def test_a_wrong_url_is_explained_without_its_secrets(tmp_path: Path, url: str, what: str) -> None:
    with pytest.raises(GputuiError, match=what) as caught:
        prepare_serve(ServeOptions(url, db=tmp_path / "a.db"))
    assert "secret" not in f"{caught.value.message}{caught.value.hint}"


def test_limits_are_read_with_their_units_and_every_shipped_profile_has_some() -> None:
    assert all(find_request_profile(name).limits for name in ("chat", "rag", "code"))
    assert limits_from("ttft=500ms,tpot=50ms") == Limits(0.5, 0.05)
    assert limits_from("ttft<1.5s e2e<=10s") == Limits(1.5, None, 10.0)
    assert not limits_from("none")
    assert limits_from("ttft=500ms,e2e=10s").text == "TTFT 500 ms, E2E 10 s"


def test_wrong_limits_are_explained() -> None:
    for text, what in {
        "ttft=500": "no unit",
        "itl=50ms": "'itl=50ms' is not a limit",
        "ttft=1s,ttft=2s": "ttft is there twice",
        "ttft=0ms": "range",
        "": "is not a limit",
    }.items():
        with pytest.raises(GputuiError, match=re.escape(what)):
            limits_from(text)


def test_numbers_of_users_rates_and_prices_are_read() -> None:
    assert users_from("1,2, 8") == (1, 2, 8)
    assert users_from("none") == ()
    assert rates_from("2,4.5") == (2.0, 4.5)
    assert api_price_from("0.15,0.6") == (0.15, 0.6)
    assert api_price_from("0.6") == (0.0, 0.6)
    for parse, wrong in ((users_from, "0"), (users_from, "2,2"), (rates_from, "x"), (api_price_from, "-1")):
        with pytest.raises(GputuiError):
            parse(wrong)


def test_the_file_of_a_model_is_shown_without_its_directories() -> None:
    assert shown_name("/home/ann/models/llama.gguf") == "llama.gguf"
    assert shown_name("C:\\models\\llama.gguf") == "llama.gguf"
    assert shown_name("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("prompt_tokens = 4", "prompt_tokens: 4 is not allowed"),
        ("shared_prefix_tokens = 64", "shared_prefix_tokens 64 is not below prompt_tokens 64"),
        ('slo = "fast"', "'fast' is not a limit"),
        ("temperature = 1", "unknown key 'temperature'"),
        ("schema = 2", "schema: 2 is not allowed"),
    ],
)
def test_a_wrong_profile_is_explained(line: str, what: str) -> None:
    lines = {"schema": "schema = 1", "version": "version = 1", "prompt_tokens": "prompt_tokens = 64"}
    lines["output_tokens"] = "output_tokens = 20"
    lines[line.split(" ")[0]] = line
    with pytest.raises(GputuiError, match=re.escape(what)):
        read_request_profile("\n".join(lines.values()), "mine", "mine.toml")
