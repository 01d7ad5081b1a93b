"""`gputui bakeoff`: the same profile on several hosts at once, over the user's own ssh, to one verdict."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any  # Any: what click passes on

import click

from gputui.cli.options import (
    all_rows_option,
    db_option,
    host_options,
    json_results_option,
    named_hosts,
    run_options,
)
from gputui.cli.output import beneath, confirmed, console, print_hint, print_json, say, shown, unattended
from gputui.document.drawings import gauge_spans
from gputui.document.page import Page
from gputui.document.spans import Line, Span, command_spans, cut, wrapped
from gputui.document.table import Column, Table
from gputui.errors import (
    EXIT_CASE_FAILED,
    EXIT_DONE,
    EXIT_NO_RESULT,
    GputuiError,
    MachineLacks,
    NoResult,
    clean_text,
)
from gputui.model.units import counted, format_bytes, format_clock, format_whole_seconds, listed, number_from
from gputui.services.hosts.bakeoff import LOST, RUNNING, STYLES, Bakeoff, HostRun, HostStatus, find_bakeoff
from gputui.services.hosts.box import PreparedHosts, cleaned, left_on, new_bakeoff, prepare, profile_for_hosts
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import NothingThere, on_all
from gputui.services.results.selectors import from_here
from gputui.services.runs.options import options_of
from gputui.services.runs.process import writable_target
from gputui.services.support.paths import hash_key

_ERASE_BELOW = "\x1b[J"


class HostsTable:
    """One line per host, rewritten in place on a terminal; elsewhere a line whenever it changes."""

    def __init__(self, is_live: bool) -> None:
        self._is_live = is_live
        self._drawn = 0
        self._seen: dict[str, tuple[str, str]] = {}
        self._begun_s = time.monotonic()

    def forget(self) -> None:
        """Draw below what others have written meanwhile."""
        self._drawn = 0

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        say(text)

    def draw(self, statuses: Sequence[HostStatus], *, is_last: bool = False) -> None:
        """Show all hosts; the last table stays, with every line in full."""
        if not self._is_live:
            for status in statuses:
                now = status.state, status.why or status.case
                if self._seen.get(status.name) != now:
                    self._seen[status.name] = now
                    say(f"{self._elapsed()} {_row(status)}")
            return
        room = shutil.get_terminal_size().lines - 4
        order = sorted(
            range(len(statuses)), key=lambda n: (not statuses[n].why, statuses[n].state == "done", n)
        )
        # What is over, or goes well, is counted where there is no room.
        listed = list(statuses) if is_last else [statuses[n] for n in sorted(order[:room])]
        counts = Counter(status.state for status in statuses)
        summary = ", ".join(f"{count} {state}" for state, count in counts.items())
        page = Page(console(sys.stderr))
        page.line(f"{self._elapsed()}  {summary}", "title")
        page.table(_table(listed, page.width, None if is_last else 1), gap=2)
        if len(listed) < len(statuses):
            page.line(f"and {len(statuses) - len(listed)} more", "dim")
        self._erase()
        page.show()
        self._drawn = 0 if is_last else page.height

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\r{_ERASE_BELOW}", end="", file=beneath(sys.stderr))
            self._drawn = 0

    def _elapsed(self) -> str:
        return format_clock(time.monotonic() - self._begun_s)


def _row(status: HostStatus) -> str:
    """`gpu-a  running  45 %  about 2 min left  matmul base gpu fp32  41.2 TFLOP/s ±1 %`."""
    parts = [shown(status.name), shown(status.device), status.state]
    if status.share_done is not None and status.state == RUNNING:
        left = "" if status.left_s is None else f"  about {format_whole_seconds(status.left_s)} left"
        parts.append(f"{100 * status.share_done:.0f} %{left}")
    if status.state == LOST:
        parts.append(f"heard {format_whole_seconds(status.silent_s)} ago")
    parts += (status.case, status.rate, status.why or (f"! {status.health}" if status.health else ""))
    return "  ".join(filter(None, parts))


_DRAWN_EVERY_S = 0.5
_HOW_TO_LEAVE = (
    "Ctrl-C ends the runs and keeps what is finished.",
    "Ctrl-\\ leaves this view while the runs go on; gputui attach comes back to it.",
)

COMMON = (
    "--host", "--hosts", "--local", "--db", "--price", "--budget", "--device", "--only",
    "--resume", "--clean", "--yes", "--via",
)  # fmt: skip

_OF_HOSTS = ("addresses", "files", "vias", "directory", "local", "pythons", "prices")


@click.command()
@click.argument("profile", required=False)
@host_options
@click.option("--local", is_flag=True, help="Measure this box too, as the baseline.")
@db_option
@click.option(
    "--price", "prices", multiple=True, metavar="[HOST=]USD_PER_H", help="What a box costs per hour."
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="[HOST=]EXE",
    help="Interpreter to measure with there.  [the first that has torch]",
)
@run_options(
    "device",
    "only",
    "precision",
    "launches",
    "budget",
    device="cpu, gpu, gpu:N, or all: each GPU.",
    only="Only this workload; repeatable.",
    launches="Launches per case.  [3, if the budget has room]",
    budget="Seconds it may take on each host.  [the profile's]",
)
@run_options("blocks", blocks="Timed blocks that are enough.  [60]")
@click.option(
    "--same-box-parallel", is_flag=True, help="Measure names of one box at the same time, not in turn."
)
@click.option(
    "--give-up",
    "gives_up_after_s",
    type=number_from("--give-up", float, "seconds, such as 300", (0, 86400)),
    default="300",
    metavar="S",
    help="Seconds to keep trying a lost host.  [300]",
)
@click.option("--resume", is_flag=True, help="Resume the last bakeoff, or the one named in place of PROFILE.")
@click.option(
    "--clean", is_flag=True, help="Measure nothing: list what gputui left on the hosts, and remove it."
)
@click.option("--yes", is_flag=True, help="Start, or remove, without asking.")
@all_rows_option
@click.option("-v", "--verbose", is_flag=True, help="Add notes, reasons, costs and what was left out.")
@json_results_option
def command(
    profile: str | None,
    db: Path | None,
    same_box_parallel: bool,
    gives_up_after_s: float,
    resume: bool,
    clean: bool,
    yes: bool,
    **stated: Any,
) -> int:
    """Measure PROFILE on several boxes at once, over your own ssh, and compare them.

    Nothing needs to be installed there but Python 3.10 and torch. Each run goes on by itself if the link is
    lost; `--resume` brings it home. PROFILE is a name, a .toml file, or a .py file with a workload of your
    own; without one, `quick`.
    """
    shown = {name: stated.pop(name) for name in ("shows_all", "verbose", "as_json")}
    if resume:
        return see_through(find_bakeoff(profile or "", gives_up_after_s), **shown)
    hosts = named_hosts(**{name: stated.pop(name) for name in _OF_HOSTS})
    if clean:
        return _clean(hosts, yes)

    measured, step_file, step = profile_for_hosts(profile or "")
    target = writable_target(db)
    choices = options_of("", {"seed": secrets.randbelow(2**31), **stated})
    key = hash_key()
    say(f"asking {counted(len(hosts), 'host')} ...")
    prepared = prepare(
        hosts, measured, choices, key, step_file=step_file, step=step, in_parallel=same_box_parallel
    )
    _announce(prepared, target)
    if not prepared.planned:
        raise MachineLacks("nothing was measured", "gputui doctor on a box says when it can be")
    if not yes:
        if unattended() or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise GputuiError("there is no terminal to ask on", "--yes starts without asking")
        if not confirmed("Start?"):
            raise GputuiError("nothing was measured", "--yes starts without asking")
    bakeoff = new_bakeoff(prepared, target, key, step=step, gives_up_after_s=gives_up_after_s)
    status = see_through(bakeoff, **shown)
    return status or (EXIT_CASE_FAILED if prepared.refused else EXIT_DONE)


def _announce(prepared: PreparedHosts, target: Path) -> None:
    for refused in prepared.refused:
        say(refused, "warn")
    for line in prepared.same():
        say(line)
    width = max((len(one.box.host.name) for one in prepared.planned), default=0)
    for one in prepared.planned:
        first, *cautions = one.lines()
        say(f"  {first}", lead=f"{one.box.host.name:{width}}")
        for caution in cautions:
            say(f"{'':{width}}  {caution}", "warn")
    if prepared.planned:
        say(f"{prepared.summary()}; into {target}", "title")


def see_through(bakeoff: Bakeoff, *, is_ours: bool = True, ends: bool = False, **shown: bool) -> int:
    """Follow all hosts to their ends, then compare what was measured. Raises GputuiError.

    SIGINT and SIGTERM end the runs if `is_ours`, else only this process; `ends` ends them at once. What is
    `shown` is for the comparison.
    """
    if bakeoff.is_over:
        say(f"bakeoff {bakeoff.name} is complete: nothing is left to bring home")
    with bakeoff.held():
        stopped = 0 if bakeoff.is_over else _follow(bakeoff, is_ours, ends)
    unstored = [run for run in bakeoff.runs if not run.is_stored]
    if unstored:
        say(f"to go on with {_names(unstored)}: gputui bakeoff --resume {bakeoff.name}")
    if stopped:
        kept = [run for run in bakeoff.runs if run.is_stored]
        if kept:
            ids = ", ".join(f"{run.host.name} is {run.short_id}" for run in kept)
            show = f"gputui show {kept[0].short_id} {shlex.quote(str(bakeoff.target))}"
            say(f"what was finished is kept ({ids}): {show}")
        return 128 + stopped
    has_compared = _compare(bakeoff, **shown)
    ended_early = [run for run in bakeoff.runs if run.is_stored and not run.is_whole]
    if ended_early:
        say(f"{_names(ended_early)} did not finish")
    if not has_compared:
        return EXIT_NO_RESULT
    return EXIT_DONE if all(run.is_whole for run in bakeoff.runs) else EXIT_CASE_FAILED


def _names(runs: Sequence[HostRun]) -> str:
    return listed([run.host.name for run in runs])


def _follow(bakeoff: Bakeoff, is_ours: bool, ends: bool) -> int:
    """Show all hosts until their ends; returns the signal by which the user stopped them, or 0."""
    is_live = sys.stderr.isatty()
    if is_live and not ends:
        for line in (
            _HOW_TO_LEAVE
            if is_ours
            else (
                "Ctrl-C leaves this view while the runs go on; to end them:",
                f"  gputui stop {bakeoff.name}",
            )
        ):
            say(line, "dim")
    stopped: list[int] = [signal.SIGTERM] if ends else []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    def leave(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            back, end = f"  gputui attach {bakeoff.name}", f"  gputui stop {bakeoff.name}"
            left = f"\nthe runs go on; to come back, or to end them:\n{back}\n{end}\n"
            os.write(sys.stderr.fileno(), left.encode())
        os._exit(EXIT_DONE if number == signal.SIGQUIT else 128 + number)

    interrupt = stop if is_ours else leave
    for number, handler in (
        (signal.SIGINT, interrupt),
        (signal.SIGTERM, interrupt),
        (signal.SIGHUP, leave),
        (signal.SIGQUIT, leave),
    ):
        signal.signal(number, handler)
    bakeoff.start()
    table = HostsTable(is_live)
    signal.signal(signal.SIGCONT, lambda number, frame: table.forget())
    has_stopped = False
    while not bakeoff.wait(_DRAWN_EVERY_S):
        table.draw([run.status() for run in bakeoff.runs])
        if stopped and not has_stopped:
            has_stopped = True
            table.say("ending the runs and keeping what is finished ...")
            bakeoff.stop()
    table.draw([run.status() for run in bakeoff.runs], is_last=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    return stopped[0] if stopped else 0


def _compare(
    bakeoff: Bakeoff, *, shows_all: bool = False, verbose: bool = False, as_json: bool = False
) -> bool:
    """The comparison of all that were measured, the first as the baseline; whether it has anything.

    Raises NoResult if no host measured anything.
    """
    from gputui.services.compare.formats import comparison_plain
    from gputui.services.compare.ranking import equal_boxes
    from gputui.services.compare.reports import comparison_pages
    from gputui.services.compare.session import ask

    done = [(run.host.name, run.short_id) for run in bakeoff.runs if run.is_stored]
    if not any(run.has_measured for run in bakeoff.runs):
        show = f"gputui show {done[0][1]} {shlex.quote(str(bakeoff.target))} -v says why" if done else ""
        raise NoResult("nothing was measured on any host", show or f"gputui bakeoff --resume {bakeoff.name}")
    file = from_here(str(bakeoff.target))
    selectors = [f"{file}@{run}" for _, run in done]
    hosts = [
        {"name": run.host.name, "run_id": run.run_id if run.is_stored else None, "is_whole": run.is_whole}
        for run in bakeoff.runs
    ]
    of_bakeoff = {"bakeoff": bakeoff.name, "file": str(bakeoff.target), "hosts": hosts}
    if len(done) == 1 and as_json:
        print_json({**of_bakeoff, "by": "", "headline": None, "comparisons": []})
        return True
    if len(done) == 1:
        print_hint("one host was measured", f"gputui show {done[0][1]} {shlex.quote(file)}")
        return True
    asked = ask(selectors)
    named = zip(asked.sides, done, strict=True)
    sides = tuple(replace(side, name=f"{shown(name)} ({run})") for side, (name, run) in named)
    asked = replace(asked, sides=sides)
    answer = asked.compared(0)
    if as_json:
        print_json({**of_bakeoff, **comparison_plain(asked, answer)})
        return not answer.headline.is_empty
    out = console()
    below, width = Page(out), out.width if out.is_terminal else None
    for line in equal_boxes(asked.sides, [shown(name) for name, _ in done]):
        below.line(line, is_whole=not out.is_terminal)
        below.line()
    for spans in command_spans(shlex.join(["gputui", "compare", *selectors]), width, "compare again: "):
        below.spans(spans)
    for page in comparison_pages(asked, answer, (), out, verbose, shows_all, below.height):
        page.show()
    below.show()
    return not answer.headline.is_empty


def _clean(hosts: Sequence[Host], yes: bool) -> int:
    """List what gputui made on each host, ask, and remove it."""
    failed, there = False, []
    for host, left in zip(hosts, on_all(hosts, left_on), strict=True):
        if isinstance(left, NothingThere):
            click.echo(f"{host.name}: {left.message}")
        elif isinstance(left, GputuiError):
            failed = True
            click.echo(f"{host.name}: {left.message}: {left.hint}")
        else:
            there.append(host)
            made = ", ".join(left.entries) or "nothing but its mark"
            click.echo(f"{host.name}: in {left.path}: {made} ({format_bytes(left.size_bytes)})")
            for run in left.runs:
                click.echo(f"  {run}")
    if there and not yes:
        if unattended() or not sys.stdin.isatty():
            raise GputuiError("nothing is removed without confirmation", "--yes removes what is listed")
        if not confirmed("Remove that?"):
            click.echo("nothing was removed", err=True)
            there = []
    for host, found in zip(there, on_all(there, cleaned) if there else (), strict=True):
        if isinstance(found, GputuiError):
            failed = True
            click.echo(f"{host.name}: {found.message}: {found.hint}")
        else:
            click.echo(f"{host.name}: {found}")
    return EXIT_CASE_FAILED if failed else EXIT_DONE


_MOST_NAME, _GAUGE = 24, 8
_FIGURES, _LEAST_ROOM = 33, 16
"""Cells of the columns between a name and what is measured, without those that may go."""
_WIDE = 100
"""From this width on there is room for devices and gauges."""


def _table(statuses: Sequence[HostStatus], width: int, most: int | None = None) -> Table:
    """A row for each host, in at most so many lines; what goes wrong there may need several."""
    names = [cut(clean_text(one.name), _MOST_NAME) for one in statuses]
    devices = [cut(clean_text(one.device), width // 4) for one in statuses]
    beside = max(map(len, devices), default=0) + _GAUGE + 4 if width >= _WIDE else 0
    room = max(width - max(map(len, names), default=0) - _FIGURES - beside, _LEAST_ROOM)
    gauges = [
        [() if one.share_done is None else gauge_spans(one.share_done, 1.0, _GAUGE, "compute")]
        for one in statuses
    ]
    done = ["" if one.share_done is None else f"{100 * one.share_done:.0f} %" for one in statuses]
    lefts = [
        "" if one.left_s is None or one.state != RUNNING else format_clock(one.left_s) for one in statuses
    ]
    return Table(
        (
            Column("HOST", names),
            Column("DEVICE", [Span(device, "dim") for device in devices], priority=2),
            Column(f"{'STATE':13}", [Span(one.state, STYLES.get(one.state, "dim")) for one in statuses]),
            Column("", gauges, priority=1),
            Column(f"{'DONE':>5}", done, True),
            Column(f"{'LEFT':>5}", lefts, True, priority=0.5),
            Column("CASE, RATE", [_latest(one, room, most) for one in statuses]),
        )
    )


def _latest(one: HostStatus, room: int, most: int | None) -> Sequence[Line]:
    """What went wrong, else what is measured, and what to look at there if there is room."""
    silent = f"heard {format_clock(one.silent_s)} ago" if one.state == LOST else ""
    now = "  ".join(filter(None, (silent, clean_text(one.case), clean_text(one.rate))))
    health = f"! {clean_text(one.health)}" if one.health else ""
    if one.why:
        texts = [(clean_text(one.why), STYLES.get(one.state, "warn"))]
    elif len(now) + len(health) + 2 <= room:
        return [(Span(now, "accent"), Span(f"  {health}", "warn"))]
    else:
        texts = [(now, "accent"), (health, "warn")]
    rows = [(row, style) for text, style in texts for row in wrapped(text, room - 1) if row]
    if most is not None and len(rows) > most:
        row, style = rows[most - 1]
        rows = [*rows[: most - 1], (row if row == now else f"{row}…", style)]
    return [(Span(row, style),) for row, style in rows]
