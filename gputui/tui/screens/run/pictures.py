"""The pictures of the Run screen: from its model to lines, without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gputui.analysis.statistics import Interval
from gputui.model.absent import Missing
from gputui.model.units import counted, format_seconds
from gputui.services.profiles.loader import Profile
from gputui.services.runs.progress import CaseProgress, ProgressSnapshot, TimedCase
from gputui.services.runs.start import CheckedDraft, reasons_of
from gputui.tui.screens.run.actions import KEYS, TITLES
from gputui.tui.screens.run.form import FIELDS, Text
from gputui.tui.screens.run.model import EndedRuns, ResultRow, RunModel
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import (
    clean,
    cut,
    end_of,
    filled,
    fitted,
    left,
    line_width,
    right,
    ruled,
    width_of,
)
from gputui.tui.widgets.charts import heat
from gputui.tui.widgets.plain_ascii import in_ascii
from gputui.tui.widgets.wrapping import wrapped

LEAST_WIDTH, LEAST_HEIGHT = 40, 9
"""Without the line that names the screens."""
LEAST_PROFILES = 3
_FOOTERS = {
    "profiles": ("choose", "next", "start", "cases", "copy", "again"),
    "form": ("choose", "next", "back"),
    "path": ("choose", "back"),
    "cases": ("back", "copy"),
    "watch": ("stop", "logs", "copy", "back", "leave"),
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
_STATE_STYLES = {
    "ok": "good",
    "failed": "alarm",
    "oom": "alarm",
    "interrupted": "warn",
    "timing": "accent",
    "warm": "accent",
    "starting": "accent",
    "profiling": "accent",
}


def picture(
    model: RunModel, width: int, height: int, now_ns: int, *, ascii_only: bool = False
) -> tuple[Line, ...]:
    """Exactly `height` lines of `width` cells."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        lines = [fitted((Span(f"at least {LEAST_WIDTH} x {LEAST_HEIGHT + 1} cells are needed"),), width)]
        lines = filled(lines, width, height)
    else:
        foot = _foot(model, width)
        room = height - len(foot)
        if model.shows_logs and model.view in ("watch", "ended"):
            body = _logs(model, width, room)
        elif model.view == "ended" and model.ended is not None:
            body = _ended(model, model.ended, width, room)
        elif model.view in ("watch", "ended"):
            body = _watch(model, width, room, now_ns, ascii_only=ascii_only)
        elif model.region == "cases" and model.checked is not None:
            body = _cases_of_profile(model, model.checked, width, room)
        else:
            body = _choose(model, width, room)
        lines = [*filled(body, width, room), *foot]
    return tuple(in_ascii(line) for line in lines) if ascii_only else tuple(lines)


# Choosing


def _choose(model: RunModel, width: int, height: int) -> list[Line]:
    form = _form(model, width)
    about = _about(model, width)
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
    return [_heading(model, width), *_profiles(model, width, room), *below]


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
            spans = (Span("> "), *(Span(span.text, style) for span in spans))
        else:
            spans = (Span("> " if is_selected else "  "), *spans)
        lines.append(fitted(spans, width))
    hidden = len(entries) - rows
    if hidden > 0 and rows > 1:
        note = f" {first + 1}-{first + rows} of {len(entries)} "
        lines[-1] = _noted(lines[-1], note, width)
    return lines


def _profile_line(profile: Profile, width: int) -> Line:
    minutes = f"{profile.budget_s / 60:.1f} min"
    return fitted(
        (
            Span(left(clean(profile.name), 14), "accent"),
            Span(right(minutes, 8) + "  "),
            Span(clean(profile.question)),
        ),
        width - 2,
    )


def _path_line(model: RunModel, width: int) -> Line:
    label = Span(left("of your own", 14), "accent")
    if model.region == "path":
        return (label, *_edited(model.path, width - 18))
    text = clean(model.path.text) or "the path of a .toml profile, or of a workload in a .py file"
    return fitted((label, Span(text, "" if model.path.text else "dim")), width - 2)


