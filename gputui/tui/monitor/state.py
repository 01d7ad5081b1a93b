"""What the Monitor shows, and what of it is selected, open, typed or paused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gputui.document.spans import Line, Span
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.tui.monitor.frame import Ledger, new_chart, parents_of, span_of
from gputui.tui.monitor.history import SECOND_NS, History, SteadyLoads
from gputui.tui.monitor.layout import MIN_WIDTH, Rect
from gputui.tui.monitor.processes import ProcessList
from gputui.tui.monitor.settings import OF_GPUS, OF_THE_HOST, MonitorSettings
from gputui.tui.monitor.status import ACTIONS, EndProcess
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
