"""The state of the Monitor, and what keys, letters and clicks do to it: DOES has the functions of ACTIONS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gputui.document.spans import Line, Span
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.tui.monitor.frame import Ledger, new_chart, parents_of, span_of
from gputui.tui.monitor.history import SECOND_NS, History, SteadyLoads
from gputui.tui.monitor.layout import MIN_WIDTH, Rect
from gputui.tui.monitor.processes import LONGEST_FILTER, ProcessList, command_text, is_of_here
from gputui.tui.monitor.settings import INTERVALS_S, OF_GPUS, OF_THE_HOST, ZOOMS_MIN, MonitorSettings, stepped
from gputui.tui.monitor.status import ACTIONS, SIGNALS, Asked, EndProcess, ShowDemo
from gputui.tui.widgets.cells import clean

Seen = tuple[LiveSample, History, Ledger, int]
"""What a picture shows, and when: while paused, copies of it."""


@dataclass(slots=True)
class Picture:
    """The last one: what keys, clicks and the next one need of it."""

    lines: tuple[Line, ...] = ()
    of: tuple[object, ...] = ()
    """What it was drawn of."""
    width: int = MIN_WIDTH
    page: int = 1
    first_row: int = 0
    """Of the table of GPUs."""
    has_questions: bool = False
    """Whether those of a newcomer stand in it."""
    hits: list[tuple[Rect, Callable[[MonitorState, int, int], object]]] = field(default_factory=list)
    """What a click does in boxes of it, with the place in them."""


class MonitorState:
    """`keys` change it, `document` draws it; `add`, `say` and `invite` may be called at any time."""

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
        self.screens = screens
        self.opening = opening
        self.chosen = settings
        """As `settings`, but for how processes are sorted now."""
        self.ascii_only = ascii_only
        self.title = clean(title[:1000]).strip()
        self.caution = clean(caution)
        self.user = user
        self.now = now
        self.history = History()
        self.ledger = Ledger(usd_per_hour)
        self.sample: LiveSample | None = None
        self.paused: Seen | None = None
        self.charts = lru_cache(maxsize=512)(new_chart)
        self.loads = SteadyLoads()
        self.table = ProcessList(settings.sort, descending=settings.descending)
        self.mode = ""
        """What is open: `filter`, or in place of the panes `details` or `metrics`."""
        self.question: EndProcess | None = None
        self.quick_s: float | None = None
        self.selected_gpu: int | None = None
        self.scroll = 0
        self.most_processes = 0
        """Seen at once: room given to them is not taken away."""
        self.message = Span("")
        self.changes = 0
        self.picture = Picture()

    @property
    def settings(self) -> MonitorSettings:
        """The current settings, to be saved on exit."""
        return replace(self.chosen, sort=self.table.sort, descending=self.table.descending)

    @property
    def is_typing(self) -> bool:
        """Whether letters go to the filter, through `type`, instead of `press`."""
        return self.mode == "filter"

    @property
    def has_nothing_to_leave(self) -> bool:
        """Whether `back` would do nothing but forget which GPU is selected."""
        return not (self.mode or self.question or self.table.filter or self.table.selected)

    def invite(self, quick_s: float | None) -> None:
        """Show what a newcomer asks; `quick_s` is how long the profile quick takes, None hides it."""
        self.quick_s = quick_s
        self.changes += 1

    def add(self, sample: LiveSample) -> None:
        """Add the newest sample, even while paused. Adding it again changes nothing."""
        if sample is self.sample:
            return
        self.sample = sample
        hold_ns = max(3 * SECOND_NS, int(2.5 * self.chosen.interval_s * SECOND_NS))
        for device in (*sample.gpus, sample.host):
            metrics = OF_THE_HOST if device is sample.host else OF_GPUS
            read = {} if device.problem is not None else device.values
            values = {one.id: one.amount(read) for one in metrics}
            self.history.add(device.device, device.t_ns, values, hold_ns)
        self.ledger.add(sample.t_ns, tuple(device for device in sample.gpus if device.parent is None))

    def say(self, text: str, style: str = "warn") -> None:
        self.message = Span(clean(text[:1000]), style)
        self.changes += 1

    def take_processes(self) -> None:
        if (sample := self.shown_sample) is not None and self.chosen.show_processes:
            self.table.take(sample.processes)

    def show_details(self, device: int | None) -> None:
        """Of a GPU; of the first for None."""
        self.selected_gpu = device
        self.mode, self.scroll, self.question = "details", 0, None
        self.changes += 1

    def shown_gpus(self) -> list[DeviceSample]:
        return [] if self.shown_sample is None else parents_of(self.shown_sample.gpus)

    @property
    def shown_sample(self) -> LiveSample | None:
        return self.sample if self.paused is None else self.paused[0]

    def seen(self, now_ns: int) -> Seen | None:
        if self.paused is not None or self.sample is None:
            return self.paused
        return self.sample, self.history, self.ledger, now_ns

    def span_ns(self, seen: Seen | None) -> int:
        known_ns = 0 if seen is None or seen[1].first_ns is None else seen[-1] - seen[1].first_ns
        return span_of(known_ns, self.chosen.zoom_min * 60 * SECOND_NS)


def press(state: MonitorState, action_id: str) -> Asked | None:
    """Run an action of ACTIONS; returns what the caller must do, if anything.

    The caller also follows `settings`: how often to sample, and whether processes are wanted.
    """
    if action_id not in DOES:
        return None
    state.take_processes()
    state.say("")
    return DOES[action_id](state)


def type_text(state: MonitorState, text: str) -> None:
    if state.is_typing:
        state.table.filter = (state.table.filter + clean(text[:LONGEST_FILTER]))[:LONGEST_FILTER]
        state.changes += 1


def click(state: MonitorState, x: int, y: int) -> None:
    """Select what is at a cell, or sort by the column with that title."""
    state.say("")
    state.take_processes()
    for box, chosen in state.picture.hits:
        if state.question is None and box.holds(x, y):
            chosen(state, x - box.x, y - box.y)


def click_metric(top: int, state: MonitorState, x: int, y: int) -> None:
    if 0 <= y + top - 1 < len(OF_GPUS):
        state.scroll = y + top - 1
        _toggle(state)


def click_gpu(device: int, state: MonitorState, x: int, y: int) -> None:
    state.selected_gpu = device


def click_process(width: int, state: MonitorState, x: int, y: int) -> None:
    if y == 0 and (column := state.table.column_at(x, width)):
        state.table.sort_by(column)
    elif 0 <= y - 1 < state.table.in_sight and state.table.top + y - 1 < len(state.table.rows):
        state.table.select(state.table.top + y - 1)


def _pause(state: MonitorState) -> None:
    state.paused = deepcopy(state.seen(state.now())) if state.paused is None else None


def _open_filter(state: MonitorState) -> None:
    if not state.chosen.show_processes:
        state.say("processes are hidden: p shows them")
    elif state.question is None:
        state.mode = "filter"


def _move(state: MonitorState, by: int) -> None:
    if state.question is not None:
        names = [name for name, _ in SIGNALS]
        at = stepped(range(len(names)), names.index(state.question.signal), by)
        state.question = replace(state.question, signal=names[at])
    elif state.mode == "metrics":
        state.scroll = min(max(state.scroll + by, 0), len(OF_GPUS) - 1)
    elif state.mode == "details":
        state.scroll = max(state.scroll + by, 0)
    elif not state.chosen.show_processes:
        state.say("processes are hidden: p shows them")
    elif abs(by) == 10**9:
        state.table.select(0 if by < 0 else len(state.table.rows) - 1)
    else:
        state.table.move(by)


def _ask(state: MonitorState) -> None:
    process = state.table.selected_process() if state.chosen.show_processes else None
    if state.picture.has_questions:
        state.chosen = replace(state.chosen, questions=False)
    elif process is None:
        state.say("no process is selected: down selects one")
    elif not is_of_here(process):
        state.say(f"{process.pid} is a number of the host: it cannot be ended from here")
    elif isinstance(process.start_ticks, Missing):
        state.say(
            f"{process.pid} cannot be ended: its start time is not known ({process.start_ticks.reason})"
        )
    else:
        state.mode = ""
        state.question = EndProcess(process.pid, process.start_ticks, command_text(process))


def _next_gpu(state: MonitorState) -> None:
    names = [device.device for device in state.shown_gpus()]
    if not names:
        state.say("there is no GPU")
        return
    at = names.index(state.selected_gpu) if state.selected_gpu in names else -1
    state.selected_gpu = names[(at + 1) % len(names)]
    if state.mode == "details":
        state.scroll = 0


def _open(state: MonitorState, mode: str) -> None:
    """Show a list in place of the panes, or close it if it is open."""
    if mode == "details" and not state.shown_gpus():
        state.say("there is no GPU here")
    else:
        state.mode, state.scroll, state.question = ("" if state.mode == mode else mode), 0, None


def _toggle(state: MonitorState) -> Asked | None:
    if state.question is not None:
        return _send(state)
    if state.mode == "filter":
        state.mode = ""
    elif state.mode == "metrics":
        name = OF_GPUS[state.scroll].id
        chosen = state.chosen.metrics
        kept = tuple(one for one in chosen if one != name) if name in chosen else (*chosen, name)
        if kept:
            state.chosen = replace(state.chosen, metrics=kept)
        else:
            state.say("at least one metric stays")
    elif not state.mode and state.selected_gpu is not None:
        _open(state, "details")
    return None


def _send(state: MonitorState) -> Asked | None:
    asked, state.question = state.question, None
    return asked


def _send_none(state: MonitorState) -> None:
    state.question = None


def _processes(state: MonitorState) -> None:
    wanted = not state.chosen.show_processes
    state.chosen = replace(state.chosen, show_processes=wanted)
    if not wanted:
        state.mode, state.question = "" if state.mode == "filter" else state.mode, None


def _zoom(state: MonitorState, by: int) -> None:
    state.chosen = replace(state.chosen, zoom_min=stepped(ZOOMS_MIN, state.chosen.zoom_min, by))
    if state.span_ns(state.seen(state.now())) < state.chosen.zoom_min * 60 * SECOND_NS:
        state.say(f"charts grow as readings come in, up to {state.chosen.zoom_min} min", "")


def _pace(state: MonitorState, by: int) -> None:
    state.chosen = replace(state.chosen, interval_s=stepped(INTERVALS_S, state.chosen.interval_s, by))


def _back(state: MonitorState) -> None:
    if state.question is not None:
        state.question = None
    elif state.mode or state.table.filter:
        if state.mode in ("", "filter"):
            state.table.filter = ""
        state.mode = ""
    elif state.table.selected is not None:
        state.table.selected = None
    else:
        state.selected_gpu = None


def _erase(state: MonitorState) -> None:
    if state.mode == "filter" and state.table.filter:
        state.table.filter = state.table.filter[:-1]
    else:
        _back(state)


DOES: Mapping[str, Callable[[MonitorState], Asked | None]] = {
    "pause": _pause,
    "filter": _open_filter,
    "sort": lambda state: state.table.sort_by_next(state.picture.width),
    "reverse": lambda state: state.table.sort_by(state.table.sort),
    "down": lambda state: _move(state, 1),
    "up": lambda state: _move(state, -1),
    "page-down": lambda state: _move(state, state.picture.page),
    "page-up": lambda state: _move(state, -state.picture.page),
    "first": lambda state: _move(state, -(10**9)),
    "last": lambda state: _move(state, 10**9),
    "end": _ask,
    "demo": lambda state: ShowDemo(),
    "next-gpu": _next_gpu,
    "details": lambda state: _open(state, "details"),
    "metrics": lambda state: _open(state, "metrics"),
    "toggle": _toggle,
    "yes": _send,
    "no": _send_none,
    "processes": _processes,
    "zoom-in": lambda state: _zoom(state, -1),
    "zoom-out": lambda state: _zoom(state, 1),
    "faster": lambda state: _pace(state, -1),
    "slower": lambda state: _pace(state, 1),
    "back": _back,
    "erase": _erase,
}
"""By the id of each of ACTIONS."""