def _about(model: RunModel, width: int) -> list[Line]:
    """What the selected profile would do here: always four lines."""
    checked = model.checked
    name = clean(model.profile_name.rpartition("/")[2]) or "of your own"
    if checked is None or checked.draft.profile != model.profile_name:
        lines = [ruled((Span(name, "title"), Span("looking at this box ...", "dim")), width)]
        if model.probing:
            lines.append(_words(f"  asking {clean(model.probing)} what it has ...", width, "dim"))
        return filled(lines, width, 4)
    parts = [Span(name, "title")]
    if checked.plans:
        to_run = sum(1 for plan in checked.plans for case in plan.cases if case.outcome is None)
        not_run = sum(len(plan.cases) for plan in checked.plans) - to_run
        parts.append(Span(f"at most {format_seconds(sum(plan.budget_s for plan in checked.plans))}"))
        parts.append(Span(counted(to_run, "case")))
        if not_run:
            parts.append(Span(f"{not_run} cannot run here: {KEYS['cases']} lists them", "warn"))
    lines = [ruled(parts, width)]
    if checked.plans:
        workloads = dict.fromkeys(case.case.work.workload for case in checked.plans[0].cases)
        lines.append(_words(f"  measures {', '.join(map(clean, workloads))}", width))
    for text, style in _lessons(checked):
        lines += [fitted((Span("  "), Span(row, style)), width) for row in wrapped(text, width - 2, 2)]
    if len(lines) > 4:
        *before, last = lines[3]
        lines[3] = fitted((*before, Span(last.text.rstrip(), last.style), Span(" …", "dim")), width)
    return filled(lines, width, 4)


def _lessons(checked: CheckedDraft) -> Iterable[tuple[str, str]]:
    """What is not here, and what to do about it; at most what is left out first."""
    for chosen in checked.chosen:
        runtime = chosen.interpreter.runtime
        if isinstance(runtime.torch_version, Missing):
            where = clean(chosen.interpreter.executable)
            why = clean(runtime.torch_version.reason)
            yield (
                f"{why} in {where}: name a Python that has it as interpreter (--python), or install it",
                "warn",
            )
        else:
            python, torch = clean(runtime.python_version), clean(runtime.torch_version)
            yield f"with Python {python}, torch {torch} ({clean(chosen.found_as)})", "dim"
        for found in chosen.passed_over:
            yield f"passed over: {clean(found)}", "dim"
    machine = checked.machine
    if machine is not None and not machine.gpus:
        yield f"no GPU, what runs on the CPU works: {clean(str(machine.gpus_absent))}", "dim"
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
        label = Span(
            ("> " if is_selected else "  ") + left(field.title, 12), "title" if is_selected else "dim"
        )
        error = wrong.get(field.name)
        room = width - 14
        empty = field.empty
        if field.name == "file" and model.default_file:
            empty = end_of(clean(model.default_file), room - 1)
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
        lines.append(fitted((label, *spans), width))
    is_selected = model.region == "form" and model.form.field is None
    start = Span("[ Start ]", "selected" if is_selected else "")
    lines.append(fitted((Span("> " if is_selected else "  "), start, *_start_note(model)), width))
    return lines


def _folded(model: RunModel, form: Sequence[Line], width: int) -> list[Line]:
    """The form without the fields that nobody has filled in."""
    _, *fields, start = form
    wrong = model.wrong()
    told = [
        line
        for field, line in zip(FIELDS, fields, strict=True)
        if model.form.texts[field.name].text or field.name in wrong
    ]
    hint = Span(f"{KEYS['next']} sets device, precision, launches and more", "dim")
    return [ruled((Span("With", "title"), hint), width), *told, start]


def _start_note(model: RunModel) -> list[Span]:
    if model.view == "starting":
        return [Span("  starting ...", "accent")]
    wrong = model.wrong()
    if "profile" in wrong:
        return [Span("  ! ", "alarm"), Span(clean(wrong["profile"].message), "alarm")]
    if model.probing:
        return [Span(f"  asking {clean(model.probing)} what it has ...", "dim")]
    key = KEYS["choose" if model.region == "form" else "start"]
    return [Span(f"  {key} starts it; it then goes on by itself", "dim")]


def _edited(text: Text, room: int) -> tuple[Span, ...]:
    """The line that is edited, its cursor in sight."""
    shown = clean(text.text) if len(clean(text.text)) == len(text.text) else _same_length(text.text)
    first = max(text.cursor - room + 2, 0)
    while width_of(shown[first : text.cursor]) > room - 1:
        first += 1
    under = shown[text.cursor : text.cursor + 1] or " "
    after = cut(
        shown[text.cursor + 1 :], max(room - width_of(shown[first : text.cursor]) - width_of(under), 0)
    )
    return (Span(shown[first : text.cursor]), Span(under, "selected"), Span(after))


