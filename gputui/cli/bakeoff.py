"""`gputui bakeoff`: the same profile on several hosts at once, over the user's own ssh, to one verdict."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from gputui.cli.output import beneath, shown, wrapped
from gputui.cli.surroundings import unattended
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_HUNG_UP, GputuiError, MachineLacks
from gputui.model.plan import Plan
from gputui.model.units import counted, format_hourly, format_seconds
from gputui.recording.spec import Spec
from gputui.services.runs.start import blocks_from, budget_from, launches_from

if TYPE_CHECKING:
    from gputui.services.hosts.bakeoff import Bakeoff, BatchPart, HostStatus
    from gputui.services.hosts.box import Box
    from gputui.services.hosts.host import Host
    from gputui.services.hosts.slurm import NodeType
    from gputui.services.profiles.loader import Profile
    from gputui.services.profiles.planner import Choices

_DRAWN_EVERY_S = 0.5
_DEVICE_CELLS = 20
_ERASE_BELOW = "\x1b[J"
_HOW_TO_LEAVE = "Ctrl-C ends the runs, Ctrl-\\ leaves them running"


@click.command()
@click.argument("profile", required=False)
@click.option(
    "--host", "addresses", multiple=True, metavar="[USER@]HOST[:PORT]", help="A box to measure; repeatable."
)
@click.option(
    "--hosts",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with one host in each line.",
)
@click.option(
    "--via",
    "vias",
    multiple=True,
    metavar="COMMAND",
    help="A command that runs a program in another place: 'docker exec -i NAME'.",
)
@click.option(
    "--slurm",
    "partitions",
    multiple=True,
    metavar="'[LOGIN:]PARTITION [OPTION ...]'",
    help="A batch job for each kind of node there; options are those of sbatch.",
)
@click.option("--local", is_flag=True, help="Measure this box too, as the baseline.")
@click.option(
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Result file.  [$GPUTUI_DB, else the one `gputui paths` names]",
)
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
@click.option("--device", default="", metavar="D", help="cpu, gpu, or gpu:N.")
@click.option("--only", multiple=True, metavar="W[:SIZE[:PREC]]", help="Only this workload; repeatable.")
@click.option(
    "--precision", "precisions", multiple=True, metavar="P", help="Only fp32, tf32 or amp; repeatable."
)
@click.option(
    "--launches", type=launches_from, metavar="N", help="Launches per case.  [3, if the budget has room]"
)
@click.option(
    "--budget", type=budget_from, metavar="S", help="Seconds it may take on each host.  [the profile's]"
)
@click.option("--blocks", type=blocks_from, metavar="N", help="Timed blocks that are enough.  [60]")
@click.option(
    "--dir",
    "directory",
    default="",
    metavar="DIR",
    help="The one directory that is written there.  [~/.gputui]",
)
@click.option("--same-box-parallel", is_flag=True, help="Names that are one box are not measured in turn.")
@click.option(
    "--give-up",
    "gives_up_after_s",
    type=click.FloatRange(0, 86400),
    default=300.0,
    metavar="S",
    help="Seconds to look for a host that was lost.  [300]",
)
@click.option(
    "--resume", is_flag=True, help="Go on with the last bakeoff, or the one named in place of PROFILE."
)
@click.option("--clean", is_flag=True, help="Measure nothing: remove what gputui left on the hosts.")
@click.option("--yes", is_flag=True, help="Start without a question.")
@click.option("--all", "shows_all", is_flag=True, help="All rows, even where the terminal has no room.")
@click.option("-v", "--verbose", is_flag=True, help="Also notes, reasons, costs and what was left out.")
def command(
    profile: str | None,
    addresses: tuple[str, ...],
    files: tuple[Path, ...],
    vias: tuple[str, ...],
    partitions: tuple[str, ...],
    local: bool,
    db: Path | None,
    prices: tuple[str, ...],
    pythons: tuple[str, ...],
    device: str,
    only: tuple[str, ...],
    precisions: tuple[str, ...],
    launches: int | None,
    budget: float | None,
    blocks: int | None,
    directory: str,
    same_box_parallel: bool,
    gives_up_after_s: float,
    resume: bool,
    clean: bool,
    yes: bool,
    shows_all: bool,
    verbose: bool,
) -> int:
    """Measure PROFILE on several boxes at once, over your own ssh, and compare them.

    Nothing needs to be installed there but Python 3.10 and torch. Each run goes on by itself if the link is
    lost; `--resume` brings it home. PROFILE is a name, a .toml file, or a .py file with a workload of your
    own; without one, `quick`.
    """
    from gputui.services.hosts.bakeoff import Bakeoff, find_bakeoff, spec_of
    from gputui.services.hosts.host import hosts_from, hosts_in

    if resume:
        return _see_through(
            find_bakeoff(profile or "", gives_up_after_s), shows_all=shows_all, verbose=verbose
        )
    named = [*addresses, *(name for file in files for name in hosts_in(file))]
    kinds = () if clean else _node_types(partitions, directory)
    hosts = hosts_from(
        named,
        vias,
        with_local=local,
        pythons=pythons,
        prices=prices,
        directory=directory,
        others=_logins(partitions, directory) if clean else [kind.host for kind in kinds],
    )
    if clean:
        return _clean(hosts)

    from gputui.services.hosts.box import key_for_hosts, same_boxes
    from gputui.services.profiles.loader import find_profile
    from gputui.services.profiles.planner import Choices
    from gputui.services.profiles.user_workload import is_step_file
    from gputui.services.runs.process import new_run_id
    from gputui.services.runs.start import target_of
    from gputui.services.support.paths import hash_key
    from gputui.store.writing import check_writable

    step_file = Path(profile) if profile is not None and is_step_file(profile) else None
    measured = None if step_file is not None else find_profile(profile or "quick")
    if measured is not None and measured.commands:
        raise GputuiError(
            f"profile {measured.name}: names programs, which other hosts may not have",
            "gputui run on each box",
        )
    target = target_of(db)
    if db is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    check_writable(target)
    choices = Choices(
        device=device,
        only=only,
        precisions=precisions,
        replicates=launches,
        budget_s=budget,
        most_blocks=blocks,
        seed=secrets.randbelow(2**31),
    )
    key = hash_key()
    step = "" if step_file is None else _step_text(step_file)
    hosts, queued = hosts[: len(hosts) - len(kinds)], hosts[len(hosts) - len(kinds) :]
    planned = _planned(hosts, _asked(hosts, key, measured, step_file, step), choices) if hosts else []
    if not planned and not queued:
        raise MachineLacks("no host can be measured", "the lines above say why")
    groups: Sequence[Sequence[int]] = same_boxes([box for box, _ in planned])
    if same_box_parallel:
        groups = [(index,) for index in range(len(planned))]
    for group in (group for group in groups if len(group) > 1):
        names = " and ".join(planned[index][0].host.name for index in group)
        _say(f"{names} are one box: measured one after the other, since they would disturb each other")
    _announce(planned, len(hosts), target)
    jobs = _jobs(kinds, queued, measured, step_file, choices, key_for_hosts(key))
    _announce_jobs(kinds, jobs, target)
    if not yes:
        if unattended() or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise GputuiError("no terminal to ask on before it starts", "--yes starts without a question")
        if not click.confirm("Start?", err=True):
            raise GputuiError("nothing was measured", "--yes starts without a question")
    name = time.strftime("%Y%m%d-%H%M%S")
    parts: list[tuple[Host, Spec | BatchPart]] = [
        (box.host, spec_of(box, plan, new_run_id(), target, key_for_hosts(key))) for box, plan in planned
    ]
    groups = [*groups, *((index,) for index in range(len(parts), len(parts) + len(jobs)))]
    bakeoff = Bakeoff.create(name, target, [*parts, *jobs], groups, step, sys.argv[1:], gives_up_after_s)
    status = see_through(bakeoff, shows_all=shows_all, verbose=verbose)
    return status or (EXIT_DONE if len(planned) == len(hosts) else EXIT_CASE_FAILED)


def _step_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"gputui new-workload {path} writes one that runs"
        raise GputuiError(f"{path}: cannot be read ({error})", hint) from error


def _asked(
    hosts: Sequence[Host], key: bytes, profile: Profile | None, step_file: Path | None, step: str
) -> list[tuple[Box, Profile] | GputuiError]:
    """What every host is, and the profile to plan for it; or why it cannot be used."""
    from gputui.services.hosts.bakeoff import on_all, probed, probed_with_step

    _say(f"asking {counted(len(hosts), 'host')} ...")
    if step_file is not None:
        return on_all(hosts, probed_with_step(key, step_file, step))
    assert profile is not None
    found = on_all(hosts, probed(key))
    return [one if isinstance(one, GputuiError) else (one, profile) for one in found]


def _planned(
    hosts: Sequence[Host], asked: Sequence[tuple[Box, Profile] | GputuiError], choices: Choices
) -> list[tuple[Box, Plan]]:
    """Plan the run of every host that answered; those that cannot be used are reported."""
    from gputui.recording.interpreters import Chosen
    from gputui.services.profiles.planner import resolve_plan
    from gputui.services.runs.start import check_something_runs

    planned: list[tuple[Box, Plan]] = []
    for host, found in zip(hosts, asked, strict=True):
        try:
            if isinstance(found, GputuiError):
                raise found
            box, profile = found
            if box.in_progress:
                raise GputuiError(
                    f"run {box.in_progress[0][-8:]} of another bakeoff is in progress there",
                    "gputui bakeoff --resume waits for it",
                )
            plan = resolve_plan(profile, box.interpreter, box.machine, choices)
            check_something_runs(profile, plan, Chosen(box.interpreter, box.found_as, box.passed_over))
        except GputuiError as error:
            _say(
                f"{host.name}: {error.message}: {error.hint}"
                if error.hint
                else f"{host.name}: {error.message}"
            )
            continue
        planned.append((box, replace(plan, step_file=Path(plan.step_file).name)))  # no path of this box
    return planned


def _announce(planned: Sequence[tuple[Box, Plan]], count: int, target: Path) -> None:
    from gputui.services.runs.progress import expected_s

    if not planned:
        return
    longest_s, usd = 0.0, 0.0
    width = max(len(box.host.name) for box, _ in planned)
    for box, plan in planned:
        to_run = sum(case.outcome is None for case in plan.cases)
        left_out = len(plan.cases) - to_run
        about_s = sum(expected_s(plan, launch) for launch in plan.launches)
        longest_s = max(longest_s, about_s)
        price = box.host.usd_per_hour
        usd += (price or 0.0) * about_s / 3600
        parts = [
            box.device,
            box.runtime,
            counted(to_run, "case") + (f", {left_out} cannot run there" if left_out else ""),
            f"about {format_seconds(round(about_s))}",
            *([] if price is None else [format_hourly(price)]),
        ]
        _say(f"{box.host.name:{width}}  {' · '.join(parts)}")
        for caution in box.cautions():
            _say(f"{'':{width}}  {caution}")
    cost = f", about ${usd:.2f} in all" if usd else ""
    hosts = counted(len(planned), "host") + (f" of {count}" if len(planned) < count else "")
    _say(f"{planned[0][1].profile} on {hosts}, about {format_seconds(round(longest_s))}{cost}; into {target}")


def _node_types(partitions: Sequence[str], directory: str) -> tuple[NodeType, ...]:
    """Every kind of node of these partitions. Raises GputuiError."""
    from gputui.services.hosts.slurm import node_types, partition_from

    return tuple(kind for text in partitions for kind in node_types(partition_from(text, directory)))


def _logins(partitions: Sequence[str], directory: str) -> list[Host]:
    """Where jobs are submitted, each once."""
    from gputui.services.hosts.slurm import partition_from

    return list(dict.fromkeys(partition_from(text, directory).login for text in partitions))


def _jobs(
    kinds: Sequence[NodeType],
    hosts: Sequence[Host],
    profile: Profile | None,
    step_file: Path | None,
    choices: Choices,
    key: bytes,
) -> list[tuple[Host, BatchPart]]:
    """A batch job for each kind of node; `hosts` are theirs."""
    from gputui.services.hosts.bakeoff import BatchPart
    from gputui.services.hosts.batch_job import JobRequest
    from gputui.services.runs.process import new_run_id

    budget_s = choices.budget_s
    if budget_s is None and profile is not None:
        budget_s = profile.budget_s * (choices.replicates or profile.replicates) / profile.replicates
    step_name = "" if step_file is None else step_file.name
    parts = []
    for kind, host in zip(kinds, hosts, strict=True):
        request = JobRequest(new_run_id(), profile, step_name, choices, host.python, key.hex())
        parts.append((host, BatchPart(request, tuple(kind.options(budget_s)))))
    return parts


def _announce_jobs(kinds: Sequence[NodeType], jobs: Sequence[tuple[Host, BatchPart]], target: Path) -> None:
    if not jobs:
        return
    width = max(len(host.name) for host, _ in jobs)
    for kind, (host, part) in zip(kinds, jobs, strict=True):
        price = [] if host.usd_per_hour is None else [format_hourly(host.usd_per_hour)]
        words = [f"one of {counted(kind.count, 'node')}", f"{kind.cpus} CPUs", *price]
        _say(f"{host.name:{width}}  {' · '.join(words)}: sbatch {shlex.join(part.options)}")
    _say(f"{counted(len(jobs), 'batch job')}, which plan on their nodes; into {target}")


def see_through(bakeoff: Bakeoff, *, shows_all: bool, verbose: bool) -> int:
    """Follow all hosts to their ends, then compare what was measured. Raises GputuiError."""
    with bakeoff.held():
        return _see_through(bakeoff, shows_all=shows_all, verbose=verbose)


def _see_through(bakeoff: Bakeoff, *, shows_all: bool, verbose: bool) -> int:
    from gputui.services.hosts.bakeoff import DONE

    is_live = sys.stderr.isatty()
    if is_live:
        click.echo(_HOW_TO_LEAVE, err=True)
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(EXIT_HUNG_UP if number == signal.SIGHUP else EXIT_DONE)

    for number, handler in (
        (signal.SIGINT, stop),
        (signal.SIGTERM, stop),
        (signal.SIGHUP, leave),
        (signal.SIGQUIT, leave),
    ):
        signal.signal(number, handler)
    bakeoff.start()
    table = _Table(is_live)
    has_stopped = False
    while not bakeoff.wait(_DRAWN_EVERY_S):
        table.draw([run.status() for run in bakeoff.runs])
        if stopped and not has_stopped:
            has_stopped = True
            table.say("ending the runs and keeping what is finished ...")
            bakeoff.stop()
    table.draw([run.status() for run in bakeoff.runs], is_last=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    done = [run for run in bakeoff.runs if run.state == DONE]
    if len(done) < len(bakeoff.runs):
        _say(f"to go on with the others: gputui bakeoff --resume {bakeoff.name}")
    if stopped:
        return 128 + stopped[0]
    _compare(bakeoff, [(run.host.name, run.short_id) for run in done], shows_all=shows_all, verbose=verbose)
    return EXIT_DONE if all(run.is_whole for run in bakeoff.runs) else EXIT_CASE_FAILED


def _compare(bakeoff: Bakeoff, done: Sequence[tuple[str, str]], *, shows_all: bool, verbose: bool) -> None:
    """The comparison of all that were measured, the first as the baseline."""
    from gputui.cli.output import console
    from gputui.services.compare.session import ask
    from gputui.services.compare.text import comparison_pages
    from gputui.services.results.selectors import from_here

    if not done:
        raise MachineLacks("nothing was measured on any host", f"gputui bakeoff --resume {bakeoff.name}")
    file = from_here(str(bakeoff.target))
    selectors = [f"{file}@{short_id}" for _, short_id in done]
    for letter, (name, short_id) in zip("abcdefghijklmnopqrstuvwxyz", done, strict=False):
        click.echo(f"{letter}  {shown(name)}  {short_id}")
    click.echo("")
    if len(done) == 1:
        click.echo(f"one host was measured: gputui show {done[0][1]} {shlex.quote(file)}")
        return
    asked = ask(selectors)
    answer = asked.compared(0)
    for page in comparison_pages(asked, answer, (), console(), verbose, shows_all):
        page.show()
    click.echo(f"compare again: gputui compare {shlex.join(selectors)}")
    if bakeoff.words:
        click.echo(
            f"measure all again, with three launches each: {shlex.join(_with_launches(bakeoff.words))}"
        )


def _with_launches(words: Sequence[str]) -> list[str]:
    """The command that did this, with three launches per case."""
    left = list(words)
    if "--launches" in left:
        at = left.index("--launches")
        del left[at : at + 2]
    return ["gputui", *left, "--launches", "3"]


def _clean(hosts: Sequence[Host]) -> int:
    """Remove the directory of gputui on each host."""
    from gputui.services.hosts.bakeoff import cleaned, on_all

    failed = False
    for host, found in zip(hosts, on_all(hosts, cleaned), strict=True):
        if isinstance(found, GputuiError):
            failed = True
            click.echo(f"{host.name}: {found.message}: {found.hint}")
        else:
            click.echo(f"{host.name}: {found} is removed")
    return EXIT_CASE_FAILED if failed else EXIT_DONE


class _Table:
    """One line per host, rewritten in place on a terminal; elsewhere a line whenever it changes."""

    def __init__(self, is_live: bool) -> None:
        self._is_live = is_live
        self._drawn = 0
        self._seen: dict[str, tuple[str, str]] = {}
        self._begun_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._erase()
        _say(text)

    def draw(self, statuses: Sequence[HostStatus], *, is_last: bool = False) -> None:
        width = max(len(shown(status.name)) for status in statuses)
        if not self._is_live:
            for status in statuses:
                now = status.state, status.why or status.case
                if self._seen.get(status.name) != now:
                    self._seen[status.name] = now
                    _say(f"{self._elapsed()} {shown(status.name):{width}}  {_row(status)}")
            return
        size = shutil.get_terminal_size()
        rows = [f"{shown(status.name):{width}}  {_row(status)}" for status in statuses]
        room = len(rows) if is_last else size.lines - 3
        if len(rows) > room:  # what is over, or goes well, is counted
            order = sorted(
                range(len(rows)), key=lambda n: (not statuses[n].why, statuses[n].state == "done", n)
            )
            rows = [rows[n] for n in sorted(order[: room - 1])] + [f"and {len(rows) - room + 1} more"]
        lines = [f"{self._elapsed()} {_summary(statuses)}", *rows]
        self._erase()
        out = beneath(sys.stderr)
        print("\n".join(shown(line, sys.stderr)[: size.columns - 1] for line in lines), file=out, flush=True)
        self._drawn = 0 if is_last else len(lines)

    def _erase(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\r{_ERASE_BELOW}", end="", file=beneath(sys.stderr))
            self._drawn = 0

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._begun_s)
        return f"{seconds // 60}:{seconds % 60:02d}"


def _summary(statuses: Sequence[HostStatus]) -> str:
    counts = {
        state: sum(status.state == state for status in statuses)
        for state in dict.fromkeys(s.state for s in statuses)
    }
    return " · ".join(f"{count} {state}" for state, count in counts.items())


def _row(status: HostStatus) -> str:
    parts = [f"{status.device[:_DEVICE_CELLS]:{_DEVICE_CELLS}}", f"{status.state:13}"]
    if status.share_done is not None and status.state == "running":
        left = "" if status.left_s is None else f" ~{format_seconds(round(status.left_s))} left"
        parts.append(f"{100 * status.share_done:3.0f} %{left}")
    parts += filter(None, (status.case, status.rate, status.why))
    if status.health and not status.why:
        parts.append(f"! {status.health}")
    if status.state == "link lost":
        parts.append(f"(heard {format_seconds(round(status.silent_s))} ago)")
    return "  ".join(parts).rstrip()


def _say(line: str) -> None:
    click.echo(line if "gputui " in line or "ssh" in line else wrapped(line, sys.stderr), err=True)
