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
    ANSI_LIGHT = ANSI + 1
    """Of the sixteen those that most palettes make dark enough for a light background."""
    INDEXED = 256
    """The usual case over SSH, which seldom forwards COLORTERM."""
    TRUE = 1 << 24
    LIGHT = INDEXED + 1
    """The 256 on a light background: text is dark."""

    @property
    def has_backgrounds(self) -> bool:
        """Whether a selected row has another background; else it is in reverse video."""
        return self >= Depth.INDEXED

    @property
    def is_light(self) -> bool:
        """Whether the terminal's background is light."""
        return self in (Depth.ANSI_LIGHT, Depth.LIGHT)


FAMILIES: tuple[str, ...] = ("compute", "memory", "power", "clock", "link")
"""What a figure is about, by hue; `clock` is also for temperatures, `link` also for the host.

The name alone is for figures and gauges; with a tone from 1 to TONES (`compute 1`), for the body of a chart.
"""
TONES = 4
"""Tones of a chart's body, from its lowest row (1) to its highest."""
SELECTED = " selected"
"""Behind the name of a style: the same in the selected row."""

_WORDS: Mapping[Depth, Mapping[str, str]] = {
    Depth.NONE: {"title": "bold", "accent": "bold", "warn": "underline", "alarm": "bold reverse"},
    Depth.ANSI: {
        "title": "bold",
        "track": "bright_black",
        "stale": "bright_black",
        "accent": "cyan",
        "compute": "cyan",
        "memory": "bright_magenta",
        "power": "green",
        "good": "green",
        "warn": "yellow",
        "alarm": "bold bright_red",
    },
    Depth.ANSI_LIGHT: {
        "title": "bold",
        "track": "bright_black",
        "stale": "bright_black",
        "accent": "blue",
        "compute": "blue",
        "memory": "magenta",
        "warn": "red",
        "alarm": "bold red",
    },
    Depth.INDEXED: {
        "dim": "color(246)",
        "title": "bold",
        "track": "color(240)",
        "stale": "color(246)",
        "accent": "color(80)",
        "compute": "color(74)",
        "memory": "color(140)",
        "power": "color(107)",
        "clock": "color(175)",
        "link": "color(109)",
        "good": "color(77)",
        "warn": "color(214)",
        "alarm": "bold color(203)",
    },
    Depth.TRUE: {
        "dim": "#949494",
        "title": "bold",
        "track": "#585858",
        "stale": "#949494",
        "accent": "#5fd7d7",
        "compute": "#5fafd7",
        "memory": "#af87d7",
        "power": "#87af5f",
        "clock": "#d787af",
        "link": "#87afaf",
        "good": "#5fd75f",
        "warn": "#ffaf00",
        "alarm": "bold #ff5f5f",
    },
    Depth.LIGHT: {
        "dim": "color(239)",
        "title": "bold",
        "track": "color(248)",
        "stale": "color(244)",
        "accent": "color(23)",
        "compute": "color(24)",
        "memory": "color(54)",
        "power": "color(22)",
        "clock": "color(89)",
        "link": "color(23)",
        "good": "color(22)",
        "warn": "color(58)",
        "alarm": "bold color(124)",
    },
}
"""Styles of letters, and of tracks, rules and past charts (`stale`), which are never letters."""
_MID_TONES: Mapping[str, str] = {
    "compute": "#5f87af",
    "memory": "#875faf",
    "power": "#5f875f",
    "clock": "#af5f87",
    "link": "#5f8787",
}
"""Of the lowest rows of charts; each is one of the 256."""
_OTHER_BODIES: Mapping[Depth, Mapping[str, str]] = {
    Depth.ANSI: {"clock": "bright_blue", "link": "bright_blue"},
    Depth.ANSI_LIGHT: {"power": "green", "clock": "bright_blue", "link": "cyan"},
}
"""Of the families whose letters have no colour among the sixteen: bodies in their colour would glare."""
_MID_NUMBERS: Mapping[str, int] = {"compute": 67, "memory": 97, "power": 65, "clock": 132, "link": 66}
_SELECTED: Mapping[Depth, tuple[str, str]] = {
    Depth.NONE: ("", "reverse"),
    Depth.ANSI: ("", "reverse"),
    Depth.ANSI_LIGHT: ("", "reverse"),
    Depth.INDEXED: ("color(255)", "on color(235)"),
    Depth.TRUE: ("#eeeeee", "on #262626"),
    Depth.LIGHT: ("color(16)", "on color(254)"),
}
"""Plain text and background of the selected row; both, because the terminal's own text may be as dark."""


