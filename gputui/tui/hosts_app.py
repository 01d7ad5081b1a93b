"""The live view of several hosts: a line for each, and the Monitor's panes of the one that is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns

from textual import events
from textual.screen import Screen

from gputui.document.background import palette_here
from gputui.services.hosts.live import HostFeed
from gputui.tui.app import MonitorApp
from gputui.tui.monitor.actions import Asked, EndProcess
from gputui.tui.monitor.hosts import HOSTS_ACTIONS, HostsModel
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.screen import MonitorScreen
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.terminal.renderer import PaintedScreen

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
