"""The part of the app that widgets and screens use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from textual.message_pump import MessagePump
from textual.widget import Widget

from gputui.document.theme import Palette

if TYPE_CHECKING:
    from gputui.services.playback.demo import Demo


@runtime_checkable
class Shell(Protocol):
    """The app as widgets and screens see it."""

    palette: Palette
    ascii_only: bool
    runs_in_progress: int
    demo: Demo | None

    @property
    def has_screens(self) -> bool:
        """Whether there are screens besides the monitor."""

    def open_screen(self, screen_id: str, words: tuple[str, ...] = ()) -> None: ...

    def keep_error(self, screen_id: str, text: str) -> None: ...


def in_loop_of(pump: MessagePump, call: Callable[..., object], *values: object) -> None:
    """Have the event loop call something for a screen or an app; may be called from any thread."""
    with suppress(RuntimeError):  # the app has ended in the meantime
        pump.call_later(call, *values)


def shell_of(widget: Widget) -> Shell:
    return cast(Shell, widget.app)
