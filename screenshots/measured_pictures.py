"""Pictures of the screens beside the Monitor: the app itself is driven, and what it shows was measured.

The moving picture shows the same screens in the demo, where nothing is left to be measured.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from terminal_svg import pieces_of, svg_of_pieces
from textual.pilot import Pilot
from tour import SCENES, SIZE, Rows, moving_picture

from gputui.analysis.attribution import Attribution
from gputui.document.theme import Depth, Palette
from gputui.errors import EXIT_MACHINE_LACKS, GputuiError
from gputui.recording.collector import live_collector
from gputui.services.compare.pairing import Row
from gputui.services.playback.demo import Demo
from gputui.services.runs.process import runs_in_progress, stop
from gputui.tui.app import MonitorApp
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.screens.compare import CompareScreen
from gputui.tui.screens.results_panes import RunPane
from gputui.tui.screens.run import RunScreen
from gputui.tui.screens.run_form import FIELDS
from gputui.tui.shell.registry import SCREENS
from gputui.tui.shell.shell_screen import Confirm, ShellScreen

SIZES = ((80, 24), SIZE)
NAMES = (
    "run-choose",
    "run-form",
    "run-progress",
    "run-ended",
    "results-runs",
    "results-cases",
    "results-step",
    "results-timeline",
    "compare-rows",
    "compare-evidence",
    "doctor",
)
"""In the order they are taken; each is made in every one of SIZES."""
LABELS = ("all cores", "one core")
"""Of the two runs: the first has every core that gputui has, the second the first of them."""
_TABS = ("cases", "step", "timeline")
_BLOCKS = 6
"""So many blocks of a case are seen while a run goes on: enough for an interval."""
_LONGEST_S = 1800.0
_LOOK_EVERY_S = 0.05
_FILM_EVERY_S, _FILMED = 1.0, 8
"""Of a run in progress."""
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured for the pictures."""

    profile: str
    """As for `gputui run`."""
    only: str = ""
    """Workloads, with spaces between; empty for all."""


QUICK = Subject("quick", "gemm gpt_train")


def measured_pictures(subject: Subject, told: Callable[[str], None]) -> dict[str, str]:
    """Names of files and what belongs into them: measures twice, in its own directory.

    `told` gets a line for each thing that is begun. GputuiError where nothing can be measured.
    """
    profile = Path(subject.profile)
    if profile.exists():
        subject = Subject(str(profile.absolute()), subject.only)
    album = _Album({}, {name: [] for name in SCENES})
    with tempfile.TemporaryDirectory(prefix="gputui-") as place, _living_in(Path(place)):
        try:
            told(f"measuring {subject.profile} {subject.only}".rstrip())
            asyncio.run(_driven(album, lambda camera: _first_run(camera, subject)))
            with _one_cpu():
                told("again, on one core")
                asyncio.run(_driven(album, lambda camera: _second_run(camera, subject)))
            told("looking at the results")
            asyncio.run(_driven(album, _looking_back))
        finally:
            _end_runs()
    return album.pictures


def tour() -> str:
    """The moving picture: the screens of the demo."""
    album = _Album({}, {name: [] for name in SCENES})
    demo = Demo(8)
    try:
        asyncio.run(_driven(album, _touring, demo))
    finally:
        demo.close()
    return moving_picture(album.scenes)


@dataclass(frozen=True, slots=True)
class _Album:
    """What was taken so far."""

    pictures: dict[str, str]
    """By name of file."""
    scenes: dict[str, list[Rows]]
    """What was seen in each scene of the moving picture, in the order of time."""


