"""The Run screen: a form of profiles and options, then the progress of a run, then what it says."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic_ns
from typing import Any  # Any: what a job returns does not matter to its work

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher

from gputui.document.spans import Span
from gputui.errors import GputuiError
from gputui.services.doctor.disturbances import disturbances, gpus_of
from gputui.services.playback.demo import BOXES, interpreter_of
from gputui.services.profiles.loader import Profile, shipped_profiles
from gputui.services.profiles.user_workload import is_step_file
from gputui.services.runs.alerts import Groups, watch_runs
from gputui.services.runs.options import RunOptions, read_draft
from gputui.services.runs.process import (
    LiveRun,
    recover_orphans,
    start_runs,
    stop,
    target_of,
    wait_until_begun,
)
from gputui.services.runs.start import CheckedDraft, DraftChecker, Prepared, prepare
from gputui.services.support.background import Job
from gputui.tui.screens.run_form import ACTIONS, FIELDS, FIRST_FIELD, START, RunForm, cases_lines
from gputui.tui.screens.run_pages import (
    LEAST_WIDTH,
    Ended,
    Watched,
    ended_lines,
    follow_the_demo,
    follow_to_end,
    logs_lines,
    watching_lines,
    whole_logs,
)
from gputui.tui.shell.on_top import PageScreen
from gputui.tui.shell.shell_screen import AskText, Confirm, ShellScreen, bindings_of, copy, sentence
from gputui.tui.terminal.renderer import in_loop_of, shell_of
from gputui.tui.widgets.scrolled import LinesList, LinesPage

_HINTS = {
    "form": ("choose", "next", "start", "cases", "copy", "again"),
    "watch": ("stop", "logs", "copy", "back", "leave"),
    "ended": ("results", "logs", "copy", "back", "leave"),
}
_ENDING = "ending the run and keeping what is finished ..."


class RunScreen(ShellScreen):
    """Choose what to measure, start it, watch it, leave it and come back. DOES has what its keys do."""

    ID = "run"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = "RunScreen #level { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.form = RunForm()
        self.choices, self.page = LinesList(id="form"), LinesPage(id="page")
        self.checker, self._checking = DraftChecker(), threading.Lock()
        self.checks: Job[CheckedDraft] | None = None
        """Beside what `begin` does: neither ends the other."""
        self.has_left = threading.Event()
        self.following: Job[Ended] | None = None
        self.in_progress: Groups = ()
        """The runs of each supervisor, the newest first."""
        self.has_looked = False
        """Whether runs in progress are known."""
        self.followed: tuple[LiveRun, ...] = ()
        """Whose page is shown; empty for the form, and in the demo."""
        self.watched: Watched | None = None
        self.ended: Ended | None = None
        self.scrolled = 0
        """Of the list of cases."""
        self.is_covered = False
        """Whether it was left for something on top of it."""

    def compose_body(self) -> ComposeResult:
        with ContentSwitcher(initial="form", id="level"):
            yield self.choices
            yield self.page

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Begin to look around; with the name of a profile, show that once the profiles are known."""
        if self.form.profiles:
            _choose_profile(self, words)
        else:
            Job(partial(_look_around, self, words), partial(in_loop_of, self, _take_recovered, self)).start()
            self.choices.focus()

    def on_unmount(self) -> None:
        """Nothing is followed any more; a run goes on."""
        self.has_left.set()
        self.unfollow()

    def on_resize(self) -> None:
        self.call_after_refresh(self.show)

    def on_screen_suspend(self) -> None:
        self.is_covered = self in self.app.screen_stack

    def on_screen_resume(self) -> None:
        """It is opened again: a run in progress is watched at once."""
        is_on_a_run = self.view == "form" and self.choices.key < FIRST_FIELD
        if self.in_progress and is_on_a_run and not self.is_covered:
            self.follow(self.in_progress[0])

    @property
    def view(self) -> str:
        """`form`, `watch` or `ended`."""
        if self.ended is not None:
            return "ended"
        return "form" if self.following is None else "watch"

    @property
    def is_demo(self) -> bool:
        return shell_of(self).demo is not None

    def heading(self) -> str:
        if self.watched is None or self.view == "form":
            return "run"
        status = "" if self.ended is None else f", {self.ended.status}"
        return f"{self.watched.profile}, run {self.watched.called}{status}"

    def hints(self) -> tuple[str, ...]:
        view, runs = self.view, len(self.in_progress)
        first = {"form": ("attach",) * (runs > 0), "watch": ("next",) * (runs > 1), "ended": ()}[view]
        has_logs = self.watched is not None and self.watched.progress.last_words
        return tuple(name for name in (*first, *_HINTS[view]) if name != "logs" or has_logs)

    async def action_press(self, action_id: str) -> None:
        if self.form.profiles or action_id == "leave":
            DOES[action_id](self)

    def refuses(self) -> bool:
        """Whether it is the demo, and says so."""
        if self.is_demo:
            self.say("the demo starts and stops nothing: on your own box: gputui run quick", "warn")
        return self.is_demo

    # The form

    def check(self, *, anew: bool = False) -> None:
        """Find out, in a thread, what holds for what is chosen."""
        draft = self.form.draft

        def work(job: Job[CheckedDraft]) -> CheckedDraft:
            with self._checking:
                job.say("")  # not if another draft came while it waited
                if anew:
                    self.checker.forget()
                return self.checker.check(draft)

        def checked(job: Job[CheckedDraft], outcome: CheckedDraft | Exception) -> None:
            if job is not self.checks:
                return
            if isinstance(outcome, Exception):
                self.say_error(outcome)
            else:
                self.form.checked = outcome
                self.fill()

        if self.checks is not None:
            self.checks.cancel()
        if not (self.is_demo and (draft["python"] or is_step_file(draft["profile"]))):  # which are executed
            self.checks = Job(work, partial(in_loop_of, self, checked))
            self.checks.start()

    def fill(self, key: int | None = None) -> None:
        if not self.form.profiles:
            return
        entries = list(self.form.entries(self.size.width - 1, len(self.in_progress)))
        self.choices.fill(entries, self.form.command, self.choices.key if key is None else key)

    def on_lines_list_selected(self, event: LinesList.Selected) -> None:
        if event.key < FIRST_FIELD and event.key != self.form.selected:
            self.form.selected = event.key
            self.check()
            self.fill()

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        question, name = "a .toml profile, or a workload in a .py file", "profile"
        if FIRST_FIELD <= event.key < START:
            field = FIELDS[event.key - FIRST_FIELD]
            question, name = f"{field.title}: {field.unset}", field.name
        elif event.key == START:
            _start(self)
            return
        elif event.key != len(self.form.profiles):
            self.choices.select(START)
            return
        self.ask(AskText(question, self.form.texts[name]), partial(self.fill_in, name))

    def fill_in(self, name: str, text: str) -> None:
        self.form.texts[name] = text
        self.check()
        self.fill(START if name == "profile" else None)

    # Following

    def follow(self, runs: tuple[LiveRun, ...]) -> None:
        """In a thread, these runs, or without any the demo's; what was followed before is not any more."""

        def tell(job: Job[Ended], watched: Watched) -> None:
            in_loop_of(self, _take_progress, self, job, watched)

        self.unfollow()
        self.followed = runs
        work = partial(follow_to_end, runs) if runs else partial(follow_the_demo, self.has_left.wait)
        self.following = Job(partial(work, tell), partial(in_loop_of, self, _take_end, self))
        self.following.start()
        self.show()

    def unfollow(self) -> None:
        """Follow nothing; the run goes on."""
        if self.following is not None:
            self.following.cancel()
        self.following = self.watched = self.ended = None
        self.followed, self.scrolled = (), 0

    def show(self) -> None:
        """The page as it is now; the form keeps what it shows."""
        if not self.is_ready:
            return
        shown = self.choices if self.view == "form" else self.page
        if self.level != shown.id:
            self.show_level(str(shown.id))
        progress = None if self.watched is None else self.watched.progress
        if shown is self.choices:
            self.fill()
        elif self.ended is not None:
            self.page.show_at_any_width(
                partial(ended_lines, self.ended, progress, shell_of(self).palette), keeps_place=True
            )
        elif self.watched is not None:
            room, now_ns = (max(self.size.width, LEAST_WIDTH), self.page.size.height), monotonic_ns()
            ends = self.watched.progress.ends_at(datetime.now())
            self.page.show(
                watching_lines(self.watched.progress, self.watched.into, *room, now_ns, ends, self.scrolled)
            )
        else:
            self.page.show([(Span("  reading its journal ...", "dim"),)])
        self.refresh_lines()


