"""merge, rm, label, paths, selectors and --pool through the command line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from command_line import printed
from journals import STARTED_US, make_case, make_journal

from gputui.services.support.paths import monitor_file, run_directories
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run

A, B, C = (f"0194b5a0-0000-7000-8000-0000cccc000{n}" for n in range(1, 4))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one launch each; two of them share a label."""
    place = tmp_path_factory.mktemp("made")
    for number, (run_id, label) in enumerate(((A, "mine"), (B, "mine"), (C, ""))):
        run_dir = make_journal(
            place / run_id, run_id=run_id, label=label, seed=number, started_utc_us=STARTED_US + number
        )
        store_run(place / "a.db", read_journal(run_dir), ())
    return place / "a.db"


@pytest.fixture
def db(made: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copy(made, tmp_path))


def stored(capsys: pytest.CaptureFixture[str], db: Path) -> dict[str, str]:
    """Label by run id."""
    runs = json.loads(printed(capsys, "runs", db, "--json")[1])["runs"]
    return {run["run_id"]: run["label"] for run in runs}


def test_no_run_that_measured_nothing_is_offered_for_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "a.db"
    for number, (run_id, cases) in enumerate(((A, ()), (B, (make_case(),)), (C, (make_case(),)))):
        run_dir = make_journal(
            tmp_path / run_id, run_id=run_id, cases=cases, started_utc_us=STARTED_US + number
        )
        store_run(db, read_journal(run_dir), ())
    assert "@cccc0001" not in printed(capsys, "show", "cccc0002", db)[1]
    assert "@cccc0002" in printed(capsys, "show", "latest", db)[1]


