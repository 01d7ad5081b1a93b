"""The live view of several hosts: a line for each, and the Monitor's panes of the one that is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns

from textual import events
from textual.screen import Screen

from gputui.analysis.health import WORST_FIRST, GpuFinding, age, health
from gputui.analysis.throttling import Throttling
from gputui.document.background import palette_here
from gputui.document.drawings import gauge_spans
from gputui.document.spans import Line, Span, cut, width_of
from gputui.metrics import number
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample
from gputui.model.units import format_bytes
from gputui.services.hosts.live import HostFeed, HostSample
from gputui.tui.app import MonitorApp
from gputui.tui.monitor.actions import Asked, EndProcess
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.screen import MonitorScreen
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.shell.registry import Action, key_hint
from gputui.tui.terminal.renderer import PaintedScreen
from gputui.tui.widgets.cells import clean, filled, fitted, in_ascii, joined, left, right

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
_GAUGE_CELLS, _BUSY_CELLS, _MEMORY_CELLS, _NARROW_MEMORY_CELLS, _LOAD_CELLS = 8, 10, 15, 8, 6
_WIDE = 100
"""From this width on, a line has room for most faults beside long names, bytes of memory and the load."""
_ROOMY = 120
"""Beyond this width, names may be longer."""
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
        name_cells = min(max([4, *(width_of(clean(one.host.name)) for one in ordered)]), longest)
        rows = [self._row(one, name_cells, width, now_ns) for one in ordered[self._top : self._top + room]]
        below = len(ordered) - self._top - room
        lines = [self._header(width, now_ns), _heading(name_cells, width), *rows]
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

    def _row(self, one: HostSample, name_cells: int, width: int, now_ns: int) -> Line:
        is_selected, is_narrow = one.host.name == self.selected, width < _WIDE
        spans = [
            Span("▸ " if is_selected else "  ", "accent"),
            Span(left(clean(one.host.name), name_cells), "selected" if is_selected else ""),
        ]
        word, style = self._worst(one, now_ns)
        if one.sample is None:
            return fitted([*spans, Span("  "), Span(word, style or "dim")], width)
        dim = "dim" if one.problem else ""
        gpus = _gpus(one)
        host = one.sample.host.values
        busy, shown = _busy(one)
        hue = "stale" if one.problem else "compute 1"
        spans += [Span("  "), *gauge_spans(busy, 100.0, _GAUGE_CELLS, hue)]
        spans.append(Span(right(shown, _BUSY_CELLS), dim))
        watts = _total(gpus, "power_w")
        spans.append(Span(right(_ABSENT if watts is None else f"{watts:.0f} W", 8), dim))
        memory = gpus or [one.sample.host]
        used, total = (_total(memory, f"memory_{what}_bytes") for what in ("used", "total"))
        share = _ABSENT if used is None or not total else f"{100 * used / total:2.0f} %"
        if used is not None and total and not is_narrow:
            share = f"{format_bytes(used)} {share}"
        spans.append(Span(right(share, _NARROW_MEMORY_CELLS if is_narrow else _MEMORY_CELLS), dim))
        if not is_narrow:
            load = number(host, "load_1min")
            spans.append(Span(right(_ABSENT if load is None else f"{load:.1f}", _LOAD_CELLS), dim))
        spans += [Span("  "), Span(word, style)]
        if one.case and not one.problem:
            spans += [Span("  " if word else ""), Span(clean(one.case), "accent")]
        return fitted(spans, width)

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


def _heading(name_cells: int, width: int) -> Line:
    text = (
        "  " + left("HOST", name_cells) + "  " + left("BUSY", _GAUGE_CELLS + _BUSY_CELLS) + right("POWER", 8)
    )
    text += (
        right("MEMORY", _NARROW_MEMORY_CELLS)
        if width < _WIDE
        else right("MEMORY", _MEMORY_CELLS) + right("LOAD", _LOAD_CELLS)
    )
    return fitted((Span(f"{text}  HEALTH, CASE", "dim"),), width)


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


def _total(devices: Sequence[DeviceSample], key: str) -> float | None:
    known = [v for device in devices if (v := number(device.values, key)) is not None]
    return sum(known) if known else None


def _named(finding: GpuFinding, gpu: DeviceSample) -> str:
    return f"GPU {gpu.label} {clean(finding.brief)}"


PAINT_EVERY_S = 1.0


class HostsScreen(PaintedScreen, inherit_bindings=False):
    """One line per host, drawn once a second and after each key."""

    def __init__(self, model: HostsModel, feeds: Sequence[HostFeed], opens: Callable[[str], None]) -> None:
        super().__init__()
        self._model = model
        self._feeds = feeds
        self._opens = opens
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
            self._opens(self._model.selected)
            return
        self._model.press(action_id)
        self.paint()

    def paint(self) -> None:
        """Draw what has changed, and again in a second."""
        self.paint_in(PAINT_EVERY_S)
        self._model.take([feed.seen() for feed in self._feeds])
        if self.has_room:
            self.painter.paint_lines(self._view, self._model.lines(*self._view.size, monotonic_ns()))


class HostPanes(MonitorScreen, inherit_bindings=False):
    """The Monitor's panes of one host; where there is nothing to go back from, `esc` leaves them."""

    def press(self, action_id: str) -> None:
        if action_id in ("back", "erase") and self._model.has_nothing_to_leave:
            self.app.pop_screen()
            return
        super().press(action_id)


class HostsApp(MonitorApp):
    """The list of hosts, and the panes of each that was opened."""

    def __init__(
        self, feeds: Sequence[HostFeed], settings: MonitorSettings, user: str, ascii_only: bool = False
    ) -> None:
        self._feeds = {feed.host.name: feed for feed in feeds}
        self._settings = settings
        self._user = user
        model = MonitorModel(settings, title=feeds[0].host.name)
        super().__init__(model, feeds[0], palette=palette_here(settings.theme), ascii_only=ascii_only)
        self._hosts = HostsScreen(HostsModel(ascii_only), feeds, self._open_host)
        self._panes: dict[str, HostPanes] = {}

    def get_default_screen(self) -> Screen[object]:
        return self._hosts  # type: ignore[return-value]

    def on_unmount(self) -> None:
        super().on_unmount()
        for feed in self._feeds.values():
            feed.close()

    def _open_host(self, name: str) -> None:
        feed = self._feeds[name]
        panes = self._panes.get(name)
        if panes is None:
            model = MonitorModel(self._settings, title=name, user=self._user, ascii_only=self.ascii_only)
            panes = self._panes[name] = HostPanes(model, feed, lambda request: _handle(request, feed, model))
            self.install_screen(panes, f"host {name}")
            feed.want_processes(self._settings.show_processes)
        self.push_screen(panes)


def _handle(request: Asked, feed: HostFeed, model: MonitorModel) -> None:
    """Handle a request of a host's panes; processes of another host are not ended from here."""
    if isinstance(request, EndProcess):
        model.say(f"process {request.pid} is on {feed.host.name}: end it there")
    else:
        model.say("to see made-up GPUs: gputui demo")
