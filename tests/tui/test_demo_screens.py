"""`gputui demo`: five screens on made-up data, which says so and stays where it is."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import demo_trace
import psutil
import pytest
from command_line import gputui_here
from pty_harness import Terminal
from shell_app import DEADLINE_S, make_app, picture, press, settled, until

from gputui.analysis.attribution import Attribution
from gputui.model.result import Run
from gputui.services.playback.demo import BOXES, Demo, MadeUpProgress
from gputui.services.playback.demo_gpus import CAUTION
from gputui.services.results.browser import read_detail
from gputui.services.results.headline import case_order
from gputui.services.results.reference_making import Candidate, problems_of_run
from gputui.services.results.step_answer import why_sentence
from gputui.services.support.background import Job
from gputui.store.reading import open_result
from gputui.store.writing import label_run
from gputui.tui.app import MonitorApp
from gputui.tui.screens.compare import CompareScreen
from gputui.tui.screens.results import ResultsScreen
from gputui.tui.screens.run import RunScreen

UNANSWERED = re.compile(r"unknown|not profiled|no profiled pass|not known|not sampled")
TRACE = "demo trace"
NO_MEMORY = "memory: not known: memory is not read from traces"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a demo that has written its runs, which takes a second or more."""
    made, place = Demo(1), tmp_path_factory.mktemp("demo")
    made.write(lambda step: None)
    shutil.copytree(made.db.parent, place, dirs_exist_ok=True)
    made.close()
    return place


@pytest.fixture
def unwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Demo]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Demo(8)
    yield made
    made.close()


@pytest.fixture
def demo(unwritten: Demo, written: Path) -> Demo:
    shutil.copytree(written, unwritten.db.parent, dirs_exist_ok=True)
    unwritten._is_written = True
    return unwritten


@pytest.fixture
def app(demo: Demo) -> MonitorApp:
    return app_of(demo)


def app_of(demo: Demo) -> MonitorApp:
    made = make_app()
    made.demo = demo
    return made


@pytest.fixture
def runs(demo: Demo) -> tuple[Run, ...]:
    with open_result(demo.db) as file:
        found = [file.run(summary.run_id) for summary in file.summaries()]
    return tuple(run for run in found if run.summary.label != TRACE)


def test_findings_begin_with_the_main_case_and_none_contradicts_another(
    demo: Demo, runs: tuple[Run, ...]
) -> None:
    bounds = {"launch-bound", "compute-bound", "memory-bound"}
    for run in runs:
        detail = read_detail(demo.db, run.summary.run_id, Job(lambda job: None, lambda job, outcome: None))
        cases = [case.case for case, _ in detail.findings]
        assert cases == sorted(cases, key=case_order)
        kinds = [{finding.kind for finding in found} for _, found in detail.findings]
        assert any("compute-bound" in found for found in kinds)
        assert all(len(found & bounds) <= 1 for found in kinds)
        assert not any(found >= {"memory-bound", "matrix units unused"} for found in kinds)
        why = why_sentence(detail.run, detail.passes)
        assert re.match(r"A step takes \S+ ms: \d\d % is matmul.* It reaches \d\d % of", why), why


def demo_in_a_terminal(repository: Path, directory: Path, before: str = "", lines: int = 40) -> Terminal:
    code = f"{before}\nfrom gputui.cli import main\nraise SystemExit(main(['demo']))"
    environment = {"PYTHONPATH": str(repository), "TMPDIR": str(directory)}
    return Terminal([sys.executable, "-c", code], 120, lines, environment=environment)


def test_it_opens_in_the_terminal_says_so_and_leaves_no_file(repository: Path, tmp_path: Path) -> None:
    with demo_in_a_terminal(repository, tmp_path) as terminal:
        for key, words in (("", "8x H200"), ("2", "launch"), ("3", "demo H100 PCIe")):
            terminal.type(key.encode())
            terminal.wait_for(words)
            assert CAUTION in terminal.text.splitlines()[0]
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert list(tmp_path.iterdir()) == []


def test_without_a_temporary_directory_the_monitor_is_shown_alone(repository: Path, tmp_path: Path) -> None:
    none = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'none')!r}"
    with demo_in_a_terminal(repository, tmp_path, none) as terminal:
        terminal.wait_for("8x H200")
        assert "Res" not in terminal.text.splitlines()[0]
        terminal.type(b"q")
        assert terminal.ended() == 0
        before_the_monitor, _, _ = bytes(terminal.raw).partition(b"8x H200")
        assert b"only the monitor is shown" in before_the_monitor


async def test_the_run_screen_waits_for_no_file_its_arrows_go_through_the_cases_and_no_size_ends_it(
    unwritten: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    monkeypatch.setattr(unwritten, "write", lambda say: may_write.wait(DEADLINE_S))
    app = app_of(unwritten)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "2")
        await until(pilot, lambda: " of 27 cases not measured" in picture(app))
        before = next(line for line in picture(app).splitlines() if " below" in line)
        await press(pilot, *["down"] * 30)
        assert before not in picture(app)
        for size in ((10, 50), (5, 50), (1, 50), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
        await press(pilot, "escape")
        await until(pilot, lambda: "24 of 27 cases run here" in picture(app))
    may_write.set()


async def test_a_file_that_cannot_be_written_is_reported_where_it_is_needed(unwritten: Demo) -> None:
    unwritten.db.mkdir()
    app = app_of(unwritten)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "3")
        assert "demo.db" in picture(app)
        assert "directory" in picture(app)
        assert CAUTION in picture(app).splitlines()[0]


def test_the_trace_is_what_its_maker_makes_of_the_tables() -> None:
    assert gzip.decompress(demo_trace.PLACE.read_bytes()) == demo_trace.trace()


