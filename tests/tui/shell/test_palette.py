"""The palette: every action of the current screen and of the app, searchable."""

from __future__ import annotations

import pytest
from shell_app import make_app, picture, press, settled

from gputui.tui.screens.results.actions import ACTIONS as RESULTS_ACTIONS
from gputui.tui.shell.keymap import APP_ACTIONS, SCREENS_ACTIONS, Action
from gputui.tui.shell.palette import Palette, found
from gputui.tui.widgets.plain_table import PlainTable


def test_words_are_looked_for_in_titles_and_sentences_and_titles_come_first() -> None:
    actions = (
        Action("a", "a", "Sort", "By the next column"),
        Action("b", "b", "Mark", "Mark a run to sort it out"),
        Action("c", "c", "Quit", "Leave"),
    )
    assert [a.id for a in found("sort", actions)] == ["a", "b"]
    assert [a.id for a in found("run mark", actions)] == ["b"]
    assert found("nothing of that", actions) == []
    assert len(found("", actions)) == 3


async def test_the_palette_of_a_screen_holds_its_actions_those_of_the_app_and_the_screens() -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await press(pilot, "3", "ctrl+p")
        shown = picture(app)
        for action in (*RESULTS_ACTIONS, *SCREENS_ACTIONS, *APP_ACTIONS):
            if action.id not in ("interrupt", "palette"):
                assert f"{action.title} " in shown
        assert "Can this box measure?" in shown


async def test_enter_does_what_was_found_and_esc_does_nothing() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "ctrl+p", *"doc", "enter")
        assert "[5 Doc]" in picture(app)
        await press(pilot, "ctrl+p", *"zzz", "enter")
        assert "[5 Doc]" in picture(app)
        await press(pilot, "ctrl+p", "escape")
        assert not isinstance(app.screen, Palette)
        await press(pilot, "ctrl+p", *"look", "down", "up", "enter")
        assert " driver " in picture(app)
        await press(pilot, "ctrl+p", *"help", "enter")
        assert "Keys of this screen" in picture(app)


@pytest.mark.parametrize(
    ("width", "ascii_only"),
    [
        pytest.param(40, True, marks=pytest.mark.slow),
        (80, False),
        pytest.param(80, True, marks=pytest.mark.slow),
    ],
)
async def test_the_sentence_under_the_cursor_is_shown_whole_and_the_table_marks_where_it_cuts(
    width: int, ascii_only: bool
) -> None:
    app = make_app(ascii_only=ascii_only)
    async with app.run_test(size=(width, 60)) as pilot:
        await press(pilot, "3", "ctrl+p")
        table = app.screen.query_one(PlainTable)
        for place, action in enumerate(RESULTS_ACTIONS):
            assert table.cursor_row == place
            shown = picture(app)
            framed = [line.strip("│| ") for line in shown.splitlines() if line.lstrip()[:1] in ("│", "|")]
            below = " ".join(" ".join(framed[-4:]).split())
            assert action.tooltip in below
            assert ascii_only is shown.isascii()
            row = next(line for line in shown.splitlines() if f"  {action.title}  " in line)
            assert action.tooltip in row or ("~" if ascii_only else "…") in row
            await press(pilot, "down")
        await press(pilot, *"zzz")
        assert "Nothing fits" in picture(app)


@pytest.mark.parametrize("screen", ["2", "3", "4", "5"])
async def test_the_palette_opens_on_every_screen_also_where_text_is_typed_first(screen: str) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, screen, "ctrl+p")
        assert isinstance(app.screen, Palette)
        await press(pilot, "ctrl+p")
        assert not isinstance(app.screen, Palette)
