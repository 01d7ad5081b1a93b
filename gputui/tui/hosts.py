"""The live view of several hosts: a line for each, and the Monitor's panes of the one that is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic_ns

from textual import events

from gputui.analysis.health import WORST_FIRST, Throttling, age, health
from gputui.document.drawings import gauge_spans
from gputui.document.spans import Line, Span, cut
from gputui.document.table import Column, Drawing, Table
from gputui.metrics import number
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_bytes
from gputui.services.hosts.live import HostFeed, HostSample
from gputui.services.snapshot import current_user
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.screen import MonitorScreen
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.monitor.status import Asked, EndProcess
from gputui.tui.shell.registry import Action, key_hint
from gputui.tui.terminal.renderer import PaintedScreen, shell_of
from gputui.tui.widgets.cells import clean, filled, fitted, in_ascii, joined, table_lines

HOSTS_ACTIONS: tuple[Action, ...] = (
    Action("open", "enter", "Open", "The panes of the selected host; esc comes back"),
    Action("down", "down,j", "Down", "Select the next host"),
    Action("up", "up,k", "Up", "Select the host before"),
    Action("first", "home", "First", "Select the first host"),
    Action("last", "end", "Last", "Select the last host"),
    Action("sort", "s", "Sort", "Those with faults first, or in the order they were named"),
)
_NAME_CELLS, _NARROW_NAME_CELLS = 24, 16
_ABSENT = "—"
_GAUGE_CELLS, _LEAST_HEALTH = 8, 20
_WIDE, _ROOMY = 100, 120
"""From the first width on, a line has room for most faults beside long names; beyond the second, for longer
ones."""
_BUSY_FROM = 5.0
_Ailments = Mapping[str, Sequence[tuple[str, str]]]
"""What ails each host, by name, and the styles of that."""


class HostsModel:
    """The hosts as they were heard last, one of them selected; for one thread."""

    def __init__(self, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self.selected = ""
        self._top = 0
        self._faults_first = False
        self._seen: tuple[HostSample, ...] = ()
        self._throttling: dict[tuple[str, int], Throttling] = {}
        self._message = ""

    def take(self, seen: Sequence[HostSample]) -> None:
        """The hosts as they were heard last, in the order they were named."""
        self._seen = tuple(seen)
        for one in seen:
            for gpu in () if one.sample is None else one.sample.gpus:
                self._throttling.setdefault((one.host.name, gpu.device), Throttling()).add(
                    gpu.t_ns, gpu.values
                )
        if not self.selected and seen:
            self.selected = seen[0].host.name

    def say(self, text: str) -> None:
        self._message = text

    def press(self, action_id: str) -> None:
        """Do what an action other than `open` means."""
        self._message = ""
        names = [one.host.name for one in self._ordered(0)]
        if not names:
            return
        at = names.index(self.selected)
        moves = {"down": at + 1, "up": at - 1, "first": 0, "last": len(names) - 1}
        if action_id == "sort":
            self._faults_first = not self._faults_first
        elif action_id in moves:
            self.selected = names[min(max(moves[action_id], 0), len(names) - 1)]

    def select_row(self, row: int, now_ns: int) -> None:
        ordered = self._ordered(now_ns)
        at = self._top + row - 2
        if row >= 2 and 0 <= at < len(ordered):
            self.selected = ordered[at].host.name

    def lines(self, width: int, height: int, now_ns: int) -> tuple[Line, ...]:
        """Exactly `height` lines of `width` cells; `now_ns` is monotonic."""
        ordered = self._ordered(now_ns)
        ails = {one.host.name: self._ailments(one, now_ns) for one in ordered}
        whole = self._in_full(ordered, ails, width)
        room = max(height - 3 - len(whole), 1)
        at = next((n for n, one in enumerate(ordered) if one.host.name == self.selected), 0)
        self._top = min(max(self._top, at - room + 1, 0), at)
        if self._top + room > len(ordered):
            self._top = max(len(ordered) - room, 0)
        longest = _NARROW_NAME_CELLS if width < _WIDE else _NAME_CELLS + max(width - _ROOMY, 0) // 2
        shown = ordered[self._top : self._top + room]
        marks = [one.host.name == self.selected for one in shown]
        rows = table_lines(_table(shown, marks, ails, longest), width, marks=marks)
        lines = filled([_header(ordered, ails, width), *rows], width, height - 1 - len(whole))
        last = (
            (Span(self._message, "dim"),) if self._message else self._hints(len(ordered) - self._top - room)
        )
        lines += [*whole, fitted(last, width)]
        return tuple(in_ascii(line) for line in lines) if self._ascii_only else tuple(lines)

    def _ordered(self, now_ns: int) -> list[HostSample]:
        if not self._faults_first:
            return list(self._seen)
        worst = {one.host.name: self._ailments(one, now_ns) for one in self._seen}
        styles = {name: found[0][1] if found else "" for name, found in worst.items()}
        return sorted(self._seen, key=lambda one: WORST_FIRST.get(styles[one.host.name], 2))

    def _ailments(self, one: HostSample, now_ns: int) -> list[tuple[str, str]]:
        """What ails a host, and the styles of that, the worst first."""
        if one.problem:
            silent = f"silent for {age((now_ns - one.heard_ns) / 1e9)}: " if one.heard_ns else ""
            hint = f" ({one.hint})" if one.hint else ""
            style = "dim" if one.problem == "connecting" else "alarm"
            return [(f"{silent}{clean(one.problem)}{clean(hint)}", style)]
        if one.sample is None:
            return []
        if one.sample.host.problem is not None:
            return [(clean(one.sample.host.problem.reason), "warn")]
        found = [
            (finding, gpu.label)
            for gpu in one.sample.gpus
            for finding in health(one.sample.t_ns, gpu, self._throttling[one.host.name, gpu.device].slowed)
        ]
        found.sort(key=lambda pair: WORST_FIRST[pair[0].severity])
        return [(f"GPU {label} {clean(finding.brief)}", finding.style) for finding, label in found]

    def _in_full(self, hosts: Sequence[HostSample], ails: _Ailments, width: int) -> list[Line]:
        """All that ails the selected host, where its row has no room for it."""
        one = next((one for one in hosts if one.host.name == self.selected), None)
        found = [] if one is None else ails[self.selected]
        if one is None or not found or not (one.hint or width < _WIDE or len(found) > 1):
            return []
        words = ", ".join(word for word, _ in found)
        return [fitted((Span(f"{clean(self.selected)}: {words}", found[0][1]),), width)]

    def _hints(self, below: int) -> Line:
        sort = "As named" if self._faults_first else "Faults first"
        keys = (("enter", "Open"), ("s", sort), ("?", "Help"), ("q", "Quit"))
        more = (Span(f"{below} more below  ", "dim"),) if below > 0 else ()
        return joined((more, *(key_hint(*key) for key in keys)), "")


def _header(hosts: Sequence[HostSample], ails: _Ailments, width: int) -> Line:
    heard = [one for one in hosts if not one.problem and one.sample is not None]
    gpus = [gpu for one in heard for gpu in _gpus(one)]
    whole_w = _total(gpus, "power_w")
    parts = [f"{len(heard)} of {len(hosts)} hosts"]
    if gpus:
        parts.append(f"{sum(map(_is_busy, gpus))} of {len(gpus)} GPUs busy")
    if whole_w is not None:
        parts.append(f"{whole_w / 1000:.1f} kW" if whole_w >= 1000 else f"{whole_w:.0f} W")
    spans = [Span("gputui", "title"), Span("  " + " · ".join(parts))]
    faults = [found[0][1] for found in ails.values() if found and found[0][1] in ("alarm", "warn")]
    if faults:
        worst = min(faults, key=WORST_FIRST.__getitem__)
        spans += [Span(" · "), Span(f"{len(faults)} with a fault", worst)]
    return fitted(spans, width)


def _table(shown: Sequence[HostSample], marks: Sequence[bool], ails: _Ailments, longest: int) -> Table:
    """A row for each host; headings are as wide as most figures get, so that columns stay in place."""
    names, health = list[Span](), list[Sequence[Line]]()
    for one, is_selected in zip(shown, marks, strict=True):
        names.append(Span(cut(clean(one.host.name), longest), "selected" if is_selected else ""))
        found = ails[one.host.name]
        word, style = found[0] if found else ("", "")
        more = f" +{len(found) - 1}" if len(found) > 1 else ""
        case = clean(one.case) if one.case and not one.problem else ""
        gap = Span("  " if word and case else "")
        health.append([(Span(word + more, style), gap, Span(case, "accent"))])
    power, memory, share, load = ([row[n] for row in map(_figures, shown)] for n in range(4))
    return Table(
        (
            Column("HOST", names, breaks=True),
            Column("BUSY", [[_busy(one)] for one in shown]),
            Column(f"{'POWER':>6}", power, True),
            Column(f"{'MEMORY':>12}", memory, True, 1, narrow=Column("MEMORY", share, True)),
            Column(f"{'LOAD':>5}", load, True, 2),
            Drawing(lambda *_: Column("HEALTH, CASE", health, breaks=True), _LEAST_HEALTH, _LEAST_HEALTH, 0),
        )
    )


def _gpus(one: HostSample) -> list[DeviceSample]:
    return [] if one.sample is None else [gpu for gpu in one.sample.gpus if gpu.parent is None]


def _is_busy(gpu: DeviceSample) -> bool:
    return (number(gpu.values, "sm_busy_pct") or 0.0) >= _BUSY_FROM


def _busy(one: HostSample) -> Line:
    """The mean load of the GPUs and how many have some; of a host without GPUs that of its CPUs."""
    if one.sample is None:
        return ()
    if gpus := _gpus(one):
        known = [v for gpu in gpus if (v := number(gpu.values, "sm_busy_pct")) is not None]
        busy = sum(known) / len(known) if known else None
        shown = f"{sum(map(_is_busy, gpus))}/{len(gpus)} GPU"
    else:
        values = one.sample.host.values
        cpu, cores = number(values, "cpu_busy_pct"), number(values, "cpu_limit_cores")
        busy = None if cpu is None or not cores else cpu / cores
        shown = _ABSENT if busy is None else f"{busy:.0f} % CPU"
    gauge = gauge_spans(busy, 100.0, _GAUGE_CELLS, "stale" if one.problem else "compute 1")
    return (*gauge, Span(f"{shown:>10}", "dim" if one.problem else ""))


def _figures(one: HostSample) -> list[Span]:
    """Power, used memory, its share, and load; in pale letters where they are old."""
    if one.sample is None:
        return [Span("")] * 4
    gpus, host = _gpus(one), one.sample.host
    watts, load = _total(gpus, "power_w"), number(host.values, "load_1min")
    used, total = (_total(gpus or [host], f"memory_{what}_bytes") for what in ("used", "total"))
    share = _ABSENT if used is None or not total else f"{100 * used / total:2.0f} %"
    texts = (
        _ABSENT if watts is None else f"{watts:.0f} W",
        share if used is None or not total else f"{format_bytes(used)} {share}",
        share,
        _ABSENT if load is None else f"{load:.1f}",
    )
    return [Span(text, "dim" if one.problem else "") for text in texts]


def _total(devices: Sequence[DeviceSample], key: str) -> float | None:
    known = [v for device in devices if (v := number(device.values, key)) is not None]
    return sum(known) if known else None


PAINT_EVERY_S = 1.0


class HostsScreen(PaintedScreen, inherit_bindings=False):
    def __init__(self, model: HostsModel, feeds: Sequence[HostFeed], settings: MonitorSettings) -> None:
        super().__init__()
        self._model = model
        self._feeds = {feed.host.name: feed for feed in feeds}
        self._settings = settings
        self._panes: dict[str, HostPanes] = {}
        self.shown_actions = HOSTS_ACTIONS

    def on_mount(self) -> None:
        self.paint()

    def on_click(self, event: events.Click) -> None:
        """Select a host; a click on the selected one opens it."""
        before = self._model.selected
        self._model.select_row(event.screen_y, monotonic_ns())
        if self._model.selected == before and event.screen_y >= 2:
            self.press("open")
        self.paint()

    def say(self, text: str, style: str = "") -> None:
        self._model.say(text)
        self.paint()

    def press(self, action_id: str) -> None:
        if action_id == "open":
            self._open(self._model.selected)
            return
        self._model.press(action_id)
        self.paint()

    def paint(self) -> None:
        self.paint_in(PAINT_EVERY_S)
        self._model.take([feed.seen() for feed in self._feeds.values()])
        if self.has_room:
            self.painter.paint_lines(self._view, self._model.lines(*self._view.size, monotonic_ns()))

    def _open(self, name: str) -> None:
        feed, settings = self._feeds[name], self._settings
        if name not in self._panes:
            ascii_only = shell_of(self).ascii_only
            model = MonitorModel(settings, title=name, user=current_user(), ascii_only=ascii_only)
            self._panes[name] = HostPanes(model, feed, partial(_refuse, feed, model))
            self.app.install_screen(self._panes[name], f"host {name}")
            feed.want_processes(settings.show_processes)
        self.app.push_screen(self._panes[name])


class HostPanes(MonitorScreen, inherit_bindings=False):
    """The Monitor's panes of one host; where there is nothing to go back from, `esc` leaves them."""

    def press(self, action_id: str) -> None:
        if action_id in ("back", "erase") and self._model.has_nothing_to_leave:
            self.app.pop_screen()
            return
        super().press(action_id)


def _refuse(feed: HostFeed, model: MonitorModel, request: Asked) -> None:
    """Processes of another host are not ended from here."""
    if isinstance(request, EndProcess):
        model.say(f"process {request.pid} is on {feed.host.name}: end it there")
    else:
        model.say("to see made-up GPUs: gputui demo")
