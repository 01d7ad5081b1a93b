"""Every screen in each of its states, at any size and depth of colours."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from monitor_golden import SECONDS, faulty, no_gpu
from monitor_golden import model as monitor
from monitor_samples import SECOND, START, sample, with_instances
from run_screen_golden import models as run_models
from screen_goldens import FLOW, GPU_FLOW
from shell_app import Row, make_app, press, rows_of, settled

from gputui.tui.monitor.model import MonitorModel
from gputui.tui.screens.run.pictures import picture as run_picture
from gputui.tui.terminal.cell_diff import rich_style
from gputui.tui.terminal.lines import Line
from gputui.tui.terminal.theme import Depth

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
    ("keys", 4, ("keys",)),
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
    ("run-help", ("question_mark",)),
    ("palette", ("escape", "escape", "ctrl+p")),
    ("palette-filtered", ("d", "o")),
    ("doctor", ("escape", "5")),
    ("doctor-next", ("n",)),
    ("doctor-help", ("question_mark",)),
    ("log", ("escape", "L")),
)
"""After the last picture of screen_goldens.FLOW: names of states and the keys that lead to each."""


@dataclass(frozen=True, slots=True)
class Look:
    """A terminal, as far as it changes what is drawn."""

    width: int
    height: int
    depth: Depth = Depth.INDEXED
    ascii_only: bool = False


def drawn_states(look: Look) -> Iterator[tuple[str, list[Row]]]:
    """States of the Monitor and of the Run screen, which are drawn without an app."""
    for name, made in _monitors(look.ascii_only):
        lines = made.lines(look.width, look.height, START + SECONDS * SECOND)
        yield f"monitor-{name}", _rows(lines, look.depth)
    for name, run in run_models():
        shown = run_picture(
            run, look.width, look.height, 42 * SECOND, ends="14:31", ascii_only=look.ascii_only
        )
        yield f"run-{name}", _rows(shown, look.depth)


def _monitors(ascii_only: bool) -> Iterator[tuple[str, MonitorModel]]:
    for name, gpus, actions in MONITORS:
        made = monitor(
            lambda second, gpus=gpus: sample(gpus, second, processes=40 if gpus > 2 else 12),  # type: ignore[misc]
            ascii_only=ascii_only,
        )
        for action in actions:
            made.press(action)
        yield name, made
    yield "mig", monitor(lambda second: with_instances(sample(2, second), 1, 3), ascii_only=ascii_only)
    yield "faults", monitor(faulty, ascii_only=ascii_only)
    yield "no-gpu", monitor(no_gpu, ascii_only=ascii_only)


def _rows(lines: tuple[Line, ...] | list[Line], depth: Depth) -> list[Row]:
    return [[(span.text, rich_style(span.style, depth)) for span in line] for line in lines]


async def app_states(look: Look) -> AsyncIterator[tuple[str, list[Row]]]:
    """States of the other screens, reached by keys, with the result files of screen_goldens in place.

    GPUTUI_DB names the first of them.
    """
    app = make_app(depth=look.depth, ascii_only=look.ascii_only)

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