def test_merge_says_what_each_file_brought(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.db"
    assert printed(capsys, "merge", db, "-o", out) == (0, f"{db}: 3 added\n", "")
    assert printed(capsys, "merge", db, "-o", out) == (0, f"{db}: 0 added, 3 were there already\n", "")
    code, text, _ = printed(capsys, "runs", out.parent, "--json")
    listed = json.loads(text)["runs"]
    assert code == 0
    assert sorted({one["file"] for one in listed}) == sorted({str(db), str(out)})
    assert len(listed) == 6
    assert len(stored(capsys, out)) == 3


def test_a_run_is_labelled_by_any_name_it_has(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "label", "latest", "third", db)[0] == 0
    assert printed(capsys, "label", f"{db}@cccc0002", "second") == (0, "cccc0002 is now second\n", "")
    assert printed(capsys, "label", f"{db}@mine", "") == (0, "cccc0001 now has no label\n", "")
    assert stored(capsys, db) == {A: "", B: "second", C: "third"}


def test_a_label_that_could_not_be_selected_or_printed_is_refused(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = db.read_bytes()
    for text in ("latest", "latest~1", "LATEST", "0123abcd", A, "x" * 81, "a\nb", "a\x1b[1m"):
        status, out, err = printed(capsys, "label", f"{db}@latest", text)
        assert (status, out) == (2, "")
        assert "is not a label" in err
    assert db.read_bytes() == before


def test_a_run_is_removed_only_when_that_was_confirmed(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = db.read_bytes()
    status, out, err = printed(capsys, "rm", "cccc0002", db)
    assert (status, out) == (2, "")
    assert "run cccc0002 (mine): quick, finished" in err
    assert "--yes" in err
    assert db.read_bytes() == before
    assert printed(capsys, "rm", "cccc0002", db, "--yes")[:2] == (0, f"removed cccc0002 from {db}\n")
    assert list(stored(capsys, db)) == [C, A]


def test_on_a_terminal_it_asks_before_a_run_is_removed(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer, left in (("n", 3), ("", 3), ("y", 2)):
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda text, said=answer: said)
        assert printed(capsys, "rm", f"{db}@latest")[0] == 0
        assert len(stored(capsys, db)) == left


def test_no_run_of_a_similar_name_is_suggested_for_removal(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for near in ("mined", "cccc0009", "mine "):
        status, out, err = printed(capsys, "rm", f"{db}@{near}", "--yes")
        assert (status, out) == (2, "")
        assert err == f"gputui: there is no run {near!r}\n  gputui runs F lists them\n"
    assert "did you mean" in printed(capsys, "show", f"{db}@mined")[2]


@pytest.mark.parametrize("command", [("rm", "--yes"), ("label",)])
def test_a_file_without_a_run_or_an_unknown_run_changes_nothing(
    db: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    before = db.read_bytes()
    text = ("new",) if command[0] == "label" else ()
    for selector, why in ((str(db), "which run of it?"), (f"{db}@nothing", "no run 'nothing'")):
        status, out, err = printed(capsys, command[0], selector, *text, *command[1:])
        assert (status, out) == (2, "")
        assert why in err
    assert "means 2 runs" in printed(capsys, command[0], f"{db}@mine", *text, *command[1:])[2]
    assert db.read_bytes() == before


def test_show_takes_a_run_and_a_file_in_each_form_and_without_one_the_latest(
    db: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(db))
    for words, run_id in (
        ((), C),
        (("latest~1", db), B),
        ((f"{db}@cccc0001",), A),
        ((db,), C),
    ):
        shown = json.loads(printed(capsys, "show", *words, "--json")[1])
        assert shown["run_id"] == run_id


def test_pooled_runs_of_one_launch_are_launches(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        run_dir = make_journal(
            tmp_path / f"b{number}", run_id=A[:-1] + f"{number + 5}", scale=1.5, seed=number + 9
        )
        store_run(tmp_path / "b.db", read_journal(run_dir), ())
    words = ("compare", db, tmp_path / "b.db", "--format", "json")
    for pool, launches, blocks in (((), 1, 6), (("--pool",), 3, 18)):
        (comparison,) = json.loads(printed(capsys, *words, *pool)[1])["comparisons"]
        assert [row["ratio"]["launches_a"] for row in comparison["rows"]] == [launches] * 2
        assert [row["ratio"]["blocks_b"] for row in comparison["rows"]] == [blocks] * 2
    assert [row["verdict"] for row in comparison["rows"]] == ["slower", "slower"]
    assert "3 launches" in printed(capsys, "compare", "a.db", "b.db", "--pool")[1]
    of_label = ("compare", f"{db}@mine", f"{db}@latest", "--format", "json")
    status, _, err = printed(capsys, *of_label)
    assert (status, "means 2 runs" in err) == (2, True), "a label of several runs names them all only so"
    (comparison,) = json.loads(printed(capsys, *of_label, "--pool")[1])["comparisons"]
    assert comparison["rows"][0]["ratio"]["launches_a"] == 2
    assert comparison["rows"][0]["ratio"]["launches_b"] == 1


def test_the_run_chosen_among_several_is_reported_unless_the_user_named_or_pooled_them(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "b: run cccc0003, the newest of 3: a.db@RUN takes another, --pool all"
    words = ("compare", "a.db@latest~1", "a.db")
    for form, expected in (
        ("text", f"\n{line}\n"),
        ("html", f"<li>{line}</li>"),
    ):
        assert expected in printed(capsys, *words, "--format", form)[1]
    (comparison,) = json.loads(printed(capsys, *words, "--format", "json")[1])["comparisons"]
    assert (comparison["a"]["chosen_of"], comparison["b"]["chosen_of"]) == (1, 3)
    assert f"\na and {line}\n" in printed(capsys, "compare", "a.db", "a.db")[1]
    for named in (("a.db@latest", "a.db@latest~1"), ("a.db", "a.db", "--pool")):
        assert "newest of" not in printed(capsys, "compare", *named)[1]


def test_paths_names_everything_that_is_there_and_how_it_goes(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(db))
    monkeypatch.setenv("XDG_CACHE_HOME", str(db.parent / "cache"))
    make_journal(run_directories() / A, run_id=A)
    kept = monitor_file()
    kept.parent.mkdir(parents=True)
    kept.touch()
    status, out, _ = printed(capsys, "paths")
    assert status == 0
    assert str(db) in out
    assert "1 not stored" in out
    assert f"copies of exports: {db.parent / 'cache'}" in out
    (removal,) = [line for line in out.split("\n") if line.startswith("  rm -r")]
    assert removal.split() == ["rm", "-r", str(db), str(run_directories()), str(kept)]
    places = json.loads(printed(capsys, "paths", "--json")[1])["places"]
    assert {place["what"]: place["exists"] for place in places} == {
        "result file": True,
        "run directories": True,
        "probes": False,
        "price list": False,
        "errors": False,
        "copies of exports": False,
        "copied texts": False,
        "monitor settings": True,
        "references": False,
        "key of hashes": False,
    }
    assert places[0]["bytes"] == db.stat().st_size
