"""The keys of the Run screen, and its form: profiles and options below each other, one of them selected."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gputui.document.spans import Line, Span
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.units import counted, format_seconds, format_whole_seconds
from gputui.services.profiles.loader import Profile
from gputui.services.runs.options import OPTIONS, Draft, Option, Wrong, read_draft, to_argv
from gputui.services.runs.start import CheckedDraft, reasons_of
from gputui.tui.screens.run_pages import rows_of
from gputui.tui.shell.registry import Action, shown_key
from gputui.tui.shell.shell_screen import sentence
from gputui.tui.widgets.cells import clean, end_of, fitted, left, right, ruled, wrapped
from gputui.tui.widgets.scrolled import MARKER, Entry

ACTIONS: tuple[Action, ...] = (
    Action("down", "down,j", "Down", "Go to the next profile, field, case or line"),
    Action("up", "up,k", "Up", "Go to the previous one"),
    Action("next", "tab", "Form", "Go from the profiles to the form and back; to the next run in progress"),
    Action("choose", "enter", "Choose", "Continue: from a profile to the start, into a field, start the run"),
    Action("start", "r", "Run", "Start the selected profile with the form's options"),
    Action(
        "cases", "d", "Details", "Every case of the profile: what would run here, what would not, and why"
    ),
    Action("copy", "c", "Copy", "Copy the equivalent command line"),
    Action("again", "g", "Look again", "Check the box and the interpreters again"),
    Action("attach", "a", "Watch", "Watch the run in progress"),
    Action("stop", "x", "Stop", "End the run and keep what is finished: asks first"),
    Action("logs", "l", "Logs", "Logs of workers whose launch or case failed"),
    Action("results", "o", "Results", "Open the results of the run that has ended"),
    Action("back", "escape", "Back", "Back to the profiles; a run continues in the background"),
    Action("leave", "q,ctrl+backslash", "Leave", "Leave; reminds you first of a run in progress"),
)
KEYS: dict[str, str] = {action.id: shown_key(action) for action in ACTIONS}

_FIELDS = ("device", "only", "precision", "launches", "budget", "python", "label", "price", "db")
FIELDS: tuple[Option, ...] = tuple(one for name in _FIELDS for one in OPTIONS if one.name == name)
FIRST_FIELD, START = 1000, 2000
"""Keys of entries. Those of profiles are their indices; their number is the key of the user's own."""
_LABEL = 13
_OWN = "the path of a .toml profile, or of a workload in a .py file"


