"""What the supervisor costs while a case is timed: CPU of its process, as % of one core.

Run from the repository root:

    python tests/benchmarks/supervisor_cost.py [--gpus 8] [--seconds 20]

With `--gpus` it samples that many GPUs of the stand-in library. Launches of `spin` on one thread follow each
other for as long as is looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from command_line import write_spin_profile
from nvml.standin import moving_gpus, standin_environment

LIMIT_PCT = 1.0
STARTING_S = 60.0


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process, from the scheduler's nanosecond counters."""
    return (
        sum(
            int((thread / "schedstat").read_text().split()[0])
            for thread in Path(f"/proc/{pid}/task").iterdir()
        )
        / 1e9
    )


def process_with(*words: str) -> int:
    """The process whose command line contains all of these, once it exists."""
    deadline = time.monotonic() + STARTING_S
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_text(errors="replace") if entry.name.isdigit() else ""
                if line and all(word in line for word in words):
                    return int(entry.name)
        time.sleep(0.05)
    raise SystemExit(f"no process with {words} was started")


def main() -> None:
    """Print the share, and whether it is within the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "GPUTUI_STATE": place}
        if options.gpus:
            environment |= standin_environment(moving_gpus(options.gpus, 0))
        # A launch ends when its case is known to 0.5 %: several, so that one is always in progress.
        profile = write_spin_profile(Path(place) / "spin.toml", replicates=100, blocks=60)
        viewer = subprocess.Popen(
            [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(Path(place) / "r.db")],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        supervisor = process_with("gputui.recording", place)
        process_with("start.py", place)  # the first launch
        before, begun = cpu_s(supervisor), time.monotonic()
        time.sleep(options.seconds)
        share = 100 * (cpu_s(supervisor) - before) / (time.monotonic() - begun)
        os.kill(supervisor, signal.SIGTERM)
        viewer.wait()
    word = "within" if share <= LIMIT_PCT else "over"
    print(f"supervisor with {options.gpus} GPUs: {share:.2f} % of one core ({word} {LIMIT_PCT:g} %)")


if __name__ == "__main__":
    main()