def _same_length(text: str) -> str:
    return "".join(clean(c) or "·" for c in text)


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
            fitted((Span(row, "alarm"),), width) for row in wrapped(clean(f"{error}: {error.hint}"), width, 4)
        ]
    model.scrolled = min(model.scrolled, max(len(lines) - height + 1, 0))
    heading = [
        Span(clean(model.profile_name), "title"),
        Span(_place(model.scrolled, height - 1, len(lines)), "dim"),
    ]
    return [ruled(heading, width), *lines[model.scrolled :]]


# Watching


def _watch(model: RunModel, width: int, height: int, now_ns: int, *, ascii_only: bool) -> list[Line]:
    watched, progress = model.watched, model.progress
    if watched is None or progress is None:
        return [ruled((Span("Run", "title"),), width), _words("  reading its journal ...", width, "dim")]
    parts = [
        Span(f"run {watched.in_progress.called}", "title"),
        Span(clean(watched.plans[0].profile)),
        Span(_clock((now_ns - progress.begun_ns) / 1e9)),
        Span(_remaining(progress), "accent"),
    ]
    others = len(model.in_progress) - 1
    if others > 0:
        parts.append(Span(f"{others} more: {KEYS['next']}", "warn"))
    below = [
        *_strip(progress, width, ascii_only=ascii_only),
        *_events(progress, width, 3 if height < 30 else 8),
    ]
    into = fitted((Span(f"  into {clean(watched.target)}; {clean(watched.with_python)}", "dim"),), width)
    box = _box(progress, width, 1 if height < 30 else 4)
    room = height - 2 - len(below) - len(box)
    return [
        ruled(parts, width),
        into,
        *box,
        *filled(_case_table(model, progress, width, room), width, room),
        *below,
    ]


def _remaining(progress: ProgressSnapshot) -> str:
    if progress.is_storing:
        return "storing"
    if progress.left_s is None:
        return "until its program ends"
    return f"~{_clock(progress.left_s)} left" if progress.left_s >= 1 else "nearly done"


def _box(progress: ProgressSnapshot, width: int, rows: int) -> list[Line]:
    """What the sampler reads now, as many devices as there is room for."""
    lines = [_words(f"  {clean(said)}", width) for said in progress.box[:rows]]
    more = len(progress.box) - rows
    if lines and more > 0:
        note = f" and {counted(more, 'GPU')} more"
        lines[-1] = _noted(lines[-1], note, width)
    return lines