class RunForm:
    def __init__(self) -> None:
        self.profiles: tuple[Profile, ...] = ()
        self.selected = 0
        """Index among the profiles; their number for a profile of the user's."""
        self.texts = dict.fromkeys(("profile", *_FIELDS), "")
        """What is typed; `profile` is the path of the user's profile or workload."""
        self.default_file = ""
        """Where results are kept if the form names no file; empty while it is not known."""
        self.checked: CheckedDraft | None = None

    @property
    def profile_name(self) -> str:
        """What `gputui run` is given."""
        own = self.selected >= len(self.profiles)
        return self.texts["profile"].strip() if own else self.profiles[self.selected].name

    @property
    def draft(self) -> Draft:
        return {**self.texts, "profile": self.profile_name}

    @property
    def command(self) -> str:
        options = read_draft(self.draft)[0]
        return shlex.join(["gputui", "run", *filter(None, [options.profile]), *to_argv(options)])

    @property
    def known(self) -> CheckedDraft | None:
        """What was found out about this draft; None while it is not known."""
        checked = self.checked
        return checked if checked is not None and checked.draft == self.draft else None

    def wrong(self) -> Wrong:
        if not self.profile_name:
            hint = "name a .toml profile or a workload in a .py file first"
            return {"profile": GputuiError("no profile is chosen", hint)}
        return read_draft(self.draft)[1] if self.known is None else self.known.wrong

    def entries(self, width: int, runs: int = 0) -> Iterator[Entry]:
        """All of it; `runs` is how many are in progress."""
        yield Entry((_heading(runs, width),))
        for number, profile in enumerate(self.profiles):
            chosen = "title" if number == self.selected else ""
            name = Span(left(clean(profile.name), 12), chosen or "accent")
            budget = Span(f"{right(format_whole_seconds(profile.budget_s), 10)}  ", chosen)
            line = fitted((name, budget, Span(clean(profile.question), chosen)), width - len(MARKER))
            yield Entry((line,), number)
        own = Span(clean(self.texts["profile"])) if self.texts["profile"] else Span(_OWN, "dim")
        line = fitted((Span(left("of your own", _LABEL), "accent"), own), width - len(MARKER))
        yield Entry((line,), len(self.profiles))
        yield Entry(tuple(self._about(width)))
        yield Entry((ruled((Span("With", "title"),), width),))
        wrong = self.wrong()
        for number, field in enumerate(FIELDS):
            yield Entry((self._field_line(field, wrong.get(field.name), width),), FIRST_FIELD + number)
        note = Span(f"  {KEYS['start']} starts the run; it continues in the background", "dim")
        if "profile" in wrong:
            note = Span(f"  ! {clean(wrong['profile'].message)}", "alarm")
        yield Entry((fitted((Span("[ Start ]", "title"), note), width - len(MARKER)),), START)
        rows = wrapped(f"$ {clean(self.command)}", width - 3, 2)
        yield Entry(tuple((Span(f"  {row}", "accent"),) for row in rows))

    def _field_line(self, field: Option, error: GputuiError | None, width: int) -> Line:
        text = self.texts[field.name]
        room = width - len(MARKER) - _LABEL
        value = Span(clean(text)) if text else Span(self._unset(field, room), "dim")
        said = () if error is None else (Span("  ! ", "alarm"), Span(clean(error.message), "alarm"))
        return fitted((Span(left(field.title, _LABEL), "dim"), value, *said), width - len(MARKER))

    def _unset(self, field: Option, room: int) -> str:
        """What holds while nothing is typed, as it will be used where that is known."""
        if field.name == "db" and self.default_file:
            return end_of(clean(self.default_file), room - 1)
        checked = self.known
        if checked is None or not checked.plans:
            return field.unset
        known = {
            "launches": f"up to {checked.plans[0].replicates} a case, each a fresh process",
            "budget": f"{format_whole_seconds(checked.plans[0].budget_s)}; or another, in seconds",
            "python": f"{clean(checked.chosen[0].found_as)}; or the path of another",
        }
        return known.get(field.name, field.unset)

    def _about(self, width: int) -> Iterator[Line]:
        name, checked = clean(self.profile_name.rpartition("/")[2]) or "of your own", self.known
        if checked is None or not checked.plans:
            words = "checking this box ..." if checked is None else "cannot run here"
            yield ruled((Span(name, "title"), Span(words, "dim")), width)
        else:
            cases = [case.outcome for plan in checked.plans for case in plan.cases]
            runs = cases.count(None)
            of = f"{runs} of {counted(len(cases), 'case')} run here; {KEYS['cases']} shows the others"
            how_many = counted(runs, "case") if runs == len(cases) else of
            most = f"at most {format_seconds(sum(plan.budget_s for plan in checked.plans))}"
            yield ruled((Span(name, "title"), Span(most), Span(how_many)), width)
            works = dict.fromkeys(case.case.work.workload for case in checked.plans[0].cases)
            yield fitted((Span(f"  measures {', '.join(map(clean, works))}"),), width)
        said = [] if checked is None else list(_lessons(checked))
        for text, style in (
            *said,
            *((clean(sentence(error.message, error.hint)), "alarm") for error in self.wrong().values()),
        ):
            yield from rows_of(text, width, style, most=4)


def _heading(runs: int, width: int) -> Line:
    parts = [Span("What to measure", "title")]
    if runs:
        parts.append(Span(f"{counted(runs, 'run')} in progress: {KEYS['attach']} watches it", "warn"))
    return ruled(parts, width)


def _lessons(checked: CheckedDraft) -> Iterator[tuple[str, str]]:
    """With what it would be measured, what is not here, and what to do about it."""
    for chosen in checked.chosen:
        runtime = chosen.runtime
        if isinstance(runtime.torch_version, Missing):
            why, where = clean(runtime.torch_version.reason), clean(chosen.executable)
            yield f"{why} in {where}: name a Python that has it (--python), or install it", "warn"
        else:
            python, torch = clean(runtime.python_version), clean(runtime.torch_version)
            yield f"with Python {python}, torch {torch} ({clean(chosen.found_as)})", "dim"
        for found in chosen.passed_over:
            yield f"passed over: {clean(found)}", "dim"
    machine = checked.machine
    if machine is not None and not machine.gpus:
        yield f"no GPU, so the CPU is measured: {clean(str(machine.gpus_absent))}", "dim"


def cases_lines(checked: CheckedDraft, width: int) -> Iterator[Line]:
    """The cases of a profile: which would run here, which would not, and why."""
    question = "" if checked.profile is None else clean(checked.profile.question)
    yield from rows_of(question, width, "")
    for plan in checked.plans:
        runs = [case.case.name for case in plan.cases if case.outcome is None]
        reasons = reasons_of(plan)
        yield (Span(f"would run here ({len(runs)}):", "title"),)
        yield from ((Span(f"    {clean(name)}"),) for name in runs)
        if reasons:
            yield (Span(f"would not ({sum(map(len, reasons.values()))}):", "title"),)
        for reason, names in reasons.items():
            yield from rows_of(f"  {clean(reason)}", width, "warn")
            yield from ((Span(f"    {clean(name)}"),) for name in names)
    for error in checked.wrong.values():
        yield from rows_of(clean(sentence(error.message, error.hint)), width, "alarm")