@contextmanager
def _living_in(place: Path) -> Iterator[None]:
    """Results, runs and the working directory are in one place, whatever the user has."""
    kept = {name: os.environ.get(name) for name in ("GPUTUI_DB", "GPUTUI_STATE")}
    os.environ.update(GPUTUI_DB="a.db", GPUTUI_STATE=str(place / "state"))
    try:
        with chdir(place):
            yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _one_cpu() -> Iterator[None]:
    """This thread, and what it begins, on the first of its CPUs alone, where a system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


def _end_runs() -> None:
    """Nothing goes on when the pictures could not be made."""
    until = monotonic() + _ENDS_WITHIN_S
    asked = False
    while groups := runs_in_progress():
        for group in groups if not asked else ():
            with suppress(GputuiError):
                stop(group[0], signal.SIGTERM)
        asked = True
        if monotonic() > until:
            return
        asyncio.run(asyncio.sleep(_LOOK_EVERY_S))


class _Camera:
    """The app, keys for it, and pictures of it."""

    def __init__(self, app: MonitorApp, pilot: Pilot[int], album: _Album) -> None:
        self.app = app
        self._pilot = pilot
        self._album = album

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._pilot.press(key)
            await self.settled()

    async def type(self, text: str) -> None:
        await self._pilot.press(*("space" if letter == " " else letter for letter in text))

    async def open(self, screen_id: str, *words: str) -> None:
        self.app.open_screen(screen_id, words)
        await self.settled()

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        end_s = monotonic() + _LONGEST_S
        while not is_so():
            if not self.app.is_running:
                raise KeyboardInterrupt
            if monotonic() > end_s:
                raise GputuiError(
                    f"pictures: {what} did not come within {_LONGEST_S / 60:.0f} min",
                    "measure less: --measure FILE.toml",
                )
            await self._pilot.pause(_LOOK_EVERY_S)

    async def settled(self) -> None:
        """Until nothing is under way on the screen that is shown, and it is drawn."""
        await self._pilot.pause()
        await self.until(
            lambda: not (isinstance(s := self.app.screen, ShellScreen) and s.is_busy), "a screen"
        )
        await self._pilot.pause()

    async def take(self, name: str) -> None:
        """A picture in each size; the screen is as large as the last one then."""
        for width, height in SIZES:
            await self._pilot.resize_terminal(width, height)
            await self.settled()
            title = f"gputui, {name.replace('-', ': ', 1)}"
            self._album.pictures[f"{name}-{width}x{height}.svg"] = svg_of_pieces(self._rows(), width, title)

    def film(self, scene: str) -> None:
        """What is shown now, in the size of the last picture, for the moving one."""
        self._album.scenes[scene].append(self._rows())

    def _rows(self) -> Rows:
        return [pieces_of(strips) for strips in self.app.whole_picture().strips]


async def _driven(album: _Album, drive: Callable[[_Camera], object], demo: Demo | None = None) -> None:
    feed = live_collector(1.0)  # never started: the monitor is not looked at
    model = MonitorModel(MonitorSettings(), title="this box")
    app = MonitorApp(model, feed, palette=Palette(Depth.TRUE), screens=SCREENS)
    app.demo = demo
    async with app.run_test(size=SIZES[-1]) as pilot:
        work = drive(_Camera(app, pilot, album))
        assert asyncio.iscoroutine(work)
        await work


async def _first_run(camera: _Camera, subject: Subject) -> None:
    screen = await _run_screen(camera)
    await camera.take("run-choose")
    await _fill_form(camera, screen, subject, LABELS[0])
    await camera.take("run-form")
    await _start(camera, screen)
    await camera.until(lambda: screen.view == "ended" or _is_well_on(screen), "the first blocks")
    await camera.take("run-progress")
    await camera.until(lambda: screen.view == "ended", "the end of the run")
    await camera.take("run-ended")


async def _second_run(camera: _Camera, subject: Subject) -> None:
    screen = await _run_screen(camera)
    await _fill_form(camera, screen, subject, LABELS[1])
    await _start(camera, screen)
    await camera.until(lambda: screen.view == "ended", "the end of the run")


async def _run_screen(camera: _Camera) -> RunScreen:
    await camera.open("run")
    screen = camera.app.screen
    assert isinstance(screen, RunScreen)
    await camera.until(lambda: screen.form.known is not None, "what this box can run")
    return screen


async def _fill_form(camera: _Camera, screen: RunScreen, subject: Subject, label: str) -> None:
    names = [profile.name for profile in screen.form.profiles]
    place = names.index(subject.profile) if subject.profile in names else len(names)
    at = screen.form.selected
    await camera.press(*["down"] * (place - at), *["up"] * (at - place))
    if place == len(names):
        await camera.press("enter")
        await camera.type(subject.profile)
        await camera.press("enter")
    for name, text in (("only", subject.only), ("label", label)):
        await camera.press("escape", "tab", *["down"] * [field.name for field in FIELDS].index(name), "enter")
        await camera.type(text)
        await camera.press("enter")
    await camera.until(lambda: screen.form.known is not None, "what the form says")


async def _start(camera: _Camera, screen: RunScreen) -> None:
    await camera.press("r")
    await camera.until(lambda: screen.view != "form" or not screen.is_busy, "the run")
    if isinstance(camera.app.screen, Confirm):  # the box is busy, and a picture may say so
        await camera.press("y")
    await camera.until(lambda: screen.view != "form" or not screen.is_busy, "the run")
    if screen.view == "form":
        raise GputuiError(
            "pictures: the run was not started", "gputui profiles says what can run here", EXIT_MACHINE_LACKS
        )


def _is_well_on(screen: RunScreen) -> bool:
    """A case is being timed, others have their rates, and there is something to see of it."""
    progress = None if screen.watched is None else screen.watched.progress
    if progress is None or progress.strip is None or progress.strip.blocks < _BLOCKS:
        return False
    planned = [case for case in progress.cases if case.launches]
    return len(planned) < 2 or any(case.rate and not case.is_now for case in planned)


async def _looking_back(camera: _Camera) -> None:
    await camera.open("results", "a.db")
    await camera.press("down", "space", "up", "space", "down")
    await camera.take("results-runs")
    await camera.press("enter")
    pane = camera.app.screen.query_one(RunPane)
    for name in _TABS:
        if name not in pane.tabs:  # the profile has no profiled pass
            continue
        while pane.tab != name:
            await camera.press("tab")
        await camera.take(f"results-{name}")
    await camera.press("escape", "c")
    screen = camera.app.screen
    assert isinstance(screen, CompareScreen)
    await camera.take("compare-rows")
    await camera.press("home", *["down"] * _telling_row(screen), "enter")
    await camera.take("compare-evidence")
    await camera.open("doctor")
    await camera.take("doctor")


async def _touring(camera: _Camera) -> None:
    await camera.open("run")
    screen = camera.app.screen
    assert isinstance(screen, RunScreen)
    await camera.until(lambda: screen.watched is not None, "the made-up run")
    for _ in range(_FILMED):
        next_s = monotonic() + _FILM_EVERY_S
        await camera.until(partial(_is_later, next_s), "the next moment")
        camera.film("run")
    await camera.open("results")
    await camera.settled()
    camera.film("boxes")
    await camera.open("compare")
    camera.film("compare")
    await camera.press("enter")
    camera.film("evidence")


def _is_later(than_s: float) -> bool:
    return monotonic() > than_s


def _telling_row(screen: CompareScreen) -> int:
    """The row with most to tell: one with a reason, else one with a verdict, else the first."""
    loaded = screen.loaded
    rows = [] if loaded is None else list(loaded.comparison.rows)
    reasoned = [place for place, row in enumerate(rows) if has_reasons(row)]
    decided = [place for place, row in enumerate(rows) if row.verdict.word in ("faster", "slower")]
    return next(iter((*reasoned, *decided)), 0)


def has_reasons(row: Row) -> bool:
    """Whether it is known why the sides differ in a row."""
    return row.why is not None and isinstance(row.why.attribution, Attribution)
