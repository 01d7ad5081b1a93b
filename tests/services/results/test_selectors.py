from __future__ import annotations

from pathlib import Path

import pytest
from journals import RUN_ID, STARTED_US, make_journal

from gputui.errors import EXIT_USAGE, GputuiError
from gputui.services.results.selectors import (
    Selection,
    locate_run,
    run_and_file,
    select_all,
    split_selector,
)
from gputui.store.journal_reader import read_journal
from gputui.store.writing import remove_run, store_run

OLD, CUT_SHORT, NEW, BROKEN = (f"0194b5a0-0000-7000-8000-0000aaaa000{n}" for n in range(1, 5))
HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs, the newest one failed; two share a label."""
    place = tmp_path_factory.mktemp("selecting")
    runs = (
        (OLD, "box a", "finished"),
        (CUT_SHORT, "twice", "interrupted"),
        (NEW, "twice", "finished"),
        (BROKEN, "", "failed"),
    )
    for number, (run_id, label, status) in enumerate(runs):
        run_dir = make_journal(
            place / run_id,
            run_id=run_id,
            label=label,
            status=status,
            started_utc_us=STARTED_US + number * HOUR_US,
            telemetry=False,
        )
        store_run(place / "all.db", read_journal(run_dir), ())
    return place / "all.db"


def ids(selection: Selection) -> list[str]:
    return [run.summary.run_id for run in selection.runs]


def refused(text: str) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        select_all([text])
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value


def test_a_file_alone_means_all_its_runs_newest_first_with_their_blocks(db: Path) -> None:
    selection = select_all([str(db)])[0]

    assert ids(selection) == [BROKEN, NEW, CUT_SHORT, OLD]
    assert selection.text == str(db)
    assert all(run.cases[0].measurements[0].blocks for run in selection.runs), (
        "also what a run finished that failed"
    )


def test_a_run_is_named_by_age_id_or_label(db: Path) -> None:
    by_age = {"latest": BROKEN, "latest~1": NEW, "latest~3": OLD}
    for selector, run_id in {**by_age, **dict.fromkeys(("aaaa0001", "AAAA0001", OLD, "box a"), OLD)}.items():
        assert ids(select_all([f"{db}@{selector}"])[0]) == [run_id]


def test_what_means_no_run_or_several_is_refused_by_name_with_a_way_out(db: Path, tmp_path: Path) -> None:
    run_dir = make_journal(tmp_path / "run", telemetry=False)
    store_run(tmp_path / "a.db", read_journal(run_dir), ())
    remove_run(tmp_path / "a.db", RUN_ID)
    for text, message, hint in (
        (f"{db}@latest~4", "4 are stored", ""),
        (f"{db}@ffff0001", "no run 'ffff0001'", ""),
        (f"{db}@bxo a", "no run 'bxo a'", "box a"),
        (f"{db}@twice", "means 2 runs: aaaa0003 (twice), aaaa0002 (twice)", ""),
        (f"{db}@aaaa", "means 4 runs", ""),
        (f"{tmp_path / 'gone.db'}@latest", "gone.db", ""),
        (f"{tmp_path / 'a.db'}", "no run to compare", "gputui run"),
        (f"{db.parent / 'twice'}", "twice", "named with its file: all.db@twice"),
    ):
        error = refused(text)
        assert message in error.message
        assert hint in error.hint


def test_a_path_that_contains_an_at_and_exists_is_a_path(db: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a@latest"
    odd.write_bytes(db.read_bytes())

    assert split_selector(str(odd)) == (odd, "")
    assert ids(select_all([str(odd)])[0]) == [BROKEN, NEW, CUT_SHORT, OLD]
    assert ids(select_all([f"{odd}@latest~1"])[0]) == [NEW]


def test_a_selector_is_split_at_the_last_at_and_a_home_directory_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert split_selector("me@host.db@box@a") == (Path("me@host.db@box"), "a")
    assert split_selector("plain.db") == (Path("plain.db"), "")
    assert split_selector("~/a.db@latest") == (tmp_path / "a.db", "latest")
    assert split_selector("~nobody-of-this-name/a.db") == (Path("~nobody-of-this-name/a.db"), "")


def test_a_run_and_a_file_that_changed_places_are_distinguished(db: Path) -> None:
    with pytest.raises(GputuiError) as caught:
        run_and_file(str(db), Path("twice"))
    assert caught.value.hint == f"the run goes first: twice {db}"
    assert run_and_file("twice", db) == (db, "twice")
    assert run_and_file(str(db), None) == (db, None)


def test_a_mistyped_file_name_is_not_taken_for_a_run(db: Path) -> None:
    for locate in (run_and_file, locate_run):
        with pytest.raises(GputuiError, match="there is no file al, and nothing is stored in"):
            locate("al", None)
    with pytest.raises(GputuiError, match=r"there is no result file .*al\.db") as caught:
        locate_run(str(db.parent / "al.db"), None)
    assert caught.value.hint == "did you mean all.db?"
