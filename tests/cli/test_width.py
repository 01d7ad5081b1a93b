"""The output for the shipped profiles fits the terminal; and no text of a file is obeyed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import pytest
from builders import H200, make_interpreter
from journals import CPU_MACHINE, GPU_MACHINE
from planned_quick import store_planned
from rich.cells import cell_len

from gputui.cli import main
from gputui.model.journal import Price
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import resolve_plan

TORCH = "2.13.0.dev20261101+cu130"
LABEL = "[red]x[/red] :bomb: \x1b[31mred\x1b[0m"
SHARED = Price(32.5, 2, "stated", "", "", "", "")
CPU_BOX = Price(0.42, 0, "on-demand", "gcp", "n2-standard-2", "europe-west4", "2026-07-20")
LONG_CPU = replace(
    CPU_MACHINE, cpu=replace(CPU_MACHINE.cpu, model="INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.30GHz")
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GPU boxes and a CPU box, one and three launches, all with a price."""
    place = tmp_path_factory.mktemp("width")
    store_planned(place / "gpu.db", 1, 1, GPU_MACHINE, SHARED, LABEL, TORCH)
    store_planned(
        place / "other.db",
        2,
        3,
        GPU_MACHINE,
        SHARED,
        "a label of some length, as people write them down",
        TORCH,
    )
    store_planned(place / "cpu.db", 3, 3, LONG_CPU, CPU_BOX, "box a", TORCH)
    return place


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str, columns: int = 80
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as left:
        main(words)
    output = capsys.readouterr()
    assert left.value.code == 0, output.err
    assert output.err == ""
    return output.out


COMMANDS = (
    ("runs", "gpu.db"),
    ("show", "latest", "other.db"),
    ("show", "latest", "cpu.db"),
    ("show", "latest", "gpu.db", "--verbose"),
    ("compare", "gpu.db", "other.db"),
    ("compare", "gpu.db", "cpu.db"),
    ("compare", "cpu.db", "gpu.db", "other.db"),
    ("compare", "gpu.db"),
    ("compare", "gpu.db", "--by", "precision"),
    ("compare", "cpu.db", "--by", "threads"),
    ("profiles",),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 120])
def test_every_line_fits_and_none_is_cut_or_ends_in_spaces(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    columns: int,
) -> None:
    monkeypatch.chdir(place)

    output = printed(capsys, monkeypatch, *words, columns=columns)

    of_commands = re.compile(r"[ab]\$ ")  # a command goes into a pipe whole
    lines = [line for line in output.split("\n") if not of_commands.match(line)]
    assert max(map(cell_len, lines)) <= columns
    assert "…" not in output
    assert " \n" not in output


def test_the_price_of_a_case_is_of_a_unit_that_costs_cents_to_dollars_and_its_share_is_named_once(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(capsys, monkeypatch, "show", "latest", str(place / "gpu.db"), columns=100)

    assert re.search(r"cost \(50 % share\)$", out, re.MULTILINE)
    (row,) = re.findall(r"^GPT training common fp32 .* (\$\d\.\d\d per Mtok)$", out, re.MULTILINE)
    assert row
    assert out.count("% share") == 1


def test_a_narrow_comparison_names_each_of_its_rows_apart(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = printed(capsys, monkeypatch, "compare", str(place / "gpu.db"), str(place / "other.db"))

    table = output.partition("verdict\n")[2].partition("mean of")[0]
    names = re.sub(r" +[\d.]+k? .*\n(?!\w+ \w+ )", " ", table)  # a continuation belongs to the line above
    rows = re.findall(r"^(\w[\w ]+ [cg]pu.*?) {2,}|^(\w[\w ]+ [cg]pu.*?)$", names, re.MULTILINE)
    planned = resolve_plan(find_profile("quick"), make_interpreter(H200), GPU_MACHINE).cases
    assert len(rows) == len(set(rows)) == sum(case.outcome is None for case in planned)


def test_markup_and_escape_sequences_in_labels_and_names_are_visible_and_not_obeyed(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = printed(capsys, monkeypatch, "runs", str(place / "gpu.db"), columns=160)
    shown = printed(capsys, monkeypatch, "show", "latest", str(place / "gpu.db"), columns=160)

    for output in (listed, shown):
        assert r"[red]x[/red] :bomb: \x1b[31mred\x1b[0m" in output
        assert "\x1b" not in output
    odd = place / "[bold]b.db"
    odd.write_bytes((place / "cpu.db").read_bytes())
    monkeypatch.chdir(place)

    assert "b  [bold]b.db" in printed(capsys, monkeypatch, "compare", "cpu.db", "[bold]b.db")


# docs/json.md lists the keys, and no others


def documented(list_after: str, until: str = "\n\n`") -> dict[str, str]:
    """The text for each key in the lists of docs/json.md between these texts."""
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    rows = re.findall(r"^- (`.*?): (.*)$", page.partition(list_after)[2].partition(until)[0], re.MULTILINE)
    return {key: meaning for keys, meaning in rows for key in re.findall(r"`(\w+)`", keys)}


def as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(printed(capsys, monkeypatch, *words))
    assert plain["schema"] == 1
    return plain


def test_a_shown_run_has_the_documented_keys(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = as_json(capsys, monkeypatch, "show", "latest", str(place / "gpu.db"), "--json")
    listed = as_json(capsys, monkeypatch, "runs", str(place / "gpu.db"), "--json")["runs"][0]
    meanings = documented("A case:")

    assert run.keys() - listed.keys() == {"schema", "headline", "why", "notes", "cases", "normality"}
    for case in run["cases"]:
        assert case.keys() == meanings.keys()
        assert case["profiled"] is None
        assert all(f"`{key}`" in meanings["speed"] for key in case["speed"])
        assert all(f"`{key}`" in meanings["cost"] for key in case["cost"].keys() - {"missing"})
    assert all(judged.keys() == {"word", "text", "standing"} for judged in run["normality"])


def test_a_comparison_has_the_documented_keys(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = (str(place / "gpu.db"), str(place / "cpu.db"))
    compared = as_json(capsys, monkeypatch, "compare", *files, "--format", "json")
    meanings = documented("one for each side after the baseline:", "From nine sides on")
    (comparison,) = compared["comparisons"]

    of_rows = {"ratio", "verdict", "judgements", "flags", "holds_between_models", "why", "findings"}
    of_sides = {"energy", "figures"}
    assert compared["by"] == ""
    assert comparison.keys() == meanings.keys() - of_rows - of_sides
    for row in comparison["rows"]:
        assert row.keys() - documented("A case:").keys() == {"a", "b", "note"} | of_rows
        assert (row["ratio"] is None) == (row["verdict"] == "not comparable")
        if row["ratio"]:
            assert row["ratio"].keys() == set(re.findall(r"`(\w+)`", meanings["ratio"]))
        of_side = {"outcome", "precision_used", "speed", "clock_units_per_s", "cost", "energy"}
        assert row["a"].keys() == of_side | {"figures", "uses"}
        energy = set(re.findall(r"`(\w+)`", meanings["energy"]))
        assert row["a"]["energy"].keys() <= energy
    for group in comparison["groups"]:
        assert {*group, *(group["mean"] or {})} - {"low", "high", "ratio"} <= set(
            re.findall(r"`(\w+)`", meanings["groups"])
        )


def test_the_detectable_difference_is_shown_for_rows_that_are_same_or_inconclusive(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(place / "gpu.db")
    text = " ".join(printed(capsys, monkeypatch, "compare", "--verbose", file, file).split())

    assert re.search(r"would not show: a difference below \d+ % of \S", text)
