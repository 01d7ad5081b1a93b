"""Every screen in each of its states, at any size and depth of colours."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from builders import make_plan
from monitor_golden import SECONDS, faulty, no_gpu
from monitor_golden import model as monitor
from monitor_samples import SECOND, START, sample, with_instances
from palettes import INDEXED, PLAIN
from run_screen_golden import Drawn, states, watching, watching_of
from screen_goldens import FLOW, GPU_FLOW
from shell_app import Row, make_app, press, rows_of, settled
from stored_loads import Server, load_cases, load_lines, store_loads

from gputui.document.spans import Line
from gputui.document.theme import Palette
from gputui.model.journal import CaseEnd
from gputui.model.serving import LoadNow, LoadStep
from gputui.model.telemetry import LiveSample
from gputui.services.hosts.host import Host
from gputui.services.hosts.live import HostSample
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker
from gputui.tui.hosts import HostsModel
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.terminal.cell_diff import rich_style, without_marked_blanks
from gputui.tui.widgets.cells import in_ascii

MONITORS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("1gpu", 1, ()),
    ("2gpus", 2, ()),
    ("8gpus", 8, ()),
    ("8gpus-selected", 8, ("next-gpu", "next-gpu")),
    ("72gpus", 72, ()),
    ("tree", 4, ("tree", "down", "down")),
    ("end", 4, ("down", "end")),
    ("filter", 4, ("filter",)),
    ("details", 4, ("next-gpu", "details")),
    ("metrics", 4, ("metrics", "down")),
)
"""Names, numbers of GPUs, and actions that lead there."""
DIALOGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compare-help", ("question_mark",)),
    ("results-filter", ("escape", "3", "slash", "x")),
    ("results-delete", ("escape", "D")),
    ("results-label", ("escape", "l")),
    ("results-path", ("escape", "o", "a", "b", "shift+home")),
    ("results-save", ("escape", "enter", "e")),
    ("results-help", ("escape", "escape", "question_mark")),
    ("run", ("escape", "2")),
    ("run-form", ("tab",)),
    ("run-help", ("escape", "question_mark")),
    ("palette", ("escape", "escape", "ctrl+p")),
    ("palette-filtered", ("d", "o")),
    ("doctor", ("escape", "5")),
    ("doctor-next", ("n",)),
    ("doctor-help", ("question_mark",)),
    ("log", ("escape", "L")),
)
"""After the last picture of screen_goldens.FLOW: names of states and the keys that lead to each."""

SERVING_FLOW: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("serving-runs", "results", ("serve.db",), ()),
    ("serving-results", "results", ("serve.db@latest",), ()),
    ("serving-cases", "results", ("serve.db@latest",), ("tab",)),
    ("serving-compare", "compare", ("serve.db", "other.db"), ()),
    ("serving-evidence", "compare", ("serve.db", "other.db"), ("end", "enter")),
)
"""Of loads on servers: a name, the screen, what it opens, and the keys pressed there."""


@dataclass(frozen=True, slots=True)
class Look:
    """A terminal, as far as it changes what is drawn."""

    width: int
    height: int
    palette: Palette = INDEXED
    ascii_only: bool = False


def drawn_states(look: Look) -> Iterator[tuple[str, list[Row]]]:
    """States of the Monitor and of the Run screen, which are drawn without an app."""
    for name, made in _monitors(look.ascii_only):
        lines = made.lines(look.width, look.height, START + SECONDS * SECOND)
        yield f"monitor-{name}", _rows(lines, look.palette)
    for name, hosts in _hosts(look.ascii_only):
        lines = hosts.lines(look.width, look.height, START + SECONDS * SECOND)
        yield f"monitor-{name}", _rows(lines, look.palette)
    load = _offering()
    states_of_run: tuple[tuple[str, Drawn], ...] = (*states(), ("load", partial(watching_of, load)))
    for name, drawn in states_of_run:
        shown = tuple(drawn(look.width, look.height - 3))
        shown = tuple(map(in_ascii, shown)) if look.ascii_only else shown
        yield f"run-{name}", _rows(shown, look.palette)


def _hosts(ascii_only: bool) -> Iterator[tuple[str, HostsModel]]:
    """Hosts in one view: one measures, others idle, have a fault, are silent, or were never heard."""
    now_ns = START + SECONDS * SECOND
    seconds = float(SECONDS)

    def heard(name: str, seen: LiveSample, case: str = "") -> HostSample:
        return HostSample(Host(name, ()), seen, case, seen.t_ns, "", "", 0)

    silent = replace(
        heard("gpu-b.eu-north.example.net", sample(8, seconds)),
        heard_ns=now_ns - 95 * SECOND,
        problem="it does not answer",
        hint="is the box up?",
    )
    seen = (
        heard("gpu-a", sample(8, seconds), "gemm base gpu fp32"),
        silent,
        heard("gpu-c", faulty(seconds)),
        heard("laptop", no_gpu(seconds)),
        HostSample(Host("gpu-d", ()), None, "", 0, "connecting", "", 0),
        HostSample(
            Host("typo", ()), None, "", 0, "there is no such host", "correct its name or ~/.ssh/config", 0
        ),
    )
    few = HostsModel(ascii_only)
    few.take(seen)
    yield "hosts", few
    many = HostsModel(ascii_only)
    many.take((*seen, *(heard(f"box-{number:02}", sample(1, seconds)) for number in range(60))))
    many.press("sort")
    many.press("first")
    many.press("down")
    yield "hosts-many", many


def _offering() -> ProgressSnapshot:
    """Loads on a server: all users are measured once, and the third rate is tried on the way to the limit."""
    plan = make_plan((0,), (1,), (2,), (3,), cases=load_cases())
    tracker = ProgressTracker([plan], is_of_this_clock=True)
    limit, now_ns = len(plan.cases) - 1, 0
    for line in load_lines(Server(), launches=1, requests=40):
        if getattr(line, "case_id", None) == limit and isinstance(line, (LoadStep, CaseEnd)):
            break
        tracker.hear(0, line)
        now_ns = getattr(line, "t_ns", now_ns)
    tried = next(line for line in load_lines(Server(), requests=1) if isinstance(line, LoadStep))
    for second in range(80):
        step = second // 30
        rate = (2.0, 4.0, 3.2)[step]
        if second in (30, 60):
            tracker.hear(0, _step_of(tried, limit, step - 1, (2.0, 4.0)[step - 1]))
        waits = 2 + second % 4 + (second - 30 if step == 1 else 0)
        first_s = 0.05 + 0.04 * waits
        t_ns, ended = now_ns + second * SECOND, 2 + second % 3
        tracker.hear(0, LoadNow(limit, limit, step, None, rate, waits, ended, SECOND, first_s, 0.01, t_ns))
    other = watching()
    seen = replace(tracker.picture(), machine=other.machine, devices=other.devices)
    return replace(seen, begun_ns=0, left_s=68.0, share_done=0.62)


@cache
def _monitors(ascii_only: bool) -> list[tuple[str, MonitorModel]]:
    """Kept, as their history takes a while."""
    found: list[tuple[str, MonitorModel]] = []
    for name, gpus, actions in MONITORS:
        made = monitor(
            lambda second, gpus=gpus: sample(gpus, second, processes=40 if gpus > 2 else 12),  # type: ignore[misc]
            ascii_only=ascii_only,
        )
        for action in actions:
            made.press(action)
        found.append((name, made))
    with_slices = monitor(lambda second: with_instances(sample(2, second), 1, 3), ascii_only=ascii_only)
    faults, without = (monitor(one, ascii_only=ascii_only) for one in (faulty, no_gpu))
    return [*found, ("mig", with_slices), ("faults", faults), ("no-gpu", without)]


def _step_of(made: LoadStep, case: int, step: int, rate_per_s: float) -> LoadStep:
    """A rate that was tried."""
    return replace(
        made,
        launch_id=case,
        case_id=case,
        step_index=step,
        load="open",
        users=None,
        rate_per_s=rate_per_s,
        is_overloaded=rate_per_s > 3.5,
        good_share=0.98,
    )


def store_serving(place: Path) -> None:
    """Two runs of loads in `serve.db` and `other.db`."""
    store_loads(place / "serve.db", Server(failures=3), requests=150)
    store_loads(place / "other.db", Server(slots=10, decode_s=0.009), number=2, requests=150)


def _rows(lines: tuple[Line, ...] | list[Line], palette: Palette) -> list[Row]:
    if palette == PLAIN:
        lines = [without_marked_blanks(line) for line in lines]
    return [[(span.text, rich_style(span.style, palette)) for span in line] for line in lines]


async def app_states(look: Look) -> AsyncIterator[tuple[str, list[Row]]]:
    """States of the other screens, reached by keys, with the result files of screen_goldens in place.

    GPUTUI_DB names the first of them.
    """
    app = make_app(palette=look.palette, ascii_only=look.ascii_only)

    place = Path(os.environ["GPUTUI_DB"]).parent
    with chdir(place):
        async with app.run_test(size=(look.width, look.height)) as pilot:
            await settled(pilot)
            for name, keys in (*FLOW, *DIALOGS):
                await press(pilot, *keys)
                yield name, rows_of(app)
            await press(pilot, "escape")
            app.open_screen("results", (f"{(place / 'gpu.db').absolute()}@latest",))
            await settled(pilot)
            for name, keys in GPU_FLOW:
                await press(pilot, *keys)
                yield name, rows_of(app)
            for name, screen, files, keys in SERVING_FLOW:
                app.open_screen(screen, tuple(str(place / file) for file in files))
                await settled(pilot)
                await press(pilot, *keys)
                yield name, rows_of(app)
