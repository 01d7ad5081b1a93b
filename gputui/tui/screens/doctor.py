"""The Doctor screen: what `gputui doctor --all` prints, the answer and what is worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from textual.app import ComposeResult

from gputui.document.spans import Line
from gputui.errors import clean_text
from gputui.services.doctor.checks import SystemState, gathered, judged, readiness, worst_first
from gputui.services.doctor.disturbances import STYLES, Check, check_lines
from gputui.services.playback.demo import made_up_box
from gputui.services.support.background import Job
from gputui.tui.shell.registry import Action
from gputui.tui.shell.shell_screen import ShellScreen, bindings_of
from gputui.tui.terminal.renderer import shell_of
from gputui.tui.widgets.cells import paragraph
from gputui.tui.widgets.scrolled import LinesPage

ACTIONS: tuple[Action, ...] = (
    Action("check", "r", "Look again", "Look at the box again"),
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
        self._is_done = False

    def compose_body(self) -> ComposeResult:
        yield LinesPage(id="checks")

    def begin_with(self, words: tuple[str, ...]) -> None:
        self.query_one(LinesPage).focus()
        self.action_check()

    def heading(self) -> str:
        return "doctor" if self._is_done else "doctor  checking this box"

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

    def _take(self, box: SystemState) -> None:
        self._is_done = True
        checks = judged(box)
        answer = readiness(checks, [gpu.index for gpu in box.machine.gpus])
        self.query_one(LinesPage).show_at_any_width(partial(page_of, answer, checks))


def page_of(answer: str, checks: Sequence[Check], width: int) -> Iterator[Line]:
    style = STYLES["problem"] if any(check.state == "problem" for check in checks) else "title"
    yield from paragraph(clean_text(answer), width, style)
    for check in worst_first(checks):
        yield from check_lines(check, width)


SCREEN = DoctorScreen