# What becomes known


def _take_profiles(
    screen: RunScreen, words: tuple[str, ...], profiles: tuple[Profile, ...], file: str
) -> None:
    screen.form.profiles, screen.form.default_file = profiles, file
    if screen.is_demo:
        screen.checker = DraftChecker(BOXES[0], replace(interpreter_of(BOXES[0]), found_as="made up"))
        screen.follow(())
    else:
        watch_runs(partial(in_loop_of, screen, _know_runs, screen), screen.has_left)
    _choose_profile(screen, words)


def _take_recovered(screen: RunScreen, job: Job[str], outcome: str | Exception) -> None:
    if isinstance(outcome, Exception):
        screen.say_error(outcome)
    elif outcome:
        screen.say(outcome, "warn")


def _choose_profile(screen: RunScreen, words: tuple[str, ...]) -> None:
    """Select the profile of this name, and what starts it; check what is selected."""
    names = [profile.name for profile in screen.form.profiles]
    at = max(screen.choices.key, 0)
    if words and words[0] in names:
        at, screen.form.selected = START, names.index(words[0])
        _back(screen)
    screen.check()
    screen.fill(at)


def _know_runs(screen: RunScreen, groups: Groups) -> None:
    """The runs in progress; of one that has ended without being watched it is said so."""
    going_on = {run.run_id for runs in groups for run in runs}
    gone = [run.short_id for runs in screen.in_progress for run in runs if run.run_id not in going_on]
    is_first, screen.has_looked, screen.in_progress = not screen.has_looked, True, groups
    if gone and screen.view == "form":
        screen.say(f"run {', '.join(gone)} has ended: its results are on screen 3", "good")
    if groups and is_first and screen.view == "form":
        screen.follow(groups[0])
    screen.show()


