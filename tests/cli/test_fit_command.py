"""`gputui fit`: arguments and printed answers."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import printed, printed_json
from rich.cells import cell_len

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


@pytest.mark.parametrize("columns", ["80", "100", "120"])
@pytest.mark.parametrize(
    "words",
    [
        ("--params", "7e9", "--batch", "4"),
        ("--params", "7e9", "--gpu", "RTX"),
        ("--params", "1e13", "--precision", "fp32"),
        ("--layers", "12", "--width", "768", "--batch", "1e6", "--context", "1e6"),
    ],
    ids=" ".join,
)
def test_every_line_fits_and_none_is_cut_or_ends_in_spaces(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    status, out, err = printed(capsys, "fit", *words)
    assert (status, err) == (0, "")
    assert max(map(cell_len, out.split("\n"))) <= int(columns)
    assert "…" not in out
    assert " \n" not in out


def test_the_textbook_sum_does_not_fit_on_80_gb(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--params", "10e9", "--optimizer", "adam", "--precision", "fp32", "--activations", "20e9")
    found = printed_json(capsys, "fit", *words, "--gpu", "H100 SXM 80GB")
    parts = found["all_at_once"]
    assert [parts[f"{n}_bytes"] for n in ("weights", "activations", "gradients", "optimizer", "total")] == [
        40 * 10**9,
        20 * 10**9,
        40 * 10**9,
        80 * 10**9,
        180 * 10**9,
    ]
    (gpu,) = found["gpus"]
    assert gpu["names"] == ["H100 SXM 80GB"]
    assert (gpu["word"], gpu["largest_batch"]) == ("several GPUs", 0)
    assert "missing" in gpu["largest_batch_checkpoint"]
    _, out, _ = printed(capsys, "fit", *words, "--gpu", "H100 SXM 80GB")
    assert "No single one of these is enough: take H100 SXM 80GB" in " ".join(out.split())


def test_the_output_says_that_activations_are_by_formula_and_where_the_shape_is_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = printed(capsys, "fit", "--params", "7B", "--gpu", "H200")
    output = " ".join(out.split())
    assert "layers and width as of LLaMA 7B: 32 x 4096" in output
    assert "by formula, nothing was measured here" in output
    assert "H200 NVL, H200 SXM" in output
    assert output.endswith(".")


@pytest.mark.parametrize(
    "words",
    [("--params", "7e9"), ("--params", "124M"), ("--params", "3e9", "--batch", "8"), ("--params", "1e11")],
    ids=" ".join,
)
def test_the_answer_comes_first_and_the_table_has_what_it_names_and_where_it_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = printed(capsys, "fit", *words)
    understood, answer, *rest = out.splitlines()
    assert " weights, adamw, amp " in understood
    table = "\n".join(rest).partition("will it fit")[2]
    named = re.findall(r"(?:on|from|take)(?: the)? (\S.*?) \((\d[\d.]+ GiB)\)", answer)
    assert named
    for name, size in named:
        assert re.search(rf"^ *~?{re.escape(size)} {re.escape(name)}(?:,| )", table, re.MULTILINE)

    classes = printed_json(capsys, "fit", *words)["gpus"]
    for before, after in pairwise(classes):
        if before["word"] != after["word"]:
            assert before["names"][0] in table
            assert after["names"][0] in table
    shown = len(re.findall(r"^ *~?[\d.]+ [GT]iB ", table, re.MULTILINE))
    assert f"{len(classes) - shown} sizes between these are left out" in table


def test_of_gpus_that_are_named_none_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, "fit", "--params", "7e9", "--gpu", "RTX")
    classes = printed_json(capsys, "fit", "--params", "7e9", "--gpu", "RTX")["gpus"]
    assert len(re.findall(r"^ *~?[\d.]+ GiB ", out.partition("will it fit")[2], re.MULTILINE)) == len(classes)
    assert "left out" not in out


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_json(capsys, "fit", "--params", "7e9")
    assert found["schema"] == 1
    table = PAGE.read_text().partition("`gputui fit --json`")[2].partition("\n\n`")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE)
    meanings = {key: meaning for keys, meaning in rows for key in re.findall(r"`(\w+)`", keys)}
    assert found.keys() - {"schema"} == meanings.keys() - {"word", "tricks"}
    assert all(f"`{key}`" in meanings["shape"] for key in found["shape"])
    assert all(f"`{key}`" in meanings["all_at_once"] for key in found["all_at_once"])
    assert found["peak"].keys() == {"moment", *found["all_at_once"]}
    for gpu in found["gpus"]:
        assert all(f"`{key}`" in meanings["gpus"] for key in gpu)
        assert f"`{gpu['word']}`" in meanings["word"]
        assert all(f"`{key}`" in meanings["tricks"] for key in gpu["tricks"])


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ((), "how large"),
        (("--params", "many"), "--params many"),
        (("--params", "-1"), "--params -1"),
        (("--params", "7e9", "--batch", "nan"), "--batch nan"),
        (("--params", "7e9", "--context", "0"), "--context 0"),
        (("--params", "7e9", "--layers", "12"), "--layers and --width"),
        (("--layers", "1e9", "--width", "768"), "--layers 1e9"),
        (("--params", "7e9", "--optimizer", "magic"), "--optimizer magic"),
        (("--params", "7e9", "--precision", "int4"), "--precision int4"),
        (("--params", "7e9", "--gpu", "H210"), "H200 SXM"),
        (("--params", "7e9", "--gpu", "A100 (other)"), "different memory"),
        (("--params", "7e9", "--file", "nowhere.db"), "nowhere.db"),
        (("--params", "7e9", "more"), "more"),
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
