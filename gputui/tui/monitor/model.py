"""The Monitor screen without a terminal: samples and keys in, lines of styled text out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial

from gputui.analysis.health import STALE_AFTER_S, health
from gputui.document.spans import Line, Span, cut, line_width, width_of
from gputui.metrics import Metric
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
from gputui.tui.monitor.frame import (
    Frame,
    Ledger,
    account_span,
    new_chart,
    parents_of,
    span_of,
    span_text,
    why_spans,
)
from gputui.tui.monitor.gpu_table import details_lines, gpu_table, metrics_lines
from gputui.tui.monitor.history import SECOND_NS, History, SteadyLoads
from gputui.tui.monitor.layout import MIN_HEIGHT, MIN_WIDTH, ROOMY, Layout, Rect, laid_out
from gputui.tui.monitor.processes import (
    LONGEST_FILTER,
    USERS_FROM,
    USERS_WIDTH,
    ProcessList,
    command_text,
    is_of_here,
    users_lines,
)
from gputui.tui.monitor.settings import (
    BY_ID,
    INTERVALS_S,
    OF_GPUS,
    OF_THE_HOST,
    ZOOMS_MIN,
    MonitorSettings,
    stepped,
)
from gputui.tui.monitor.status import (
    ACTIONS,
    QUESTIONS_HEIGHT,
    SIGNALS,
    Asked,
    EndProcess,
    ShowDemo,
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

_Seen = tuple[LiveSample, History, Ledger, int]
"""What a frame shows, and when: while paused, copies of it."""
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


class MonitorModel:
    """The state of the Monitor screen; the caller shows its lines and handles its requests."""

    def __init__(
        self,
        settings: MonitorSettings,
        *,
        usd_per_hour: float | None = None,
        ascii_only: bool = False,
        title: str = "",
        caution: str = "",
        user: str = "",
        screens: Callable[[int], Line] | None = None,
        opening: str = "",
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`usd_per_hour` is the price of the whole box; processes of other users than `user` are counted.

        `screens` lists the screens of the app, at the right end of a first line of some width; `opening` says
        how to open those that work without a GPU. `caution`, for a feed without real measurements, is shown
        before the title.
        """
        self.actions = ACTIONS
        self._screens = screens
        self._opening = opening
        self._settings = settings
        self._ascii_only = ascii_only
        self._title = clean(title[:1000]).strip()
        self._caution = clean(caution)
        self._user = user
        self._now = now
        self._history = History()
        self._ledger = Ledger(usd_per_hour)
        self._sample: LiveSample | None = None
        self._paused: _Seen | None = None
        self._charts = lru_cache(maxsize=512)(new_chart)
        self._loads = SteadyLoads()
        self._table = ProcessList(settings.sort, descending=settings.descending)
        self._mode = ""
        self._question: EndProcess | None = None
        self._quick_s: float | None = None
        self._selected_gpu: int | None = None
        self._scroll = 0
        self._page = 1
        self._width = MIN_WIDTH
        self._first_row = 0
        """Of the table of GPUs."""
        self._most_processes = 0
        """Seen at once: room given to them is not taken away."""
        self._message = ""
        self._message_style = ""
        self._changes = 0
        self._drawn_of: tuple[object, ...] = ()
        self._lines: tuple[Line, ...] = ()
        self._hits: list[tuple[Rect, Callable[[int, int], object]]] = []
        """What a click does in boxes of the last frame, with the place in them."""
        self._has_questions = False
        """Whether the last frame had those of a newcomer."""
        self._does: dict[str, Callable[[], Asked | None]] = {
            "pause": self._pause,
            "filter": self._open_filter,
            "sort": lambda: self._table.sort_by_next(self._width),
            "reverse": lambda: self._table.sort_by(self._table.sort),
            "down": lambda: self._move(1),
            "up": lambda: self._move(-1),
            "page-down": lambda: self._move(self._page),
            "page-up": lambda: self._move(-self._page),
            "first": lambda: self._move(-(10**9)),
            "last": lambda: self._move(10**9),
            "end": self._ask,
            "demo": ShowDemo,
            "next-gpu": self._next_gpu,
            "details": lambda: self._open("details"),
            "metrics": lambda: self._open("metrics"),
            "toggle": self._toggle,
            "yes": self._send,
            "no": self._send_none,
            "processes": self._processes,
            "zoom-in": lambda: self._zoom(-1),
            "zoom-out": lambda: self._zoom(1),
            "faster": lambda: self._pace(-1),
            "slower": lambda: self._pace(1),
            "back": self._back,
            "erase": self._erase,
        }

    @property
    def settings(self) -> MonitorSettings:
        """The current settings, to be saved on exit."""
        return replace(self._settings, sort=self._table.sort, descending=self._table.descending)

    @property
    def is_typing(self) -> bool:
        """Whether letters go to the filter, through `type`, instead of `press`."""
        return self._mode == "filter"

    @property
    def has_nothing_to_leave(self) -> bool:
        """Whether `back` would do nothing but forget which GPU is selected."""
        is_listing = bool(self._mode or self._question is not None or self._table.filter)
        return not is_listing and self._table.selected is None

    def name_screens(self, screens: Callable[[int], Line]) -> None:
        self._screens = screens

    def invite(self, quick_s: float | None) -> None:
        """Show what a newcomer asks; `quick_s` is how long the profile quick takes, None hides it."""
        self._quick_s = quick_s
        self._changes += 1

    def add(self, sample: LiveSample) -> None:
        """Add the newest sample, even while paused. Adding it again changes nothing."""
        if sample is self._sample:
            return
        self._sample = sample
        hold_ns = max(3 * SECOND_NS, int(2.5 * self._settings.interval_s * SECOND_NS))
        for device in sample.gpus:
            self._remember(device, OF_GPUS, hold_ns)
        self._remember(sample.host, OF_THE_HOST, hold_ns)
        self._ledger.add(sample.t_ns, tuple(device for device in sample.gpus if device.parent is None))

    def _remember(self, device: DeviceSample, metrics: Sequence[Metric], hold_ns: int) -> None:
        is_read = device.problem is None
        values = {one.id: one.amount(device.values) if is_read else None for one in metrics}
        self._history.add(device.device, device.t_ns, values, hold_ns)

    def say(self, text: str, style: str = "warn") -> None:
        self._message, self._message_style = clean(text[:1000]), style
        self._changes += 1

    # Keys

    def press(self, action_id: str) -> Asked | None:
        """Run an action of `actions`; returns what the caller must do, if anything.

        The caller also follows `settings`: how often to sample, and whether processes are wanted.
        """
        does = self._does.get(action_id)
        if does is None:
            return None
        self._take_processes()
        self._message = ""
        self._changes += 1
        return does()

    def type(self, text: str) -> None:
        if self._mode == "filter":
            self._table.filter = (self._table.filter + clean(text[:LONGEST_FILTER]))[:LONGEST_FILTER]
            self._changes += 1

    def click(self, x: int, y: int) -> None:
        """Select what is at a cell, or sort by the column with that title."""
        self._changes += 1
        self._message = ""
        if self._question is not None:
            return
        self._take_processes()
        for box, chosen in self._hits:
            if box.holds(x, y):
                chosen(x - box.x, y - box.y)
                return

    def _click_metric(self, top: int, x: int, y: int) -> None:
        if 0 <= y + top - 1 < len(OF_GPUS):
            self._scroll = y + top - 1
            self._toggle()

    def _click_gpu(self, device: int, x: int, y: int) -> None:
        self._selected_gpu = device

    def _click_process(self, width: int, x: int, y: int) -> None:
        if y == 0:
            column = self._table.column_at(x, width)
            if column:
                self._table.sort_by(column)
        elif y - 1 < self._table.in_sight and self._table.top + y - 1 < len(self._table.rows):
            self._table.select(self._table.top + y - 1)

    def _pause(self) -> None:
        if self._paused is not None:
            self._paused = None
        elif self._sample is not None:
            self._paused = (self._sample, deepcopy(self._history), deepcopy(self._ledger), self._now())

    def _open_filter(self) -> None:
        if not self._settings.show_processes:
            self.say("processes are hidden: p shows them")
        elif self._question is None:
            self._mode = "filter"

    def _take_processes(self) -> None:
        sample = self._shown_sample
        if sample is not None and self._settings.show_processes:
            self._table.take(sample.processes)

    def _move(self, by: int) -> None:
        if self._question is not None:
            names = [name for name, _ in SIGNALS]
            at = stepped(range(len(names)), names.index(self._question.signal), by)
            self._question = replace(self._question, signal=names[at])
        elif self._mode == "metrics":
            self._scroll = min(max(self._scroll + by, 0), len(OF_GPUS) - 1)
        elif self._mode == "details":
            self._scroll = max(self._scroll + by, 0)
        elif not self._settings.show_processes:
            self.say("processes are hidden: p shows them")
        elif abs(by) == 10**9:
            self._table.select(0 if by < 0 else len(self._table.rows) - 1)
        else:
            self._table.move(by)

    def _ask(self) -> None:
        if self._has_questions:
            self._settings = replace(self._settings, questions=False)
            return
        process = self._table.selected_process() if self._settings.show_processes else None
        if process is None:
            self.say("no process is selected: down selects one")
        elif not is_of_here(process):
            self.say(f"{process.pid} is a number of the host: it cannot be ended from here")
        elif isinstance(process.start_ticks, Missing):
            self.say(
                f"{process.pid} cannot be ended: its start time is not known ({process.start_ticks.reason})"
            )
        else:
            self._mode = ""
            self._question = EndProcess(process.pid, process.start_ticks, command_text(process))

    def _next_gpu(self) -> None:
        names = [device.device for device in self.shown_gpus()]
        if not names:
            self.say("there is no GPU")
            return
        at = names.index(self._selected_gpu) if self._selected_gpu in names else -1
        self._selected_gpu = names[(at + 1) % len(names)]
        if self._mode == "details":
            self._scroll = 0

    def show_details(self, device: int | None) -> None:
        """Of a GPU; of the first for None."""
        self._selected_gpu = device
        self._mode, self._scroll, self._question = "details", 0, None
        self._changes += 1

    def _open(self, mode: str) -> None:
        """Show a list in place of the panes, or close it if it is open."""
        if mode == "details" and not self.shown_gpus():
            self.say("there is no GPU here")
            return
        self._mode, self._scroll, self._question = ("" if self._mode == mode else mode), 0, None

    def _toggle(self) -> Asked | None:
        if self._question is not None:
            return self._send()
        if self._mode == "filter":
            self._mode = ""
        elif self._mode == "metrics":
            name = OF_GPUS[self._scroll].id
            chosen = self._settings.metrics
            kept = tuple(one for one in chosen if one != name) if name in chosen else (*chosen, name)
            if kept:
                self._settings = replace(self._settings, metrics=kept)
            else:
                self.say("at least one metric stays")
        elif not self._mode and self._selected_gpu is not None:
            self._open("details")
        return None

    def _send(self) -> Asked | None:
        asked, self._question = self._question, None
        return asked

    def _send_none(self) -> None:
        self._question = None

    def _processes(self) -> None:
        wanted = not self._settings.show_processes
        self._settings = replace(self._settings, show_processes=wanted)
        if not wanted:
            self._question = None
            self._mode = "" if self._mode == "filter" else self._mode

    def _zoom(self, by: int) -> None:
        self._settings = replace(self._settings, zoom_min=stepped(ZOOMS_MIN, self._settings.zoom_min, by))
        if self._span_ns(self._seen(self._now())) < self._settings.zoom_min * 60 * SECOND_NS:
            self.say(f"charts grow as readings come in, up to {self._settings.zoom_min} min", "")

    def _pace(self, by: int) -> None:
        seconds = stepped(INTERVALS_S, self._settings.interval_s, by)
        self._settings = replace(self._settings, interval_s=seconds)

    def _back(self) -> None:
        if self._question is not None:
            self._question = None
        elif self._mode == "filter":
            self._mode, self._table.filter = "", ""
        elif self._mode:
            self._mode = ""
        elif self._table.filter:
            self._table.filter = ""
        elif self._table.selected is not None:
            self._table.selected = None
        else:
            self._selected_gpu = None

    def _erase(self) -> None:
        if self._mode == "filter" and self._table.filter:
            self._table.filter = self._table.filter[:-1]
        else:
            self._back()

    def shown_gpus(self) -> list[DeviceSample]:
        return [] if self._shown_sample is None else parents_of(self._shown_sample.gpus)

    @property
    def _shown_sample(self) -> LiveSample | None:
        return self._sample if self._paused is None else self._paused[0]

    # Pictures

    def lines(
        self, width: int, height: int, now_ns: int, newest: LiveSample | None = None
    ) -> tuple[Line, ...]:
        """The frame with the newest sample, exactly `height` lines of exactly `width` cells.

        Unchanged lines are the same objects as in the last frame. `now_ns` is monotonic, as are the times of
        samples.
        """
        if newest is not None:
            self.add(newest)
        seen = self._seen(now_ns)
        shows = seen and (seen[-1] // TICK_NS, seen[0])
        drawn_of = (width, height, self._changes, shows)
        if drawn_of == self._drawn_of:
            return self._lines
        self._hits, self._has_questions, self._width = [], False, width
        if seen is None or width < MIN_WIDTH or height < MIN_HEIGHT:
            lines = self._without_sample(width, height)
        else:
            frame = self._frame(seen)
            self._loads.gauges_rest = width < _GAUGES_REST_BELOW
            lines = [self._header(width, frame.span_ns), summary_line(frame, width)]
            counts = ""
            if self._mode == "metrics" or (self._mode == "details" and frame.gpus):
                lines += self._list(frame, width, height - _ABOVE - 1)
            else:
                top = _ABOVE + int(height >= ROOMY)
                lines, layout = filled(lines, width, top), self._laid_out(frame, width, height - top - 1)
                places = [(box, gpu.device) for gpu, box in zip(frame.gpus, layout.gpus, strict=False)]
                hidden_gpus = 0
                match layout.form:
                    case "single":
                        gpu = frame.gpus[0]
                        metrics = chosen_metrics(frame, gpu)
                        lines += charts(frame, gpu, metrics, width, layout.gpus[0].height)
                    case "none":
                        opening = "" if self._has_questions else self._opening
                        lines += without_gpus(frame, opening, width, layout.host.height)
                    case "cards":
                        lines += gpu_cards(frame, layout.gpus, width)
                    case "rows":
                        table, places, self._first_row = gpu_table(frame, layout, width, self._first_row)
                        lines += table
                        hidden_gpus = len(frame.gpus) - len(places)
                self._hits = [(box.moved(top), partial(self._click_gpu, device)) for box, device in places]
                lines, above, below = self._with_rest(lines, frame, layout, width, height)
                counts = counts_text(hidden_gpus, above, below)
            lines = [*filled(lines, width, height - 1), self._status(frame, counts, width)]
        if self._ascii_only:
            lines = [in_ascii(line) for line in lines]
        before = self._lines
        self._lines = tuple(
            before[row] if row < len(before) and before[row] == line else line
            for row, line in enumerate(lines)
        )
        self._drawn_of = drawn_of
        return self._lines

    def _seen(self, now_ns: int) -> _Seen | None:
        if self._paused is not None or self._sample is None:
            return self._paused
        return self._sample, self._history, self._ledger, now_ns

    def _without_sample(self, width: int, height: int) -> list[Line]:
        """What stands in place of a frame that cannot be drawn yet, or not in so little room."""
        if width >= MIN_WIDTH and height >= MIN_HEIGHT:
            waits = fitted((Span("waiting for the first reading", "dim"),), width)
            return filled([self._header(width, self._span_ns(None)), waits], width, height)
        text = f"gputui needs {MIN_WIDTH}x{MIN_HEIGHT} cells here; this terminal has {width}x{height}"
        rows = wrapped(text, width, height) if width > 0 and height > 0 else []
        return filled([fitted((Span(row),), width) for row in rows], width, height)

    def _span_ns(self, seen: _Seen | None) -> int:
        first_ns = None if seen is None else seen[1].first_ns
        known_ns = 0 if seen is None or first_ns is None else seen[-1] - first_ns
        return span_of(known_ns, self._settings.zoom_min * 60 * SECOND_NS)

    def _frame(self, seen: _Seen) -> Frame:
        """What is drawn: GPUs with their instances and findings, and how to show them."""
        sample, history, ledger, now_ns = seen
        gpus = parents_of(sample.gpus)
        instances: dict[int, list[DeviceSample]] = {gpu.device: [] for gpu in gpus}
        for device in sample.gpus:
            if device.parent in instances:
                instances[device.parent].append(device)
        if self._selected_gpu not in instances:
            self._selected_gpu = None
        self._take_processes()
        stale_after_s = max(STALE_AFTER_S, 2.5 * self._settings.interval_s)
        findings = {
            gpu.device: health(
                now_ns,
                gpu,
                ledger.accounts[gpu.device].throttling.slowed,
                sample.processes,
                self._user,
                stale_after_s,
            )
            for gpu in (*gpus, *(one for of_gpu in instances.values() for one in of_gpu))
        }
        return Frame(
            sample,
            now_ns,
            self._span_ns(seen),
            tuple(BY_ID[name] for name in self._settings.metrics if name in BY_ID),
            history,
            ledger,
            self._charts,
            self._loads,
            stale_after_s,
            tuple(gpus),
            instances,
            findings,
            self._selected_gpu,
        )

    def _with_rest(
        self, lines: list[Line], frame: Frame, layout: Layout, width: int, height: int
    ) -> tuple[list[Line], int, int]:
        """With the host and processes below; and how many processes are above and below those in view."""
        top = _ABOVE + int(height >= ROOMY)
        if layout.form != "none" and layout.host.height:
            lines = [*filled(lines, width, top + layout.host.y), host_line(frame, width)]
        if layout.detail.height:
            lines += selected_lines(frame, width, layout.detail.height)
        above, below = 0, len(self._table.rows) if self._settings.show_processes else 0
        if layout.lower.height:
            has_detail = layout.form == "single" or bool(layout.detail.height)
            lines = filled(lines, width, top + layout.lower.y)
            lines += self._lower(frame, layout.lower.moved(top), is_explained=has_detail)
            above = self._table.top
            below = max(len(self._table.rows) - above - self._table.in_sight, 0)
        elif frame.gpus and len(lines) < height - 1:
            lines.append(fitted((account_span(frame),), width))
        if self._has_questions and self._quick_s is not None:
            lines = filled(lines, width, height - 1 - QUESTIONS_HEIGHT)
            lines += question_lines(frame, self._quick_s, width)
        return lines, above, below

    def _laid_out(self, frame: Frame, width: int, height: int) -> Layout:
        """With rows for a newcomer's questions at the end, if they take none from GPUs in a table."""
        self._most_processes = max(self._most_processes, self._table.total)
        of = partial(
            laid_out,
            width,
            instances=tuple(len(frame.instances[gpu.device]) for gpu in frame.gpus),
            with_lower=self._settings.show_processes,
            processes=self._most_processes,
        )
        layout = of(height)
        if self._quick_s is None or not self._settings.questions or self._table.selected is not None:
            return layout
        less = of(height - QUESTIONS_HEIGHT)
        keeps_gpus = (less.form, less.list.height) == (layout.form, layout.list.height)
        self._has_questions = keeps_gpus and less.lower.height >= _LEAST_BESIDE_QUESTIONS
        return less if self._has_questions else layout

    def _lower(self, frame: Frame, box: Rect, *, is_explained: bool) -> list[Line]:
        """Processes below a rule, which says what ails the selected GPU unless that `is_explained` above."""
        lines: list[Line] = []
        processes = frame.sample.processes
        if box.height >= _RULED_FROM:
            parts = [Span(counted(self._table.total, "process"), "title")]
            gpu = next((one for one in frame.gpus if one.device == frame.selected), None)
            if gpu is not None and not is_explained:
                parts += [Span(f"GPU {gpu.label}", "accent"), *why_spans(frame, gpu, box.width - 34)]
            elif frame.gpus:
                parts.append(account_span(frame))
            lines.append(ruled(parts, box.width))
            box = Rect(0, box.y + 1, box.width, box.height - 1)
        if isinstance(processes, Missing):
            text = wrapped(f"no processes: {clean(processes.reason)}", box.width, box.height)
            return lines + filled(
                [fitted((Span(row, "dim"),), box.width) for row in text], box.width, box.height
            )
        has_users = box.width >= USERS_FROM and len(frame.gpus) > 1
        width = box.width - (USERS_WIDTH + 2 if has_users else 0)
        table_box = Rect(0, box.y, width, box.height)
        self._hits.append((table_box, partial(self._click_process, width)))
        self._page = max(self._table.in_sight - 1, 1)
        table = self._table.drawn(width, box.height)
        if not has_users:
            return [*lines, *table]
        return lines + side_by_side([table, users_lines(frame, box.height)], box.width, 2)

    def _header(self, width: int, span_ns: int) -> Line:
        words = [f"every {self._settings.interval_s:g} s", f"charts {span_text(span_ns)}"]
        rights = [Span(" · ".join(words), "dim")]
        if self._paused is not None:
            rights = [Span("PAUSED", "warn"), Span(" · " + words[1], "dim")]
        if self._screens is not None:
            screens = self._screens(width)
            fits = width - line_width((*rights, *screens)) >= _LEAST_LEFT
            words_kept = rights if fits else rights[:1] if self._paused is not None else []
            rights = [*words_kept, Span("  "), *screens]
        room = width - sum(width_of(span.text) for span in rights) - 1
        caution = Span(f"  {self._caution}" if self._caution else "", "warn")
        title = Span(f"  {self._title}" if self._title else "")
        lefts = fitted((Span("gputui", "title"), caution, title), room)
        return fitted((*lefts, Span(" "), *rights), width)

    def _list(self, frame: Frame, width: int, height: int) -> list[Line]:
        self._page = max(height - 2, 1)
        if self._mode == "metrics":
            lines = metrics_lines(self._settings.metrics, self._scroll, width)
            top = max(self._scroll + 2 - height, 0)  # the cursor stays in sight
            self._hits = [(Rect(0, _ABOVE, width, height), partial(self._click_metric, top))]
            return filled(lines[top : top + height], width, height)
        if self._selected_gpu is None:
            self._selected_gpu = frame.gpus[0].device
        gpu = next(one for one in frame.gpus if one.device == self._selected_gpu)
        lines = details_lines(frame, gpu, width)
        self._scroll = min(self._scroll, max(len(lines) - height, 0))
        below = len(lines) - height - self._scroll
        seen = lines[self._scroll : self._scroll + height]
        if below > 0:
            seen[-1] = fitted((Span(f"… {below + 1} more lines: down", "dim"),), width)
        return filled(seen, width, height)

    def _status(self, frame: Frame, counts: str, width: int) -> Line:
        if self._question is not None:
            return question_line(self._question, width)
        table = self._table
        if self._mode == "filter" or table.filter:
            found = len(table.rows)
            hidden = max(found - table.in_sight, 0)
            return filter_line(
                table.filter, found, table.total, hidden, width, is_typing=self._mode == "filter"
            )
        if self._message:
            return fitted((Span(cut(self._message, width), self._message_style),), width)
        has_process = self._settings.show_processes and table.total > 0
        there = tuple(what for what, is_so in (("a GPU", frame.gpus), ("a process", has_process)) if is_so)
        # With a newcomer's questions, the key to end a process is the one that hides them.
        return hints_line(counts, self._mode, width, there, "end" if self._has_questions else "")
