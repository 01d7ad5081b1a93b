"""`gputui run`: measure a profile and store the result."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click

from gputui.cli.progress import Progress
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_HUNG_UP, GputuiError, MachineLacks, NotStored
from gputui.machine import describe_machine, storage_warning
from gputui.model.absent import Missing
from gputui.model.journal import Stored
from gputui.model.machine import Machine
from gputui.model.plan import Plan
from gputui.services.interpreters import Chosen, choose_interpreter
from gputui.services.places import default_result_file, hash_key
from gputui.services.pricing import price_of
from gputui.services.profiles import Profile, find_profile
from gputui.services.resolving import Choices, resolve_plan
from gputui.services.running import RunRequest, StartedRun, follow, start_runs, stop
from gputui.store.writing import check_writable

MAX_LABEL = 80
WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.argument("profile", default="quick")
@click.option("--db", type=click.Path(path_type=Path), help="Result file.  [$GPUTUI_DB, else results.db]")
@click.option("--python", "pythons", multiple=True, metavar="EXE", help="Interpreter to measure; repeatable.")
@click.option("--device", default="", metavar="D", help="cpu, gpu, gpu:N, or the UUID of a GPU.")
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Only this workload; repeatable.")
@click.option("--launches", type=click.IntRange(1, 100), help="Launches per case.  [the profile's]")
@click.option("--label", default="", help="A name for this run.")
@click.option("--price", type=float, metavar="USD_PER_H", help="What the whole box costs per hour.")
@click.option("--instance", metavar="TYPE", help="Take the list price of this instance type.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Order of launches and random inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    profile: str,
    db: Path | None,
    pythons: tuple[str, ...],
    device: str,
    only: tuple[str, ...],
    launches: int | None,
    label: str,
    price: float | None,
    instance: str | None,
    seed: int | None,
    as_json: bool,
) -> int:
    """Measure PROFILE (a name or a .toml file; `quick` without one) and store the result."""
    if len(label) > MAX_LABEL or not label.isprintable():
        raise GputuiError(
            f"--label {label[:MAX_LABEL]!r}: is no label", f"up to {MAX_LABEL} printable characters"
        )
    chosen_profile = find_profile(profile)
    target = (default_result_file() if db is None else db).expanduser().absolute()
    machine = describe_machine(hash_key())
    price_found = price_of(price, instance, machine)
    if db is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    check_writable(target)
    seed = secrets.randbelow(2**31) if seed is None else seed
    choices = Choices(device=device, only=only, replicates=launches, seed=seed)

    requests = []
    for stated in pythons or (None,):
        chosen = choose_interpreter(stated, on_probe=_say_probing)
        plan = resolve_plan(chosen_profile, chosen.interpreter, machine, choices)
        if not plan.launches:
            raise _nothing_to_run(chosen_profile, plan, chosen)
        _announce(plan, chosen, target)
        requests.append(RunRequest(plan, chosen.interpreter.runtime, label, price_found))
    warning = storage_warning(target, machine.layers)
    if warning:
        click.echo(warning, err=True)

    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # until somebody can pass them on
    runs = start_runs(requests, target)
    ended = _watch(runs, [request.plan for request in requests])
    return _finish(runs, ended, target, machine, as_json)


def _counted(number: int, noun: str) -> str:
    plural = "es" if noun.endswith("h") else "s"
    return f"{number} {noun}{plural if number != 1 else ''}"


def _say_probing(path: str) -> None:
    click.echo(f"asking {path} what it has ...", err=True)


def _announce(plan: Plan, chosen: Chosen, target: Path) -> None:
    runtime = chosen.interpreter.runtime
    torch = "no torch" if isinstance(runtime.torch_version, Missing) else f"torch {runtime.torch_version}"
    to_run = sum(1 for c in plan.cases if c.outcome is None)
    left_out = len(plan.cases) - to_run
    click.echo(
        f"{plan.profile}: {_counted(to_run, 'case')} in {_counted(len(plan.launches), 'launch')},"
        f" at most {plan.budget_s:.0f} s" + (f"; {left_out} cannot run here" if left_out else ""),
        err=True,
    )
    click.echo(f"with Python {runtime.python_version}, {torch} ({chosen.found_as}); into {target}", err=True)


def _nothing_to_run(profile: Profile, plan: Plan, chosen: Chosen) -> MachineLacks:
    reasons = dict.fromkeys(c.reason for c in plan.cases if c.reason)
    version = chosen.interpreter.runtime.torch_version
    if isinstance(version, Missing):
        return MachineLacks(
            f"profile {profile.name} needs torch: {version.reason} in {chosen.interpreter.executable}",
            "pip install torch, or name an interpreter that has it: --python ~/envs/torch/bin/python",
        )
    return MachineLacks(
        f"profile {profile.name}: nothing can run here: {'; '.join(reasons)}", "gputui profiles"
    )


def _watch(runs: Sequence[StartedRun], plans: Sequence[Plan]) -> dict[int, Stored]:
    """Show what happens until every run is stored; signals end the runs, a hang-up leaves them."""
    ended: dict[int, Stored] = {}

    def pass_on(number: int, frame: FrameType | None) -> None:
        progress.say(f"{signal.Signals(number).name}: ending the run and keeping what is finished ...")
        stop(runs[0], signal.Signals(number))

    def hang_up(number: int, frame: FrameType | None) -> None:
        os._exit(EXIT_HUNG_UP)  # the terminal is gone, and the run belongs to its supervisor

    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, hang_up)
    with Progress(plans, live=sys.stderr.isatty()) as progress:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        for index, line in follow(runs):
            if line is None:
                progress.tick()
                continue
            progress.hear(index, line)
            if isinstance(line, Stored):
                ended[index] = line
    return ended


def _finish(
    runs: Sequence[StartedRun], ended: dict[int, Stored], target: Path, machine: Machine, as_json: bool
) -> int:
    """Results of every run, the next commands, and the exit status."""
    for index, run in enumerate(runs):
        if ended[index].exit_status:
            why = ended[index].message or f"status {ended[index].exit_status}"
            raise NotStored(
                f"run {run.run_id[-8:]} was measured but not stored: {why}",
                f"its journal is kept: gputui import {shlex.quote(str(run.run_dir))} --db FILE",
            )
    from gputui.cli.results import print_results
    from gputui.cli.tables import console
    from gputui.services.comparison import runtime_name
    from gputui.store.reading import open_result

    with open_result(target) as file:
        results = [file.run(run.run_id) for run in runs]
    if as_json:
        from gputui.services.export import run_as_json

        click.echo(json.dumps({"schema": 1, "runs": [run_as_json(result) for result in results]}, indent=1))
    else:
        out = console()
        for result in results:
            out.print()
            if len(results) > 1:
                out.print(f"{result.summary.short_id}: {runtime_name(result.summary)}", markup=False)
            print_results(out, result)
        _next_commands(target, [result.summary.short_id for result in results])
    status = runs[0].supervisor.wait()
    if status > 128:
        return status
    failed = any(case.outcome == "failed" for result in results for case in result.cases)
    return EXIT_CASE_FAILED if failed or status else EXIT_DONE


def _next_commands(target: Path, short_ids: Sequence[str]) -> None:
    """What to type next; in an SSH shell also how the file is fetched."""
    file = shlex.quote(_shown(target))
    click.echo(f"stored as {' and '.join(short_ids)} in {_shown(target)}")
    if len(short_ids) > 1:
        selected = " ".join(f"{file}@{short_id}" for short_id in short_ids)
        click.echo(f"next: gputui compare {selected}")
    else:
        click.echo(f"next: gputui show {short_ids[0]} {file}; on another box the same run, then")
        click.echo(f"      gputui compare {file} OTHER.db")
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) == 4:
        user = os.environ.get("USER") or "USER"
        _, _, address, port = connection
        option = "" if port == "22" else f"-P {port} "
        host = f"[{address}]" if ":" in address else address
        click.echo(f"fetch: scp {option}{user}@{host}:{shlex.quote(str(target))} .")


def _shown(target: Path) -> str:
    """The path as it can be typed from here."""
    try:
        return str(target.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(target)