def _mixed(low: str, high: str, share: float) -> str:
    parts = ((int(low[at : at + 2], 16), int(high[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def _body(family: str, tone: int, depth: Depth) -> str:
    """A tone of a chart's body: 24 bits rise in four steps, the others not at all.

    Two steps of the 256 would read as two series, one on the other.
    """
    if depth is Depth.TRUE:
        return _mixed(_MID_TONES[family], _WORDS[depth][family], (tone - 1) / (TONES - 1))
    if depth in (Depth.INDEXED, Depth.LIGHT):
        return f"color({_MID_NUMBERS[family]})"
    return _WORDS[depth].get(family) or _OTHER_BODIES.get(depth, {}).get(family, "")


def _selected(style: str, depth: Depth) -> str:
    plain, background = _SELECTED[depth]
    if not depth.has_backgrounds:
        weight = "bold" if "bold" in style else ""
        return f"{weight} {background}".strip()
    coloured = style if style and style != "bold" else f"{style} {plain}".strip()
    return f"{coloured} {background}"


LETTERS: tuple[str, ...] = (
    "",
    "dim",
    "title",
    "accent",
    *FAMILIES,
    "good",
    "warn",
    "alarm",
)
"""Styles that letters may have; each also exists in the selected row."""
SHAPES: tuple[str, ...] = (
    "track",
    "stale",
    "chart",
    *(f"{family} {tone}" for family in FAMILIES for tone in range(1, TONES + 1)),
)
"""Styles of tracks, rules and bodies of charts, whose contrast is lower."""
STYLES: tuple[str, ...] = (*LETTERS, *(name + SELECTED for name in LETTERS), "selected", "cursor", *SHAPES)
"""All style names that a span may have."""


def definition(style: str, depth: Depth) -> str:
    """A style at a depth, as Rich writes styles; an unknown name is plain."""
    if style == "cursor":
        return "reverse"
    if style == "selected":
        return _selected("bold", depth)
    if style.endswith(SELECTED):
        return _selected(definition(style.removesuffix(SELECTED), depth), depth)
    if style == "chart":
        return _body("compute", TONES, depth)
    family, _, tone = style.partition(" ")
    return _body(family, int(tone), depth) if tone.isdigit() else _WORDS[depth].get(style, "")


WIDGET_COLOURS: Mapping[Depth, Mapping[str, str]] = {
    Depth.NONE: dict.fromkeys(
        ("accent", "good", "warn", "alarm", "dim", "track", "selected", "selected on", "cursor", "cursor on"),
        "ansi_default",
    ),
    Depth.ANSI: {
        "accent": "ansi_cyan",
        "good": "ansi_green",
        "warn": "ansi_yellow",
        "alarm": "ansi_bright_red",
        "dim": "ansi_default",
        "track": "ansi_bright_black",
        "selected": "ansi_default",
        "selected on": "ansi_default",
        "cursor": "ansi_default",
        "cursor on": "ansi_default",
    },
    Depth.ANSI_LIGHT: {
        "accent": "ansi_blue",
        "good": "ansi_default",
        "warn": "ansi_red",
        "alarm": "ansi_red",
        "dim": "ansi_default",
        "track": "ansi_bright_black",
        "selected": "ansi_default",
        "selected on": "ansi_default",
        "cursor": "ansi_default",
        "cursor on": "ansi_default",
    },
    Depth.INDEXED: {
        "accent": "#5fd7d7",
        "good": "#5fd75f",
        "warn": "#ffaf00",
        "alarm": "#ff5f5f",
        "dim": "#949494",
        "track": "#585858",
        "selected": "#ffffff",
        "selected on": "#005f87",
        "cursor": "#eeeeee",
        "cursor on": "#262626",
    },
    Depth.TRUE: {
        "accent": "#5fd7d7",
        "good": "#5fd75f",
        "warn": "#ffaf00",
        "alarm": "#ff5f5f",
        "dim": "#949494",
        "track": "#585858",
        "selected": "#ffffff",
        "selected on": "#005f87",
        "cursor": "#eeeeee",
        "cursor on": "#262626",
    },
    Depth.LIGHT: {
        "accent": "#005f5f",
        "good": "#005f00",
        "warn": "#5f5f00",
        "alarm": "#af0000",
        "dim": "#4e4e4e",
        "track": "#a8a8a8",
        "selected": "#ffffff",
        "selected on": "#005f87",
        "cursor": "#000000",
        "cursor on": "#e4e4e4",
    },
}
"""For stock widgets, as Textual writes colours: each is one of the 256, at any depth. The cursor of a table
looks like the selected row of our own lists; selected text is stronger."""


COLOURLESS: tuple[str, ...] = ("dumb", "vt1", "vt2", "vt3")
"""Beginnings of the names of terminals without colours: `vt100`, `vt220`."""


def depth_of(environment: Mapping[str, str]) -> Depth:
    """The depth that the environment promises.

    NO_COLOR (not empty, https://no-color.org) takes precedence over everything; TEXTUAL_COLOR_SYSTEM over
    COLORTERM and TERM. GPUTUI_LIGHT (not empty, not 0) says that the background is light.
    """
    depth = _shown_by(environment)
    is_light = environment.get("GPUTUI_LIGHT", "") not in ("", "0")
    if not is_light or depth is Depth.NONE:
        return depth
    return Depth.ANSI_LIGHT if depth is Depth.ANSI else Depth.LIGHT


def _shown_by(environment: Mapping[str, str]) -> Depth:
    if environment.get("NO_COLOR") or environment.get("TERM", "").startswith(COLOURLESS):
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
