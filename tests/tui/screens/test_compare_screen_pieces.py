"""Functions of the Compare screen: requests as text, telemetry of a row, names and columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from journals import make_journal, make_telemetry, write_telemetry
from palettes import INDEXED
from shell_app import only_coloured
from stored_runs import store, store_gpu

from gputui.document.spans import Line
from gputui.errors import GputuiError
from gputui.services.compare.columns import COST, PEAK, RATIO
from gputui.services.compare.evidence import SideCurves, recorded_of
from gputui.services.compare.rows_table import rows_table
from gputui.services.compare.session import ComparisonRequest, ask, request_of
from gputui.services.results.selectors import from_here
from gputui.services.support.background import Job
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
from gputui.tui.screens.comparison import (
    HIGH,
    document_lines,
    lines_above,
    main_number,
    open_row,
    read,
    remarks,
)
from gputui.tui.terminal.cell_diff import rich_style


def test_the_words_of_a_request_ask_for_the_same() -> None:
    for request in (
        ComparisonRequest(("a.db",)),
        ComparisonRequest(("a.db@x", "b.db"), by="device", baseline="gpu"),
        ComparisonRequest(("a.db", "b.db"), pool=True, trust=True, columns=(COST, RATIO)),
    ):
        assert request_of(request.words) == request
        assert request_of(("gputui", "compare", *request.words)) == request
    assert request_of(("--by=mode", "a.db")) == ComparisonRequest(("a.db",), by="mode")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no file"),
        (("--pool",), "no file"),
        (("a.db", "--by"), "'--by' requires an argument"),
        (("a.db", "--by", "colour"), "'colour' is not one of"),
        (("a.db", "--pool=yes"), "'--pool' does not take a value"),
        (("a.db", "--columns", "speed"), "speed is not a column"),
        (("a.db", "--columns", ","), "--columns ,: names none"),
        (("a.db", "--format", "csv"), "--format"),
    ],
)
def test_words_that_ask_for_nothing_are_refused(words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(GputuiError, match=expected) as raised:
        request_of(words)
    assert raised.value.hint


def test_a_path_below_the_working_directory_is_shown_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_here(f"{tmp_path}/a.db@x") == "a.db@x"
    assert from_here("/elsewhere/a.db") == "/elsewhere/a.db"
    assert from_here(f"{tmp_path}/--by") == f"{tmp_path}/--by"
    monkeypatch.chdir("/")
    assert from_here("/elsewhere/a.db") == "/elsewhere/a.db"


def test_telemetry_of_a_row_is_empty_in_launches_in_which_nothing_was_sampled(tmp_path: Path) -> None:
    files = []
    for number, seconds in enumerate((60.0, 4.0)):
        run_dir = tmp_path / f"run{number}"
        make_journal(run_dir, run_id=f"0194b5a0-0000-7000-8000-0000000000d{number}", launches=3)
        write_telemetry(run_dir, make_telemetry(seconds))
        files.append(str(tmp_path / f"{number}.db"))
        store_run(Path(files[-1]), read_journal(run_dir), read_telemetry(run_dir))
    asked = ask(files)
    (comparison,) = asked.compared().comparisons
    row = next(row for row in comparison.rows if row.case.work.workload == "gemm")

    sides, _ = recorded_of(row, comparison, asked.evidence, pool=False)

    whole, cut = (side for side in sides if isinstance(side, SideCurves))
    assert len(whole.starts_s) == len(cut.starts_s) == 3
    assert whole.seconds == pytest.approx(3 * 6 * 0.2, rel=0.05)
    for side, known in ((whole, (True, True, True)), (cut, (True, False, False))):
        assert list(side.curves) == ["cpu_busy_pct", "memory_used_bytes"]  # no clock was sampled
        used = side.curves["cpu_busy_pct"]
        assert tuple(math.isfinite(used.at(start + 0.6)) for start in side.starts_s) == known
        assert math.isnan(used.at(-1.0))


def test_pooled_launches_have_no_telemetry_of_a_row(tmp_path: Path) -> None:
    make_journal(tmp_path / "run")
    store_run(tmp_path / "a.db", read_journal(tmp_path / "run"), read_telemetry(tmp_path / "run"))
    asked = ask([str(tmp_path / "a.db")] * 2, pool=True)
    (comparison,) = asked.compared().comparisons
    curves, _ = recorded_of(comparison.rows[0], comparison, asked.evidence, pool=True)
    assert [isinstance(side, SideCurves) for side in curves] == [False] * 2


def job() -> Job[Any]:
    return Job(lambda job: None, lambda job, outcome: None)


def test_evidence_shows_what_both_boxes_did_while_the_row_was_timed(tmp_path: Path) -> None:
    db = tmp_path / "g.db"
    store_gpu(db, 1)
    store_gpu(db, 2, scale=1.5, launches=2, seconds=6.0)
    found = read((f"{db}@cccc0001", f"{db}@cccc0002"), job())
    _, made = open_row(found, 0, job())
    lines = [text.rstrip() for text in texts(made(80))]
    assert [line for line in lines if len(line) > 79] == []
    start = lines.index("while it was timed:") + 1
    of_a = [line.split() for line in lines[start + 1 : start + 7 : 2]]
    of_b = [line.split() for line in lines[start + 2 : start + 8 : 2]]
    assert [words[0] for words in of_a] == ["power", "clock", "temperature"]
    assert [words[0] for words in of_b] == ["b"] * 3
    assert all(len(a[-1]) > len(b[-1]) for a, b in zip(of_a, of_b, strict=True)), "a took longer"
    assert "5 s are needed" in " ".join(" ".join(lines).split())  # of blocks, for an energy


def test_what_colours_say_words_and_marks_say_too(tmp_path: Path) -> None:
    words = [str(tmp_path / f"box{number}.db") for number in (1, 2, 3)]
    for number, (gpt_ms, launches) in enumerate(((100.0, 3), (160.0, 3), (103.0, 1)), 1):
        store(Path(words[number - 1]), number, gpt_ms=gpt_ms, launches=launches)
    for sides, says in (
        (words[:2], ("-38 %", "●", "slower", "1.60x")),
        (words[::2], ("-3 %", "○", "can't tell")),
        (words, ("-38 %", "b", "-3 %?", "c", "a or c")),
    ):
        found = read(sides, job())
        table = rows_table(found.answer.comparisons, found.rows, found.ignore, is_drawn=True)
        for width in (79, 119, 199):
            lines = document_lines([table], width)
            rows = texts(lines)
            place = next(place for place, row in enumerate(rows) if row.startswith("GPT training"))
            said = "\n".join(rows[place : place + 2])
            assert [text for text in says if text not in said] == [], said
            drawn = [[(span.text, rich_style(span.style, INDEXED)) for span in line] for line in lines]
            assert only_coloured(drawn) == []


def test_the_answer_stands_above_the_rows_with_the_sides_where_there_is_room_and_leaves_most_to_the_rows(
    tmp_path: Path,
) -> None:
    words = [str(tmp_path / f"box{number}.db") for number in range(1, 8)]
    for number, db in enumerate(words, 1):
        store(Path(db), number, gpt_ms=100.0 + 20 * number)
    found = read(words, job())
    for width in (40, 80, 200):
        for height in (7, HIGH, 21, 47):
            lines = texts(lines_above(found, width, height))
            assert max(map(len, lines)) <= width
            assert lines[0].startswith("GPT training, fastest first: box1.db"[: width - 6])
            assert len(lines) <= (2 if height < HIGH else 5 + max(height // 4, 2))
            assert any(line.strip().startswith("a  box1") for line in lines) == (height >= HIGH)
    marked = [line[:3] for line in texts(lines_above(found.next_side(1), 200, 47)) if "\u25b8" in line]
    assert marked == ["\u25b8 c"]


def test_the_cursor_begins_at_the_row_of_the_headline_and_values_that_are_absent_have_their_reason(
    tmp_path: Path,
) -> None:
    for number, gpt_ms in ((1, 100.0), (2, 160.0)):
        store(tmp_path / "a.db", number, gpt_ms=gpt_ms)
    found = read([f"{tmp_path}/a.db@cccc000{number}" for number in (1, 2)], job(), PEAK)
    assert found.name(main_number(found)).startswith("GPT training")
    assert remarks(found, main_number(found)) == "a and b: no peak is known for a CPU"
    assert "--columns" in found.command


def texts(lines: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in line) for line in lines]
