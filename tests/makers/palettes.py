"""Palettes of tests, by what the terminal shows and whether its background is light."""

from __future__ import annotations

from gputui.document.theme import SOME_LIGHT, Depth, Palette

PLAIN = Palette(Depth.NONE)
SIXTEEN = Palette(Depth.ANSI)
SIXTEEN_LIGHT = Palette(Depth.ANSI, SOME_LIGHT)
INDEXED = Palette(Depth.INDEXED)
INDEXED_LIGHT = Palette(Depth.INDEXED, SOME_LIGHT)
TRUE = Palette(Depth.TRUE)
TRUE_LIGHT = Palette(Depth.TRUE, SOME_LIGHT)
EACH = (PLAIN, SIXTEEN, SIXTEEN_LIGHT, INDEXED, INDEXED_LIGHT, TRUE, TRUE_LIGHT)
