"""`gputui doctor`: can this box measure, is it healthy; `gputui check`: that and its speed, in one word."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.cli.options import FILE, db_option, json_option
from gputui.cli.output import beneath, print_json, printed
from gputui.document.page import Page
from gputui.document.spans import Span, wrapped
from gputui.document.table import Cell, table_of
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_UNDECIDED
from gputui.model.units import format_rate, format_whole_seconds
from gputui.services.doctor.checks import gathered, group_of, judged, readiness, worst_first
from gputui.services.doctor.disturbances import STYLES, Check, check_lines

if TYPE_CHECKING:
    from gputui.services.check import BoxCheck


@click.command()
@click.option("--python", metavar="EXE", help="Interpreter to check.  [the first that has torch]")
@db_option
@click.option("--all", "shows_all", is_flag=True, help="Also show what is ok.")
@json_option
def doctor(python: str | None, db: Path | None, shows_all: bool, as_json: bool) -> int:
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


_KEPT = ("matmul amp", "memory copy", "from host")
"""Columns that a narrow terminal keeps."""


@click.command()
@click.option("--quick", "is_quick", is_flag=True, help="Health only, within 5 s and without torch.")
@click.option("--brief", "is_brief", is_flag=True, help="Print one line: the word, and why.")
@click.option("--text", "is_text", is_flag=True, help="Print the text for the provider only.")
@click.option("--python", metavar="EXE", help="Interpreter to measure with.  [the first that has torch]")
@click.option("--db", type=FILE, help="Also store what was measured in this result file.")
@json_option
def check(
    is_quick: bool, is_brief: bool, is_text: bool, python: str | None, db: Path | None, as_json: bool
) -> int:
    """Say in one word whether this box is as it should be: OK, SLOW, FAULT or CAN'T TELL.

    Looks at the health of each GPU, and measures all of them at once for less than a minute. Exits with 0 if
    OK, 1 if SLOW or FAULT, 5 if it can't tell. Stores nothing without --db. Never tried on a faulty GPU.
    """
    from gputui.services.check import WORDS, check_box, signals_raised

    begun_s = time.monotonic()

    def say_what(what: str) -> None:
        say_step(f"{what} ... {time.monotonic() - begun_s:.0f} s")

    try:
        with signals_raised():
            say_what("looking at the driver and the host")
            box = gathered(python=python, db=db, asks_torch=not is_quick)
            found = check_box(box, db=db, on_tick=say_what)
    except KeyboardInterrupt:
        say_step("")
        click.echo("stopped: the check says nothing", err=True)
        raise
    finally:
        say_step("")
    took_s = time.monotonic() - begun_s
    if as_json:
        print_json(json_of_check(found, took_s))
    elif is_text:
        click.echo(found.text or "nothing here needs the provider")
    else:
        with printed() as page:
            lead = f"{found.word}  "
            is_whole = is_brief or not page.out.is_terminal
            for text in [found.headline] if is_whole else wrapped(found.headline, page.width - len(lead)):
                page.spans((Span(lead, WORDS[found.word]), Span(text, "title")))
                lead = " " * len(lead)
            if not is_brief:
                _write_check(page, found, took_s)
    return {"OK": EXIT_DONE, "CAN'T TELL": EXIT_UNDECIDED}.get(found.word, EXIT_CASE_FAILED)


def json_of_check(found: BoxCheck, took_s: float) -> dict[str, object]:
    """What `--json` prints."""
    return {"word": found.word, "headline": found.headline, "took_s": round(took_s, 1), **asdict(found)}


def _write_check(page: Page, found: BoxCheck, took_s: float) -> None:
    """The devices with what was measured, what to do now, and the text for the provider."""
    from gputui.services.check import WORDS, named

    how = found.not_measured or "each beside its neighbors" * (len(found.devices) > 1)
    page.line(" · ".join(filter(None, (found.box, format_whole_seconds(took_s), how))), "dim")
    cases = list(dict.fromkeys(rate.case for one in found.devices for rate in one.rates))
    rows: list[list[Cell]] = []
    for one in found.devices:
        cells = {
            rate.case: Span(format_rate(rate.units_per_s, rate.unit), "warn" if rate.is_low else "")
            for rate in one.rates
        }
        told = Span(one.verdict(1) if len(found.devices) > 1 else one.word, WORDS[one.word])
        rows.append([one.device, *(cells.get(case, "—") for case in cases), told])
    last = len(cases) + 1
    priorities = {place + 1: 0 if case in _KEPT else 1 for place, case in enumerate(cases)}
    page.table(table_of(["", *cases, ""], rows, range(1, last), (last,), priorities=priorities), gap=2)
    steps: dict[tuple[str, str], list[str]] = {}
    for one in found.devices:
        if one.next_step or one.command:
            steps.setdefault((one.next_step, one.command), []).append(one.device)
    if steps:
        page.line()
        page.line("what now", "title")
    for (step, line), devices in steps.items():
        lead = f"{named(devices)}: {step}"
        if len(lead) + len(line) < page.width:
            page.spans((Span(f"{lead} "), Span(line, "accent")))
        else:
            page.line(lead)
            page.spans((Span(f"  {line}", "accent"),))
    if found.text:
        page.line()
        page.spans((Span("text for the provider", "title"), Span(" (gputui check --text)", "dim")))
        for text in wrapped(found.text, page.width - 2):
            page.line(f"  {text}")
