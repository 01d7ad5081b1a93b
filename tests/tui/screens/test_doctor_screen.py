"""The Doctor screen on this box."""

from __future__ import annotations

import pytest
from shell_app import make_app, picture, press, settled

from gputui.document.spans import width_of
from gputui.services.doctor.disturbances import Check, check_lines
from gputui.tui.screens.doctor import page_of


async def test_key_5_shows_what_doctor_finds_and_r_looks_again() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "5")
        first = picture(app)
        assert "[5 Doc]" in first
        assert first.splitlines()[1].startswith(("Ready to measure", "Not "))
        for topic in ("driver", "identity"):
            assert f"{topic} " in first
        await press(pilot, "r")
        assert " driver " in picture(app)


FAULTS = (
    Check("GPU 6", "problem", "PCIe x4 of x16", "take another box"),
    Check("GPU 0 power", "note", "power limit 600 W", "", "sudo nvidia-smi -i 0 -pl 700"),
    Check("CPU", "ok", "8 cores"),
    Check("disk", "unknown", "it does not answer"),
)


@pytest.mark.parametrize("width", [40, 120])
def test_the_answer_is_first_and_then_what_is_worst(width: int) -> None:
    lines = page_of("Ready to measure on 7 of 8 GPUs.", FAULTS[::-1], width)
    texts = ["".join(span.text for span in line) for line in lines]
    assert texts[0].startswith("Ready to measure on 7 of 8 GPUs.")
    assert all(width_of(text) <= width for text in texts)
    hostile = Check("GPU 0", "problem", "\x1b]0;owned\x07 " + "word " * 60, "do " * 40)
    for line in check_lines(hostile, width):
        shown = "".join(span.text for span in line)
        assert len(shown) <= width
        assert "\x1b" not in shown
    text = "\n".join(texts)
    assert sorted(("GPU 6", "GPU 0 power", "CPU", "disk"), key=text.index) == [
        "GPU 6",
        "GPU 0 power",
        "disk",
        "CPU",
    ]
    for word in ("FAULT", "caution", "unknown", "ok", "$ sudo nvidia-smi -i 0 -pl 700"):
        assert word in text, "the state is a word, not only a colour"
