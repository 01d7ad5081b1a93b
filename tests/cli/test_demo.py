"""`gputui demo`: the monitor on a simulated box."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import gputui


def test_more_gpus_than_a_box_can_have_are_refused() -> None:
    assert gputui("demo", "--gpus", "73").returncode == 2


def test_without_a_terminal_it_names_the_command_that_needs_none() -> None:
    done = gputui("demo")
    assert done.returncode == 2
    assert "gputui snapshot" in done.stderr


@pytest.mark.parametrize("gpus", ["1", "8"])
def test_made_up_gpus_need_nothing_heavy(gpus: str) -> None:
    code = (
        "import sys\n"
        "from gputui.services.playback.demo_gpus import DemoBox\n"
        f"sample = DemoBox({gpus}).at(3, 0)\n"
        "print(len(sample.gpus), {'duckdb', 'numpy', 'pandas', 'torch'} & set(sys.modules) or 'light')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [gpus, "light"]
