"""The command line as people use it: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

WORDS = (sys.executable, "-m", "gputui")
LONGEST_S = 120


def gputui(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*WORDS, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=LONGEST_S,
        check=False,
    )


def start_gputui(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a command; both its outputs are one text."""
    return subprocess.Popen(
        [*WORDS, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
    )


def write_spin_profile(
    path: Path, *, budget_s: float, replicates: int, threads: tuple[str, ...] = ("1",), workload: str = "spin"
) -> Path:
    """A profile of one workload at its smallest on a CPU."""
    listed = ", ".join(f'"{t}"' for t in threads)
    path.write_text(
        f"""schema = 1
version = 1
title = "{workload}"
question = "How fast is one thread?"
budget_s = {budget_s:g}
replicates = {replicates}
[[case]]
workload = "{workload}"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = [{listed}]
"""
    )
    return path
