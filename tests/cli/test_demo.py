"""`gputui demo`: the monitor on a simulated box."""

from __future__ import annotations

import subprocess
import sys

from command_line import gputui_here


def test_without_a_terminal_or_with_too_many_gpus_it_is_refused() -> None:
    assert gputui_here("demo", "--gpus", "73").returncode == 2
    done = gputui_here("demo")
    assert (done.returncode, "gputui snapshot" in done.stderr) == (2, True)


def test_made_up_gpus_need_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from gputui.services.playback.demo_gpus import DemoBox\n"
        "sample = DemoBox(8).at(3, 0)\n"
        "print(len(sample.gpus), {'duckdb', 'numpy', 'pandas', 'torch'} & set(sys.modules) or 'light')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "light"]
