"""The command line on incomplete boxes, in a terminal, with two interpreters, and with invalid input."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # JSON

import pyte
import pytest
from command_line import gputui_here, printed, write_spin_profile
from help_questions import QUESTIONS
from quick_runs import store_quick

from gputui.model.journal import LaunchStart
from gputui.store.journal_reader import read_journal


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with only its standard library."""
    venv = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    return venv / "bin" / "python"


@dataclass(frozen=True)
class Watched:
    """A run of two interpreters, watched on a terminal, with its results redirected."""

    status: int
    results: dict[str, Any]
    screen: str
    place: Path


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Watched:
    place = tmp_path_factory.mktemp("watched")
    write_spin_profile(place / "spin.toml", replicates=2)
    link = place / "other-python"
    link.symlink_to(bare_python)
    ours, theirs = pty.openpty()
    words = ["run", "--yes", "spin.toml", "--db", "a.db", "--label", "[b]two[/b]", "--price", "1.5", "--json"]
    words += ["--python", str(bare_python), "--python", str(link)]
    with (place / "results.json").open("wb") as results:
        run = subprocess.Popen(
            [sys.executable, "-m", "gputui", *words],
            stdin=subprocess.DEVNULL,
            stdout=results,
            stderr=theirs,
            cwd=place,
            env={**os.environ, "COLUMNS": "80", "GPUTUI_STATE": str(place / "state")},
        )
    os.close(theirs)
    screen = b""
    try:
        while data := os.read(ours, 4096):
            screen += data
    except OSError:  # how a terminal ends on Linux
        pass
    os.close(ours)
    status = run.wait(300)
    return Watched(status, json.loads((place / "results.json").read_text()), screen.decode(), place)


# A run of two interpreters, on a terminal


def test_with_json_stdout_is_one_document_with_both_runs(watched: Watched) -> None:
    assert watched.status == 0
    assert watched.results["schema"] == 1
    runs = watched.results["runs"]
    assert len({run["run_id"] for run in runs}) == 2
    for run in runs:
        assert (run["status"], run["label"], run["profile"]) == ("finished", "[b]two[/b]", "spin")
        assert run["price"]["usd_per_hour"] == 1.5
        (case,) = run["cases"]
        assert case["outcome"] == "ok"
        assert case["speed"]["launches"] == 2
        assert case["speed"]["low"] < case["speed"]["units_per_s"] < case["speed"]["high"]


def test_launches_of_two_interpreters_alternate(watched: Watched) -> None:
    starts = []
    for run in watched.results["runs"]:
        journal = read_journal(watched.place / "state" / "runs" / run["run_id"])
        starts += [(line.t_ns, run["run_id"]) for line in journal.of(LaunchStart)]

    order = [run_id for _, run_id in sorted(starts)]
    assert order == [run["run_id"] for run in watched.results["runs"]] * 2


def test_on_a_terminal_a_picture_with_the_time_left_is_rewritten_and_is_gone_at_the_end(
    watched: Watched,
) -> None:
    plain = re.sub(r"\x1b\[[\d;]*m", "", watched.screen)
    assert re.search(
        r"^\x1b\[K [━╸─]+ +\d+ %  about \d+:\d\d left, ends \d\d:\d\d  pass \d of 2", plain, re.MULTILINE
    )
    screen = pyte.HistoryScreen(80, 25, history=1000)
    stream, pictures = pyte.Stream(screen), []
    for drawing in re.split(r"(?=\x1b\[\d+A)", watched.screen):
        stream.feed(drawing)
        pictures.append("\n".join(screen.display))
    for number in (1, 2):
        row = re.compile(rf"\[{number}\] hashing +(?:[12]/2 +)?[\d.]+ \wB/s ")
        assert any(map(row.search, pictures)), pictures[-3:]
    assert not screen.history.top
    remains = [line.rstrip() for line in screen.display if line.strip()]
    assert not [line for line in remains if " left" in line or "hashing  " in line or "Ctrl-C" in line]
    assert remains[0].startswith("checking ")


def test_two_runs_of_one_file_are_named_and_compared(watched: Watched) -> None:
    file = watched.place / "a.db"
    first, second = (run["short_id"] for run in watched.results["runs"])

    done = gputui_here("compare", f"{file}@{first}", f"{file}@{second}", env={"COLUMNS": "100"})

    assert done.returncode == 0, done.stderr
    assert "no recorded differences" in done.stdout
    assert re.search(r"^hashing ", done.stdout, re.MULTILINE)
    assert gputui_here("runs", file).stdout.count("[b]two[/b]") == 2


