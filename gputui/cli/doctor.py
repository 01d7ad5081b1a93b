"""`gputui doctor`: can this box measure, and is it healthy."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.cli.options import db_option, host_options, json_option, named_hosts
from gputui.cli.output import beneath, print_json, printed
from gputui.document.page import Page
from gputui.document.spans import Span
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, GputuiError
from gputui.model.absent import Missing
from gputui.model.units import counted, format_bytes
from gputui.services.doctor.checks import gathered, group_of, judged, readiness, worst_first
from gputui.services.doctor.disturbances import STYLES, Check, check_lines
from gputui.services.profiles.torch_builds import unused_gpu

if TYPE_CHECKING:
    from gputui.services.hosts.box import Box, Left
    from gputui.services.hosts.host import Host

COMMON = ("--all", "--host", "--hosts", "--via", "--json")


@click.command()
@click.option("--python", metavar="EXE", help="Interpreter to check.  [the first that has torch]")
@db_option
@click.option("--all", "shows_all", is_flag=True, help="Also show what is ok.")
@json_option
@host_options
def command(
    python: str | None,
    db: Path | None,
    shows_all: bool,
    as_json: bool,
    addresses: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    vias: tuple[str, ...] = (),
    directory: str = "",
) -> int:
    """Say whether this box can measure and is healthy; with --host, whether others can, and what lies there.

    Exit 1 if a fault was found; cautions do not count. It measures nothing and leaves nothing behind.
    """
    hosts = named_hosts(addresses, files, vias, directory)
    if hosts:
        return _check_hosts(hosts, python, as_json=as_json)
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


def _check_hosts(hosts: tuple[Host, ...], python: str | None, *, as_json: bool) -> int:
    """Whether each host can be reached and can measure, and what gputui left there; exit 1 if one cannot."""
    from gputui.services.hosts.bakeoff import on_all
    from gputui.services.hosts.box import checked
    from gputui.services.support.paths import hash_key

    key = hash_key()
    asked = [replace(host, python=python or "") for host in hosts]
    answers = list(zip(asked, on_all(asked, lambda host: checked(host, key)), strict=True))
    if as_json:
        print_json({"hosts": [_plain_host(*answer) for answer in answers]})
    else:
        with printed() as page:
            for answer in answers:
                _write_host(page, *answer)
    return EXIT_DONE if all(_can_measure(found) for _, found in answers) else EXIT_CASE_FAILED


def _can_measure(found: tuple[Box, Left] | GputuiError) -> bool:
    if isinstance(found, GputuiError):
        return False
    chosen, machine = found[0].chosen.interpreter, found[0].machine
    unused = unused_gpu(chosen, machine)
    return not isinstance(chosen.runtime.torch_version, Missing) if unused is None else unused.is_wanted


def _plain_host(host: Host, found: tuple[Box, Left] | GputuiError) -> dict[str, object]:
    from gputui.services.results.labels import machine_words

    plain: dict[str, object] = {"name": host.name, "can_measure": _can_measure(found)}
    if isinstance(found, GputuiError):
        return {**plain, "problem": found.message, "hint": found.hint}
    box, left = found
    unused = unused_gpu(box.chosen.interpreter, box.machine)
    about = {"devices": machine_words(box.machine), "runtime": box.runtime, "python": box.chosen.found_as}
    problem = None if unused is None else unused.reason
    return {**plain, **about, "problem": problem, "cautions": box.cautions(), "left": asdict(left)}


def _write_host(page: Page, host: Host, found: tuple[Box, Left] | GputuiError) -> None:
    """What a host is and what lies there, or why it cannot be used."""
    from gputui.services.results.labels import machine_words

    name, arrow = Span(f"{host.name}: ", "title"), Span("  -> ", "dim")
    if isinstance(found, GputuiError):
        page.spans((name, Span("cannot be used: ", "alarm"), Span(found.message)))
        page.spans((arrow, Span(found.hint)))
        return
    box, left = found
    page.spans((name, Span(f"{machine_words(box.machine)} · {box.runtime} ({box.chosen.found_as})")))
    unused = unused_gpu(box.chosen.interpreter, box.machine)
    if unused is not None:
        page.spans((Span(f"  {unused.reason}", STYLES["note" if unused.is_wanted else "problem"]),))
        typed = unused.command or ("" if unused.step else unused.look)
        page.spans((arrow, Span(typed or unused.step, "accent" if typed else "")))
    elif isinstance(box.chosen.interpreter.runtime.torch_version, Missing):
        page.spans((Span("  -> pip install torch there, or name a Python that has it: --python EXE"),))
    for caution in box.cautions():
        page.spans((Span(f"  {caution}", STYLES["note"]),))
    runs = f", {counted(len(left.runs), 'run')}" if left.runs else ""
    size = format_bytes(left.size_bytes)
    page.hint(f"  left there: {size} in {left.path}{runs}; to remove it", "gputui bakeoff --clean")
    for run in left.runs:
        page.spans((Span(f"    {run}", "dim"),))


def _print(headline: str, checks: Sequence[Check], *, shows_all: bool) -> None:
    """The headline, and what is worst first, with whole paths; a terminal gets what is not ok."""
    shown = worst_first(checks)
    is_fault = any(check.state == "problem" for check in checks)
    with printed() as page:
        page.line(headline, f"title {STYLES['problem']}" if is_fault else "title")
        if page.out.is_terminal and not shows_all:
            shown = [check for check in shown if check.state != "ok"]
        for line in (line for check in shown for line in check_lines(check, page.width, breaks=False)):
            page.spans(line)
        if len(shown) < len(checks):
            page.hint(f"{len(checks) - len(shown)} ok", "--all")


def say_step(step: str) -> None:
    """Write over what was said before, on a terminal."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(f"\r\x1b[K{step}", end="", file=beneath(sys.stderr), flush=True)
