"""The Run screen: a form of profiles and options, then the progress of a run, then what it says."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic_ns
from typing import Any  # Any: what a job returns does not matter to its work

from textual.app import ComposeResult
from textual.widgets import ContentSwitcher

from gputui.errors import GputuiError
from gputui.model.journal import STOPPED
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
from gputui.tui.screens.run_form import (
    ACTIONS,
    FIELDS,
    FIRST_FIELD,
    KEYS,
    START,
    RunForm,
    cases_lines,
)
from gputui.tui.screens.run_pages import (
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
    """Choose what to measure, start it, watch it, leave it and come back."""

    ID = "run"
    ACTIONS = ACTIONS
    BINDINGS = bindings_of(ACTIONS)
    DEFAULT_CSS = "RunScreen #level { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.form = RunForm()
        self._list, self._page = LinesList(id="form"), LinesPage(id="page")
        self._checker, self._checking = DraftChecker(), threading.Lock()
        self._has_left = threading.Event()
        self._following: Job[Ended] | None = None
        self.in_progress: Groups = ()
        """The runs of each supervisor, the newest first."""
        self._has_looked = False
        """Whether runs in progress are known."""
        self.followed: tuple[LiveRun, ...] = ()
        """Whose page is shown; empty for the form, and in the demo."""
        self.watched: Watched | None = None
        self.ended: Ended | None = None
        self._scrolled = 0
        """Of the list of cases."""
        self._was_stopped = False
        """Whether the user ended what is followed from here."""

    def compose_body(self) -> ComposeResult:
        with ContentSwitcher(initial="form", id="level"):
            yield self._list
            yield self._page

    def begin_with(self, words: tuple[str, ...]) -> None:
        """Begin to look around; with the name of a profile, show that once the profiles are known."""
        if self.form.profiles:
            self._choose_profile(words)
        else:
            self.begin(_surroundings, self._take_surroundings)
            self._list.focus()

    def on_unmount(self) -> None:
        """Nothing is followed any more; a run goes on."""
        self._has_left.set()
        self._unfollow()
        super().on_unmount()

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self._show)

    def on_screen_resume(self) -> None:
        """It is looked at again: a run in progress is watched at once."""
        super().on_screen_resume()
        if self.in_progress and self.view == "form" and self._list.key < FIRST_FIELD:
            self._watch(self.in_progress[0])

    @property
    def view(self) -> str:
        """`form`, `watch` or `ended`."""
        if self.ended is not None:
            return "ended"
        return "form" if self._following is None else "watch"

    def heading(self) -> str:
        if self.watched is None or self.view == "form":
            return "run"
        status = "" if self.ended is None else f", {self.ended.status}"
        return f"{self.watched.profile}, run {self.watched.called}{status}"

    def hints(self) -> tuple[str, ...]:
        view = self.view
        shown = _HINTS[view]
        if view == "form":
            return (*(("attach",) if self.in_progress else ()), *shown)
        has_logs = self.watched is not None and self.watched.progress.last_words
        shown = tuple(name for name in shown if name != "logs" or has_logs)
        return (*(("next",) if view == "watch" and len(self.in_progress) > 1 else ()), *shown)

    # What is known

    def _take_surroundings(self, found: tuple[tuple[Profile, ...], str, str]) -> None:
        self.form.profiles, self.form.default_file, said = found
        if shell_of(self).demo is not None:
            self._checker = DraftChecker(BOXES[0], replace(interpreter_of(BOXES[0]), found_as="made up"))
            self.action_attach()
        else:
            watch_runs(partial(in_loop_of, self, self._know_runs), self._has_left)
        self.say(said, "warn")
        self._choose_profile(self._words)

    def _choose_profile(self, words: tuple[str, ...]) -> None:
        """Select the profile of this name, and what starts it; check what is selected."""
        names = [profile.name for profile in self.form.profiles]
        at = START if words and words[0] in names else self._list.key
        if at == START:
            self.form.selected = names.index(words[0])
            self.action_back()
        self._check()
        self._fill(max(at, 0))

    def _know_runs(self, groups: Groups) -> None:
        """The runs in progress; of one that has ended without being watched it is said so."""
        going_on = {run.run_id for runs in groups for run in runs}
        gone = [run.short_id for runs in self.in_progress for run in runs if run.run_id not in going_on]
        is_first, self._has_looked, self.in_progress = not self._has_looked, True, groups
        if gone and self.view == "form":
            self.say(f"run {', '.join(gone)} has ended: its results are on screen 3", "good")
        if groups and is_first and self.view == "form":
            self._watch(groups[0])
        self._show()

    # The form

    def _check(self, *, anew: bool = False) -> None:
        draft = self.form.draft

        def work(job: Job[CheckedDraft]) -> CheckedDraft:
            with self._checking:
                job.say("")  # not if another draft came while it waited
                if anew:
                    self._checker.forget()
                return self._checker.check(draft)

        if not (self._is_demo and (draft["python"] or is_step_file(draft["profile"]))):  # which are executed
            self.begin(work, self._take_checked, is_quiet=True)

    def _take_checked(self, checked: CheckedDraft) -> None:
        self.form.checked = checked
        self._fill()

    def _fill(self, key: int | None = None) -> None:
        entries = list(self.form.entries(self.size.width - 1, len(self.in_progress)))
        self._list.fill(entries, self.form.command, self._list.key if key is None else key)

    def on_lines_list_selected(self, event: LinesList.Selected) -> None:
        if event.key < FIRST_FIELD and event.key != self.form.selected:
            self.form.selected = event.key
            self._check()
            self._fill()

    def on_lines_list_chosen(self, event: LinesList.Chosen) -> None:
        if event.key == START:
            self.action_start()
        elif event.key >= FIRST_FIELD:
            field = FIELDS[event.key - FIRST_FIELD]
            question = f"{field.title}: {field.unset}"
            self.ask(AskText(question, self.form.texts[field.name]), partial(self._fill_in, field.name))
        elif event.key == len(self.form.profiles):
            self.ask(AskText("a .toml profile, or a workload in a .py file", self.form.path), self._name_own)
        else:
            self._list.select(START)

    def _fill_in(self, name: str, text: str) -> None:
        self.form.texts[name] = text
        self._check()
        self._fill()

    def _name_own(self, path: str) -> None:
        self.form.path = path
        self._check()
        self._fill(START)

    # What the user does

    def action_step(self, lines: int) -> None:
        if self.view == "watch":
            self._scrolled = max(self._scrolled + lines, 0)
            self._show()
        else:
            super().action_step(lines)

    def action_next(self) -> None:
        runs = list(self.in_progress)
        if self.view == "form":
            self._list.select(FIRST_FIELD if self._list.key < FIRST_FIELD else self.form.selected)
        elif self.view == "watch" and len(runs) > 1:
            ids = [one[0].run_id for one in runs]
            at = ids.index(self.followed[0].run_id) if self.followed[0].run_id in ids else -1
            self._watch(runs[(at + 1) % len(runs)])

    def action_choose(self) -> None:
        """Where nothing is to be chosen, the results of the run that has ended."""
        self.action_results()

    def action_start(self) -> None:
        if self.view != "form" or self._refuses():
            return
        options, _ = read_draft(self.form.draft)
        for error in self.form.wrong().values():
            self.say(sentence(error.message, error.hint), "alarm")
            return
        self.begin(partial(_prepared, options), self._take_prepared)

    def _take_prepared(self, found: tuple[Prepared, str]) -> None:
        """Ask first if something would disturb the run."""
        prepared, disturbing = found
        if disturbing:
            self.ask(Confirm(f"Measure anyway? {disturbing}."), lambda is_yes: self._start(prepared))
        else:
            self._start(prepared)

    def _start(self, prepared: Prepared) -> None:
        def begun(runs: tuple[LiveRun, ...]) -> None:
            others = [one for one in self.in_progress if one[0].run_id != runs[0].run_id]
            self.in_progress = (runs, *others)
            self._watch(runs)
            self.say("; ".join(prepared.warnings), "warn")

        self.begin(lambda job: _started(prepared), begun, writes=True)

    def action_cases(self) -> None:
        if self.view == "form" and self.form.known is not None:
            self.app.push_screen(PageScreen(partial(cases_lines, self.form.known)))

    def action_copy(self) -> None:
        if self.followed and self.ended is not None:
            text = f"gputui show {self.followed[0].short_id} {self.followed[0].target}"
        elif self.followed:
            text = f"gputui attach {self.followed[0].short_id}"
        else:
            text = self.form.command
        self.say(copy(self.app, text), "good")

    def action_again(self) -> None:
        if self.view == "form":
            self.form.checked = None
            self._check(anew=True)
            self._fill()

    def action_attach(self) -> None:
        if self._is_demo:
            self._follow(partial(follow_the_demo, self._tell, self._has_left.wait))
        elif self.in_progress and self.view != "watch":
            self._watch(self.in_progress[0])

    def action_stop(self) -> None:
        if self.view != "watch" or self.watched is None or self._refuses():
            return
        run = self.followed[0]

        def answered(is_yes: bool) -> None:
            self._was_stopped = True
            self.begin(lambda job: stop(run, signal.SIGTERM), lambda done: self.say(_ENDING, "warn"))

        self.ask(Confirm(f"End run {self.watched.called} and keep what is finished?"), answered)

    def action_logs(self) -> None:
        if self.watched is not None and self.view != "form":
            words = whole_logs(self.followed, self.watched.progress).last_words
            places = [run.run_dir / "logs" for run in self.followed]
            self.app.push_screen(PageScreen(partial(logs_lines, words, places)))

    def action_results(self) -> None:
        if self.ended is not None and self.ended.results:
            run = self.followed[0]
            shell_of(self).open_screen("results", (f"{run.target}@{run.short_id}",))

    def action_back(self) -> None:
        self.give_up()
        self._unfollow()
        self._show()
        self._list.scroll_to(0, 0, animate=False)
        self._list.select(self.form.selected)

    def action_leave(self) -> None:
        if not self.in_progress:
            self.call_next(self.app.run_action, "quit")
            return
        later = f"to see it again: gputui, or gputui attach {self.in_progress[0][0].short_id}"
        self.ask(
            Confirm(f"Leave? The run continues; {later}."),
            lambda is_yes: self.call_next(self.app.run_action, "quit"),
        )

    @property
    def _is_demo(self) -> bool:
        return shell_of(self).demo is not None

    def _refuses(self) -> bool:
        """Whether it is the demo, and says so."""
        if self._is_demo:
            self.say("the demo starts and stops nothing: on your own box: gputui run quick", "warn")
        return self._is_demo

    # Following

    def _watch(self, runs: tuple[LiveRun, ...]) -> None:
        self._unfollow()
        self.followed = runs
        self._follow(partial(follow_to_end, runs, self._tell))
        self._show()

    def _follow(self, work: partial[Ended]) -> None:
        """In a thread; what was followed before is not any more."""
        if self._following is not None:
            self._following.cancel()
        self._following = Job(work, partial(in_loop_of, self, self._take_end))
        self._following.start()

    def _unfollow(self) -> None:
        """Follow nothing; the run goes on."""
        if self._following is not None:
            self._following.cancel()
        self._following = self.watched = self.ended = None
        self.followed, self._scrolled, self._was_stopped = (), 0, False

    def _tell(self, job: Job[Ended], watched: Watched) -> None:
        in_loop_of(self, self._take_progress_of, job, watched)

    def _take_progress_of(self, job: Job[Ended], watched: Watched) -> None:
        if job is self._following:
            is_first, self.watched = self.watched is None, watched
            self._show()
            if is_first:
                self.refresh_lines()

    def _take_end(self, job: Job[Ended], outcome: Ended | Exception) -> None:
        if job is not self._following:
            return
        if isinstance(outcome, Ended):
            said = outcome.status
            if self._was_stopped:
                said = said.replace(STOPPED[signal.SIGTERM], f"stopped with {KEYS['stop']}")
            self.ended = replace(outcome, status=said)
            self.say("")  # that it is ending
            self.in_progress = tuple(runs for runs in self.in_progress if runs != self.followed)
            if outcome.wrong is not None:
                shell_of(self).keep_error(self.ID, sentence(outcome.wrong.message, outcome.wrong.hint))
        else:
            self._unfollow()
            error = outcome if isinstance(outcome, GputuiError) else GputuiError(str(outcome))
            self.say_error(error)
        self._show()

    def _show(self) -> None:
        """The page as it is now; the form keeps what it shows."""
        if not self.is_ready:
            return
        view = self.view
        level, shown = self.query_one("#level", ContentSwitcher), self._list if view == "form" else self._page
        if level.current != shown.id:
            level.current = shown.id
            shown.focus()
        width, height = self.size.width, self._page.size.height
        if view == "form":
            self._fill()
        elif self.ended is not None:
            progress = None if self.watched is None else self.watched.progress
            palette = shell_of(self).palette
            self._page.show_at_any_width(partial(ended_lines, self.ended, progress, palette))
        elif self.watched is not None:
            progress = self.watched.progress
            ends = progress.ends_at(datetime.now())
            self._page.show(
                watching_lines(
                    progress, self.watched.into, width, height, monotonic_ns(), ends, self._scrolled
                )
            )
        self.refresh_lines()


def _surroundings(job: Job[Any]) -> tuple[tuple[Profile, ...], str, str]:
    """Profiles, where results are kept, and what is said of runs that earlier programs left behind."""
    return shipped_profiles(), str(target_of(None)), "; ".join(recover_orphans())


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
