"""What makes a terminal ring and show a message on the desktop, as bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gputui.store.text import clean_text

LONGEST = 200
"""Letters of a message; GNU screen passes 768 bytes of a string on and no more."""
_BELL = b"\x07"
_TITLE = "gputui"
_BELL_ALONE = ("", "dumb", "linux", "vt100", "vt220")
"""Values of TERM; some of these terminals print what follows the ESC of a sequence they do not know."""
_TAKES_777 = ("foot", "wezterm", "xterm-ghostty", "xterm-kitty")
"""These show OSC 9 as well: of both they would show the same message twice."""
_PROGRAMS_TAKE_777 = ("WezTerm", "ghostty")
_PROGRAMS_TAKE_9 = ("iTerm.app",)


def notification(text: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """A bell, and OSC 9 and OSC 777 with a text, so that a terminal which knows one of them shows it.

    `environment` tells what stands between: tmux and GNU screen drop sequences that they do not know unless
    these come wrapped (for tmux: its FAQ, "passthrough escape sequence"). A bell passes both as it is.
    """
    term = environment.get("TERM", "")
    if term in _BELL_ALONE:
        return _BELL
    said = clean_text(text).replace(";", ",")[:LONGEST].encode("utf-8", "replace")
    osc_9 = b"\x1b]9;%s: %s\x07" % (_TITLE.encode(), said)
    osc_777 = b"\x1b]777;notify;%s;%s\x07" % (_TITLE.encode(), said)
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
    """As it is: screen takes an ESC that no backslash follows for a part of the string."""
    return b"\x1bP" + sequence + b"\x1b\\"
