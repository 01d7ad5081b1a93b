"""The Monitor screen without a terminal: samples and keys in, lines of styled text out."""

from __future__ import annotations

from functools import partial

from gputui.analysis.health import STALE_AFTER_S, health
from gputui.document.spans import Line, Span, cut, line_width, width_of
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.model.units import counted
from gputui.tui.monitor.cards import (
    charts,
    chosen_metrics,
    gpu_cards,
    host_line,
    selected_lines,
    without_gpus,
)
from gputui.tui.monitor.frame import Frame, account_span, parents_of, span_text, why_spans
from gputui.tui.monitor.gpu_table import details_lines, gpu_table, metrics_lines
from gputui.tui.monitor.history import SECOND_NS
from gputui.tui.monitor.layout import MIN_HEIGHT, MIN_WIDTH, ROOMY, Layout, Rect, laid_out
from gputui.tui.monitor.processes import USERS_FROM, USERS_WIDTH, users_lines
from gputui.tui.monitor.settings import BY_ID
from gputui.tui.monitor.state import (
    MonitorState,
    Seen,
    click,
    click_gpu,
    click_metric,
    click_process,
    press,
    type_text,
)
from gputui.tui.monitor.status import (
    QUESTIONS_HEIGHT,
    counts_text,
    filter_line,
    hints_line,
    question_line,
    question_lines,
    summary_line,
)
from gputui.tui.widgets.cells import clean, filled, fitted, in_ascii, ruled, side_by_side, wrapped

TICK_NS = SECOND_NS // 4
"""Without a new sample, redraw at most this often: only ages can have changed."""

_ABOVE = 2
"""Lines above the GPUs: the heading, and the sum of the box."""
_RULED_FROM = 6
"""From this number of rows on, processes have a rule above their heading."""
_LEAST_BESIDE_QUESTIONS = 4
"""Rows of processes that stay when a newcomer's questions stand below them."""
_GAUGES_REST_BELOW = 100
"""Columns. A small terminal is often a slow one."""
_LEAST_LEFT = 16
"""Cells for the names of the program and the box, before text at the right is dropped."""


