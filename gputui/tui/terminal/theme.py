"""All colours of the screens, by colour depth of the terminal; no other module names a colour."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Depth(IntEnum):
    """How many colours the terminal shows."""

    NONE = 0
    """NO_COLOR: only bold, reverse and underline carry meaning."""
    ANSI = 16
    """The sixteen of the user's palette."""
    INDEXED = 256
    """The usual case over SSH, which seldom forwards COLORTERM."""
    TRUE = 1 << 24
    LIGHT = INDEXED + 1
    """The 256 on a light background: text is dark."""


_ANSI: Mapping[str, str] = {
    "": "",
    "dim": "bright_black",
    "title": "bold",
    "accent": "cyan",
    "good": "green",
    "warn": "yellow",
    "alarm": "bold bright_red",
    "chart": "cyan",
    "selected": "reverse",
}
_INDEXED: Mapping[str, str] = {
    "": "",
    "dim": "color(246)",
    "title": "bold",
    "accent": "color(80)",
    "good": "color(77)",
    "warn": "color(214)",
    "alarm": "bold color(203)",
    "chart": "color(74)",
    "selected": "bold color(231) on color(24)",
}
_TRUE: Mapping[str, str] = {
    "": "",
    "dim": "#949494",
    "title": "bold",
    "accent": "#5fd7d7",
    "good": "#5fd75f",
    "warn": "#ffaf00",
    "alarm": "bold #ff5f5f",
    "chart": "#5fafd7",
    "selected": "bold #ffffff on #005f87",
}
_LIGHT: Mapping[str, str] = {
    "": "",
    "dim": "color(241)",
    "title": "bold",
    "accent": "color(23)",
    "good": "color(22)",
    "warn": "color(94)",
    "alarm": "bold color(124)",
    "chart": "color(25)",
    "selected": "bold color(231) on color(24)",
}
_NONE: Mapping[str, str] = {
    "": "",
    "dim": "",
    "title": "bold",
    "accent": "bold",
    "good": "",
    "warn": "underline",
    "alarm": "bold reverse",
    "chart": "",
    "selected": "reverse",
}
_BY_DEPTH: Mapping[Depth, Mapping[str, str]] = {
    Depth.NONE: _NONE,
    Depth.ANSI: _ANSI,
    Depth.INDEXED: _INDEXED,
    Depth.TRUE: _TRUE,
    Depth.LIGHT: _LIGHT,
}
WIDGET_COLOURS: Mapping[Depth, Mapping[str, str]] = {
    Depth.NONE: dict.fromkeys(
        ("accent", "good", "warn", "alarm", "dim", "selected", "selected on"), "ansi_default"
    ),
    Depth.ANSI: {
        "accent": "ansi_cyan",
        "good": "ansi_green",
        "warn": "ansi_yellow",
        "alarm": "ansi_bright_red",
        "dim": "ansi_bright_black",
        "selected": "ansi_default",
        "selected on": "ansi_default",
    },
    Depth.INDEXED: {
        "accent": "#5fd7d7",
        "good": "#5fd75f",
        "warn": "#ffaf00",
        "alarm": "#ff5f5f",
        "dim": "#949494",
        "selected": "#ffffff",
        "selected on": "#005f87",
    },
    Depth.TRUE: {
        "accent": "#5fd7d7",
        "good": "#5fd75f",
        "warn": "#ffaf00",
        "alarm": "#ff5f5f",
        "dim": "#949494",
        "selected": "#ffffff",
        "selected on": "#005f87",
    },
    Depth.LIGHT: {
        "accent": "#005f5f",
        "good": "#005f00",
        "warn": "#875f00",
        "alarm": "#af0000",
        "dim": "#626262",
        "selected": "#ffffff",
        "selected on": "#005f87",
    },
}
"""For stock widgets, as Textual writes colours: each is one of the 256, at any depth."""
STYLES: tuple[str, ...] = tuple(_ANSI)
"""All style names that a span may have."""


def definition(style: str, depth: Depth) -> str:
    """A style at a depth, as Rich writes styles; an unknown name is plain."""
    return _BY_DEPTH[depth].get(style, "")


def depth_of(environment: Mapping[str, str]) -> Depth:
    """The depth that the environment promises.

    NO_COLOR (not empty, https://no-color.org) takes precedence over everything; TEXTUAL_COLOR_SYSTEM over
    COLORTERM and TERM. GPUTUI_LIGHT (not empty, not 0) needs 256 colours: the sixteen are the user's.
    """
    depth = _shown_by(environment)
    is_light = environment.get("GPUTUI_LIGHT", "") not in ("", "0")
    return Depth.LIGHT if is_light and depth >= Depth.INDEXED else depth


def _shown_by(environment: Mapping[str, str]) -> Depth:
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return Depth.NONE
    depths = {"standard": Depth.ANSI, "256": Depth.INDEXED, "truecolor": Depth.TRUE}
    wanted = depths.get(environment.get("TEXTUAL_COLOR_SYSTEM", ""))
    if wanted is not None:
        return wanted
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return Depth.TRUE
    term = environment.get("TERM", "")
    if term.endswith(("-direct", "kitty", "ghostty")):
        return Depth.TRUE
    return Depth.INDEXED if "256color" in term else Depth.ANSI
