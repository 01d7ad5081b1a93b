"""A run of loads in every form in which it is shown, from a real result file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_plan
from command_line import gputui_here
from model_server import Behaviour, serving
from shell_app import make_app, picture, press, settled
from stored_loads import Server, load_cases, load_lines, store_loads

from gputui.cli.progress import picture_lines
from gputui.document.spans import Line
from gputui.model.journal import Figure, LaunchStart, RunStart
from gputui.model.plan import PlannedCase
from gputui.model.serving import LoadNow, LoadStep, ServerFound
from gputui.model.telemetry import HOST
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.progress import ProgressTracker
from gputui.tui.screens.run_pages import watching_lines
from gputui.tui.screens.run_panes import load_lines as pane_lines

_SECOND = 1_000_000_000


def _text(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


async def test_the_results_screen_answers_with_the_limit_and_shows_the_curve(tmp_path: Path) -> None:
    store_loads(tmp_path / "a.db", Server(failures=3), requests=40)
    app = make_app("results", str(tmp_path / "a.db"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "enter")
        rows = picture(app).splitlines()

    assert "Timeline" in rows[1]
    assert "requests/s within TTFT 500 ms, TPOT 50 ms" in rows[3]
    assert any(row.startswith("vLLM 0.11.0, made-up-1b, chat") for row in rows)
    shown = [row for row in rows if re.match(r"(\d+ users?|limit \S+)  ", row)]
    assert len(shown) == 4
    assert shown[-1].startswith("limit")
    assert any("of 120 requests 9 refused" in row for row in rows)


def _tracker() -> ProgressTracker:
    """A run whose limit is being searched for: one rate held, the next is offered."""
    plan = make_plan([3])
    lines = load_lines(Server(), launches=1, requests=10)
    cases = tuple(PlannedCase(number, case, None, "") for number, case in enumerate(load_cases()))
    tracker = ProgressTracker([replace(plan, cases=cases)])
    (start,) = (line for line in lines if isinstance(line, RunStart))
    tried = next(line for line in lines if isinstance(line, LoadStep) and line.rate_per_s is not None)
    tracker.hear(0, start)
    tracker.hear(0, LaunchStart(0, 0, (3,), 1, 20.0, start.started_ns))
    tracker.hear(0, LoadNow(0, 3, 0, None, 3.2, 3, 2, _SECOND, 0.05, 0.01, start.started_ns + _SECOND))
    tracker.hear(0, replace(tried, launch_id=0, case_id=3, rate_per_s=3.2, good_share=0.98))
    tracker.hear(0, LoadNow(0, 3, 1, None, 6.4, 9, 4, _SECOND, 0.61, None, start.started_ns + 2 * _SECOND))
    return tracker


def test_the_run_screen_shows_a_load_as_it_is_offered() -> None:
    load = _tracker().picture().load
    assert load is not None
    title, now, *chart, before = _text(pane_lines(load, 110, 4, has_axis=True))
    assert title.startswith("── serve:chat limit  launch 1 of 1 ")
    assert title.endswith("6.40 req/s offered ──")
    assert now == "  4.00 req/s ended  9 in flight  TTFT 610 ms"
    assert {line.split()[0] for line in chart[1:]} >= {"requests", "0"}, "the name of the axis is whole"
    assert "TTFT" in "".join(chart)
    assert chart[0].startswith("      10 ")  # of requests in flight, which are whole
    assert before.strip() == "tried 3.20 req/s: 98 % within the limits"


def _watching(width: int, height: int, devices: tuple[DeviceHistory, ...] = ()) -> list[str]:
    tracker = _tracker()
    begun_ns = tracker.pace.begun_ns
    tracker.hear(0, ServerFound(0, 0, "vLLM", "0.11.0", 32768, None, True, begun_ns))
    for key, value in (("ttft_p50_s", 0.052), ("tpot_p50_s", 0.0101)):
        tracker.hear(0, Figure(0, 3, key, key, "s", "less", "median", value, 40))
    seen = replace(tracker.picture(), devices=devices)
    return _text(watching_lines(seen, "into a.db", width, height, begun_ns))


def _device(index: int, busy_pct: float) -> DeviceHistory:
    key = "cpu_busy_pct" if index == HOST else "sm_busy_pct"
    return DeviceHistory(index, {key: busy_pct}, 1.0, {key: (busy_pct,) * 4})


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_the_run_screen_has_the_curve_so_far_and_the_gpu_that_serves(width: int, height: int) -> None:
    devices = (_device(HOST, 150.0), _device(0, 1.0), _device(1, 93.0))
    lines = _watching(width, height, devices)
    assert any("── host " in line for line in _watching(width, height, devices[:1])), "without a GPU"

    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    (heading,) = (line for line in lines if line.lstrip().startswith("LOAD "))
    assert heading.split("──")[0].split()[-2:] == ["TTFT", "TPOT"]
    (one,) = (line for line in lines if line.startswith(" ▸ "))
    assert "52.0 ms 10.1 ms" in " ".join(one.split())
    assert any("GPU 1 " in line for line in lines)
    assert any("tried 3.20 req/s: 98 %" in line for line in lines)


def test_between_two_loads_the_pane_says_so() -> None:
    tracker = _tracker()
    (step,) = tracker.picture().load.steps  # type: ignore[union-attr]
    tracker.hear(0, replace(step, step_index=1, rate_per_s=6.4, is_overloaded=True))
    load = tracker.picture().load
    assert load is not None
    _, now, *_, before = _text(pane_lines(load, 110, 4, has_axis=True))
    assert now == "  between two loads"
    assert "6.40 req/s: the queue grew  ·  3.20 req/s: 98 %" in before


def test_below_a_shells_prompt_the_load_stands_between_its_case_and_the_host() -> None:
    progress = replace(_tracker().picture(), devices=(_device(HOST, 150.0),))
    lines = _text(picture_lines(progress, [make_plan([3])], "a.db", "Ctrl-C ends it", 80, 24))
    assert len(lines) <= 24
    places = [
        next(place for place, line in enumerate(lines) if re.match(begin, line))
        for begin in (
            " ▸ ",
            "── serve:chat limit ",
            "  4.00 req/s ended",
            "── host ",
        )
    ]
    assert places == sorted(places)
    assert lines[-1] == " Ctrl-C ends it"


def test_a_budget_in_which_nothing_could_be_measured_is_refused_with_one_that_is_enough(
    tmp_path: Path,
) -> None:
    with serving(Behaviour(prefill_s=0.4)) as server:
        url = f"http://127.0.0.1:{server.port}"
        done = gputui_here("serve-bench", url, "--budget", "20", "--db", tmp_path / "a.db")
    assert done.returncode == 2
    assert "each of 21 launches has 606 ms" in done.stderr
    assert "--budget 120, or fewer loads" in done.stderr
