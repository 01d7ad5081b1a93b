"""No meaning by colour alone: every screen says the same without colours."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from every_screen import Look, app_states, drawn_states, store_serving
from palettes import INDEXED, PLAIN
from rich.style import Style
from screen_goldens import store_on_gpu, store_three
from shell_app import Row, only_coloured

from gputui.tui.terminal.cell_diff import rich_style

_OF_NOW = ("run", "doctor", "palette", "log")
"""States of this box at this moment: what they say may change between two looks."""


_RULES = str.maketrans("━╸╺■▓▒▚▞░", "   ██████")


def texts_of(rows: Iterable[Row]) -> list[str]:
    """Without rules, as below the tabs there is a track where its colour can be seen, and without patterns,
    which stand for hues."""
    return ["".join(text for text, _ in row).translate(_RULES).rstrip() for row in rows]


def test_no_state_of_the_monitor_and_of_the_run_screen_is_told_by_its_colour_alone() -> None:
    for name, rows in drawn_states(Look(80, 24, INDEXED)):
        assert only_coloured(rows) == [], name


@pytest.mark.slow
async def test_every_other_screen_and_dialog_says_the_same_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_DB", str(store_three(tmp_path)))
    store_on_gpu(tmp_path / "a.db")
    store_serving(tmp_path)
    coloured = {name: rows async for name, rows in app_states(Look(80, 24, INDEXED))}
    plain = {name: rows async for name, rows in app_states(Look(80, 24, PLAIN))}
    assert coloured.keys() == plain.keys()
    for name, rows in coloured.items():
        assert only_coloured(rows) == [], name
        if not name.startswith(_OF_NOW):
            assert texts_of(plain[name]) == texts_of(rows), name


def test_a_state_that_only_a_colour_tells_is_found() -> None:
    lost = rich_style("alarm", INDEXED)
    assert only_coloured([[("GPU 0 ", Style.null()), ("● LOST", lost)]]) == []
    assert only_coloured([[("GPU 0 ", Style.null()), ("●", lost)]]) == ["GPU 0 ●"]
