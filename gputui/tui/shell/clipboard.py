"""Copies text: through the terminal if it is known to support it, else also to a file."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any  # whatever an app returns

from textual.app import App

from gputui.model.units import counted
from gputui.services.support.paths import copies_directory, make_directory

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
