"""What the Run screen knows, and what keys do to it: no terminal, no thread and no file here."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gputui.analysis.peak_tests import PerformanceCheck
from gputui.errors import GputuiError
from gputui.model.plan import Plan
from gputui.services.profiles.loader import Profile
from gputui.services.results.case_table import CaseLine
from gputui.services.results.next_steps import NextStep
from gputui.services.runs.options import Draft, Wrong, read_draft, to_argv
from gputui.services.runs.progress import ProgressSnapshot
from gputui.services.runs.start import CheckedDraft
from gputui.tui.screens.run.form import EditedText, RunForm

_STEPS = {"down": 1, "up": -1}
_OF_PLAN = ("device", "only", "precision", "python")
"""Fields that decide what is planned: what is wrong with a plan is of all of them together."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """The runs of one supervisor."""

    run_ids: tuple[str, ...]
    called: str
    """Short ids, with labels; safe to show."""
    outlives: bool = True
    """Whether they go on when the program is left."""

    @property
    def short_id(self) -> str:
        """What `gputui attach` takes."""
        return self.run_ids[0][-8:]


@dataclass(frozen=True, slots=True)
class WatchedRuns:
    """The runs of one supervisor that are followed."""

    in_progress: InProgress
    plans: tuple[Plan, ...]
    target: str
    with_python: str
    """The interpreters; empty for a load on a server."""
    run_dirs: tuple[str, ...] = ()
    """Where the whole logs of their workers lie."""


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """What became of the runs that were watched."""

    in_progress: InProgress
    target: str
    status: str
    """As `finished`, or why not."""
    rows: tuple[CaseLine, ...]
    said: tuple[str, ...]
    """What else is to be known: that a supervisor was killed, where a trace lies."""
    wrong: GputuiError | None
    """It was not stored, or could not be read."""
    headlines: tuple[str, ...] = ()
    """The answer in a few sentences, of each run."""
    checks: tuple[PerformanceCheck, ...] = ()
    """The box beside what others of its kind reach."""
    next_steps: tuple[NextStep, ...] = ()


class Tasks(Protocol):
    """What takes time or starts something, and is done in threads."""

    def check(self, draft: Draft, editing: str, *, anew: bool = False) -> None: ...
    def start(self, draft: Draft, *, anyway: bool = False) -> None: ...
    def watch(self, run_id: str) -> None: ...
    def unwatch(self) -> None: ...
    def stop(self, run_id: str) -> None: ...


class RunModel:
    """The state of the screen. It has others do what takes time, copy a text, open a screen and leave."""

    def __init__(
        self,
        tasks: Tasks,
        copy_text: Callable[[str], None],
        open_screen: Callable[[str, tuple[str, ...]], None],
        leave: Callable[[], None],
    ) -> None:
        self.tasks = tasks
        self.copy_text, self.open_screen, self.leave = copy_text, open_screen, leave
        self.profiles: tuple[Profile, ...] | None = None
        """None while they are read."""
        self.selected = 0
        """Index among the profiles; their number for a profile of the user's."""
        self.path = EditedText()
        """Of the user's profile or workload."""
        self.region = "profiles"
        """Where the keys go: `profiles`, `path`, `form` or `cases`."""
        self.form = RunForm()
        self.default_file = ""
        """Where results are kept if the form names no file; empty while it is not known."""
        self.checked: CheckedDraft | None = None
        self.probing = ""
        """The interpreter that is being asked what it has."""
        self.scrolled = 0
        """Of the list of cases: of a profile's, or of a run's."""
        self.in_progress: tuple[InProgress, ...] = ()
        self.view = "choose"
        """`choose`, `starting`, `watch` or `ended`."""
        self.watched: WatchedRuns | None = None
        self.progress: ProgressSnapshot | None = None
        self.ended: EndedRuns | None = None
        self.shows_logs = False
        """Whether the last words of workers stand where cases or results would."""
        self.question = ""
        """`start`, `stop` or `leave`: what yes and no are for."""
        self.disturbed: tuple[str, ...] = ()
        """What would disturb the run that is to be started, a line each."""
        self.notice: tuple[str, str] = ("", "")
        """Text and style."""
        self._asked_for = ""
        """A profile to show when the profiles are known."""
        self._followed = ""
        """The run that was asked for last: what is said of another comes too late."""
        self._has_looked = False
        """Whether runs in progress are known."""

    # What is shown

    @property
    def profile_name(self) -> str:
        """What `gputui run` is given."""
        profiles = self.profiles or ()
        if self.selected < len(profiles):
            return profiles[self.selected].name
        return self.path.text.strip() if profiles else "quick"

    @property
    def draft(self) -> Draft:
        """The form, for the selected profile."""
        return self.form.draft(self.profile_name)

    @property
    def command(self) -> str:
        """The command line that does the same."""
        options = read_draft(self.draft)[0]
        return shlex.join(["gputui", "run", *filter(None, [options.profile]), *to_argv(options)])

    @property
    def is_checked(self) -> bool:
        """Whether what is known of the draft is of all of it."""
        return self.checked is not None and self.checked.draft == self.draft

    def wrong(self) -> Wrong:
        """What is wrong with the draft, as far as it is known."""
        draft, checked = self.draft, self.checked
        wrong = read_draft(draft)[1]
        if checked is not None and checked.draft["profile"] == draft["profile"]:
            same = {name for name, text in draft.items() if checked.draft.get(name, "") == text}
            if not same.issuperset(_OF_PLAN):
                same -= {"profile", "device", "only", "precision"}
            found = {name: error for name, error in checked.wrong.items() if name in same - wrong.keys()}
            wrong = {**wrong, **found}
        return wrong

    @property
    def is_typing(self) -> bool:
        """Whether letters are text now and no keys."""
        return self.text is not None

    @property
    def text(self) -> EditedText | None:
        """The line that is edited."""
        if self.view != "choose" or self.question:
            return None
        if self.region == "path":
            return self.path
        return self.form.text if self.region == "form" else None

    @property
    def editing(self) -> str:
        """The field that is edited; empty for none."""
        field = self.form.field if self.region == "form" else None
        return "" if field is None else field.name

    # What the user does

    def press(self, action_id: str) -> bool:
        """A key of an action; whether it did anything here."""
        if self.question:
            return self._answer(action_id)
        if action_id == "leave":
            return self._leave()
        self.notice = ("", "")
        match self.view:
            case "choose":
                return self._press_choosing(action_id, is_list=self.region == "cases")
            case "watch" | "ended":
                return self._press_run(action_id)
        return False

    def type(self, text: str) -> None:
        """Letters for the line that is edited."""
        line = self.text
        if line is not None:
            self.notice = ("", "")
            line.insert(text)
            self._check()

    def edit(self, key: str) -> bool:
        """A key that moves or removes in the line that is edited; whether it is one."""
        line = self.text
        if line is None or not line.edit(key):
            return False
        self._check()
        return True

    def opened(self) -> None:
        """The screen was opened: a run in progress is watched as soon as it is known."""
        if self._has_looked and self.in_progress and self.view == "choose" and self.region == "profiles":
            self._watch(self.in_progress[0])

    # What became known

    def know_profiles(self, profiles: tuple[Profile, ...]) -> None:
        """The profiles were read."""
        self.profiles = profiles
        self.show_profile(self._asked_for)
        self._check()

    def show_profile(self, name: str) -> None:
        """Go to the form of a profile, once the profiles are known."""
        self._asked_for = name
        names = [profile.name for profile in self.profiles or ()]
        if name in names:
            if self.view in ("watch", "ended"):
                self._choose_again()
            self._asked_for, self.selected, self.region = "", names.index(name), "form"
            self.form.selected = len(self.form.texts)
            self._check()

    def know_checked(self, checked: CheckedDraft) -> None:
        """A draft was looked at."""
        self.checked = checked
        self.probing = ""

    def know_in_progress(self, found: tuple[InProgress, ...]) -> None:
        """The runs in progress, newest first; of one that has ended without being watched it is said so."""
        gone = [run.called for run in self.in_progress if run not in found]
        self.in_progress = found
        if gone and self.view == "choose":
            self.say(f"run {', '.join(gone)} has ended: its results are on screen 3")
        if found and not self._has_looked and self.view == "choose":
            self._watch(found[0])
        self._has_looked = True

    def know_started(self, started: InProgress) -> None:
        """What was asked for has begun."""
        self.in_progress = (started, *(run for run in self.in_progress if run != started))
        self._watch(started)

    def know_disturbed(self, found: tuple[str, ...]) -> None:
        """What was asked for would be disturbed: the user is asked before it begins."""
        if self.view == "starting":
            self.view, self.question, self.disturbed = "choose", "start", found

    def know_refused(self, error: GputuiError) -> None:
        """What was asked for was not done."""
        if self.view == "starting":
            self.view = "choose"
        self.say(sentence(error), "alarm")

    def know_watched(self, watched: WatchedRuns) -> None:
        """What the runs are that are followed now."""
        if watched.in_progress.run_ids[0] == self._followed:
            self.watched = watched
            self.view = "watch"

    def know_progress(self, run_id: str, picture: ProgressSnapshot) -> None:
        """How far the runs are."""
        if self.watched is not None and run_id == self.watched.in_progress.run_ids[0]:
            self.progress = picture

    def know_ended(self, ended: EndedRuns) -> None:
        """The runs that were watched are stored, or lost."""
        self.in_progress = tuple(run for run in self.in_progress if run != ended.in_progress)
        if self.watched is not None and ended.in_progress == self.watched.in_progress:
            self.ended = ended
            self.view = "ended"
            self.question = ""
            self.say("")
            self.scrolled = 0
            self.shows_logs = False

    def say(self, text: str, style: str = "good") -> None:
        """One sentence, until the next key."""
        self.notice = (text, style)

    # Inside

    def _check(self, *, anew: bool = False) -> None:
        self.tasks.check(self.draft, self.editing, anew=anew)

    def _watch(self, run: InProgress) -> None:
        self.view, self._followed = "watch", run.run_ids[0]
        self.watched = self.progress = self.ended = None
        self.scrolled, self.shows_logs = 0, False
        self.tasks.watch(run.run_ids[0])

    def _press_choosing(self, action_id: str, *, is_list: bool) -> bool:
        """A key among profiles and fields, or in the list of cases."""
        match action_id:
            case "attach" if self.in_progress:
                self._watch(self.in_progress[0])
            case "down" | "up" if is_list:
                self._scroll(action_id)
            case "back" | "cases" | "choose" if is_list:
                self.region = "profiles"
            case "start" | "again" if is_list:
                return False
            case "down" | "up":
                self._move(_STEPS[action_id])
            case "choose":
                self._choose()
            case "next":
                self.region = "form" if self.region != "form" else "profiles"
                self.form.selected = 0
                self._check()
            case "back" if self.region != "profiles":
                self.region = "profiles"
                self._check()
            case "start":
                self._start()
            case "cases":
                self.region, self.scrolled = "cases", 0
            case "copy":
                self.copy_text(self.command)
            case "again":
                self.checked = None
                self._check(anew=True)
            case _:
                return False
        return True

    def _scroll(self, action_id: str) -> None:
        self.scrolled = max(self.scrolled + _STEPS[action_id], 0)

    def _move(self, step: int) -> None:
        if self.region == "form":
            if not self.form.move(step) and step < 0:
                self.region = "profiles"
        elif self.region == "path":
            self.region = "profiles"
            self.selected = max(self.selected + min(step, 0), 0)
        else:
            self.selected = min(max(self.selected + step, 0), len(self.profiles or ()))
        self._check()

    def _choose(self) -> None:
        is_own = self.selected >= len(self.profiles or ())
        if self.region == "profiles" and is_own:
            self.region = "path"
        elif self.region in ("profiles", "path"):
            self.region = "form"
            self.form.selected = len(self.form.texts)
        elif self.form.field is None:
            self._start()
            return
        else:
            self.form.move(1)
        self._check()

    def _start(self) -> None:
        wrong = self.wrong()
        if not self.profile_name:
            self.say("name a .toml profile or a workload in a .py file first", "alarm")
        elif wrong:
            name = next(name for name in ("profile", *self.form.texts) if name in wrong)
            self.say(sentence(wrong[name]), "alarm")
        else:
            self.view = "starting"
            self.tasks.start(self.draft)

    def _press_run(self, action_id: str) -> bool:
        """A key where a run is watched, or has ended."""
        watched, ended = self.watched, self.ended
        match action_id:
            case "down" | "up":
                self._scroll(action_id)
            case "logs":
                self.shows_logs, self.scrolled = not self.shows_logs, 0
            case "back" if self.shows_logs:
                self.shows_logs, self.scrolled = False, 0
            case "back":
                self._choose_again()
            case "copy" if self.shows_logs:
                words = () if self.progress is None else self.progress.last_words
                self.copy_text("\n".join(row for said in words for row in (said.launch, *said.lines)))
            case "copy" if ended is not None:
                self.copy_text(f"gputui show {ended.in_progress.short_id} {ended.target}")
            case "copy" if watched is not None:
                run = watched.in_progress
                self.copy_text(f"gputui attach {run.short_id}" if run.outlives else self.command)
            case "stop" if ended is None and watched is not None:
                self.question = "stop"
            case "next" if ended is None and len(self.in_progress) > 1:
                runs, now = self.in_progress, None if watched is None else watched.in_progress
                at = runs.index(now) if now in runs else -1
                self._watch(runs[(at + 1) % len(runs)])
            case "results" | "choose" if ended is not None and ended.wrong is None:
                self.open_screen("results", (f"{ended.target}@{ended.in_progress.short_id}",))
            case "attach" if ended is not None and self.in_progress:
                self._watch(self.in_progress[0])
            case _:
                return False
        return True

    def _choose_again(self) -> None:
        self.view, self.region, self._followed = "choose", "profiles", ""
        self.watched = self.progress = self.ended = None
        self.scrolled, self.shows_logs = 0, False
        self.tasks.unwatch()
        self._check()

    def _leave(self) -> bool:
        """Say first that a run goes on; without one the key is for the program around this screen."""
        if not any(run.outlives for run in self.in_progress) and self.view != "starting":
            return False
        self.question = "leave"
        return True

    @property
    def parting_words(self) -> str:
        """What is to be said in the shell when the program is left now; empty without a run."""
        if not self.in_progress:
            return ""
        run = self.in_progress[0]
        return f"the run continues; to see it again: gputui, or gputui attach {run.short_id}"

    def _answer(self, action_id: str) -> bool:
        question = self.question
        is_yes = action_id == "yes" or (action_id == question == "leave")
        if not is_yes and action_id not in ("no", "back"):
            return False
        self.question = ""
        match question if is_yes else f"not {question}":
            case "leave":
                self.leave()
            case "start":
                self.view = "starting"
                self.tasks.start(self.draft, anyway=True)
            case "stop" if self.watched is not None:
                self.tasks.stop(self.watched.in_progress.run_ids[0])
                self.say("ending the run and keeping what is finished ...", "warn")
        return True


def sentence(error: GputuiError) -> str:
    """An error with its hint."""
    return f"{error.message}: {error.hint}" if error.hint else error.message
