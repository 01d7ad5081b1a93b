"""The live view of several hosts: a line for each, and the Monitor's panes of the one that is opened."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import monotonic_ns

from textual import events

from gputui.analysis.health import WORST_FIRST, GpuFinding, Throttling, age, health
from gputui.document.drawings import gauge_spans
from gputui.document.spans import Line, Span, cut
from gputui.document.table import Column, Drawing, Table
from gputui.metrics import number
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_bytes
from gputui.services.hosts.live import HostFeed, HostSample
from gputui.services.snapshot import current_user
from gputui.tui.monitor.actions import Asked, EndProcess
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.screen import MonitorScreen
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.shell.registry import Action, key_hint
from gputui.tui.terminal.renderer import PaintedScreen
from gputui.tui.widgets.app_context import shell_of
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


class HostsModel:
    """The state of the screen of hosts; for one thread."""

    def __init__(self, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self.selected = ""
        """Name of the selected host."""
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
        """Show a message in the last line until the next key."""
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
        """Select the host in a row of the screen, if there is one."""
        ordered = self._ordered(now_ns)
        at = self._top + row - 2
        if row >= 2 and 0 <= at < len(ordered):
            self.selected = ordered[at].host.name

    def lines(self, width: int, height: int, now_ns: int) -> tuple[Line, ...]:
        """Exactly `height` lines of `width` cells; `now_ns` is monotonic."""
        ordered = self._ordered(now_ns)
        said, style = self._in_full(self.selected, ordered, now_ns, is_narrow=width < _WIDE)
        room = max(height - 3 - bool(said), 1)
        at = next((n for n, one in enumerate(ordered) if one.host.name == self.selected), 0)
        self._top = min(max(self._top, at - room + 1, 0), at)
        if self._top + room > len(ordered):
            self._top = max(len(ordered) - room, 0)
        longest = _NARROW_NAME_CELLS if width < _WIDE else _NAME_CELLS + max(width - _ROOMY, 0) // 2
        shown = ordered[self._top : self._top + room]
        marks = [one.host.name == self.selected for one in shown]
        rows = table_lines(self._table(shown, longest, now_ns), width, marks=marks)
        below = len(ordered) - self._top - room
        lines = [self._header(width, now_ns), *rows]
        last = (Span(self._message, "dim"),) if self._message else self._hints(below)
        whole = [fitted((Span(said, style),), width)] if said else []
        lines = [*filled(lines, width, height - 1 - len(whole)), *whole, fitted(last, width)]
        return tuple(in_ascii(line) for line in lines) if self._ascii_only else tuple(lines)

    def _ordered(self, now_ns: int) -> list[HostSample]:
        if not self._faults_first:
            return list(self._seen)
        return sorted(self._seen, key=lambda one: WORST_FIRST.get(self._worst(one, now_ns)[1], 2))

    def _header(self, width: int, now_ns: int) -> Line:
        heard = [one for one in self._seen if not one.problem and one.sample is not None]
        gpus = [gpu for one in heard for gpu in _gpus(one)]
        whole_w = _total(gpus, "power_w")
        parts = [f"{len(heard)} of {len(self._seen)} hosts"]
        if gpus:
            parts.append(f"{sum(map(_is_busy, gpus))} of {len(gpus)} GPUs busy")
        if whole_w is not None:
            parts.append(f"{whole_w / 1000:.1f} kW" if whole_w >= 1000 else f"{whole_w:.0f} W")
        faults = [style for one in self._seen if (style := self._worst(one, now_ns)[1]) in ("alarm", "warn")]
        spans = [Span("gputui", "title"), Span("  " + " · ".join(parts))]
        if faults:
            spans += [
                Span(" · "),
                Span(f"{len(faults)} with a fault", min(faults, key=WORST_FIRST.__getitem__)),
            ]
        return fitted(spans, width)

    def _table(self, shown: Sequence[HostSample], longest: int, now_ns: int) -> Table:
        """A row for each host; headings are as wide as most figures get, so that columns stay in place."""
        names, health = list[Span](), list[Sequence[Line]]()
        for one in shown:
            is_selected = one.host.name == self.selected
            names.append(Span(cut(clean(one.host.name), longest), "selected" if is_selected else ""))
            word, style = self._worst(one, now_ns)
            case = clean(one.case) if one.case and not one.problem else ""
            health.append([(Span(word, style), Span("  " if word and case else ""), Span(case, "accent"))])
        power, memory, share, load = ([row[n] for row in map(_figures, shown)] for n in range(4))
        return Table(
            (
                Column("HOST", names, breaks=True),
                Column("BUSY", [[_busy_cell(one)] for one in shown]),
                Column(f"{'POWER':>6}", power, True),
                Column(f"{'MEMORY':>12}", memory, True, 1, narrow=Column("MEMORY", share, True)),
                Column(f"{'LOAD':>5}", load, True, 2),
                Drawing(
                    lambda *_: Column("HEALTH, CASE", health, breaks=True), _LEAST_HEALTH, _LEAST_HEALTH, 0
                ),
            )
        )

    def _hints(self, below: int) -> Line:
        sort = "As named" if self._faults_first else "Faults first"
        keys = (("enter", "Open"), ("s", sort), ("?", "Help"), ("q", "Quit"))
        more = (Span(f"{below} more below  ", "dim"),) if below > 0 else ()
        return joined((more, *(key_hint(*key) for key in keys)), "")

    def _in_full(
        self, name: str, seen: Sequence[HostSample], now_ns: int, *, is_narrow: bool
    ) -> tuple[str, str]:
        """What ails a host, for the line that has room for all of it, and its style; empty if its row has."""
        one = next((one for one in seen if one.host.name == name), None)
        if one is None:
            return "", ""
        word, style = self._worst(one, now_ns)
        found = [] if one.problem else self._found(one)
        if not word or not (one.hint or is_narrow or len(found) > 1):
            return "", ""
        words = ", ".join(_named(*pair) for pair in found) or word
        return f"{clean(name)}: {words}", style

    def _worst(self, one: HostSample, now_ns: int) -> tuple[str, str]:
        """What ails a host most, and its style; two empty texts if nothing does."""
        if one.problem:
            silent = f"silent for {age((now_ns - one.heard_ns) / 1e9)}: " if one.heard_ns else ""
            is_connecting = one.problem == "connecting"
            hint = f" ({one.hint})" if one.hint else ""
            return f"{silent}{clean(one.problem)}{clean(hint)}", "dim" if is_connecting else "alarm"
        if one.sample is None:
            return "", ""
        if isinstance(one.sample.host.problem, Missing):
            return clean(one.sample.host.problem.reason), "warn"
        found = self._found(one)
        if not found:
            return "", ""
        more = f" +{len(found) - 1}" if len(found) > 1 else ""
        return cut(f"{_named(*found[0])}{more}", 48), found[0][0].style

    def _found(self, one: HostSample) -> list[tuple[GpuFinding, DeviceSample]]:
        """What its GPUs suffer from, the worst first."""
        if one.sample is None or isinstance(one.sample.host.problem, Missing):
            return []
        found = [
            (finding, gpu)
            for gpu in one.sample.gpus
            for finding in health(one.sample.t_ns, gpu, self._throttling[one.host.name, gpu.device].slowed)
        ]
        return sorted(found, key=lambda pair: WORST_FIRST[pair[0].severity])


def _gpus(one: HostSample) -> list[DeviceSample]:
    return [] if one.sample is None else [gpu for gpu in one.sample.gpus if gpu.parent is None]


def _is_busy(gpu: DeviceSample) -> bool:
    return (number(gpu.values, "sm_busy_pct") or 0.0) >= _BUSY_FROM


def _busy(one: HostSample) -> tuple[float | None, str]:
    """The mean load of the GPUs and how many have some; of a host without GPUs that of its CPUs."""
    gpus = _gpus(one)
    if gpus:
        known = [v for gpu in gpus if (v := number(gpu.values, "sm_busy_pct")) is not None]
        mean = sum(known) / len(known) if known else None
        return mean, f"{sum(map(_is_busy, gpus))}/{len(gpus)} GPU"
    values = {} if one.sample is None else one.sample.host.values
    busy, cores = number(values, "cpu_busy_pct"), number(values, "cpu_limit_cores")
    if busy is None or not cores:
        return None, _ABSENT
    return busy / cores, f"{busy / cores:.0f} % CPU"


def _busy_cell(one: HostSample) -> Line:
    if one.sample is None:
        return ()
    busy, shown = _busy(one)
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


def _named(finding: GpuFinding, gpu: DeviceSample) -> str:
    return f"GPU {gpu.label} {clean(finding.brief)}"


PAINT_EVERY_S = 1.0


class HostsScreen(PaintedScreen, inherit_bindings=False):
    """One line per host, drawn once a second and after each key; the panes of each that was opened."""

    def __init__(self, model: HostsModel, feeds: Sequence[HostFeed], settings: MonitorSettings) -> None:
        super().__init__()
        self._model = model
        self._feeds = {feed.host.name: feed for feed in feeds}
        self._settings = settings
        self._panes: dict[str, HostPanes] = {}
        self.shown_actions = HOSTS_ACTIONS
        self._by_key = {key: action.id for action in HOSTS_ACTIONS for key in action.key.split(",")}

    def on_mount(self) -> None:
        self.paint()

    def on_key(self, event: events.Key) -> None:
        """Keys of the list; those of the app go on to it."""
        if event.key in self._by_key:
            self.press(self._by_key[event.key])
            event.stop()
            event.prevent_default()

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
        """Draw what has changed, and again in a second."""
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
