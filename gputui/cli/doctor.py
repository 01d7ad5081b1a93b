"""`gputui doctor`: can this box measure, and is it healthy."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.cli.hosts import host_options, named_hosts
from gputui.cli.output import console, shown
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, GputuiError
from gputui.model.units import counted, format_bytes
from gputui.services.doctor.checks import (
    WORDS,
    Group,
    Terminal,
    gathered,
    group_of,
    grouped,
    judged,
    readiness,
)
from gputui.services.doctor.disturbances import Check

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

_TOPIC = 15

COMMON = ("--all", "--host", "--hosts", "--via", "--json")


@click.command()
@click.option("--python", metavar="EXE", help="Interpreter to check.  [the first that has torch]")
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    help="Result file.  [$GPUTUI_DB, else see `gputui paths`]",
)
@click.option(
    "--all", "shows_all", is_flag=True, help="Show all lines, even if they do not fit the terminal."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
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
        return _check_hosts(hosts, python)
    box = gathered(terminal_here(), python=python, db=db, on_step=_report_step)
    checks = judged(box)
    gpus = [gpu.index for gpu in box.machine.gpus]
    if as_json:
        plain = [
            {
                "group": group_of(c.topic),
                "topic": c.topic,
                "state": c.state,
                "found": c.found,
                "next_step": c.next_step,
                "command": c.command,
            }
            for c in checks
        ]
        headline = readiness(checks, gpus)
        click.echo(json.dumps({"schema": 1, "headline": headline, "checks": plain}, indent=1))
    else:
        _print(readiness(checks, gpus), checks, shows_all=shows_all)
    return EXIT_CASE_FAILED if any(check.state == "problem" for check in checks) else EXIT_DONE


def _check_hosts(hosts: tuple[Host, ...], python: str | None) -> int:
    """Whether each host can be reached and can measure, and what gputui left there; exit 1 if one cannot."""
    from gputui.model.absent import Missing
    from gputui.services.hosts.bakeoff import on_all
    from gputui.services.hosts.box import Box, Left, checked
    from gputui.services.profiles.torch_builds import unused_gpu
    from gputui.services.support.paths import hash_key

    key = hash_key()
    asked = [replace(host, python=python or "") for host in hosts]
    status = EXIT_DONE
    found: Box | GputuiError | tuple[Box, Left]
    for host, found in zip(asked, on_all(asked, lambda host: checked(host, key)), strict=True):
        if isinstance(found, GputuiError):
            click.echo(f"{host.name}: cannot be used: {found.message}")
            click.echo(f"  -> {found.hint}")
            status = EXIT_CASE_FAILED
            continue
        box, left = found
        click.echo(f"{host.name}: {box.device} · {box.runtime} ({box.found_as})")
        unused = unused_gpu(box.interpreter, box.machine)
        if unused is not None:
            click.echo(f"  {unused.reason}")
            click.echo(f"  -> {unused.command or unused.step or unused.look}")
            status = status if unused.is_wanted else EXIT_CASE_FAILED
        elif isinstance(box.interpreter.runtime.torch_version, Missing):
            click.echo("  -> pip install torch there, or name an interpreter that has it: --python EXE")
            status = EXIT_CASE_FAILED
        for caution in box.cautions():
            click.echo(f"  {caution}")
        runs = f", {counted(len(left.runs), 'run')}" if left.runs else ""
        click.echo(
            f"  left there: {format_bytes(left.size_bytes)} in {left.path}{runs}; gputui bakeoff --clean"
        )
        for run in left.runs:
            click.echo(f"    {run}")
    sys.stdout.flush()
    return status


def _print(headline: str, checks: Sequence[Check], *, shows_all: bool) -> None:
    """The headline, then group by group what is worst first; a terminal gets what it has room for.

    There a group in which all is well becomes one line before anything else is left out.
    """
    from gputui.document.page import Page

    page, is_terminal = Page(console()), sys.stdout.isatty()
    size = shutil.get_terminal_size()
    width = size.columns if is_terminal else 80
    page.line(headline, "title")
    groups = grouped(checks)
    pages = [_lines_of_group(group, width) for group in groups]
    room = size.lines - 3 if is_terminal and not shows_all else None
    if room is not None and sum(map(len, pages)) > room:
        pages = [
            [_in_one_line(group, width)] if group.verdict == "all ok" else page
            for group, page in zip(groups, pages, strict=True)
        ]
    lines = [line for page in pages for line in page]
    for line in lines if room is None else lines[:room]:
        page.line(line, "" if line.startswith(" ") else "title", is_whole=True)
    if room is not None and len(lines) > room:
        page.line(f"{counted(len(lines) - room, 'more line')}: --all")
    page.show()


def _lines_of_group(group: Group, width: int) -> list[str]:
    """A heading with the verdict of the group, and its checks."""
    lines = [f"{group.name}: {group.verdict}"]
    for check in group.checks:
        lines += [f"  {line}" for line in lines_of(check, width - 2)]
    return lines


def _in_one_line(group: Group, width: int) -> str:
    topics = ", ".join(dict.fromkeys(shown(check.topic) for check in group.checks))
    return f"{group.name}: {group.verdict} ({topics})"[:width]


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

    head = f"{WORDS[check.state]:9}{shown(check.topic)[:_TOPIC]:{_TOPIC + 1}}"
    room = max(width - len(head), 20)
    words = textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False)
    found = words.wrap(shown(check.found)) or [""]
    lines = [head + found[0], *(" " * len(head) + line for line in found[1:])]
    if check.next_step:
        words.width = room - 3
        steps = words.wrap(shown(check.next_step))
        marks = ["-> ", *["   "] * len(steps)]
        lines += [" " * len(head) + mark + line for mark, line in zip(marks, steps, strict=False)]
    if check.command:
        lines.append(f"{' ' * len(head)}$ {check.command}")
    return lines


def _report_step(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"looking at {what} ...", err=True)
