"""The Doctor screen: what `gputui doctor --all` prints, the answer and what is worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from textual.app import ComposeResult

from gputui.document.spans import Line, Span
from gputui.services.doctor.checks import SystemState, gathered, judged, readiness, worst_first
from gputui.services.doctor.disturbances import STYLES, Check, check_lines
from gputui.services.playback.demo import made_up_box
from gputui.services.support.background import Job
from gputui.store.text import clean_text
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import ShellScreen, bindings_of
from gputui.tui.widgets.app_context import shell_of
from gputui.tui.widgets.cells import wrapped
from gputui.tui.widgets.scrolled import LinesPage

ACTIONS: tuple[Action, ...] = (
    Action("check", "r", "Look again", "Look at the box again"),
    Action("next", "n", "Next", "The next fault or caution"),
    Action("previous", "p", "Before", "The one before"),
    Action("copy", "y", "Copy", "Copy the page as text"),
    Action("back", "escape,backspace", "Back", "Cancel a check, or go back to the Monitor"),
    Action("down", "j", "Down", "One line down, as the arrow does", does="step(1)"),
    Action("up", "k", "Up", "One line up", does="step(-1)"),
)


class DoctorScreen(ShellScreen):
    """One page; nothing is checked before the screen is opened."""

    ID = "doctor"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self._box: SystemState | None = None
        self._places: Sequence[int] = ()
        """Lines where problems and notes begin."""

    def compose_body(self) -> ComposeResult:
        yield LinesPage(id="checks")

    def begin_with(self, words: tuple[str, ...]) -> None:
        self.query_one(LinesPage).focus()
        self.action_check()

    def heading(self) -> str:
        return "doctor" if self._box is not None else "doctor  checking this box"

    def on_resize(self) -> None:
        """Wrap again."""
        super().on_resize()
        if self._box is not None:
            self._take(self._box, keeps_place=True)

    def action_check(self) -> None:
        demo = shell_of(self).demo

        def work(job: Job[SystemState]) -> SystemState:
            return (
                gathered(on_step=lambda what: job.say(f"looking at {what}"))
                if demo is None
                else made_up_box(demo)
            )

        self.begin(work, self._take)

    def action_back(self) -> None:
        if self.give_up():
            self.say("cancelled; r checks again", "dim")
        else:
            shell_of(self).open_screen("monitor")

    def action_next(self) -> None:
        here = self.query_one(LinesPage).scroll_offset.y
        self._go(place for place in self._places if place > here)

    def action_previous(self) -> None:
        here = self.query_one(LinesPage).scroll_offset.y
        self._go(place for place in reversed(self._places) if place < here)

    def _go(self, places: Iterator[int]) -> None:
        for place in islice(places, 1):
            self.query_one(LinesPage).scroll_to(0, place, animate=False)

    def _take(self, box: SystemState, *, keeps_place: bool = False) -> None:
        """Judge it, and show that at the current width."""
        self._box = box
        checks, page = judged(box), self.query_one(LinesPage)
        answer = readiness(checks, [gpu.index for gpu in box.machine.gpus])
        lines, self._places = page_of(answer, checks, self.size.width)
        page.show(lines, keeps_place=keeps_place)


def page_of(answer: str, checks: Sequence[Check], width: int) -> tuple[Sequence[Line], Sequence[int]]:
    """The answer and the checks, the worst first, and the lines at which problems and notes begin."""
    style = STYLES["problem"] if any(check.state == "problem" for check in checks) else "title"
    lines: list[Line] = [(Span(row, style),) for row in wrapped(clean_text(answer), width - 1, 3)]
    places = []
    for check in worst_first(checks):
        places += [len(lines)] * (check.state in ("problem", "note"))
        lines += check_lines(check, width)
    return lines, places


SCREEN = DoctorScreen
