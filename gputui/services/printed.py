"""What the command line prints, for who wants to see it without leaving the screen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gputui.errors import GputuiError
from gputui.services.support.background import Job
from gputui.store.text import clean_text

LIMIT_S = 120.0


def printed(words: Sequence[str], columns: int, job: Job[Any]) -> tuple[str, ...]:
    """The lines that `gputui WORDS` prints at this width, from a process of its own.

    Raises GputuiError with what it says if it fails, Cancelled if nobody wants it any more.
    """
    job.say(f"gputui {' '.join(words)}")
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    with (
        subprocess.Popen(
            [sys.executable, "-m", "gputui", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        ) as child,
        job.interrupted_by(child.terminate),
    ):
        try:
            out, told = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise GputuiError(
                f"gputui {words[0]} took longer than {LIMIT_S:.0f} s", "try it in a shell"
            ) from None
    if child.returncode:
        message, _, hint = told.strip().partition("\n")
        raise GputuiError(message.removeprefix("gputui: "), hint.strip())
    return tuple(clean_text(line) for line in (told + out).splitlines())
