"""What widgets and screens use of the app: its state, loop and clipboard, and colours for stock widgets."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from textual.app import App
from textual.message_pump import MessagePump
from textual.theme import Theme
from textual.widget import Widget

from gputui.document.theme import SIXTEEN, Palette, definition
from gputui.model.units import counted
from gputui.services.support.paths import copies_directory, make_directory

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


LONGEST_OSC = 74_994
"""Base64 characters that xterm accepts; https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, OSC 52."""
_TERMINALS = ("xterm-kitty", "xterm-ghostty", "foot", "alacritty", "wezterm", "tmux", "screen")
_PROGRAMS = ("WezTerm", "iTerm.app", "ghostty", "vscode", "WarpTerminal")


def has_osc_52(environment: Mapping[str, str]) -> bool:
    """Whether this terminal is known to support OSC 52; one that calls itself xterm is not known."""
    term = environment.get("TERM", "")
    return (
        term.startswith(_TERMINALS)
        or environment.get("TERM_PROGRAM", "") in _PROGRAMS
        or bool(environment.get("WT_SESSION") or environment.get("KITTY_WINDOW_ID"))
    )


def osc_52(text: str) -> str:
    """The sequence that puts a text on the terminal's clipboard; tmux passes it on."""
    return f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def copy(app: App[Any], text: str) -> str:
    """Copy a text; returns a message with its destination.

    Terminals never acknowledge OSC 52, so the file is written unless the terminal is known to support it.
    """
    environment = os.environ
    driver = app._driver
    sent = False
    if driver is not None and len(text) * 4 // 3 < LONGEST_OSC:
        with suppress(OSError):
            driver.write(osc_52(text))
            sent = has_osc_52(environment)
    if sent:
        return f"copied {counted(text.count(chr(10)) + 1, 'line')}"
    path = copies_directory() / "copied.txt"
    try:
        make_directory(path.parent)
        path.write_text(text + "\n", encoding="utf-8", errors="replace")
    except OSError as error:
        return f"could not be copied: {path}: {error.strerror}"
    return f"copied, if this terminal has a clipboard; also in {path}"
