"""The theme of stock widgets: the colours of `theme`, on the terminal's background."""

from __future__ import annotations

from textual.theme import Theme

from gputui.tui.terminal.theme import WIDGET_COLOURS, Depth

NAME = "gputui"


def theme_for(depth: Depth) -> Theme:
    """The theme at a depth; without colours, the cursor is shown in reverse video."""
    colours = WIDGET_COLOURS[depth]
    plain = not depth.has_backgrounds
    chosen, behind_chosen = (
        ("ansi_default", colours["dim"]) if plain else (colours["selected"], colours["selected on"])
    )
    return Theme(
        name=NAME,
        ansi=True,
        dark=not depth.is_light,
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
            "block-cursor-foreground": colours["cursor"],
            "block-cursor-background": colours["cursor on"],
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
