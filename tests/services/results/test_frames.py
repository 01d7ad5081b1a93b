"""Result files as DataFrames, in a kernel with few other packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE, STARTED_US, make_journal
from stored_runs import run_id_of, store

import gputui
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Block
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import speed_of
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory: two runs of one machine in `a.db`, one of another machine in `b.db`."""
    place = tmp_path_factory.mktemp("frames")
    store(place / "a.db", 1, label="before")
    store(place / "a.db", 2, gpt_ms=80.0)
    store(place / "b.db", 3, machine=GPU_MACHINE, on_gpu=True)
    return place


def test_every_stored_block_is_a_row_with_its_own_integers_and_a_run_has_its_machine_and_price(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    make_journal(tmp_path / "run")
    contents = read_journal(tmp_path / "run")
    store_run(tmp_path / "a.db", contents, read_telemetry(tmp_path / "run"))
    frames = gputui.load(tmp_path / "a.db")
    written = [(b.case_id, b.index, b.wall_ns) for b in contents.of(Block)]
    columns = (frames.blocks[name] for name in ("case_id", "block_index", "wall_ns"))
    assert sorted(zip(*columns, strict=True)) == sorted(written)
    assert set(frames.blocks["run_id"]) == set(frames.runs["run_id"])
    assert list(frames.runs["cpu_usable_cores"] >= 1) == [True]
    assert list(frames.runs["usd_per_hour"]) == [0.42]
    assert list(frames.runs["machine"]) == ["Xeon 8481C, 1 core"]


def test_rates_are_those_of_show_with_their_intervals_and_instants_are_datetimes_in_utc(
    two_files: Path,
) -> None:
    frames = gputui.load(two_files / "a.db@before")
    rates = frames.rates
    with open_result(two_files / "a.db") as file:
        found = [speed_of(case) for case in run_in(file, run_id_of(1)).cases]
    speeds = [speed for speed in found if not isinstance(speed, Missing)]
    assert list(rates["rate"]) == [speed.units_per_s for speed in speeds]
    assert list(rates["low"]) == [speed.low for speed in speeds]
    assert list(rates["high"]) == [speed.high for speed in speeds]
    gpt = rates[rates["workload"] == "gpt_train"].iloc[0]
    assert gpt["seconds"] == pytest.approx(0.1, rel=0.01)
    assert (gpt["unit"], gpt["device"], gpt["precision"]) == ("tok/s", "cpu", "fp32")
    assert (gpt["label"], gpt["machine"], gpt["torch"]) == ("before", "Xeon 8481C, 1 core", "2.11.0+cpu")
    assert gpt["usd_per_million"] == pytest.approx(0.42 / 3600 * 1e6 / gpt["rate"])
    assert frames.runs["started"][0].value // 1000 == STARTED_US + 3_600_000_000
    for frame, column in ((rates, "started"), (frames.telemetry, "time"), (frames.blocks, "time")):
        assert str(frame[column].dtype) == "datetime64[us, UTC]"
    assert frames.host_telemetry["time"].is_monotonic_increasing


def test_a_directory_and_a_pattern_are_all_their_files_in_which_a_run_counts_once_and_its_text_says_so(
    two_files: Path,
) -> None:
    whole = gputui.load(two_files)
    again = gputui.load(two_files / "*.db", two_files / "a.db")
    assert {Path(file).name for file in whole.runs["file"]} == {"a.db", "b.db"}
    assert sorted(again.runs["run_id"]) == sorted(whole.runs["run_id"]) == [run_id_of(n) for n in (1, 2, 3)]
    assert len(again.rates) == len(whole.rates) == 6
    text = repr(whole)
    assert text.startswith("3 runs of 2 machines in 2 files\n\n.rates, 6 rows\n")
    assert "51.1k tok/s" in text
    assert ".blocks 108" in text
    assert max(map(len, text.splitlines()[:-1])) <= 110
    assert "<table" in whole._repr_html_()


def test_what_is_no_result_file_is_left_out_with_a_warning_and_texts_of_one_have_no_control_characters(
    two_files: Path, tmp_path: Path
) -> None:
    shutil.copy(two_files / "a.db", tmp_path)
    (tmp_path / "notes.db").write_text("not a database")
    with duckdb.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE runs SET label = 'a' || chr(27) || '[2Jb' WHERE label = 'before'")
    with pytest.warns(UserWarning, match=r"left out: .*notes\.db"):
        frames = gputui.load(tmp_path)
    assert r"a\x1b[2Jb" in set(frames.runs["label"])
    assert r"a\x1b[2Jb" in set(frames.rates["label"])
    with duckdb.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM blocks; DELETE FROM figures")
    frames = gputui.load(tmp_path / "a.db")
    assert len(frames.rates) == len(frames.blocks) == 0
    assert "rate" in frames.rates.columns, "of a file in which no run measured"
    assert repr(frames).startswith("2 runs of 1 machine in 1 file")


def test_loading_and_comparing_leave_out_what_notebooks_have_no_use_for(two_files: Path) -> None:
    code = (
        "import sys, gputui\n"
        "heavy = ('duckdb', 'pandas', 'msgspec', 'platformdirs', 'rich', 'click', 'textual', 'psutil')\n"
        "loaded = lambda: [m for m in heavy if m in sys.modules]\n"
        "assert loaded() == [], loaded()\n"
        f"gputui.load({str(two_files)!r})\n"
        f"gputui.compare({str(two_files / 'a.db')!r}, {str(two_files / 'b.db')!r})._repr_html_()\n"
        "print(loaded())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['duckdb', 'pandas', 'msgspec']"


@pytest.mark.parametrize("named", ["notes.txt", "none/*.db", "."])
def test_what_is_no_result_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("not a database")
    with pytest.raises(GputuiError, match=r"notes\.txt|none/\*\.db|\.: no result file"):
        gputui.load(named)
