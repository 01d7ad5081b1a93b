"""The pictures of the Run screen: from its model to lines, without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gputui.document.spans import Line, Span, cut, width_of
from gputui.model.absent import Missing
from gputui.model.units import counted, format_clock, format_seconds, format_whole_seconds
from gputui.services.profiles.loader import Profile
from gputui.services.runs.options import Option
from gputui.services.runs.start import CheckedDraft, reasons_of
from gputui.tui.screens.run.form import FIELDS, KEYS, TITLES, EditedText
from gputui.tui.screens.run.model import RunModel, sentence
from gputui.tui.screens.run.watching import ended_lines, watching
from gputui.tui.shell.registry import key_hint, keys_line
from gputui.tui.widgets.cells import (
    clean,
    end_of,
    filled,
    fitted,
    left,
    log_lines,
    noted,
    right,
    ruled,
    wrapped,
)
from gputui.tui.widgets.scrolled import MARKER

LEAST_WIDTH, LEAST_HEIGHT = 40, 9
"""Without the line that names the screens."""
LEAST_PROFILES = 3
_LABEL = 13
"""Cells of the name of a field."""
_FOOTERS = {
    "profiles": ("attach", "choose", "next", "start", "cases", "copy", "again"),
    "form": ("attach", "choose", "next", "back"),
    "path": ("choose", "back"),
    "cases": ("attach", "back", "copy"),
    "watch": ("next", "stop", "logs", "copy", "back", "leave"),
    "opening": ("back", "leave"),
    "ended": ("results", "logs", "copy", "back", "leave"),
    "logs": ("back", "copy", "leave"),
    "starting": ("leave",),
}
_CALLED: Mapping[tuple[str, str], str] = {
    ("form", "choose"): "Next field",
    ("form", "next"): "Profiles",
    ("watch", "next"): "Next run",
}
"""Keys whose action has another name in a place."""


def picture(model: RunModel, width: int, height: int, now_ns: int, *, ends: str = "") -> tuple[Line, ...]:
    """Exactly `height` lines of `width` cells; `ends` is when a run that is watched will end, as `14:31`."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        words = f"at least {LEAST_WIDTH} x {LEAST_HEIGHT + 1} cells are needed"
        return tuple(filled([_words(words, width)], width, height))
    said = _said(model, width, max(2, height // 4))
    said = filled(said, width, max(2, len(said))) if model.view == "choose" else said
    foot = [*said, _keys(model, width)]
    room = height - len(foot)
    match model.view:
        case "watch" | "ended" if model.shows_logs:
            body = _logs(model, width, room)
        case "ended" if model.ended is not None:
            body = ended_lines(model, model.ended, width, room)
        case "watch" | "ended":
            body = watching(model, width, room, now_ns, ends)
        case _ if model.region == "cases" and model.checked is not None:
            body = _cases_of_profile(model, model.checked, width, room)
        case _:
            body = _choose(model, width, room)
    return (*filled(body, width, room), *foot)


def heading(model: RunModel) -> str:
    """For the first line of the terminal."""
    if model.watched is None or model.view not in ("watch", "ended"):
        return "run"
    status = f", {model.ended.status}" if model.view == "ended" and model.ended is not None else ""
    return clean(f"{model.watched.plans[0].profile}, run {model.watched.in_progress.called}{status}")


# Choosing


def _choose(model: RunModel, width: int, height: int) -> list[Line]:
    form = _form(model, width)
    in_full = _about(model, width)
    about = _shortened(in_full, width)
    wrapped_command = wrapped(f"$ {clean(model.command)}", width - 2, 2)
    command = [fitted((Span("  "), Span(row, "accent")), width) for row in wrapped_command]
    below = [*about, *form, *command]
    room = height - 1 - len(below)
    is_choosing = model.region != "form" and model.view != "starting"
    if is_choosing and room <= len(model.profiles or ()):  # what there is to choose from matters more
        below = [*about, *_folded(model, form, width), *command]
        room = height - 1 - len(below)
    if room < (
        LEAST_PROFILES if is_choosing else 1
    ):  # a low terminal: what the keys go to, and the rest out of sight
        if model.region == "form" or model.view == "starting":
            first = _first_shown(model.form.selected + 1, len(form), height - 1)
            return [_heading(model, width), *form[first : first + height - 1]]
        return [_heading(model, width), *_profiles(model, width, height - 5), *about]
    top = [_heading(model, width), *_profiles(model, width, room)]
    left_over = height - len(top) - len(below)
    planned = _planned(model, width, left_over)
    if not planned and len(in_full) - len(about) <= left_over:
        return [*top, *in_full, *below[len(about) :]]
    return [*top, *below, *planned]


_ABOUT_ROWS = 4
"""Lines about the selected profile, so that what is below stays where it is when another is selected."""


def _shortened(about: list[Line], width: int) -> list[Line]:
    if len(about) <= _ABOUT_ROWS:
        return about
    *before, last = about[_ABOUT_ROWS - 1]
    cut_off = fitted((*before, Span(last.text.rstrip(), last.style), Span(" …", "dim")), width)
    return [*about[: _ABOUT_ROWS - 1], cut_off]


def _planned(model: RunModel, width: int, height: int) -> list[Line]:
    """What would be measured here, in columns, where there is room for all of it below the form."""
    checked = model.checked
    if checked is None or checked.draft["profile"] != model.profile_name:
        return []
    cases = [case for plan in checked.plans for case in plan.cases]
    names = list(dict.fromkeys(clean(case.case.name) for case in cases if case.outcome is None))
    lines: list[Line] = [
        fitted((), width),
        ruled((Span("would run here", "title"), Span(counted(len(names), "case"), "dim")), width),
    ]
    each = max(map(width_of, names), default=0) + 3
    abreast = max((width - 2) // each, 1)
    rows = -(-len(names) // abreast)
    for row in range(rows):
        texts = (left(name, each) for name in names[row::rows])
        lines.append(fitted((Span("  " + "".join(texts)),), width))
    for plan in checked.plans:
        for reason, without in reasons_of(plan).items():
            lines.append(
                _words(
                    f"  {counted(len(without), 'case')} cannot: {clean(reason.partition(': ')[2])}",
                    width,
                    "dim",
                )
            )
    return lines if names and len(lines) <= height else []


def _heading(model: RunModel, width: int) -> Line:
    parts = [Span("What to measure", "title")]
    count = len(model.in_progress)
    if count:
        runs = "1 run" if count == 1 else f"{count} runs"
        parts.append(Span(f"{runs} in progress: {KEYS['attach']} watches it", "warn"))
    return ruled(parts, width)


def _profiles(model: RunModel, width: int, rows: int) -> list[Line]:
    if model.profiles is None:
        return [fitted((Span("  reading the profiles ...", "dim"),), width)]
    entries = [_profile_line(profile, width) for profile in model.profiles]
    entries.append(_path_line(model, width))
    first = _first_shown(model.selected, len(entries), rows)
    lines = []
    for index in range(first, min(first + rows, len(entries))):
        is_selected = index == model.selected
        spans = entries[index]
        if is_selected and model.region != "path":
            style = "selected" if model.region == "profiles" else "title"
            spans = (Span(MARKER, "accent"), *(Span(span.text, style) for span in spans))
        else:
            spans = (_mark(is_selected), *spans)
        lines.append(fitted(spans, width))
    hidden = len(entries) - rows
    if hidden > 0 and rows > 1:
        note = f" {first + 1}-{first + rows} of {len(entries)} "
        lines[-1] = noted(lines[-1], note, width)
    return lines


def _profile_line(profile: Profile, width: int) -> Line:
    return fitted(
        (
            Span(left(clean(profile.name), 12), "accent"),
            Span(right(format_whole_seconds(profile.budget_s), 10) + "  "),
            Span(clean(profile.question)),
        ),
        width - 2,
    )


def _path_line(model: RunModel, width: int) -> Line:
    label = Span(left("of your own", _LABEL), "accent")
    if model.region == "path":
        return (label, *_edited(model.path, width - 6 - _LABEL))
    text = clean(model.path.text) or "the path of a .toml profile, or of a workload in a .py file"
    return fitted((label, Span(text, "" if model.path.text else "dim")), width - 2)


def _about(model: RunModel, width: int) -> list[Line]:
    """What the selected profile would do here: at least `_ABOUT_ROWS` lines."""
    checked = model.checked
    name = clean(model.profile_name.rpartition("/")[2]) or "of your own"
    if checked is None or checked.draft["profile"] != model.profile_name:
        lines = [ruled((Span(name, "title"), Span("checking this box ...", "dim")), width)]
        if model.probing:
            lines.append(_words(f"  checking {clean(model.probing)} ...", width, "dim"))
        return filled(lines, width, _ABOUT_ROWS)
    parts = [Span(name, "title")]
    if checked.plans:
        to_run = sum(1 for plan in checked.plans for case in plan.cases if case.outcome is None)
        not_run = sum(len(plan.cases) for plan in checked.plans) - to_run
        parts.append(Span(f"at most {format_seconds(sum(plan.budget_s for plan in checked.plans))}"))
        of = f" of {counted(to_run + not_run, 'case')} run here; {KEYS['cases']} shows the others"
        parts.append(Span(f"{to_run}{of}" if not_run else counted(to_run, "case"), "" if to_run else "warn"))
    lines = [ruled(parts, width)]
    if checked.plans:
        workloads = dict.fromkeys(case.case.work.workload for case in checked.plans[0].cases)
        lines.append(_words(f"  measures {', '.join(map(clean, workloads))}", width))
    for text, style in _lessons(checked):
        lines += [fitted((Span("  "), Span(row, style)), width) for row in wrapped(text, width - 2, 2)]
    return filled(lines, width, max(len(lines), _ABOUT_ROWS))


def _lessons(checked: CheckedDraft) -> Iterable[tuple[str, str]]:
    """What is not here, and what to do about it; at most what is left out first."""
    for chosen in checked.chosen:
        runtime = chosen.interpreter.runtime
        if isinstance(runtime.torch_version, Missing):
            where = clean(chosen.interpreter.executable)
            why = clean(runtime.torch_version.reason)
            yield (
                f"{why} in {where}: name a Python that has it (--python), or install it",
                "warn",
            )
        else:
            python, torch = clean(runtime.python_version), clean(runtime.torch_version)
            yield f"with Python {python}, torch {torch} ({clean(chosen.found_as)})", "dim"
        for found in chosen.passed_over:
            yield f"passed over: {clean(found)}", "dim"
    machine = checked.machine
    if machine is not None and not machine.gpus:
        yield f"no GPU, so the CPU is measured: {clean(str(machine.gpus_absent))}", "dim"
        return
    for plan in checked.plans:
        for reason, names in reasons_of(plan).items():
            yield f"{counted(len(names), 'case')} {clean(reason)}", "dim"


def _form(model: RunModel, width: int) -> list[Line]:
    wrong = model.wrong()
    lines = [ruled((Span("With", "title"),), width)]
    for index, field in enumerate(FIELDS):
        is_selected = model.region == "form" and model.form.selected == index
        text = model.form.texts[field.name]
        label = (_mark(is_selected), Span(left(field.title, _LABEL), "title" if is_selected else "dim"))
        error = wrong.get(field.name)
        room = width - 2 - _LABEL
        empty = _empty(model, field, room)
        spans: list[Span]
        if is_selected:
            spans = [*_edited(text, min(room, 24) if error else room)]
            if not text.text:
                spans.append(Span(empty, "dim"))
        elif text.text:
            spans = [Span(cut(clean(text.text), min(room, 24) if error else room))]
        else:
            spans = [Span(empty, "dim")]
        if error is not None:
            spans = [*spans, Span("  ! ", "alarm"), Span(clean(error.message), "alarm")]
        lines.append(fitted((*label, *spans), width))
    is_selected = model.region == "form" and model.form.field is None
    start = Span("[ Start ]", "selected" if is_selected else "")
    lines.append(fitted((_mark(is_selected), start, *_start_note(model)), width))
    return lines


def _empty(model: RunModel, field: Option, room: int) -> str:
    """What holds while nothing is typed, as it will be used where that is known."""
    if field.name == "db" and model.default_file:
        return end_of(clean(model.default_file), room - 1)
    checked = model.checked
    if checked is None or not checked.plans or checked.draft["profile"] != model.profile_name:
        return field.unset
    known = {
        "launches": f"up to {checked.plans[0].replicates} a case, each a fresh process",
        "budget": f"{format_whole_seconds(checked.plans[0].budget_s)}; or another, in seconds",
        "python": f"{clean(checked.chosen[0].found_as)}; or the path of another",
    }
    return known.get(field.name, field.unset)


def _folded(model: RunModel, form: Sequence[Line], width: int) -> list[Line]:
    """The form without the fields that nobody has filled in."""
    _, *fields, start = form
    wrong = model.wrong()
    told = [
        line
        for field, line in zip(FIELDS, fields, strict=True)
        if model.form.texts[field.name].text or field.name in wrong
    ]
    hint = Span(f"{KEYS['next']} sets device, workloads, launches and more", "dim")
    return [ruled((Span("With", "title"), hint), width), *told, start]


def _start_note(model: RunModel) -> list[Span]:
    if model.view == "starting":
        return [Span("  starting ...", "accent")]
    wrong = model.wrong()
    if "profile" in wrong:
        return [Span("  ! ", "alarm"), Span(clean(wrong["profile"].message), "alarm")]
    if model.probing:
        return [Span(f"  checking {clean(model.probing)} ...", "dim")]
    key = KEYS["choose" if model.region == "form" else "start"]
    return [Span(f"  {key} starts the run; it continues in the background", "dim")]


def _edited(text: EditedText, room: int) -> tuple[Span, ...]:
    """The line that is edited, its cursor in sight."""
    shown = clean(text.text)
    if len(shown) != len(text.text):
        shown = "".join(clean(letter) or "·" for letter in text.text)
    first = max(text.cursor - room + 2, 0)
    while width_of(shown[first : text.cursor]) > room - 1:
        first += 1
    under = shown[text.cursor : text.cursor + 1] or " "
    after = cut(
        shown[text.cursor + 1 :], max(room - width_of(shown[first : text.cursor]) - width_of(under), 0)
    )
    return (Span(shown[first : text.cursor]), Span(under, "cursor"), Span(after))


def _cases_of_profile(model: RunModel, checked: CheckedDraft, width: int, height: int) -> list[Line]:
    lines: list[Line] = []
    profile = checked.profile
    if profile is not None:
        lines += [
            fitted((Span("  "), Span(row)), width) for row in wrapped(clean(profile.question), width - 2, 3)
        ]
    for plan in checked.plans:
        runs = [clean(case.case.name) for case in plan.cases if case.outcome is None]
        lines.append(_words(f"would run here ({len(runs)}):", width, "title"))
        lines += [_words(f"  {name}", width) for name in runs]
        reasons = reasons_of(plan)
        if reasons:
            lines.append(_words(f"would not ({sum(map(len, reasons.values()))}):", width, "title"))
        for reason, names in reasons.items():
            rows = wrapped(clean(reason), width - 4, 6)
            lines += [fitted((Span("    "), Span(row, "warn")), width) for row in rows]
            lines += [_words(f"  {clean(name)}", width, "dim") for name in names]
    for error in checked.wrong.values():
        lines += [
            fitted((Span(row, "alarm"),), width) for row in wrapped(clean(f"{error}: {error.hint}"), width, 6)
        ]
    return _scrolled(model, clean(model.profile_name), lines, width, height)


# Logs


def _logs(model: RunModel, width: int, height: int) -> list[Line]:
    """What workers had written when their launch failed."""
    words = () if model.progress is None else model.progress.last_words
    lines: list[Line] = []
    for said in words:
        about = clean(f"{said.launch}: {said.outcome}{': ' if said.reason else ''}{said.reason}")
        first, *more = wrapped(about, width - 9, 4) or [""]
        lines.append(fitted((Span(f"  {format_clock(said.at_s)} ", "dim"), Span(first, "warn")), width))
        lines += [fitted((Span(" " * 7), Span(row, "warn")), width) for row in more]
        lines += [fitted(line, width) for line in log_lines(map(clean, said.lines), width)]
    if not words:
        lines.append(_words("  no worker has failed", width, "dim"))
    for place in () if model.watched is None else model.watched.run_dirs:
        where = wrapped(f"full logs, until the directory is removed: {clean(place)}", width - 3, 3)
        lines += [fitted((Span("  "), Span(row, "dim")), width) for row in where]
    return _scrolled(model, "Logs of failed workers", lines, width, height)


# The last lines


def _said(model: RunModel, width: int, most: int) -> list[Line]:
    """At most so many lines: a question, what has just happened, or what is wrong in full."""
    text, style = model.notice
    match model.question:
        case "stop":
            called = model.watched.in_progress.called if model.watched is not None else ""
            text, style = f"End run {called} and keep what is finished?", "warn"
        case "start":
            text, style = f"Measure anyway? {'; '.join(model.disturbed)}.", "warn"
        case "leave":
            words = model.parting_words or "a run is being started"
            text, style = f"Leave? {words[:1].upper()}{words[1:]}.", "warn"
        case "" if not text and model.view == "choose" and (wrong := model.wrong()):
            text, style = sentence(wrong.get(model.editing) or next(iter(wrong.values()))), "alarm"
    rows = wrapped(clean(text), width, most)
    return [fitted((Span(row, style),), width) for row in rows]


def _keys(model: RunModel, width: int) -> Line:
    place = model.region if model.view == "choose" else model.view
    if model.shows_logs and place in ("watch", "ended"):
        place = "logs"
    elif place == "watch" and model.watched is None:
        place = "opening"
    is_measured = model.ended is not None and model.ended.wrong is None
    unfit = {
        "attach": model.is_typing or not model.in_progress,
        "next": place == "watch" and len(model.in_progress) < 2,
        "logs": model.progress is None or not model.progress.last_words,
        "results": not is_measured,
    }
    names = ("yes", "no") if model.question else [name for name in _FOOTERS[place] if not unfit.get(name)]
    help_too = not model.is_typing and not model.question
    end = (Span("?", "accent"), Span(" Help", "dim")) if help_too else ()
    called = dict(_CALLED)
    if model.form.field is None:
        called["form", "choose"] = "Start"
    hints = [key_hint(KEYS[name], called.get((place, name), TITLES[name])) for name in names]
    return keys_line(hints, width, end, has_palette=help_too)


def _mark(is_selected: bool) -> Span:
    return Span(MARKER, "accent") if is_selected else Span(" " * len(MARKER))


def _words(text: str, width: int, style: str = "") -> Line:
    return fitted((Span(text, style),), width)


def _scrolled(model: RunModel, title: str, lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """A heading that says which lines are in sight where not all are, and these."""
    rows, count = height - 1, len(lines)
    first = model.scrolled = min(model.scrolled, max(count - rows, 0))
    place = f"{first + 1}-{first + rows} of {count}" if count > rows else ""
    return [ruled((Span(title, "title"), Span(place, "dim")), width), *lines[first:]]


def _first_shown(selected: int, count: int, rows: int) -> int:
    """Where a list begins so that the selected entry is in it."""
    return min(max(selected - rows // 2, 0), max(count - rows, 0))
