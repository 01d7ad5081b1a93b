"""`gputui doctor`: can this box measure, and is it healthy."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from gputui.cli.options import db_option, json_option
from gputui.cli.output import beneath, print_json, printed
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE
from gputui.services.doctor.checks import gathered, group_of, judged, readiness, worst_first
from gputui.services.doctor.disturbances import STYLES, Check, check_lines


@click.command()
@click.option("--python", metavar="EXE", help="Interpreter to check.  [the first that has torch]")
@db_option
@click.option("--all", "shows_all", is_flag=True, help="Also show what is ok.")
@json_option
def command(python: str | None, db: Path | None, shows_all: bool, as_json: bool) -> int:
    """Say whether this box can measure and is healthy.

    Exit 1 if a fault was found; cautions do not count. It measures nothing and leaves nothing behind.
    """
    try:
        box = gathered(python=python, db=db, on_step=lambda what: say_step(f"looking at {what} ..."))
    finally:
        say_step("")
    checks = judged(box)
    headline = readiness(checks, [gpu.index for gpu in box.machine.gpus])
    if as_json:
        plain = [{"group": group_of(check.topic), **asdict(check)} for check in checks]
        print_json({"headline": headline, "checks": plain})
    else:
        _print(headline, checks, shows_all=shows_all)
    return EXIT_CASE_FAILED if any(check.state == "problem" for check in checks) else EXIT_DONE


def _print(headline: str, checks: Sequence[Check], *, shows_all: bool) -> None:
    """The headline, and what is worst first, with whole paths; a terminal gets what is not ok."""
    shown = worst_first(checks)
    is_fault = any(check.state == "problem" for check in checks)
    with printed() as page:
        page.line(headline, f"title {STYLES['problem']}" if is_fault else "title")
        left_out = ("ok",) if page.out.is_terminal and not shows_all else ()
        for check in shown:
            for line in check_lines(check, page.width, breaks=False) if check.state not in left_out else ():
                page.spans(line)
        if left_out:
            page.hint(f"{sum(check.state == 'ok' for check in checks)} ok", "--all")


def say_step(step: str) -> None:
    """Write over what was said before, on a terminal."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(f"\r\x1b[K{step}", end="", file=beneath(sys.stderr), flush=True)
