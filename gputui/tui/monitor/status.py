"""Every key of the Monitor and what keys ask of whoever opened it; and the lines around its panes: the box in
one sentence; below them a question, the filter, a message, or counts and keys; and what a newcomer asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gputui.analysis.health import is_lost
from gputui.document.spans import Line, Span, cut, line_width, width_of
from gputui.metrics import GIB, number, three_digits_of, with_unit
from gputui.model.telemetry import DeviceSample
from gputui.model.units import counted, format_usd, format_whole_seconds
from gputui.tui.monitor.frame import Frame, findings_spans, idle_text, is_idle, short_name
from gputui.tui.monitor.history import LoadLevel
from gputui.tui.shell.registry import APP_ACTIONS, Action, shown_key
from gputui.tui.widgets.cells import fitted, fitting, joined, left, ruled

ACTIONS: tuple[Action, ...] = (
    Action("pause", "space", "Pause", "Freeze the display; sampling goes on"),
    Action("filter", "slash", "Filter", "Filter processes by user, PID, command or MIG slice", "a process"),
    Action("sort", "s", "Sort", "Sort the processes by the next column", "a process"),
    Action("reverse", "S", "Reverse", "Reverse the sort of the processes", "a process"),
    Action("down", "down,j", "Down", "Select the next process, or the next line of a list"),
    Action("up", "up,k", "Up", "Select the process or line before"),
    Action("page-down", "pagedown", "Page down", "Go one page further down"),
    Action("page-up", "pageup", "Page up", "Go one page further up"),
    Action("first", "home", "First", "Go to the first process or line"),
    Action("last", "end", "Last", "Go to the last process or line"),
    Action(
        "end",
        "x",
        "End",
        "End the selected process: asks, and checks that it is still the same one",
        "a process",
    ),
    Action("demo", "d", "Demo", "Look at eight made-up GPUs at work; q comes back"),
    Action(
        "next-gpu", "tab,g", "Next GPU", "Select the next GPU: its charts, its problems, and why", "a GPU"
    ),
    Action("details", "i", "Details", "All values of the selected GPU, and why some are absent", "a GPU"),
    Action("metrics", "m", "Metrics", "Choose what is charted", "a GPU"),
    Action(
        "toggle", "enter", "Choose", "Open the selected GPU; accept a filter, switch a metric, send a signal"
    ),
    Action("yes", "y", "Yes", "Send the signal that is asked about"),
    Action("no", "n", "No", "Send none"),
    Action("processes", "p", "Processes", "Show or hide the processes"),
    Action("zoom-in", "left_square_bracket", "Shorter", "Charts show a shorter time, down to one minute"),
    Action("zoom-out", "right_square_bracket", "Longer", "Charts show a longer time, up to one hour"),
    Action("faster", "plus", "Faster", "Sample more often, up to five times a second"),
    Action("slower", "minus", "Slower", "Sample less often, down to every ten seconds"),
    Action("back", "escape", "Back", "Leave details, metrics, the filter or the question"),
    Action("erase", "backspace", "Erase", "Delete a letter of the filter; elsewhere the same as Back"),
)


@dataclass(frozen=True, slots=True)
class EndProcess:
    """Send a signal to a process, if it is still the one that was shown."""

    pid: int
    start_ticks: int
    """Start time, which must match that of the process with this PID."""
    command: str
    """Cleaned."""
    signal: str = "SIGTERM"
    """One of SIGNALS."""


class ShowDemo:
    """Show made-up GPUs instead of this box, until the user leaves them."""


Asked = EndProcess | ShowDemo

_LEVELS = 9
"""Of how much the line holds."""
_ROOMY_FROM = 150
"""From this width on, GPUs that are held back are counted by the reason."""


def summary_line(frame: Frame, width: int) -> Line:
    """`8x H200   6 busy  1 idle  1 LOST   3.4 of 4.8 kW   655 of 983 GiB   $28.00/h  $7.00 unused`."""
    if not frame.gpus:
        return fitted((Span("no GPU", "warn"), Span("  host only", "dim")), width)
    for level in range(_LEVELS):  # what ails GPUs stays to the end: their rows may be out of sight
        line = joined(_parts(frame, width, level), "  " if level else "   ")
        if line_width(line) <= width:
            break
    return fitted(line, width)


def _parts(frame: Frame, width: int, level: int) -> Iterator[list[Span]]:
    """What the line holds; a higher level holds less."""
    yield [Span(_names(frame.gpus), "title")]
    if len(frame.gpus) == 1:
        yield from _of_one(frame, frame.gpus[0], width)
    else:
        yield _states(frame, width, has_idle=level < 3)
    if level < 8:
        yield _power(frame, is_short=level >= 5)
    if len(frame.gpus) > 1 and level < 6:
        yield _memory(frame, is_short=level >= 4)
    if level < 7:
        yield _money(frame, level)


def _names(gpus: Sequence[DeviceSample]) -> str:
    """`8x H200`; of several kinds each with its number."""
    names = Counter(short_name(gpu) for gpu in gpus)
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _of_one(frame: Frame, gpu: DeviceSample, width: int) -> Iterator[list[Span]]:
    findings = frame.findings[gpu.device]
    if gpu.problem is None:
        busy = number(gpu.values, "sm_busy_pct")
        load = frame.load_of_busy(gpu, busy)
        text = (
            idle_text(frame, gpu)
            if load is LoadLevel.IDLE and busy is not None
            else f"busy {with_unit(busy, '%')}"
        )
        if frame.instances[gpu.device]:
            text = f"in {counted(len(frame.instances[gpu.device]), 'slice')}"
        yield [Span(text, "compute" if load else "dim")]
    if findings:
        yield findings_spans(findings, width // 2, brief=width < 100)
    elif gpu.problem is None:
        yield [Span("healthy", "good")]


def _states(frame: Frame, width: int, *, has_idle: bool) -> list[Span]:
    lost = [gpu for gpu in frame.gpus if gpu.problem is not None]
    idle = [gpu for gpu in frame.gpus if gpu.problem is None and is_idle(frame, gpu)]
    busy = len(frame.gpus) - len(lost) - len(idle)
    gone = sum(gpu.problem is not None and is_lost(gpu.problem) for gpu in lost)
    spans = [Span(f"{busy} busy", "compute" if busy else "dim")]
    spans += [Span("  "), Span(f"{len(idle)} idle", "dim")] if idle and (has_idle or not busy) else []
    slices = sum(map(len, frame.instances.values()))
    spans += [Span("  "), Span(counted(slices, "slice"), "dim")] if slices else []
    spans += [Span("  "), Span(f"{gone} LOST", "alarm")] if gone else []
    spans += [Span("  "), Span(f"{len(lost) - gone} SILENT", "alarm")] if len(lost) > gone else []
    readable = [frame.findings[gpu.device] for gpu in frame.gpus if gpu.problem is None]
    troubled = [found for found in readable if found and found[0].severity != "note"]
    if not troubled:
        return spans
    if width >= _ROOMY_FROM:
        kinds = Counter((_kind(findings[0].brief), findings[0].severity) for findings in troubled)
        for (kind, style), count in kinds.items():
            spans += [Span("  "), Span(f"{count} {kind}", style)]
        return spans
    worst = "alarm" if any(f[0].severity == "alarm" for f in troubled) else "warn"
    return [*spans, Span("  "), Span(counted(len(troubled), "problem"), worst)]


def _kind(brief: str) -> str:
    """`POWER-CAPPED at 600 W` as `power-capped`."""
    if brief.startswith("PCIe"):
        return "on a slow link"
    word = brief.split(" ")[0]
    return word if word == "ECC" else word.lower()


def _power(frame: Frame, *, is_short: bool) -> list[Span]:
    drawn_w, most_w = _together(frame, "power_w", "power_limit_w")
    if drawn_w is None:
        return []
    scale, unit, decimals = (1000, "kW", 1) if (most_w or drawn_w) >= 1000 else (1, "W", 0)
    whole = "" if is_short or most_w is None else f" of {most_w / scale:.{decimals}f}"
    return [Span(f"{drawn_w / scale:.{decimals}f}", "title"), Span(f"{whole} {unit}", "dim")]


def _memory(frame: Frame, *, is_short: bool) -> list[Span]:
    used, total = _together(frame, "memory_used_bytes", "memory_total_bytes")
    if used is None or total is None:
        return []
    whole = "" if is_short else f" of {three_digits_of(total / GIB)}"
    return [Span(three_digits_of(used / GIB), "title"), Span(f"{whole} GiB", "dim")]


def _together(frame: Frame, key: str, limit: str) -> tuple[float | None, float | None]:
    """The sums over the GPUs of a value and of its limit; None for a limit that fewer tell."""
    live = [gpu.values for gpu in frame.gpus if gpu.problem is None]
    known, limits = ([n for values in live if (n := number(values, of)) is not None] for of in (key, limit))
    return (sum(known), sum(limits) if len(limits) >= len(known) else None) if known else (None, None)


def _money(frame: Frame, level: int) -> list[Span]:
    """What the box costs, and what of it is paid for GPUs that do nothing."""
    price = frame.ledger.usd_per_hour
    if price is None:
        return []
    unused = sum(gpu.problem is not None or is_idle(frame, gpu) for gpu in frame.gpus)
    spans = [Span(f"{_dollars(price, level)}/h", "title")]
    if unused:
        amount = _dollars(price * unused / len(frame.gpus), level)
        spans += [Span("  "), Span(f"{amount} unused" if level else f"{amount}/h of it unused", "warn")]
    return spans


def _dollars(amount: float, level: int) -> str:
    return f"${amount:.0f}" if level >= 2 and amount >= 1.5 else format_usd(amount)


SIGNALS: tuple[tuple[str, str], ...] = (
    ("SIGHUP", "its terminal is gone"),
    ("SIGINT", "as Ctrl-C"),
    ("SIGTERM", "asks it to end"),
    ("SIGQUIT", "ends with a core dump"),
    ("SIGKILL", "cannot be refused"),
)
"""Signals to end a process with, mildest first, and what they mean."""
QUESTIONS_HEIGHT = 5
_QUESTION = 43
"""Cells of a question, up to what is known of its answer."""
_HINTS: Mapping[str, tuple[str, ...]] = {
    "": ("help", "quit", "pause", "filter", "sort", "details", "metrics", "end"),
    "details": ("back", "next-gpu", "down", "pause"),
    "metrics": ("back", "toggle", "down", "up"),
}


def question_line(question: EndProcess, width: int) -> Line:
    name, meaning = question.signal, dict(SIGNALS)[question.signal]
    ask = f"End {question.pid} "
    keys = f" with {name} ({meaning})?  y yes  n no"
    keys += "  up milder" if name != SIGNALS[0][0] else ""
    keys += "  down harsher" if name != SIGNALS[-1][0] else ""
    if width < len(ask) + len(keys) + 12:
        keys = f" with {name}?  y yes  n no  up, down"
    if width < len(ask) + len(keys):
        keys = f" with {name}? y n up down"
    room = max(width - len(ask) - len(keys), 0)
    return fitted((Span(ask, "warn"), Span(cut(question.command, room)), Span(keys, "warn")), width)


def filter_line(
    typed: str, found: int, total: int, out_of_sight: int, width: int, *, is_typing: bool
) -> Line:
    counts = f"  {found} of {total} processes"
    if out_of_sight:
        counts += f", {out_of_sight} out of sight"
    room = max(width - len(counts) - 2, 8)
    while width_of(typed) > room:
        typed = typed[1:]
    cursor = "_" if is_typing else ""
    return fitted((Span("/", "accent"), Span(typed + cursor), Span(counts, "dim")), width)


_HINTED = {action.id: action for action in (*ACTIONS, *APP_ACTIONS)}


@lru_cache(maxsize=4)
def hints_line(counts: str, mode: str, width: int, there: tuple[str, ...], without: str) -> Line:
    """As many keys as fit, except those that need something not in `there`, and counts.

    The one with the id `without` is left out.
    """
    room = width - (width_of(counts) + 2 if counts else 0)
    named = [_HINTED[name] for name in _HINTS.get(mode, _HINTS[""]) if name != without]
    hints = [
        (Span(shown_key(action), "accent"), Span(f" {action.title}", "dim"))
        for action in named
        if not action.needs or action.needs in there
    ]
    kept = joined(fitting(hints, room, "  "))
    return fitted((*fitted(kept, width - width_of(counts)), Span(counts, "dim")), width)


def counts_text(hidden_gpus: int, above: int, below: int) -> str:
    """The numbers of GPUs and processes out of view, empty if there are none: `2 GPUs  12 ▲ 31 ▼`."""
    gpus = counted(hidden_gpus, "GPU") + " out of sight" if hidden_gpus else ""
    rows = " ".join(filter(None, (f"{above} ▲" * bool(above), f"{below} more ▼" * bool(below))))
    return "  ".join(filter(None, (gpus, rows)))


def question_lines(frame: Frame, quick_s: float, width: int) -> list[Line]:
    """QUESTIONS_HEIGHT lines; `quick_s` is the most that the profile quick takes, in seconds."""
    usd_per_hour = frame.ledger.usd_per_hour
    cost = "" if usd_per_hour is None else f", {format_usd(usd_per_hour * quick_s / 3600)}"
    time = f"quick: up to {format_whole_seconds(quick_s)}{cost}"
    rows = (
        ("2", "Is this box as fast as it should be?", Span(time, "dim")),
        ("4", "Which of two boxes is faster or cheaper?", Span("needs a result file of each", "dim")),
        ("5", *_of_health(frame)),
        ("d", "What does all of it look like?", Span("five screens of made-up data", "dim")),
    )
    heading = ruled((Span("new here?", "title"), Span("x hides this", "accent")), width)
    return [
        heading,
        *(
            fitted((Span(f"  {key}  ", "accent"), Span(left(question, _QUESTION)), answer), width)
            for key, question, answer in rows
        ),
    ]


def _of_health(frame: Frame) -> tuple[str, Span]:
    for gpu in frame.gpus:
        if gpu.problem is not None and is_lost(gpu.problem):
            return f"Why is GPU {gpu.label} lost?", Span("doctor: what to do about it", "alarm")
    looks_at = "GPUs, driver, torch" if frame.gpus else "torch, CPU, memory, disk"
    return "Is this box healthy?", Span(f"doctor: {looks_at}", "dim")
