"""The app with a static monitor, for tests of the screens on top of it; and pictures of it as text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import textual.app
import textual.pilot
from moving_lines import MovingLines, Ticking
from palettes import INDEXED
from rich.color import Color
from rich.style import Style
from textual.pilot import Pilot

from gputui.document.theme import Palette, definition
from gputui.tui.app import MonitorApp
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.shell.registry import SCREENS
from gputui.tui.shell.shell_screen import ShellScreen

DEADLINE_S = 300.0


async def _a_moment(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    await asyncio.sleep(0.005)


for _module in (textual.app, textual.pilot):
    vars(_module)["wait_for_idle"] = _a_moment
"""Textual waits until the process needs no CPU, up to a second for each key; `settled` knows what goes on."""
S = TypeVar("S", bound=ShellScreen)
Row = list[tuple[str, Style]]
"""Pieces of text from left to right."""


def make_app(
    *opens: str, ascii_only: bool = False, palette: Palette = INDEXED, model: MonitorModel | None = None
) -> MonitorApp:
    """The app, with a monitor of small lines behind it, or of a model that has its samples."""
    collector = Ticking(None) if model is None else Held(model)
    if model is None:
        model = MovingLines(is_still=True)
        model.actions = ()
    app = MonitorApp(
        model,
        collector,
        palette=palette,
        screens=SCREENS,
        ascii_only=ascii_only,
    )
    app.opens_first = opens
    return app


class Held(Ticking):
    """Has no sample but the one that a model holds."""

    def __init__(self, model: MonitorModel) -> None:
        super().__init__(None)
        assert model.sample is not None
        self._last = model.sample


async def until(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    """Let the app work until a condition holds."""
    from asyncio import sleep
    from time import monotonic

    end_s = monotonic() + DEADLINE_S
    while not is_so():
        assert monotonic() < end_s, picture(pilot.app)  # type: ignore[arg-type]
        await sleep(0.01)
        await pilot.pause()


async def settled(pilot: Pilot[int]) -> None:
    """Wait until no job runs on the current screen, and it is drawn."""
    from asyncio import sleep
    from time import monotonic

    until = monotonic() + DEADLINE_S
    await pilot.pause()
    while isinstance(screen := pilot.app.screen, ShellScreen) and screen.is_busy:
        assert monotonic() < until, "the screen is still busy"
        await sleep(0.01)
    await pilot.pause()
    while pilot.app.screen._callbacks:  # what follows the next picture, as scrolling to the end does
        assert monotonic() < until, "the screen is not drawn"
        await pilot.pause()
    await pilot.pause()


async def opened(pilot: Pilot[int], kind: type[S], *words: str) -> S:
    """A screen, once it has read the files that these words name."""
    await settled(pilot)
    assert isinstance(pilot.app, MonitorApp)
    pilot.app.open_screen(kind.ID, words)
    await settled(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    return screen


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys one after the other, and wait for the jobs they start."""
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def picture(app: MonitorApp) -> str:
    """The text on the screen, without trailing blanks."""
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    lines = ["".join(segment.text for strip in line for segment in strip) for line in update.strips]  # type: ignore[union-attr]
    return "\n".join(line.rstrip() for line in lines) + "\n"


_STATES = {Color.parse(definition(name, INDEXED).split()[-1]) for name in ("good", "warn", "alarm")}


def rows_of(app: MonitorApp) -> list[Row]:
    """The pieces of text on the screen."""
    return [
        [(text, style or Style.null()) for strip in strips for text, style, control in strip if not control]
        for strips in app.whole_picture().strips
    ]


def only_coloured(rows: Iterable[Row]) -> list[str]:
    """Rows where a shape has the colour of a state, and no word, `!`, change or share stands beside it."""
    found = []
    for row in rows:
        texts: dict[Color | None, str] = {}
        for text, style in row:
            texts[style.color] = texts.get(style.color, "") + text
        shapes = [text for colour in _STATES & texts.keys() if (text := texts[colour]).strip()]
        whole = "".join(text for text, _ in row)
        if not all(map(_WORD.search, shapes)) and not _FIGURE.search(whole):
            found.append(whole)
    return found


_WORD = re.compile(r"[\w!]")
_FIGURE = re.compile(r"[+-]\d|\d %")
