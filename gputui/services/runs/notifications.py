"""Terminal escape sequences that ring and show a message on the desktop."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gputui.store.text import clean_text

LONGEST = 200
"""Length of a message; GNU screen passes on at most 768 bytes of a string."""
_BELL = b"\x07"
_TITLE = "gputui"
_BELL_ALONE = ("", "dumb", "linux", "vt100", "vt220")
"""Values of TERM; some of these terminals print what follows the ESC of an unknown sequence."""
_TAKES_777 = ("foot", "wezterm", "xterm-ghostty", "xterm-kitty")
"""These show OSC 9 as well, so that both would show the message twice."""
_PROGRAMS_TAKE_777 = ("WezTerm", "ghostty")
_PROGRAMS_TAKE_9 = ("iTerm.app",)


def notification(text: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """A bell, and OSC 9 and OSC 777 with a text; a terminal shows the one it knows.

    `environment` reveals multiplexers: tmux and GNU screen drop unknown sequences unless they are wrapped
    (for tmux: its FAQ, "passthrough escape sequence"). Both pass on a bell.
    """
    term = environment.get("TERM", "")
    if term in _BELL_ALONE:
        return _BELL
    shown = clean_text(text).replace(";", ",")[:LONGEST].encode("utf-8", "replace")
    osc_9 = b"\x1b]9;%s: %s\x07" % (_TITLE.encode(), shown)
    osc_777 = b"\x1b]777;notify;%s;%s\x07" % (_TITLE.encode(), shown)
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or term.startswith("tmux"):
        return _BELL + _through_tmux(osc_9) + _through_tmux(osc_777)
    if environment.get("STY") or term.startswith("screen"):
        return _BELL + _through_screen(osc_9) + _through_screen(osc_777)
    if term.startswith(_TAKES_777) or program in _PROGRAMS_TAKE_777:
        return _BELL + osc_777
    if program in _PROGRAMS_TAKE_9:
        return _BELL + osc_9
    return _BELL + osc_9 + osc_777


def _through_tmux(sequence: bytes) -> bytes:
    return b"\x1bPtmux;" + sequence.replace(b"\x1b", b"\x1b\x1b") + b"\x1b\\"


def _through_screen(sequence: bytes) -> bytes:
    """Wrapped without escaping: screen only treats an ESC before a backslash as the end of the string."""
    return b"\x1bP" + sequence + b"\x1b\\"
