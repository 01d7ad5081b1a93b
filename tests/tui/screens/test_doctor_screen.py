"""The Doctor screen on this box."""

from __future__ import annotations

import pytest
from shell_app import make_app, picture, press, settled

from gputui.services.doctor.disturbances import Check
from gputui.tui.screens.doctor.screen import lines_of


async def test_key_5_shows_what_doctor_finds_and_r_looks_again() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        first = picture(app)
        assert "[5 Doc]" in first
        for topic in ("driver", "torch", "CPU", "memory"):
            assert f" {topic} " in first
        await press(pilot, "r")
        assert " driver " in picture(app)


async def test_the_terminal_is_reported_with_its_current_size() -> None:
    app = make_app()
    async with app.run_test(size=(200, 50)) as pilot:
        await press(pilot, "5")
        assert " 200x50, " in picture(app)
        await pilot.resize_terminal(120, 50)
        await settled(pilot)
        assert " 120x50, " in picture(app)
        assert "200x50" not in picture(app)


async def test_n_goes_to_the_next_thing_that_is_not_well() -> None:
    app = make_app()
    async with app.run_test(size=(60, 8)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        await press(pilot, "end", "home", "n", "n")
        before = picture(app).splitlines()[1]
        assert before.startswith(("note", "PROBLEM")) or "terminal" in picture(app)
        await press(pilot, "p", "p", "p")
        assert " driver " in picture(app)
        await press(pilot, "escape")
        assert picture(app).startswith("moving")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_and_hostile_text_cannot_act(width: int) -> None:
    check = Check("GPU 0", "problem", "\x1b]0;owned\x07 " + "word " * 60, "do " * 40)
    lines = lines_of(check, width)
    for line in lines:
        text = "".join(span.text for span in line)
        assert len(text) <= max(width, 40)
        assert "\x1b" not in text