# Incomplete boxes and interpreters


def test_a_gpu_that_is_not_there_is_a_lack_of_the_machine(tmp_path: Path, bare_python: Path) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml")
    done = gputui_here("run", profile, "--device", "gpu", "--python", bare_python, "--db", tmp_path / "a.db")

    assert done.returncode == 3
    assert done.stderr.count("gputui: --device gpu: ") == 1
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == [profile]


def test_an_interpreter_without_torch_is_told_how_to_get_it(tmp_path: Path, bare_python: Path) -> None:
    done = gputui_here("run", "quick", "--python", bare_python, "--db", tmp_path / "a.db")

    assert done.returncode == 3
    assert "profile quick needs torch" in done.stderr
    assert str(bare_python) in done.stderr
    assert "pip install torch" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_result_file_is_not_imported_but_read_or_merged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    db, text = tmp_path / "a.db", tmp_path / "text.db"
    store_quick(db, 1)
    text.write_text("not a result file")
    status, out, err = printed(capsys, "import", db)
    assert (status, out) == (2, "")
    assert f"gputui show {db}" in err
    assert f"gputui merge {db}" in err
    assert "it is not a DuckDB database" in printed(capsys, "import", text)[2]


def test_a_run_beside_itself_is_not_sent_to_verbose(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    db = tmp_path / "a.db"
    store_quick(db, 1)
    _, shown, _ = printed(capsys, "compare", db, db)
    assert "can't tell" in shown
    assert "--verbose says" not in shown


def test_a_profile_is_shown_with_the_words_of_its_commands_and_what_is_not_here(
    tmp_path: Path, bare_python: Path
) -> None:
    head = 'schema = 1\nversion = 1\ntitle = "t"\nquestion = "q"\nbudget_s = 9\nreplicates = 1\n'
    sort = '[[command]]\nname = "sort"\nversion = 1\nargv = ["sh", "-c", "sort words\\n"]\n'
    gone = '[[command]]\nname = "gone"\nversion = 1\nargv = ["no-such-program"]\npattern = "x+"\n'
    (tmp_path / "mine.toml").write_text(head + sort + gone)
    done = gputui_here("profiles", tmp_path / "mine.toml", "--python", bare_python)
    assert (done.returncode, done.stderr) == (0, "")
    output = done.stdout
    assert "command:sort sh -c 'sort words\\n'\n               timed: from start to end\n" in output
    assert "timed: each match of 'x+'" in output
    assert "would run here (1):\n  command:sort cpu\n" in output
    assert "command:gone cpu\n    unsupported: no-such-program: is not on the PATH\n" in output


def test_help_is_a_word_too() -> None:
    assert gputui_here("help").stdout == gputui_here("--help").stdout != ""
    assert gputui_here("help", "run").stdout == gputui_here("run", "--help").stdout != ""
    assert gputui_here("help", "nonsense").returncode == 2
    assert gputui_here("help", "--help").stdout == gputui_here("--help").stdout


def test_help_of_a_topic_is_its_page_with_links_as_topics() -> None:
    shown = gputui_here("help", "sql").stdout
    assert shown.startswith("# Twelve answers in SQL\n")
    link = "Open a file that a stranger made with gputui (gputui help housekeeping.md)"
    assert link in " ".join(shown.split())
    assert max(map(len, gputui_here("help", "hosts").stdout.split("\n"))) <= 80
    assert gputui_here("help", "compare.md").stdout.startswith("# ")
    wrong = gputui_here("help", "instaling")
    assert (wrong.returncode, "did you mean `gputui help installing`?" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_help_with_words_of_a_question_shows_first_the_paragraph_that_answers_it(
    question: str, answer: str
) -> None:
    shown = gputui_here("help", *question.split())
    assert shown.returncode == 0
    first, *others = shown.stdout.split("\n  gputui help ")
    assert answer in " ".join(first.split())
    assert 1 <= len(others) <= 3


def test_options_of_the_monitor_work_without_its_name_and_only_there() -> None:
    done = gputui_here("--interval", "1", "--price", "3.5", "--no-mouse")
    assert "no terminal to draw on" in done.stderr
    assert gputui_here("--interval", "99").returncode == 2
    refused = gputui_here("--interval", "1", "runs")
    assert refused.returncode == 2
    assert "--interval before runs" in refused.stderr
