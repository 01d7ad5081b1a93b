"""`gputui pick`, and `gputui fit`: arguments and printed answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import printed, printed_json
from rich.cells import cell_len

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


COMMANDS = [
    ("--params", "7e9", "--train", "--batch", "4"),
    ("--params", "1e13", "--train", "--precision", "fp32"),
    ("--params", "124M", "--train", "--batch", "1e6", "--context", "1e6"),
    ("--infer", "--params", "8B", "--context", "32768", "--batch", "8", "--gpu", "H100"),
    ("--infer", "--params", "405B", "--precision", "fp8", "--kv-precision", "fp8"),
    ("--infer", "--params", "70B", "--precision", "int4", "--gpus", "2", "--context", "1e6"),
    ("deepseek-v3", "--infer", "--gpus", "8", "--batch", "32", "--context", "131072"),
    ("qwen3-235b", "--train", "--batch", "2"),
    ("gpt-oss-120b",),
]


@pytest.mark.parametrize(
    ("words", "columns"),
    [*((words, "80") for words in COMMANDS), (COMMANDS[3], "120")],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_it_fits_a_terminal_of_24_lines_and_no_line_is_cut_or_ends_in_spaces(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    status, out, err = printed(capsys, "pick", *words)
    assert (status, err) == (0, "")
    assert len(out.splitlines()) <= 23  # the prompt takes one
    assert max(map(cell_len, out.split("\n"))) <= int(columns)
    assert "…" not in out
    assert " \n" not in out


def test_the_size_needs_no_option_but_its_letter(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "fit", "7B") == printed(capsys, "fit", "--params", "7B")
    status, _, err = printed(capsys, "fit", "7")
    assert (status, "did you mean 7B?" in err) == (2, True)
    assert printed(capsys, "fit", "7B", "--params", "8B")[0] == 2


def test_fit_trains_where_pick_infers_unless_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "pick", "7B", "--train") == printed(capsys, "fit", "7B")
    assert printed(capsys, "pick", "7B") == printed(capsys, "fit", "7B", "--infer")
    assert printed(capsys, "pick", "7B", "--kv-precision", "fp8", "--train")[0] == 2


def test_the_output_says_where_activations_and_the_shape_are_from(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, "fit", "--params", "7B", "--gpu", "H200")
    told = " ".join(out.split())
    assert "Assumed: 32 layers x 32 KV heads x 128 as in Llama 2 7B" in told
    assert "Activations by formula: within 10 % on CPUs, not checked on GPUs." in told


def rows_of(out: str) -> list[str]:
    """The GPUs of the table, without how many of each."""
    table = out.partition("tok/s (range)")[2].partition("$/h: whole box")[0]
    return re.findall(r"^(?:\d+ x )?(\S.*?) +(?:fits|tight|ckpt|no|offload|\d+ micro)", table, re.MULTILINE)


@pytest.mark.parametrize("words", [("124M", "--train"), ("70B", "--train"), ("8B",), ("405B",)], ids=" ".join)
def test_the_answer_comes_first_and_is_the_first_row_of_the_seven_cheapest_per_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = printed(capsys, "pick", *words)
    found = printed_json(capsys, "pick", *words)
    assert out.splitlines()[0] == found["headline"]
    assert found["headline"].startswith("Cheapest: ")
    assert rows_of(out) == found["shown_first"] == [one["name"] for one in found["ranking"]][:7]
    assert f"{found['ranking'][0]['name']}," in found["headline"].replace(" with ", ", ")
    _, whole, _ = printed(capsys, "pick", *words, "--all")
    every = [name for size in found["gpus"] for name in size["names"]]
    assert sorted(rows_of(whole)) == sorted(every)
    assert f"; all {len(every)} GPUs: --all" in out
    assert "--all" not in whole


def test_the_tokens_cost_the_price_over_the_speed_and_each_has_its_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed_json(capsys, "pick", "llama-3.1-8b", "--batch", "16")
    offers = {offer["name"]: offer for size in found["gpus"] for offer in size["offers"]}
    first = found["ranking"][0]
    speed, cost, offer = first["tokens_per_s"], first["usd_per_million_tokens"], offers[first["name"]]
    share = first["gpus"] / offer["gpu_count"]
    assert cost["value"] == pytest.approx(share * offer["usd_per_hour"] * 1e6 / 3600 / speed["value"])
    assert speed["low"] < speed["value"] < speed["high"]
    assert cost["low"] < cost["value"] < cost["high"]
    assert first["prompt_tokens_per_s"]["value"] > speed["value"]


def test_the_most_sequences_at_a_time_cost_less_per_token_than_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = printed(capsys, "pick", "llama-3.1-8b", "--gpu", "H100 SXM")
    told = " ".join(out.split())
    one = re.search(r"Expected: \S+ tok/s \(.*?\), \$([\d.]+) per 1M tokens", told)
    full = re.search(r"With batch (\d+): \S+ tok/s \(.*?\), \$([\d.]+) per 1M tokens\. Prompts: ", told)
    assert one is not None
    assert full is not None
    assert int(full[1]) > 16
    assert float(full[2]) < float(one[1]) / 8
    assert "gputui serve-bench http://localhost:8000 --concurrency 1" in told


def documented(command: str) -> dict[str, str]:
    """The text for each key that docs/json.md lists after this command."""
    table = PAGE.read_text().partition(f"`gputui pick {command}`")[2].partition("\n\n`")[0]
    rows = re.findall(r"^- (`.*?): (.*)$", table, re.MULTILINE)
    return {key: meaning for keys, meaning in rows for key in re.findall(r"`(\w+)`", keys)}


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found, told = printed_json(capsys, "fit", "--params", "7e9"), documented("--train --json")
    assert found["schema"] == 1
    assert found.keys() - {"schema"} == told.keys() - {"word", "tricks", "offers"}
    assert found["peak"].keys() == {"moment", *found["all_at_once"]}
    listed = [("ranking", found["ranking"][0]), *((name, found[name]) for name in ("shape", "all_at_once"))]
    for gpu in found["gpus"]:
        assert f"`{gpu['word']}`" in told["word"]
        listed += [("gpus", gpu), ("tricks", gpu["tricks"]), *(("offers", offer) for offer in gpu["offers"])]
    for name, keys in listed:
        assert all(f"`{key}`" in told[name] for key in keys), name

    inference, infers = printed_json(capsys, "fit", "--infer", "--params", "8B"), documented("--json")
    assert inference["schema"] == 1
    assert inference.keys() - {"schema"} == infers.keys()
    for name in ("shape", "parts"):
        assert all(f"`{key}`" in infers[name] for key in inference[name])
    of_gpus = infers["gpus"] + "".join(f"`{key}`{meaning}" for key, meaning in told.items())
    for gpu in inference["gpus"]:
        assert all(f"`{key}`" in of_gpus for key in gpu)


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ((), "the size of the model is missing"),
        (("--params", "7e9", "--precision", "int4"), "with --infer also fp16, fp8, int8, int4"),
        (("--params", "7e9", "--kv-precision", "fp8"), "--kv-precision: only for inference"),
        (("--params", "7e9", "--gpus", "2"), "add --infer"),
        (("--infer", "--params", "8B", "--optimizer", "adam"), "--optimizer: only for training"),
        (("--infer", "--params", "8B", "--optimizer", "adam"), "add --train"),
        (("--params", "7e9", "--gpu", "H210"), "H200 SXM"),
        (("--params", "7e9", "--gpu", "A100 (other)"), "comes with different memory sizes"),
        (("--params", "7e9", "more"), "more"),
        (("gpt-osss",), "did you mean gpt-oss-20b, gpt-oss-120b"),
        (("llama-3.1", "--infer"), "one of Llama-3.1-8B, Llama-3.1-70B, Llama-3.1-405B"),
        (("nowhere.json",), "nowhere.json"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_reported_and_ends_with_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], about: str
) -> None:
    status, out, err = printed(capsys, "fit", *words, "--json")
    assert (status, out) == (2, "")
    assert about in err
    assert "Traceback" not in err
