"""All colours: the themes, and what a style comes to on a terminal; no other module names a colour.

A theme names hues. What is written is as near to them as can be read on the background at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import NamedTuple


class Depth(IntEnum):
    """How many colours the terminal shows; with none, only bold, reverse and underline carry meaning."""

    NONE, ANSI, INDEXED, TRUE = 0, 16, 256, 1 << 24


FAMILIES: tuple[str, ...] = ("compute", "memory", "power", "clock", "link")
"""What a figure is about, by hue; `clock` is also for temperatures, `link` also for the host.

The name alone is for figures and gauges; with a tone from 1 to TONES (`compute 1`), for the body of a chart.
"""
TONES = 4
"""Tones of a chart's body, from its lowest row (1) to its highest."""
SELECTED = " selected"
"""Behind the name of a style: the same in the selected row."""
_ROLES = ("dim", "accent", *FAMILIES, "good", "warn", "alarm")


def _hues(text: str) -> dict[str, str]:
    return {role: f"#{hue}" for role, hue in zip(_ROLES, text.split(), strict=True)}


_WHITE, _BLACK = "#ffffff", "#000000"
SOME_DARK, SOME_LIGHT = "#002b36", "#d3d7cf"
"""Backgrounds of terminals that say no more: the lightest usual dark one, and the darkest light one."""


class Theme(NamedTuple):
    """Hues of letters by role, for dark and for light backgrounds; without any, the terminal's sixteen.

    A `background` counts whatever the terminal says. Letters have at least this `contrast`: 4.5 is level AA
    of WCAG 2.
    """

    id: str
    title: str
    dark: Mapping[str, str] = {}
    light: Mapping[str, str] = {}
    background: str = ""
    contrast: float = 4.5


_DARK = _hues("949494 5fd7d7 5fafd7 af87d7 87af5f d787af 87afaf 00af5f ffaf00 ff5f5f")
_LIGHT = _hues("4e4e4e 005f5f 005f87 5f0087 005f00 87005f 005f5f 005f00 af5f00 af0000")

THEMES: tuple[Theme, ...] = (
    Theme("auto", "light or dark, as the terminal is", _DARK, _LIGHT),
    Theme("dark", "for a dark background", _DARK, _LIGHT, SOME_DARK),
    Theme("light", "for a light background", _DARK, _LIGHT, SOME_LIGHT),
    Theme("terminal", "the sixteen of the terminal"),
    Theme(
        "high-contrast",
        "high contrast",
        _hues("d0d0d0 5fffff 87d7ff d7afff afff87 ffafd7 afffff 00d75f ffd700 ff8787"),
        _hues("303030 005f5f 00005f 5f0087 005f00 5f005f 005f5f 005f00 875f00 870000"),
        contrast=6.0,
    ),
    Theme(
        "colour-blind",
        "blue is well, orange is not",
        _hues("949494 87d7d7 5fafd7 af87d7 afaf87 d7afd7 87afaf 5f87ff ffaf00 ff875f"),
        _hues("4e4e4e 005f5f 005f87 5f0087 5f5f00 5f005f 005f5f 00008f af5f00 8f0000"),
    ),
    Theme(
        "solarized",
        "Solarized",
        _hues("93a1a1 2aa198 268bd2 6c71c4 859900 d33682 2aa198 859900 b58900 dc322f"),
        _hues("586e75 2aa198 268bd2 6c71c4 859900 d33682 2aa198 859900 b58900 dc322f"),
    ),
    Theme(
        "catppuccin",
        "Catppuccin",
        _hues("9399b2 94e2d5 89b4fa cba6f7 a6e3a1 f5c2e7 74c7ec 40a02b f9e2af f38ba8"),
        _hues("6c6f85 179299 1e66f5 8839ef 40a02b ea76cb 209fb5 40a02b df8e1d d20f39"),
    ),
    Theme(
        "nord",
        "Nord",
        _hues("9aa5b8 88c0d0 81a1c1 b48ead a3be8c d08770 8fbcbb 8fa87b ebcb8b bf616a"),
        _hues("4c566a 5e81ac 5e81ac b48ead a3be8c d08770 8fbcbb a3be8c a06a00 b02a37"),
    ),
)
# To add one, add an entry: what is too faint or too alike on a background is shifted until it is not.


