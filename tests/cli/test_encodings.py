"""Every command prints in any encoding of its streams, and no foreign name sends control characters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import WORDS
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import GPU_MACHINE
from planned_quick import store_planned

from gputui.cli import main
from gputui.cli.verbs import COMMANDS
from gputui.document.spans import in_encoding
from gputui.errors import clean_text
from gputui.model.journal import Price

ENCODINGS = ("ascii", "latin-1", "cp1252", "cp437", "utf-8")
HOSTILE = "\x1b[31mr\x9b2J\u202eé±漢\U0001f680\x07\n"
NAMES = [command.name for command in COMMANDS]
STREAMS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result files with hostile names and hostile text, of a box whose names are all hostile."""
    place = tmp_path_factory.mktemp("place")
    gpus = tuple(replace(gpu, name=f"{gpu.name}{HOSTILE}") for gpu in GPU_MACHINE.gpus)
    machine = replace(GPU_MACHINE, cpu=replace(GPU_MACHINE.cpu, model=HOSTILE), gpus=gpus)
    price = Price(32.5, 2, "stated", "", "", "", "")
    for number in (1, 2):
        db = place / f"{number}{HOSTILE}.db"
        store_planned(db, number, 3, machine, price, f"{number} {HOSTILE}", f"2.13.0{HOSTILE}")
    return place


def files(place: Path) -> tuple[str, str]:
    return f"{place / f'1{HOSTILE}.db'}", f"{place / f'2{HOSTILE}.db'}"


def printed(encoding: str, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command whose streams reject characters outside their encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as left:
            main(words)
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def assert_harmless(text: str) -> None:
    assert "bug in gputui" not in text, text
    assert "Traceback" not in text, text
    assert clean_text(text.replace("\n", "")) == text.replace("\n", ""), text


def calls(first: str, second: str) -> list[tuple[str, ...]]:
    """What is printed for people: arguments that fit every command, then those that print most."""
    generic = [
        (name, *words)
        for name in NAMES
        for words in (("--help",), ("--no-such-option", HOSTILE), (f"--{HOSTILE}",), (first, second, HOSTILE))
    ]
    return [
        *generic,
        (HOSTILE,),
        ("runs", first),
        ("show", "latest", first),
        ("show", HOSTILE, first),
        ("compare", first, second),
        ("compare", first, "--by", "precision", "--columns", "time,cost,energy"),
        ("compare", first, second, "--format", "markdown"),
        ("compare", first, "--baseline", HOSTILE),
        ("advise", first, second, "--job", f"{HOSTILE}:1h"),
        ("fit", "--model", HOSTILE),
        ("rm", "latest", first),
        ("label", "latest", HOSTILE, first),
        ("merge", first, HOSTILE, "-o", f"/nowhere/{HOSTILE}"),
        ("profiles", "quick"),
        ("snapshot", "--processes"),
        ("paths",),
        ("run", HOSTILE, "--db", first),
        ("run", "--python", HOSTILE),
        ("run", "--like", f"{first}@{HOSTILE}"),
        ("doctor", "--python", HOSTILE),
    ]


NUMBER_OF_CALLS = len(calls("", ""))


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_command_ends_the_same_in_every_encoding_and_prints_nothing_that_a_terminal_obeys(
    place: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    encoding = data.draw(st.sampled_from(ENCODINGS))
    words = calls(*files(place))[data.draw(st.integers(0, NUMBER_OF_CALLS - 1))]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("here"))
        status, out, err = printed(encoding, *words)
        patched.chdir(tmp_path_factory.mktemp("there"))
        expected, _, _ = printed("utf-8", *words)
    assert status == expected, (words, out, err)
    assert_harmless(out)
    assert_harmless(err)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(len(NAMES)), ids=NAMES)
def test_a_process_whose_streams_are_not_utf_8_prints_and_ends_as_one_whose_streams_are(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """Each command with one kind of stream: the kinds take turns."""
    monkeypatch.chdir(tmp_path)
    name, stream = NAMES[turn], list(STREAMS)[turn % len(STREAMS)]
    words = (name, *files(place), *((HOSTILE,) if name != "compare" else ()))
    ended = subprocess.run(
        [*WORDS, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **STREAMS[stream]},
        timeout=300,
        check=False,
    )
    assert ended.returncode == printed("utf-8", *words)[0]
    for output in (ended.stdout, ended.stderr):
        assert_harmless(output.decode("latin-1" if stream == "latin-1" else "ascii"))


def test_what_an_encoding_has_is_kept_and_the_rest_has_a_plain_substitute() -> None:
    text = "1.02x ±0.10 · 3 µs → 10² ≥ … — 71 °C │ ⣿ é 漢"
    assert in_encoding(text, "utf-8") == text
    assert in_encoding(text, "latin-1") == "1.02x ±0.10 · 3 µs -> 10² >= ... - 71 °C | # é ?"
    assert in_encoding(text, "ascii") == "1.02x +-0.10 | 3 us -> 10^2 >= ... - 71 deg C | # e ?"


@given(text=st.text(), encoding=st.sampled_from(ENCODINGS))
def test_any_text_can_be_encoded_once_it_is_clean(text: str, encoding: str) -> None:
    plain = in_encoding(clean_text(text), encoding)
    assert plain.isprintable()
    assert plain.encode(encoding).decode(encoding) == plain


def test_json_holds_names_as_they_are(place: Path) -> None:
    first, _ = files(place)
    assert json.loads(printed("ascii", "runs", first, "--json")[1])["runs"][0]["label"] == f"1 {HOSTILE}"
    assert json.loads(printed("utf-8", "show", "latest", first, "--json")[1])["label"] == f"1 {HOSTILE}"


def test_a_file_name_that_is_not_utf_8_is_shown_and_refused_where_a_result_file_is_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = "a\udcff.db"
    assert printed("utf-8", "run", "quick", "--db", odd)[0] == 2
    assert list(tmp_path.iterdir()) == [], "before anything is measured"
    os.link(files(place)[0], odd)
    for name in NAMES:
        status, out, err = printed("ascii", name, odd)
        assert status != 0 or name == "new-workload"
        assert_harmless(out)
        assert_harmless(err)
        if name in ("runs", "compare"):
            assert (status, r"a\xff.db: its path is not UTF-8" in err) == (2, True)
