"""Functions of the Compare screen: requests as text, telemetry of a row, names and columns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from journals import make_journal, make_telemetry, write_telemetry

from gputui.errors import GputuiError
from gputui.services.compare.columns import COST, RATIO
from gputui.services.compare.evidence import SideCurves, recorded_of
from gputui.services.compare.session import ComparisonRequest, ask, request_of
from gputui.services.results.selectors import from_here
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


@pytest.mark.parametrize(
    "request_",
    [
        ComparisonRequest(("a.db",)),
        ComparisonRequest(("a.db@x", "b.db"), by="device", baseline="gpu"),
        ComparisonRequest(("a.db", "b.db"), pool=True, trust=True, columns=(COST, RATIO)),
    ],
)
def test_the_words_of_a_request_ask_for_the_same(request_: ComparisonRequest) -> None:
    assert request_of(request_.words) == request_
    assert request_of(("gputui", "compare", *request_.words)) == request_


def test_a_value_may_stand_behind_an_equals_sign() -> None:
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