async def test_every_screen_says_that_it_is_made_up_and_has_an_answer_on_every_page(app: MonitorApp) -> None:
    def shown() -> str:
        text = picture(app)
        assert CAUTION in text.splitlines()[0]
        assert not UNANSWERED.search(text.replace(NO_MEMORY, "")), text
        return text

    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "3")
        assert isinstance(app.screen, ResultsScreen)
        results: ResultsScreen = app.screen
        tabs: dict[str, str] = {}
        for place, name in enumerate((*(box.gpus[0].name.removeprefix("NVIDIA ") for box in BOXES), TRACE)):
            assert name in picture(app)
            await press(pilot, *["down"] * bool(place), "enter")
            tabs = {}
            while results._run.tab not in tabs:
                tabs[results._run.tab] = shown()
                await press(pilot, "tab")
            await press(pilot, "escape", "o")
            assert app.screen is results, "the demo opens no other file"
        assert list(tabs) == ["overview", "step"], "of the trace"
        sentence = r"A step takes \d\d\.\d ms: \d\d % is matmul, and \d\d % is "
        assert re.search(sentence, " ".join(tabs["overview"].split()))
        assert "linear" in tabs["step"]
        assert re.search("idle: .*data", tabs["step"])

        await press(pilot, "4")
        assert isinstance(app.screen, CompareScreen)
        compare: CompareScreen = app.screen
        text = " ".join(shown().split())
        assert "cheaper" in text
        assert re.search(r"why: .*matmul", text)
        assert compare.loaded is not None
        rows = compare.loaded.answer.comparisons[0].rows
        assert len(rows) == 24
        undecided, *graphs = (
            row for row in rows if not (row.why and isinstance(row.why.attribution, Attribution))
        )
        assert undecided.verdict.word == "inconclusive"
        assert {row.case.variant.mode for row in graphs} == {"graph"}  # whose operators no pass can see
        await press(pilot, "enter")
        assert "efficiency" in shown()
        await press(pilot, *["pagedown"] * 2)
        shown()
        await press(pilot, "o")
        assert app.screen is compare, "the demo opens no other file"

        await press(pilot, "5")
        text = picture(app)
        assert CAUTION in text.splitlines()[0]
        assert "Ready to measure on 6 of 8 GPUs" in text
        assert "GPU 7           LOST" in text


async def test_the_run_goes_on_and_its_keys_start_and_stop_nothing(app: MonitorApp) -> None:
    children = psutil.Process().children()
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "2")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: screen.watched is not None)
        assert CAUTION in picture(app).splitlines()[0]
        assert re.search("GPU 0  H100 PCIe|host  AMD EPYC", picture(app))
        for keys in (("x", "y"), ("escape", "r")):
            await press(pilot, *keys)
            assert "the demo starts and stops nothing" in picture(app)
        await press(pilot, "a")
        await until(pilot, lambda: screen.watched is not None)
        await pilot.press("q")  # no question: nothing goes on
    assert app.return_value == 0
    assert psutil.Process().children() == children


def test_a_run_in_progress_begins_anew_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputui.services.playback.demo._GONE_NS", 600 * 10**9)
    progress = MadeUpProgress()
    assert progress.picture().is_storing
    again = progress.picture()
    assert not again.is_storing
    assert again.share_done is not None
    assert again.share_done < 0.1


def test_each_case_of_the_stored_runs_has_a_sound_profiled_pass_unless_it_is_a_graph(
    runs: tuple[Run, ...], demo: Demo
) -> None:
    with open_result(demo.db) as file:
        for run in runs:
            passes = file.profiled(run.summary.run_id)
            eager = [case for case in run.cases if case.case.variant.mode == "eager"]
            assert sorted(passes) == sorted(case.case_id for case in eager if case.outcome == "ok")
            assert [found.fault() for found in passes.values()] == [""] * len(passes)
            assert all(found.memory for found in passes.values())


def test_the_runs_are_the_same_each_time(runs: tuple[Run, ...]) -> None:
    other = Demo(1)
    try:
        other.write(lambda step: None)
        with open_result(other.db) as again:
            for run in runs:
                assert again.run(run.summary.run_id).cases == run.cases
    finally:
        other.close()


def test_the_process_is_as_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUTUI_DB", "mine.db")
    made = Demo(8)
    assert os.environ["GPUTUI_DB"] == str(made.db)
    assert Path.cwd() == made.db.parent
    other = Demo(1)
    assert other.db.parent != made.db.parent
    other.close()
    assert made.db.parent.is_dir()
    made.close()
    assert os.environ["GPUTUI_DB"] == "mine.db"
    assert Path.cwd() == tmp_path
    assert not made.db.parent.exists()


def test_a_copy_of_the_file_cannot_pass_for_a_measurement(runs: tuple[Run, ...], demo: Demo) -> None:
    run = runs[0]
    problems = problems_of_run(Candidate("demo.db", run, {}))
    assert list(problems) == ["'demo (made up)' is not a built-in profile"]
    with open_result(demo.db) as file:
        trace_id = next(one.run_id for one in file.summaries() if one.label == TRACE)
    label_run(demo.db, trace_id, "my trace")
    assert CAUTION in gputui_here("show", "my trace", demo.db).stdout
    label_run(demo.db, run.summary.run_id, "my box")
    assert CAUTION in gputui_here("show", "latest", demo.db).stdout
    page = demo.db.with_name("page.md")
    assert gputui_here("share", f"{demo.db}@latest", "-o", page).returncode == 0
    assert CAUTION in page.read_text()
    assert "gputui run demo" not in page.read_text()
    advised = gputui_here("advise", f"{demo.db}@latest", "--job", "1e9 tokens train")
    assert advised.returncode != 0
    assert CAUTION in advised.stderr
