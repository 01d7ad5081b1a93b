"""The part of the app that widgets and screens use, and the theme of stock widgets in its colours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from textual.message_pump import MessagePump
from textual.theme import Theme
from textual.widget import Widget

from gputui.document.theme import SIXTEEN, Palette, definition

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


def theme_for(palette: Palette) -> Theme:
    """The theme in a palette; without colours, the cursor is shown in reverse video."""
    plain = not palette.has_backgrounds
    roles = ("accent", "good", "warn", "alarm", "dim", "track")
    words = {role: definition(role, palette).split(" ")[-1] for role in roles}
    colours = {
        role: word if word.startswith("#") else f"ansi_{word if word in SIXTEEN else 'default'}"
        for role, word in words.items()
    }
    cursor, _, behind = ("ansi_default",) * 3 if plain else definition("selected", palette).split()[1:]
    chosen, behind_chosen = ("ansi_default", colours["dim"]) if plain else ("#ffffff", "#005f87")
    return Theme(
        name=f"gputui {palette.theme} {palette.background}",
        ansi=True,
        dark=not palette.is_light,
        primary=colours["accent"],
        secondary=colours["accent"],
        accent=colours["accent"],
        success=colours["good"],
        warning=colours["warn"],
        error=colours["alarm"],
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        variables={
            "block-cursor-foreground": cursor,
            "block-cursor-background": behind,
            "block-cursor-text-style": "reverse" if plain else "bold",
            "block-cursor-blurred-foreground": "ansi_default",
            "block-cursor-blurred-background": "ansi_default",
            "block-cursor-blurred-text-style": "underline",
            "border": colours["accent"],
            "border-blurred": colours["track"],
            "scrollbar": colours["track"],
            "scrollbar-hover": colours["track"],
            "scrollbar-active": colours["accent"],
            "scrollbar-background": "ansi_default",
            "scrollbar-background-hover": "ansi_default",
            "scrollbar-background-active": "ansi_default",
            "input-cursor-text-style": "reverse",
            "input-cursor-foreground": "ansi_default",
            "input-cursor-background": "ansi_default",
            "input-selection-foreground": chosen,
            "input-selection-background": behind_chosen,
            "screen-selection-foreground": chosen,
            "screen-selection-background": behind_chosen,
            "ansi-background": "ansi_default",
            "ansi-foreground": "ansi_default",
        },
    )
