"""Whether a person sits at the terminal: notebook cells and CI jobs have a pty, and nobody at it."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping

from gputui.sources.base import read_file

_KERNEL = re.compile(rb"ipykernel|colab_kernel|kernel_launcher|\bxpython\b|PythonShell")
"""In the command line of a process that executes the cells of a notebook."""
_KERNEL_NAMES = ("JPY_PARENT_PID", "JPY_SESSION_NAME")
"""Set by Jupyter for kernels, and not for its terminals."""
_NOTEBOOK_PREFIXES = ("COLAB_", "KAGGLE_KERNEL_", "KAGGLE_URL_")
_CI_NAMES = (
    "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "JENKINS_URL", "TEAMCITY_VERSION", "TF_BUILD",
    "DRONE", "BITBUCKET_BUILD_NUMBER", "CODEBUILD_BUILD_ID",
)  # fmt: skip
_PERSON_NAMES = ("SSH_TTY", "SSH_CONNECTION", "TMUX", "STY")
"""Somebody came to debug a job, or opened a terminal beside the notebook."""
_MOST_PARENTS = 32
CELL, CI = "a notebook cell", "a CI job"


def no_terminal() -> str:
    """Why no screen can be drawn, as `there is no terminal to draw on`; empty if one can."""
    drawn_in = unattended()
    if drawn_in:
        return f"{drawn_in} has no terminal to draw on"
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return ""
    return "there is no terminal to draw on"


@functools.cache
def unattended() -> str:
    """CELL or CI if output goes to a log that nobody can answer, though it may be a pty; else empty."""
    if os.environ.get("GPUTUI_TERMINAL"):
        return ""
    return where(os.environ, os.getpid())


def where(environ: Mapping[str, str], pid: int, proc: str = "/proc") -> str:
    """CELL, CI or empty, for a process with these variables and parents."""
    if _is_below_kernel(pid, proc):
        return CELL
    if any(name in environ for name in _PERSON_NAMES):
        return ""
    if any(name in environ for name in _KERNEL_NAMES):
        return CELL
    if any(name.startswith(_NOTEBOOK_PREFIXES) for name in environ):
        return CELL
    if any(name in environ for name in _CI_NAMES) or environ.get("CI", "").lower() in ("true", "1"):
        return CI
    return ""


def _is_below_kernel(pid: int, proc: str) -> bool:
    for _ in range(_MOST_PARENTS):
        try:
            stat = read_file(f"{proc}/{pid}/stat")
            pid = int(stat.rpartition(b")")[2].split()[1])
            command = read_file(f"{proc}/{pid}/cmdline") if pid > 0 else b""
        except (OSError, ValueError, IndexError):  # macOS has no /proc
            return False
        if pid <= 1:
            return False
        if _KERNEL.search(command):
            return True
    return False