class Palette(NamedTuple):
    """What colours are chosen for."""

    depth: Depth
    background: str = SOME_DARK
    """Of the terminal, `#rrggbb`."""
    theme: str = THEMES[0].id

    @property
    def of_theme(self) -> Theme:
        return next((theme for theme in THEMES if theme.id == self.theme), THEMES[0])

    @property
    def ground(self) -> str:
        """The background that letters are chosen for."""
        return self.of_theme.background or self.background

    @property
    def is_light(self) -> bool:
        """Whether black letters have more contrast than white ones."""
        return contrast(_BLACK, self.ground) > contrast(_WHITE, self.ground)

    @property
    def has_backgrounds(self) -> bool:
        """Whether a selected row has another background; else it is in reverse video."""
        return self.depth >= Depth.INDEXED and bool(self.of_theme.dark)


_PLAIN = {"title": "bold", "accent": "bold", "warn": "underline", "alarm": "bold reverse"}
_SIXTEEN = {
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
    "clock body": "bright_blue",
    "link body": "white",
}
_SIXTEEN_LIGHT = {
    "title": "bold",
    "track": "bright_black",
    "stale": "bright_black",
    "accent": "blue",
    "compute": "blue",
    "memory": "magenta",
    "warn": "red",
    "alarm": "bold red",
    "power body": "green",
    "clock body": "bright_blue",
    "link body": "cyan",
}
"""Of the sixteen those that most palettes make dark enough for a light background. Bodies of charts have
colours of their own where letters have none: in that of letters they would glare."""
_NEARLY_GREY, _FIRST_GREY = 20, 232
_EACH = (*product((0, 95, 135, 175, 215, 255), repeat=3), *((grey,) * 3 for grey in range(8, 239, 10)))
INDEXED: Mapping[str, int] = {f"#{bytes(parts).hex()}": number for number, parts in enumerate(_EACH, 16)}
"""Of the 256 colours those that every terminal shows alike, and their numbers."""
APART, _STEPS = 1.5, 32
"""The contrast between `good` and `warn`, which differ without their hues too; steps from a hue to black."""


def contrast(one: str, other: str) -> float:
    """1 to 21, of two colours: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio."""
    low, high = sorted(0.05 + _luminance(colour) for colour in (one, other))
    return high / low


@lru_cache(maxsize=1024)
def _luminance(colour: str) -> float:
    linear = (
        part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in _parts(colour)
    )
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@lru_cache(maxsize=1024)
def indexed(colour: str) -> str:
    """The nearest of the 256 colours; a grey only for what is nearly grey."""
    if colour in INDEXED:
        return colour
    parts = _parts(colour)
    is_grey = max(parts) - min(parts) <= _NEARLY_GREY
    known = (one for one, number in INDEXED.items() if is_grey or number < _FIRST_GREY)
    return min(known, key=lambda one: sum(abs(a - b) for a, b in zip(parts, _parts(one), strict=True)))