def _take_progress(screen: RunScreen, job: Job[Ended], watched: Watched) -> None:
    if job is screen.following:
        screen.watched = watched
        screen.show()


def _take_end(screen: RunScreen, job: Job[Ended], outcome: Ended | Exception) -> None:
    if job is not screen.following:
        return
    if isinstance(outcome, Ended):
        screen.ended = outcome
        screen.say("")  # that it is ending
        screen.in_progress = tuple(runs for runs in screen.in_progress if runs != screen.followed)
        if outcome.wrong is not None:
            shell_of(screen).keep_error(screen.ID, sentence(outcome.wrong.message, outcome.wrong.hint))
    else:
        screen.unfollow()
        screen.say_error(GputuiError(str(outcome)) if isinstance(outcome, OSError) else outcome)
    screen.show()


# What keys do


def _step(screen: RunScreen, lines: int) -> None:
    if screen.view == "watch":
        screen.scrolled = max(screen.scrolled + lines, 0)
        screen.show()
    else:
        screen.action_step(lines)


def _next(screen: RunScreen) -> None:
    runs = screen.in_progress
    if screen.view == "form":
        screen.choices.select(FIRST_FIELD if screen.choices.key < FIRST_FIELD else screen.form.selected)
    elif screen.view == "watch" and len(runs) > 1:
        ids, shown = [one[0].run_id for one in runs], screen.followed[0].run_id
        screen.follow(runs[(ids.index(shown) + 1) % len(runs) if shown in ids else 0])


def _start(screen: RunScreen) -> None:
    """Start what is chosen, if nothing is wrong with it; ask first if something would disturb it."""

    def found(prepared: Prepared, disturbing: str) -> None:
        begin = partial(screen.begin, lambda job: _started(prepared), partial(begun, prepared), writes=True)
        if disturbing:
            screen.ask(Confirm(f"Measure anyway? {disturbing}."), lambda is_yes: begin())
        else:
            begin()

    def begun(prepared: Prepared, runs: tuple[LiveRun, ...]) -> None:
        others = [one for one in screen.in_progress if one[0].run_id != runs[0].run_id]
        screen.in_progress = (runs, *others)
        screen.follow(runs)
        screen.say("; ".join(prepared.warnings), "warn")

    if screen.view != "form" or screen.is_busy or screen.refuses():
        return
    wrong = next(iter(screen.form.wrong().values()), None)
    if wrong is None:
        screen.begin(partial(_prepared, read_draft(screen.form.draft)[0]), lambda pair: found(*pair))
    else:
        screen.say(sentence(wrong.message, wrong.hint), "alarm")