def _case_table(model: RunModel, progress: ProgressSnapshot, width: int, rows: int) -> list[Line]:
    cases = [case for case in progress.cases if case.launches]
    not_run = len(progress.cases) - len(cases)
    name_width = width - 38
    room = rows - 1 - (1 if not_run else 0)
    now = next((i for i, case in enumerate(cases) if case.is_now), 0)
    first = min(max(now - room // 2, 0) + model.scrolled, max(len(cases) - room, 0))
    model.scrolled = min(model.scrolled, max(len(cases) - room, 0))
    title = f"case, {_place(first, room, len(cases))}" if len(cases) > room > 0 else "case"
    head = f"  {left(title, name_width)} {left('state', 11)} {right('done', 5)} {right('rate', 16)}"
    lines = [fitted((Span(head, "dim"),), width)]
    lines += [_case_line(case, width, name_width) for case in cases[first : first + max(room, 0)]]
    if not_run:
        reason = next((case.reason for case in progress.cases if not case.launches and case.reason), "")
        lines.append(_words(f"  {counted(not_run, 'case')} not run here: {clean(reason)}", width, "dim"))
    return lines


def _case_line(case: CaseProgress, width: int, name_width: int) -> Line:
    mark = "> " if case.is_now else "  "
    said = case.rate or (f"{case.blocks} blocks" if case.blocks else "")
    return fitted(
        (
            Span(mark + left(clean(case.name), name_width) + " ", "" if case.is_now or case.rate else "dim"),
            Span(left(case.state, 11), _STATE_STYLES.get(case.state, "dim")),
            Span(" " + right(f"{case.launches_done}/{case.launches}", 5) + " "),
            Span(right(said, 16)),
        ),
        width,
    )


def _strip(progress: ProgressSnapshot, width: int, *, ascii_only: bool) -> list[Line]:
    """The blocks of the case that is timed: always four lines."""
    strip = progress.strip
    if strip is None:
        return filled([ruled((Span("Blocks"), Span("none is being timed", "dim")), width)], width, 4)
    heading = ruled((Span(clean(strip.name)), Span(counted(strip.blocks, "block"))), width)
    low, high = min(strip.step_s), max(strip.step_s)
    shown = strip.step_s[-(width - 4) :]
    bars = heat([step - low for step in shown], max(high - low, 1e-12), ascii_only=ascii_only)
    return [
        heading,
        fitted((Span("  "), Span(bars, "chart")), width),
        _words(f"  {_spread(strip)}", width),
        _words(f"  of steps from {format_seconds(low)} to {format_seconds(high)}", width, "dim"),
    ]


def _spread(strip: TimedCase) -> str:
    interval = strip.interval
    said = f"median {format_seconds(strip.centre_s)} a step"
    if isinstance(interval, Interval):
        return f"{said}, 95 %: {format_seconds(interval.low)} to {format_seconds(interval.high)}"
    return f"{said}; {interval.reason}"


def _events(progress: ProgressSnapshot, width: int, rows: int) -> list[Line]:
    lines = [ruled((Span("Events"),), width)]
    if not progress.events:
        lines.append(_words("  none so far", width, "dim"))
    for event in progress.events[-rows:]:
        style = {"warning": "warn", "error": "alarm"}.get(event.level, "")
        lines.append(
            fitted((Span(f"  {_clock(event.at_s)} ", "dim"), Span(clean(event.message), style)), width)
        )
    return filled(lines, width, rows + 1)


def _ended(model: RunModel, ended: EndedRuns, width: int, height: int) -> list[Line]:
    style = "good" if ended.status == "finished" else "warn"
    heading = [Span(f"run {ended.in_progress.called}", "title"), Span(clean(ended.status), style)]
    lines: list[Line] = []
    if ended.wrong is not None:
        text = f"{ended.wrong.message}: {ended.wrong.hint}" if ended.wrong.hint else ended.wrong.message
        lines += [
            fitted((Span("  "), Span(row, "alarm")), width) for row in wrapped(clean(text), width - 2, 6)
        ]
    else:
        lines.append(_words(f"  stored in {clean(ended.target)}", width, "dim"))
    for said in ended.said:
        lines += [
            fitted((Span("  "), Span(row, "warn")), width) for row in wrapped(clean(said), width - 2, 3)
        ]
    name_width = width - 40
    if ended.rows:
        head = f"  {left('case', name_width)} {right('rate', 13)} {right('95 %', 14)} {right('blocks', 7)}"
        lines.append(fitted((Span(head, "dim"),), width))
    for row in ended.rows:
        if row.rate:
            spans = (
                Span("  " + left(clean(row.name), name_width) + " "),
                Span(right(row.rate, 13)),
                Span(right(row.interval, 15)),
                Span(right(str(row.blocks), 8)),
            )
            lines.append(fitted(spans, width))
    lines += _not_measured(ended.rows, width)
    model.scrolled = min(model.scrolled, max(len(lines) - height + 1, 0))
    if len(lines) > height - 1:
        heading.append(Span(_place(model.scrolled, height - 1, len(lines)), "dim"))
    return [ruled(heading, width), *lines[model.scrolled :]]


def _not_measured(rows: Sequence[ResultRow], width: int) -> Iterable[Line]:
    """Each outcome and reason once, however many cases have it: without a GPU that is most of them."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if not row.rate:
            named.setdefault(row.why, []).append(row.name)
    for why, names in named.items():
        style = _STATE_STYLES.get(why.partition(":")[0], "dim")
        who = ", ".join(names) if len(names) == 1 or style != "dim" else counted(len(names), "case")
        for line in wrapped(f"{clean(who)}: {clean(why)}", width - 2, 3):
            yield fitted((Span("  "), Span(line, style)), width)


def _logs(model: RunModel, width: int, height: int) -> list[Line]:
    """What workers had written when their launch failed."""
    words = () if model.progress is None else model.progress.last_words
    lines: list[Line] = []
    for said in words:
        about = clean(f"{said.launch}: {said.outcome}{': ' if said.reason else ''}{said.reason}")
        first, *more = wrapped(about, width - 9, 4) or [""]
        lines.append(fitted((Span(f"  {_clock(said.at_s)} ", "dim"), Span(first, "warn")), width))
        lines += [fitted((Span(" " * 7), Span(row, "warn")), width) for row in more]
        for row in map(clean, said.lines):
            margin = " " * (4 + min(len(row) - len(row.lstrip()), 8))
            parts = wrapped(row.strip(), width - len(margin) - 1, 4)
            lines += [fitted((Span(margin), Span(part)), width) for part in parts]
    if not words:
        lines.append(_words("  no worker has failed, or left without its last word", width, "dim"))
    for place in () if model.watched is None else model.watched.run_dirs:
        where = wrapped(f"whole logs, as long as the directory is kept: {clean(place)}", width - 3, 3)
        lines += [fitted((Span("  "), Span(row, "dim")), width) for row in where]
    model.scrolled = min(model.scrolled, max(len(lines) - height + 1, 0))
    heading = [Span("Last words of workers", "title")]
    if len(lines) > height - 1:
        heading.append(Span(_place(model.scrolled, height - 1, len(lines)), "dim"))
    return [ruled(heading, width), *lines[model.scrolled :]]


# The last lines


def _foot(model: RunModel, width: int) -> list[Line]:
    return [*_said(model, width), _keys(model, width)]


def _said(model: RunModel, width: int) -> list[Line]:
    """Two lines: a question, what has just happened, or what is wrong in full."""
    text, style = model.notice
    if model.question == "stop":
        called = model.watched.in_progress.called if model.watched is not None else ""
        text, style = f"End run {called} and keep what is finished? y ends it, n lets it go on", "warn"
    elif model.question == "leave":
        words = model.parting_words or "a run is being started"
        text, style = f"{words}. y leaves, n stays", "warn"
    elif not text and model.view == "choose":
        wrong = model.wrong()
        named = model.editing if model.editing in wrong else next(iter(wrong), "")
        if named:
            error = wrong[named]
            text, style = (f"{error.message}: {error.hint}" if error.hint else error.message), "alarm"
    rows = wrapped(clean(text), width - 1, 2)
    return filled([fitted((Span(" "), Span(row, style)), width) for row in rows], width, 2)


def _keys(model: RunModel, width: int) -> Line:
    place = model.region if model.view == "choose" else model.view
    if model.shows_logs and place in ("watch", "ended"):
        place = "logs"
    has_words = model.progress is not None and bool(model.progress.last_words)
    names: Sequence[str] = ("yes", "no") if model.question else _FOOTERS[place]
    if model.view == "choose" and model.in_progress and not model.is_typing and not model.question:
        names = ("attach", *names)
    if place == "watch" and len(model.in_progress) > 1 and not model.question:
        names = ("next", *names)
    if place == "ended" and model.ended is not None and model.ended.wrong is not None:
        names = tuple(name for name in names if name != "results")
    if not has_words:
        names = tuple(name for name in names if name != "logs")
    if place == "watch" and model.watched is None and not model.question:
        names = ("back", "leave")
    help_too = not model.is_typing and not model.question
    end = (Span(" ?", "accent"), Span(" Help ")) if help_too else ()
    spans: list[Span] = []
    for name in names:
        title = _CALLED.get((place, name), TITLES[name])
        if name == "choose" and place == "form" and model.form.field is None:
            title = "Start"
        key = (Span(f" {KEYS[name]}", "accent"), Span(f" {title} "))
        if line_width((*spans, *key, *end)) > width:
            break
        spans += key
    palette = (Span(" ctrl-p", "accent"), Span(" Palette "))
    if help_too and line_width((*spans, *palette, *end)) <= width:
        spans += palette
    return fitted((*spans, *end), width)


def _words(text: str, width: int, style: str = "") -> Line:
    return fitted((Span(text, style),), width)


def _place(first: int, rows: int, count: int) -> str:
    return f"{first + 1}-{min(first + rows, count)} of {count}"


def _noted(line: Line, note: str, width: int) -> Line:
    """A line with a note at its right end."""
    *before, last = line
    bare = (*before, Span(last.text.rstrip(), last.style))
    return fitted((*fitted(bare, width - len(note)), Span(note, "dim")), width)


def _first_shown(selected: int, count: int, rows: int) -> int:
    """Where a list begins so that the selected entry is in it."""
    return min(max(selected - rows // 2, 0), max(count - rows, 0))


def _clock(seconds: float) -> str:
    return f"{int(max(seconds, 0)) // 60}:{int(max(seconds, 0)) % 60:02d}"
