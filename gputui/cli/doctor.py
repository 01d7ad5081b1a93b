"""`gputui doctor`: can this box measure, and is it healthy."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click

from gputui.cli.output import shown
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE
from gputui.services.doctor.checks import Check, Terminal, run_checks, worst

_MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM", "unknown": "unknown"}
_TOPIC = 15


@click.command()
@click.option("--python", metavar="EXE", help="Interpreter to look at.  [the first that has torch]")
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    help="Result file.  [$GPUTUI_DB, else the one `gputui paths` names]",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(python: str | None, db: Path | None, as_json: bool) -> int:
    """Say whether this box can measure and is healthy.

    Exit 1 if a problem was found; notes are none. Nothing is measured, and nothing stays behind.
    """
    checks = run_checks(terminal_here(), python=python, db=db, on_step=_report_step)
    if as_json:
        plain = [
            {"topic": c.topic, "state": c.state, "found": c.found, "next_step": c.next_step} for c in checks
        ]
        click.echo(json.dumps({"schema": 1, "checks": plain}, indent=1))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
        for check in checks:
            for line in lines_of(check, width):
                click.echo(line)
        click.echo(worst(checks))
    return EXIT_CASE_FAILED if any(check.state == "problem" for check in checks) else EXIT_DONE


def terminal_here() -> Terminal:
    size = shutil.get_terminal_size()
    return Terminal(
        size.columns, size.lines, sys.stdout.isatty(), sys.stdout.encoding or "", os.environ.get("TERM", "")
    )


def lines_of(check: Check, width: int) -> list[str]:
    """One check: mark, topic, finding, and the next step below.

    Lines have at most `width` cells, but paths and options are never broken, so that they can be copied.
    """
    import textwrap

    head = f"{_MARKS[check.state]:9}{shown(check.topic)[:_TOPIC]:{_TOPIC + 1}}"
    room = max(width - len(head), 20)
    words = textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False)
    found = words.wrap(shown(check.found)) or [""]
    lines = [head + found[0], *(" " * len(head) + line for line in found[1:])]
    if check.next_step:
        words.width = room - 3
        steps = words.wrap(shown(check.next_step))
        marks = ["-> ", *["   "] * len(steps)]
        lines += [" " * len(head) + mark + line for mark, line in zip(marks, steps, strict=False)]
    return lines


def _report_step(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"looking at {what} ...", err=True)