def _cases(screen: RunScreen) -> None:
    if screen.view == "form" and screen.form.known is not None:
        screen.app.push_screen(PageScreen(partial(cases_lines, screen.form.known)))


def _copy(screen: RunScreen) -> None:
    text = screen.form.command
    if screen.followed:
        run = screen.followed[0]
        is_over = screen.ended is not None
        text = f"gputui show {run.short_id} {run.target}" if is_over else f"gputui attach {run.short_id}"
    screen.say(copy(screen.app, text), "good")


def _again(screen: RunScreen) -> None:
    if screen.view == "form":
        screen.form.checked = None
        screen.check(anew=True)
        screen.fill()


def _attach(screen: RunScreen) -> None:
    if screen.is_demo:
        screen.follow(())
    elif screen.in_progress and screen.view != "watch":
        screen.follow(screen.in_progress[0])


def _stop(screen: RunScreen) -> None:
    if screen.view != "watch" or screen.watched is None or screen.refuses():
        return
    run = screen.followed[0]

    def answered(is_yes: bool) -> None:
        screen.begin(lambda job: stop(run, signal.SIGTERM), lambda done: screen.say(_ENDING, "warn"))

    screen.ask(Confirm(f"End run {screen.watched.called} and keep what is finished?"), answered)


def _logs(screen: RunScreen) -> None:
    if screen.watched is not None and screen.view != "form":
        words = whole_logs(screen.followed, screen.watched.progress).last_words
        places = [run.run_dir / "logs" for run in screen.followed]
        screen.app.push_screen(PageScreen(partial(logs_lines, words, places)))


def _results(screen: RunScreen) -> None:
    if screen.ended is not None and screen.ended.results:
        run = screen.followed[0]
        shell_of(screen).open_screen("results", (f"{run.target}@{run.short_id}",))


def _back(screen: RunScreen) -> None:
    if screen.give_up():
        screen.say("")
    screen.unfollow()
    screen.show()
    screen.choices.scroll_to(0, 0, animate=False)
    screen.choices.select(screen.form.selected)


def _leave(screen: RunScreen) -> None:
    def leave(is_yes: bool) -> None:
        screen.app.exit(0)

    if screen.in_progress:
        later = f"to see it again: gputui, or gputui attach {screen.in_progress[0][0].short_id}"
        screen.ask(Confirm(f"Leave? The run continues; {later}."), leave)
    else:
        leave(True)


DOES: Mapping[str, Callable[[RunScreen], None]] = {
    "down": lambda screen: _step(screen, 1),
    "up": lambda screen: _step(screen, -1),
    "next": _next,
    "choose": _results,  # where nothing is to be chosen
    "start": _start,
    "cases": _cases,
    "copy": _copy,
    "again": _again,
    "attach": _attach,
    "stop": _stop,
    "logs": _logs,
    "results": _results,
    "back": _back,
    "leave": _leave,
}
"""By the id of each of ACTIONS."""


# In threads


def _look_around(screen: RunScreen, words: tuple[str, ...], job: Job[str]) -> str:
    """Tell of profiles and where results are kept, then store what earlier programs left behind."""
    in_loop_of(screen, _take_profiles, screen, words, shipped_profiles(), str(target_of(None)))
    return "" if screen.is_demo else "; ".join(recover_orphans())


def _prepared(options: RunOptions, job: Job[Any]) -> tuple[Prepared, str]:
    """Runs that can be started, and what would disturb them."""
    prepared = prepare(options, on_probe=job.say)
    launches = [launch for spec in prepared.specs for launch in spec.plan.launches]
    found = disturbances(prepared.machine, gpus_of(launches, prepared.machine))
    return prepared, "; ".join(f"{check.topic}: {check.found}" for check in found)


def _started(prepared: Prepared) -> tuple[LiveRun, ...]:
    runs = start_runs(prepared.specs)
    wait_until_begun(runs)
    return runs


SCREEN = RunScreen
