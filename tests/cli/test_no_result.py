"""Runs that measured nothing, and comparisons with nothing to compare: exit status 6, in every form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import gputui_here, write_spin_profile
from journals import make_case, make_journal
from own_steps import STEP
from stored_runs import run_id_of

import gputui as in_python
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_NO_RESULT, EXIT_UNDECIDED
from gputui.model.journal import NOTHING_MEASURED, RunEnd
from gputui.model.plan import Case
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

ENDLESS = {"GPUTUI_SPIN_WORK": "100000"}


def ends_of(db: Path) -> list[tuple[str, str]]:
    runs = json.loads(gputui_here("runs", db, "--json").stdout)["runs"]
    return [(run["status"], run["status_reason"]) for run in runs]


def test_a_run_without_a_result_exits_with_6_and_is_stored_as_failed(tmp_path: Path) -> None:
    profile, db = write_spin_profile(tmp_path / "spin.toml"), tmp_path / "a.db"
    done = gputui_here("run", profile, "--db", db, "--budget", "2", "--yes", env=ENDLESS)
    assert done.returncode == EXIT_NO_RESULT, done.stderr
    assert done.stdout.lstrip().startswith("Nothing was measured: 1 case did not finish")
    assert "run failed: nothing was measured" in done.stderr
    assert ends_of(db) == [("failed", NOTHING_MEASURED)]
    shown = gputui_here("show", "latest", db, "--json")
    assert shown.returncode == EXIT_DONE
    assert json.loads(shown.stdout)["headline"].startswith("Nothing was measured:")
    stored(db, 1, [make_case("gemm")])
    assert "measured nothing: 1 case did not finish" in gputui_here("show", "latest", db).stderr


@pytest.mark.slow
def test_from_python_a_run_without_a_result_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENDLESS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(in_python.NoResult, match=r"run \w{8} measured nothing") as caught:
        in_python.run(write_spin_profile(tmp_path / "spin.toml"), db=tmp_path / "a.db", budget=2)
    assert (caught.value.exit_code, "gputui show" in caught.value.hint) == (EXIT_NO_RESULT, True)
    assert "Nothing was measured:" in capsys.readouterr().out
    assert list(in_python.load(tmp_path / "a.db").runs["status"]) == ["failed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status", "end", "headline"),
    [
        ("MemoryError('x')", EXIT_DONE, ("finished", ""), "No rate was measured: 1 case ran out of memory"),
        (
            "RuntimeError('x')",
            EXIT_CASE_FAILED,
            ("failed", NOTHING_MEASURED),
            "Nothing was measured: 1 case failed",
        ),
    ],
)
def test_running_out_of_memory_is_a_result_and_a_failure_stays_one(
    tmp_path: Path, error: str, status: int, end: tuple[str, str], headline: str
) -> None:
    step, db = tmp_path / "mine.py", tmp_path / "a.db"
    (tmp_path / "beside.py").write_text("pieces_of = None\n")
    step.write_text(STEP.replace("import hashlib", f"raise {error}"))
    done = gputui_here("run", step, "--db", db, "--launches", "1", "--blocks", "5", "--yes")
    assert done.returncode == status, done.stderr
    assert done.stdout.lstrip().startswith(headline)
    assert ends_of(db) == [end]


def stored(db: Path, number: int, cases: Sequence[Case], skipped: Sequence[Case] = ()) -> Path:
    """A file with one run, by a version that calls every run finished."""
    run_dir = make_journal(
        db.with_suffix(""), run_id=run_id_of(number), label="", cases=cases, skipped=skipped
    )
    assert [end.status for end in read_journal(run_dir).of(RunEnd)] == ["finished"]
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    return db


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files that have no case in common."""
    place = tmp_path_factory.mktemp("apart")
    a = stored(place / "a.db", 1, [make_case("gemm", threads="all")])
    return a, stored(place / "b.db", 2, [make_case("gpt_train", threads="all")])


def test_a_comparison_of_nothing_is_written_in_every_form_and_exits_with_6(
    apart: tuple[Path, Path], tmp_path: Path
) -> None:
    for form in ("text", "json", "html"):
        printed = gputui_here("compare", *apart, "--format", form)
        assert printed.returncode == EXIT_NO_RESULT
        assert "Nothing to compare" in printed.stdout + printed.stderr
        assert printed.stdout
    written = gputui_here("compare", *apart, "--format", "html", "-o", tmp_path / "written")
    assert written.returncode == EXIT_NO_RESULT
    assert "gputui: Nothing to compare: a.db and b.db measured no case in common." in written.stderr
    assert (tmp_path / "written").read_text()
    assert gputui_here("compare", *apart, apart[0]).returncode == EXIT_DONE  # a and c have a case in common
    assert gputui_here("compare", apart[0]).returncode == EXIT_NO_RESULT  # all cases have one precision


def test_a_gate_without_a_row_cannot_tell_and_counts_none(apart: tuple[Path, Path], tmp_path: Path) -> None:
    lost = stored(tmp_path / "c.db", 3, [], [make_case("gpt_train", threads="all")])
    gate = gputui_here("compare", lost, apart[0], "--fail-if-slower", "5")
    assert gate.returncode == EXIT_UNDECIDED
    assert f"gate: cannot tell: {apart[0]} vs {lost}: no row to judge:" in gate.stderr
    assert " of 0 rows" not in gate.stderr
    for unsure, status in (("pass", EXIT_DONE), ("fail", EXIT_CASE_FAILED)):
        chosen = gputui_here("compare", *apart, "--fail-if-slower", "5", "--unsure", unsure)
        assert chosen.returncode == status
    assert ends_of(lost) == [("finished", "")], "of an older version, and read as it is"
    shown = gputui_here("show", "latest", lost)
    assert (shown.returncode, shown.stdout.splitlines()[0].startswith("Nothing was measured:")) == (0, True)


def test_from_python_a_comparison_of_nothing_is_an_error_of_its_own(apart: tuple[Path, Path]) -> None:
    with pytest.raises(in_python.NoResult, match=r"Nothing to compare: a\.db and b\.db measured"):
        in_python.compare(*apart)
    with pytest.raises(in_python.NoResult, match="nothing to compare: all cases of this file"):
        in_python.compare(apart[0])
    with pytest.raises(in_python.GputuiError) as other:
        in_python.compare(apart[0].with_name("absent.db"))
    assert not isinstance(other.value, in_python.NoResult)