def document(
    state: MonitorState, width: int, height: int, now_ns: int, newest: LiveSample | None = None
) -> tuple[Line, ...]:
    """The frame with the newest sample, exactly `height` lines of exactly `width` cells.

    Unchanged lines are the same objects as in the last frame. `now_ns` is monotonic, as are the times of
    samples.
    """
    if newest is not None:
        state.add(newest)
    seen = state.seen(now_ns)
    drawn_of = (width, height, state.changes, seen and (seen[-1] // TICK_NS, seen[0]))
    if drawn_of == state.picture.of:
        return state.picture.lines
    state.picture.hits, state.picture.has_questions, state.picture.width = [], False, width
    if seen is None or width < MIN_WIDTH or height < MIN_HEIGHT:
        lines = _without_sample(state, width, height)
    else:
        frame = _frame(state, seen)
        state.loads.gauges_rest = width < _GAUGES_REST_BELOW
        lines = [_header(state, width, frame.span_ns), summary_line(frame, width)]
        counts = ""
        if state.mode == "metrics" or (state.mode == "details" and frame.gpus):
            lines += _list(state, frame, width, height - _ABOVE - 1)
        else:
            top = _ABOVE + int(height >= ROOMY)
            lines, layout = filled(lines, width, top), _laid_out(state, frame, width, height - top - 1)
            places = [(box, gpu.device) for gpu, box in zip(frame.gpus, layout.gpus, strict=False)]
            match layout.form:
                case "single":
                    metrics = chosen_metrics(frame, frame.gpus[0])
                    lines += charts(frame, frame.gpus[0], metrics, width, layout.gpus[0].height)
                case "none":
                    opening = "" if state.picture.has_questions else state.opening
                    lines += without_gpus(frame, opening, width, layout.host.height)
                case "cards":
                    lines += gpu_cards(frame, layout.gpus, width)
                case "rows":
                    table, places, state.picture.first_row = gpu_table(
                        frame, layout, width, state.picture.first_row
                    )
                    lines += table
            state.picture.hits = [(box.moved(top), partial(click_gpu, device)) for box, device in places]
            lines, above, below = _with_rest(state, lines, frame, layout, width, height)
            counts = counts_text(len(frame.gpus) - len(places), above, below)
        lines = [*filled(lines, width, height - 1), _status(state, frame, counts, width)]
    if state.ascii_only:
        lines = [in_ascii(line) for line in lines]
    before = state.picture.lines
    state.picture.lines = tuple(
        before[row] if row < len(before) and before[row] == line else line for row, line in enumerate(lines)
    )
    state.picture.of = drawn_of
    return state.picture.lines


def _without_sample(state: MonitorState, width: int, height: int) -> list[Line]:
    """What stands in place of a frame that cannot be drawn yet, or not in so little room."""
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        header = _header(state, width, state.span_ns(None))
        return filled([header, fitted((Span("waiting for the first reading", "dim"),), width)], width, height)
    text = f"gputui needs {MIN_WIDTH}x{MIN_HEIGHT} cells here; this terminal has {width}x{height}"
    rows = wrapped(text, width, height) if width > 0 and height > 0 else []
    return filled([fitted((Span(row),), width) for row in rows], width, height)


def _frame(state: MonitorState, seen: Seen) -> Frame:
    """What is drawn: GPUs with their instances and findings, and how to show them."""
    sample, history, ledger, now_ns = seen
    gpus = parents_of(sample.gpus)
    instances: dict[int, list[DeviceSample]] = {gpu.device: [] for gpu in gpus}
    for device in sample.gpus:
        if device.parent in instances:
            instances[device.parent].append(device)
    if state.selected_gpu not in instances:
        state.selected_gpu = None
    state.take_processes()
    stale_after_s = max(STALE_AFTER_S, 2.5 * state.chosen.interval_s)
    findings = {
        gpu.device: health(
            now_ns,
            gpu,
            ledger.accounts[gpu.device].throttling.slowed,
            sample.processes,
            state.user,
            stale_after_s,
        )
        for gpu in (*gpus, *(one for of_gpu in instances.values() for one in of_gpu))
    }
    return Frame(
        sample,
        now_ns,
        state.span_ns(seen),
        tuple(BY_ID[name] for name in state.chosen.metrics if name in BY_ID),
        history,
        ledger,
        state.charts,
        state.loads,
        stale_after_s,
        tuple(gpus),
        instances,
        findings,
        state.selected_gpu,
    )


def _with_rest(
    state: MonitorState, lines: list[Line], frame: Frame, layout: Layout, width: int, height: int
) -> tuple[list[Line], int, int]:
    """With the host and processes below; and how many processes are above and below those in view."""
    top = _ABOVE + int(height >= ROOMY)
    if layout.form != "none" and layout.host.height:
        lines = [*filled(lines, width, top + layout.host.y), host_line(frame, width)]
    if layout.detail.height:
        lines += selected_lines(frame, width, layout.detail.height)
    above, below = 0, len(state.table.rows) if state.chosen.show_processes else 0
    if layout.lower.height:
        lines = filled(lines, width, top + layout.lower.y)
        lines += _lower(
            state,
            frame,
            layout.lower.moved(top),
            is_explained=layout.form == "single" or layout.detail.height > 0,
        )
        above = state.table.top
        below = max(len(state.table.rows) - above - state.table.in_sight, 0)
    elif frame.gpus and len(lines) < height - 1:
        lines.append(fitted((account_span(frame),), width))
    if state.picture.has_questions and state.quick_s is not None:
        lines = filled(lines, width, height - 1 - QUESTIONS_HEIGHT)
        lines += question_lines(frame, state.quick_s, width)
    return lines, above, below


def _laid_out(state: MonitorState, frame: Frame, width: int, height: int) -> Layout:
    """With rows for a newcomer's questions at the end, if they take none from GPUs in a table."""
    state.most_processes = max(state.most_processes, state.table.total)
    of = partial(
        laid_out,
        width,
        instances=tuple(len(frame.instances[gpu.device]) for gpu in frame.gpus),
        with_lower=state.chosen.show_processes,
        processes=state.most_processes,
    )
    layout = of(height)
    if state.quick_s is None or not state.chosen.questions or state.table.selected is not None:
        return layout
    less = of(height - QUESTIONS_HEIGHT)
    state.picture.has_questions = (
        less.form == layout.form
        and less.list.height == layout.list.height
        and less.lower.height >= _LEAST_BESIDE_QUESTIONS
    )
    return less if state.picture.has_questions else layout


def _lower(state: MonitorState, frame: Frame, box: Rect, *, is_explained: bool) -> list[Line]:
    """Processes below a rule, which says what ails the selected GPU unless that `is_explained` above."""
    lines: list[Line] = []
    processes = frame.sample.processes
    if box.height >= _RULED_FROM:
        parts = [Span(counted(state.table.total, "process"), "title")]
        gpu = next((one for one in frame.gpus if one.device == frame.selected), None)
        if gpu is not None and not is_explained:
            parts += [Span(f"GPU {gpu.label}", "accent"), *why_spans(frame, gpu, box.width - 34)]
        elif frame.gpus:
            parts.append(account_span(frame))
        lines.append(ruled(parts, box.width))
        box = Rect(0, box.y + 1, box.width, box.height - 1)
    if isinstance(processes, Missing):
        why = f"no processes: {clean(processes.reason)}"
        return lines + [fitted((Span(row, "dim"),), box.width) for row in wrapped(why, box.width, box.height)]
    has_users = box.width >= USERS_FROM and len(frame.gpus) > 1
    width = box.width - (USERS_WIDTH + 2 if has_users else 0)
    state.picture.hits.append((Rect(0, box.y, width, box.height), partial(click_process, width)))
    state.picture.page = max(state.table.in_sight - 1, 1)
    table = state.table.drawn(width, box.height)
    if not has_users:
        return [*lines, *table]
    return lines + side_by_side([table, users_lines(frame, box.height)], box.width, 2)


def _header(state: MonitorState, width: int, span_ns: int) -> Line:
    words = [f"every {state.chosen.interval_s:g} s", f"charts {span_text(span_ns)}"]
    rights = [Span(" · ".join(words), "dim")]
    if state.paused is not None:
        rights = [Span("PAUSED", "warn"), Span(" · " + words[1], "dim")]
    if state.screens is not None:
        screens = state.screens(width)
        if width - line_width((*rights, *screens)) < _LEAST_LEFT:
            rights = rights[:1] if state.paused is not None else []
        rights += [Span("  "), *screens]
    room = width - sum(width_of(span.text) for span in rights) - 1
    named = [Span(f"  {text}", style) for text, style in ((state.caution, "warn"), (state.title, "")) if text]
    lefts = fitted((Span("gputui", "title"), *named), room)
    return fitted((*lefts, Span(" "), *rights), width)


def _list(state: MonitorState, frame: Frame, width: int, height: int) -> list[Line]:
    state.picture.page = max(height - 2, 1)
    if state.mode == "metrics":
        lines = metrics_lines(state.chosen.metrics, state.scroll, width)
        top = max(state.scroll + 2 - height, 0)  # the cursor stays in sight
        state.picture.hits = [(Rect(0, _ABOVE, width, height), partial(click_metric, top))]
        return filled(lines[top : top + height], width, height)
    if state.selected_gpu is None:
        state.selected_gpu = frame.gpus[0].device
    gpu = next(one for one in frame.gpus if one.device == state.selected_gpu)
    lines = details_lines(frame, gpu, width)
    state.scroll = min(state.scroll, max(len(lines) - height, 0))
    below = len(lines) - height - state.scroll
    seen = lines[state.scroll : state.scroll + height]
    if below > 0:
        seen[-1] = fitted((Span(f"… {below + 1} more lines: down", "dim"),), width)
    return filled(seen, width, height)


def _status(state: MonitorState, frame: Frame, counts: str, width: int) -> Line:
    if state.question is not None:
        return question_line(state.question, width)
    table, message = state.table, state.message
    if message.text and state.mode != "filter":
        return fitted((Span(cut(message.text, width), message.style),), width)
    if state.mode == "filter" or table.filter:
        found, hidden = len(table.rows), max(len(table.rows) - table.in_sight, 0)
        return filter_line(table.filter, found, table.total, hidden, width, is_typing=state.mode == "filter")
    has_process = state.chosen.show_processes and table.total > 0
    there = ("a GPU",) * bool(frame.gpus) + ("a process",) * has_process
    # With a newcomer's questions, the key to end a process is the one that hides them.
    return hints_line(counts, state.mode, width, there, "end" if state.picture.has_questions else "")


class MonitorModel(MonitorState):
    """The state with what a screen does to it; the screen shows its lines and handles its requests."""

    press, type, click, lines = press, type_text, click, document
