"""What a newcomer asks, below the processes of the Monitor until there is a result file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from monitor_golden import LOST, model, no_gpu
from monitor_samples import SECOND, START, sample, text_of
from pty_harness import Terminal
from shell_app import make_app, picture, press, until

from gputui.model.telemetry import LiveSample
from gputui.services.support.paths import default_result_file, monitor_file
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.status import ShowDemo

SIZES = [(80, 24), (120, 40), (200, 50), (40, 10), (40, 24)]
QUICK_S = 140.0


def eight(second: float) -> LiveSample:
    return sample(8, second)


def monitor(make: Callable[[float], LiveSample] = eight) -> MonitorModel:
    made = model(make, seconds=2)
    made.invite(QUICK_S)
    return made


def shown(made: MonitorModel, width: int = 80, height: int = 24) -> str:
    return text_of(made.lines(width, height, START + 2 * SECOND))


def test_four_questions_with_their_keys_and_the_cost_where_a_price_is_known() -> None:
    lines = shown(monitor()).splitlines()[-6:-1]
    assert lines[0].startswith("─ new here? ── x hides this ──")
    assert [line.split()[0] for line in lines[1:]] == ["2", "4", "5", "d"]
    assert "as fast as it should be?" in lines[1]
    assert lines[1].rstrip().endswith("quick: up to 2 min 20 s, $1.43")
    unpriced = MonitorModel(monitor().settings)
    unpriced.add(sample(8, 0.0))
    unpriced.invite(QUICK_S)
    assert "quick: up to 2 min 20 s " in shown(unpriced)


def test_the_third_asks_about_the_gpu_that_is_lost_and_of_no_gpu_where_there_is_none() -> None:
    assert "5  Is this box healthy?                       doctor: GPUs, driver" in shown(monitor())
    assert "5  Why is GPU 5 lost?" in shown(monitor(lambda second: sample(8, second, problems={5: LOST})))
    bottom = "\n".join(shown(monitor(no_gpu)).splitlines()[-6:])
    assert "5  Is this box healthy?                       doctor: torch, CPU" in bottom
    assert "GPU" not in bottom.replace("eight busy GPUs", "")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("gpus", [0, 1, 3, 8, 16, 72])
def test_they_cover_no_row_of_a_gpu_no_sum_and_no_message(size: tuple[int, int], gpus: int) -> None:
    made = model(lambda second: sample(gpus, second) if gpus else no_gpu(second), seconds=2)
    before = shown(made, *size).splitlines()
    made.invite(QUICK_S)
    after = shown(made, *size).splitlines()
    assert len(after) == len(before) == size[1]
    assert after[:2] == before[:2]
    if gpus >= 8 and size != (200, 50):  # a table: fewer have charts, and there they are cards
        ends = next(n for n, line in enumerate([*before, "host"]) if line.startswith("host"))
        assert after[: min(ends + 1, size[1] - 1)] == before[: min(ends + 1, size[1] - 1)]
    if "new here?" in shown(made, *size):
        assert " PID " in "\n".join(after)
    made.say("a message")
    assert shown(made, *size).splitlines()[-1].startswith("a message")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
@pytest.mark.parametrize("gpus", [0, 1, 2, 4, 8])
def test_they_have_room_on_usual_boxes(size: tuple[int, int], gpus: int) -> None:
    for processes in (0, 3, 40):
        made = monitor(
            lambda second, processes=processes: (  # type: ignore[misc]
                sample(gpus, second, processes=processes) if gpus else no_gpu(second)
            )
        )
        assert "new here?" in shown(made, *size), processes


def test_x_hides_them_for_good_and_with_a_selected_process_it_asks_to_end_that() -> None:
    made = monitor()
    assert "x End" not in shown(made, 120).splitlines()[-1]
    made.press("down")
    assert "new here?" not in shown(made)
    made.press("end")
    assert "?  y yes  n no" in shown(made).splitlines()[-1]
    made.press("no")
    made.press("back")
    assert "new here?" in shown(made)
    made.press("end")
    assert "new here?" not in shown(made)
    assert made.settings.questions is False
    made.press("end")
    assert "no process is selected" in shown(made)


def test_they_go_when_there_is_a_result_file_and_d_asks_for_the_demo() -> None:
    made = monitor()
    assert "d  What does all of it look like?" in shown(made)
    assert isinstance(made.press("demo"), ShowDemo)
    made.invite(None)
    assert "new here?" not in shown(made)


@pytest.mark.parametrize("file", ["default", ""])
async def test_the_app_invites_as_long_as_there_is_no_result_file(file: str) -> None:
    app = make_app(model=model(eight, seconds=2))
    app.invites = True
    if file:
        default_result_file().touch()
    async with app.run_test(size=(80, 24)) as pilot:
        if file:
            await until(pilot, lambda: "gputui-newcomer" not in names_of_threads())
            assert "new here?" not in picture(app)
        else:
            await until(pilot, lambda: "new here?" in picture(app))
            Path("a.db").touch()
            app._take_runs(())
            await until(pilot, lambda: "new here?" not in picture(app))
        await press(pilot, "2")


def names_of_threads() -> set[str]:
    import threading

    return {thread.name for thread in threading.enumerate()}


def test_d_shows_made_up_gpus_and_q_comes_back_and_x_is_remembered(repository: Path) -> None:
    environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gputui"]
    with Terminal(command, environment=environment) as terminal:
        terminal.wait_for("new here?")
        terminal.type(b"d")
        terminal.wait_for("DEMO DATA")
        terminal.wait_for("39 processes")
        assert "new here?" not in terminal.text
        assert "[1 Mon]" in terminal.text
        terminal.type(b"d")
        terminal.wait_for("these are the made-up GPUs")
        terminal.type(b"5")
        terminal.wait_for("[5 Doc]")
        terminal.type(b"q")
        terminal.wait_for("new here?")
        assert "DEMO DATA" not in terminal.text
        terminal.type(b"x")
        terminal.wait_for(lambda: "new here?" not in terminal.text)
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert "questions = false" in monitor_file().read_text()
    with Terminal(command, environment=environment) as terminal:
        terminal.wait_for("processes ─")
        terminal.type(b"d")
        terminal.wait_for("DEMO DATA")
        terminal.type(b"\x03")
        assert terminal.ended() == 130


def test_the_screen_that_is_asked_for_is_the_first_one_painted(repository: Path) -> None:
    from stored_runs import store

    for number in (1, 2):
        store(Path("a.db"), number)
    environment = {"PYTHONPATH": str(repository), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "gputui", "compare", "a.db@cccc0001", "a.db@cccc0002", "--tui"]
    with Terminal(command, 80, environment=environment) as terminal:
        terminal.wait_for("[4 C")
        first = terminal.text.splitlines()[0]
        assert "1 Mon" in first
        assert "[1 Mon" not in first
        terminal.wait_for("Help")
        painted = bytes(terminal.raw)
        assert b"[1 Mon" not in painted
        assert b"charts" not in painted
        assert b"PID" not in painted
        terminal.type(b"1")
        terminal.wait_for("[1 Mon")
        terminal.type(b"q")
        assert terminal.ended() == 0