def _parts(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _mixed(low: str, high: str, share: float) -> str:
    pairs = zip(_parts(low), _parts(high), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _shade(colour: str, palette: Palette, fits: Callable[[str], bool]) -> str:
    """The colour, with as much of black on a light background, else of white, as it takes."""
    pole = _BLACK if palette.is_light else _WHITE
    shades = (_mixed(colour, pole, step / _STEPS) for step in range(_STEPS + 1))
    shown = shades if palette.depth is Depth.TRUE else map(indexed, shades)
    return next(filter(fits, shown), pole)


def _legible(colour: str, palette: Palette, least: float) -> str:
    return _shade(colour, palette, lambda shade: contrast(shade, palette.ground) >= least)


@lru_cache(maxsize=32)
def _words(palette: Palette) -> Mapping[str, str]:
    """Styles of letters, and of tracks, rules and past charts (`stale`), which are never letters."""
    if palette.depth is Depth.NONE:
        return _PLAIN
    theme, ground, is_light = palette.of_theme, palette.ground, palette.is_light
    if not palette.has_backgrounds:
        return _SIXTEEN_LIGHT if is_light else _SIXTEEN
    hues = theme.light if is_light else theme.dark
    words = {role: _legible(hue, palette, theme.contrast) for role, hue in hues.items()}
    moved, other = ("good", "warn") if is_light else ("warn", "good")
    words[moved] = _shade(
        hues[moved],
        palette,
        lambda shade: contrast(shade, words[other]) >= APART and contrast(shade, ground) >= theme.contrast,
    )
    words["track"] = _legible("#a8a8a8" if is_light else "#585858", palette, 1.5)
    words["stale"] = _legible("#808080" if is_light else words["dim"], palette, 2.5)
    return {**words, "title": "bold", "alarm": f"bold {words['alarm']}"}


def _body(family: str, tone: int, palette: Palette) -> str:
    """A tone of a chart's body: 24 bits rise in four steps, the others not at all.

    Two steps of the 256 would read as two series, one on the other.
    """
    letters = _words(palette).get(family, "")
    if not palette.has_backgrounds:
        return letters or _words(palette).get(f"{family} body", "")
    low = _legible(indexed(_mixed(letters, _WHITE if palette.is_light else _BLACK, 0.25)), palette, 2.5)
    return low if palette.depth is Depth.INDEXED else _mixed(low, letters, (tone - 1) / (TONES - 1))


LETTERS: tuple[str, ...] = ("", "title", *_ROLES)
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


def definition(style: str, palette: Palette) -> str:
    """A style, or several with spaces between, as Rich writes styles; an unknown name is plain."""
    if style == "cursor":
        return "reverse"
    if style == "selected" or style.endswith(SELECTED):
        return _selected("title" if style == "selected" else style.removesuffix(SELECTED), palette)
    family, _, tone = ("compute", "", str(TONES)) if style == "chart" else style.partition(" ")
    if tone.isdigit():
        return _body(family, int(tone), palette)
    words = _words(palette)
    return " ".join(filter(None, (words.get(name, "") for name in style.split())))


def _selected(style: str, palette: Palette) -> str:
    """On the background of the selected row, with another text colour: the terminal's may be as dark."""
    if not palette.has_backgrounds:
        return f"{'bold' if 'bold' in definition(style, palette) else ''} reverse".strip()
    text, behind = ("#000000", "#e4e4e4") if palette.is_light else ("#eeeeee", "#262626")
    theme = THEMES[0].id if palette.of_theme.background else palette.theme
    letters = definition(style, Palette(palette.depth, behind, theme))
    return f"{letters if letters not in ('', 'bold') else f'{letters} {text}'.strip()} on {behind}"


_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
SIXTEEN = (*_NAMES, *(f"bright_{name}" for name in _NAMES))
_CODES = {
    "bold": "1",
    "underline": "4",
    "reverse": "7",
    **{name: str(30 + place + 52 * (place > 7)) for place, name in enumerate(SIXTEEN)},
}


@lru_cache(maxsize=256)
def sgr(style: str, palette: Palette) -> str:
    """Parameters of the escape sequence of a style that has no background; empty for plain text."""
    return ";".join(
        _CODES.get(word)
        or (f"38;5;{INDEXED[word]}" if word in INDEXED else "38;2;" + ";".join(map(str, _parts(word))))
        for word in definition(style, palette).split()
    )


COLOURLESS: tuple[str, ...] = ("dumb", "vt1", "vt2", "vt3")
"""Beginnings of the names of terminals without colours: `vt100`, `vt220`."""


def depth_of(environment: Mapping[str, str]) -> Depth:
    """The depth that the environment promises.

    NO_COLOR (not empty, https://no-color.org) takes precedence over everything; TEXTUAL_COLOR_SYSTEM over
    COLORTERM and TERM.
    """
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
