"""`gputui run`: measure a profile and store the result; `join`: lend this box to such a run; `profiles` and
`new-workload`: what can be measured, what would run here, and how to add to it."""

from __future__ import annotations

import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any  # Any: what click passes on

import click

from gputui.cli.options import (
    FILE,
    all_cases_option,
    db_option,
    detach_option,
    json_option,
    json_results_option,
    machine_option,
    notify_option,
    run_options,
)
from gputui.cli.output import (
    confirmed,
    print_json,
    printed,
    report_missing_home,
    report_recovered,
    say,
    shown,
    warn,
)
from gputui.cli.watching import VERBOSE_HELP, detached, measured
from gputui.document.spans import Span, wrapped
from gputui.document.table import table_of
from gputui.errors import EXIT_INTERRUPTED, EXIT_USAGE, GputuiError, MachineLacks, clean_text
from gputui.machine.describing import describe_machine
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan
from gputui.model.units import counted, format_hourly, format_seconds, format_whole_seconds
from gputui.recording.pacing import least_budget_s
from gputui.recording.probing import copy_worker
from gputui.recording.run_directory import Spec
from gputui.services.compare.rerun import RepeatedRun, differences_here, read_model, repetition_of
from gputui.services.prices import STATED, price_source
from gputui.services.profiles.interpreters import choose_interpreter
from gputui.services.profiles.loader import Profile, find_profile, shipped_profiles
from gputui.services.profiles.planner import resolve_plan
from gputui.services.profiles.user_workload import is_step_file, profile_of_step, write_template
from gputui.services.results.labels import torch_in
from gputui.services.runs.options import options_of
from gputui.services.runs.progress import expected_s
from gputui.services.runs.start import Prepared, prepare, price_stated_before, reasons_of
from gputui.worker.ranks import address_of

COMMON = ("--db", "--device", "--only", "--precision", "--budget", "--label", "--price", "--python")


@click.command()
@click.argument("profile", required=False)
@db_option
@run_options("python", "device", "only", "precision", "launches", "budget", "blocks", "rendezvous")
@run_options("label", "price", "instance")
@machine_option
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="Seed of the launch order and random inputs.",
)
@click.option(
    "--trace", "keeps_traces", is_flag=True, help="Also profile each case, and keep its Chrome trace."
)
@click.option("--like", metavar="F@RUN", help="Repeat the cases of a stored run.")
@detach_option
@notify_option
@click.option("--yes", is_flag=True, help="Measure even if the box is busy, without asking.")
@all_cases_option
@click.option("-v", "--verbose", is_flag=True, help=VERBOSE_HELP)
@json_results_option
def command(
    profile: str | None,
    like: str | None,
    detach: bool,
    notify: bool,
    yes: bool,
    shows_all: bool,
    verbose: bool,
    as_json: bool,
    **stated: Any,
) -> int:
    """Measure PROFILE and store the result.

    It is a name, a .toml file, or a .py file with your own workload; without one, `quick`. With --like
    leave it out, or name that run's .toml or .py file. Exits with 1 if a case failed, else 6 if
    nothing was measured.
    """
    if notify and detach:
        raise GputuiError(
            "--notify with --detach: no viewer is left to ring",
            "leave one of them out, or watch it later: gputui attach --notify",
        )
    model = None if like is None else _model(like, profile)
    if stated["seed"] is None:
        stated["seed"] = secrets.randbelow(2**31) if model is None else model.run.summary.seed
    report_recovered()
    usual = "quick" if model is None else ""
    options = options_of(profile or usual, stated)
    report_missing_home()
    prepared = prepare(
        options,
        on_probe=lambda path: click.echo(f"checking {path} ...", err=True),
        on_planned=_announce,
        profile_of=None if model is None else partial(_profile_like, model, options.only),
    )
    specs = prepared.specs
    if options.price is None and options.instance is None:
        specs = _at_known_price(prepared)
    else:
        _report_price(specs[0])
    for warning in prepared.warnings:
        say(warning)
    _see_disturbances(prepared, yes=yes)

    like = "" if model is None else model.selector
    if detach:
        return detached(specs, as_json=as_json, like=like)
    return measured(
        specs,
        prepared.target,
        notifies=notify,
        as_json=as_json,
        is_verbose=verbose,
        shows_all=shows_all,
        like=like,
    )


def _at_known_price(prepared: Prepared) -> tuple[Spec, ...]:
    """The runs at the price that was stated for this box before, so that repeating one keeps its cost."""
    known = price_stated_before(prepared.target, prepared.machine)
    if known is None:
        _report_price(prepared.specs[0])
        return prepared.specs
    price, run = known
    usd = format_hourly(price.usd_per_hour)
    say(f"price: {usd}, as stated for run {run}; if you pay another: --price USD_PER_H")
    return tuple(replace(spec, price=price) for spec in prepared.specs)


def _report_price(spec: Spec) -> None:
    """Say which list price is stored, since it may not be what the user pays."""
    price = spec.price
    if price is not None and price.kind != STATED:
        usd = format_hourly(price.usd_per_hour)
        say(f"price: {usd} ({price_source(price)}); if you pay another: --price USD_PER_H")


def _model(named: str, profile: str | None) -> RepeatedRun:
    """The run to repeat, once it is clear that a profile beside it is one that it may need."""
    if profile is not None and not profile.endswith((".py", ".toml")):
        raise GputuiError(
            f"profile {profile} with --like {named}: the other run decides the cases",
            "leave the profile out, or name the .py or .toml file that defines the other run's own workloads",
        )
    return read_model(named)


def _profile_like(
    model: RepeatedRun, only: Sequence[str], given: Profile | None, machine: Machine, chosen: Interpreter
) -> Profile:
    """What a run measured, to be measured again; it is said first what differs here."""
    repetition = repetition_of(model, given)
    summary = model.run.summary
    label = f" ({summary.label})" if summary.label else ""
    click.echo(f"like run {summary.short_id}{label} of {model.text}", err=True)
    differs = differences_here(model, machine, chosen.runtime)
    said = [f"differs: {what}: {there} there, {here} here" for what, there, here in differs]
    warn(said or ["no recorded differences"])
    for name, reason in repetition.refused:
        if not only or any(f"{text}:".startswith(f"{name.split()[0]}:") for text in only):
            click.echo(f"not repeated: {name}: {reason}", err=True)
    if repetition.left_out and not only:
        click.echo(f"not repeated: {counted(repetition.left_out, 'case')} not tried there either", err=True)
    return repetition.profile


def _see_disturbances(prepared: Prepared, *, yes: bool) -> None:
    """Name what would disturb the measurement; on a terminal, ask. Raises GputuiError if the answer is no."""
    from gputui.services.doctor.disturbances import check_lines, disturbances, gpus_of

    launches = [launch for spec in prepared.specs for launch in spec.plan.launches]
    found = disturbances(prepared.machine, gpus_of(launches, prepared.machine))
    with printed(sys.stderr) as page:
        for line in (line for check in found for line in check_lines(check, page.width, breaks=False)):
            page.spans(line)
    if not found or yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not confirmed("Measure anyway?"):
        raise GputuiError("nothing was measured", "--yes measures without asking")


def _announce(plan: Plan, chosen: Interpreter, target: Path) -> None:
    if not plan.launches:
        return  # why, is said next
    runtime = chosen.runtime
    to_run = sum(1 for c in plan.cases if c.outcome is None)
    left_out = len(plan.cases) - to_run
    up_to = "up to " if plan.replicates > 1 else ""
    about_s = sum(expected_s(plan, launch) for launch in plan.launches)
    about = format_whole_seconds(min(about_s, plan.budget_s))
    at_most = format_whole_seconds(plan.budget_s)
    say(
        f"{plan.profile}: {counted(to_run, 'case')}, {up_to}{counted(plan.replicates, 'launch')} each,"
        f"{'' if about == at_most else f' about {about},'}"
        f" at most {at_most}" + (f"; {left_out} cannot run here" if left_out else "")
    )
    least_s = least_budget_s(plan)
    if plan.budget_s < least_s:
        say(
            f"{at_most} is too short for all {counted(to_run, 'case')}, which need at least"
            f" {format_whole_seconds(least_s)}: the most important come first"
        )
    say(f"with Python {runtime.python_version}, {torch_in(runtime)} ({chosen.found_as}); into {target}")
    warn(f"passed over: {found}" for found in chosen.passed_over)
    if plan.rendezvous:
        click.echo(f"waiting for the other hosts; on each: gputui join {plan.rendezvous}", err=True)


@click.command()
@click.argument("rendezvous", metavar="ADDRESS:PORT")
@click.option("--python", metavar="EXE", help="Interpreter with the same torch version as the other box.")
def join(rendezvous: str, python: str | None) -> int:
    """Lend this box to a run of several hosts that another box measures, until Ctrl-C.

    ADDRESS:PORT is what that run is given: `gputui run hosts --rendezvous ADDRESS:PORT`. Its results are
    there; nothing is stored here.
    """
    try:
        socket.getaddrinfo(*address_of(rendezvous))
    except (ValueError, OSError) as error:
        why = f"no such host ({error})" if isinstance(error, OSError) else "is not ADDRESS:PORT"
        hint = "the one of `gputui run --rendezvous` on the other box, such as 10.0.0.1:29400"
        raise GputuiError(f"{rendezvous}: {why}", hint) from None
    chosen = choose_interpreter(python)
    for found in chosen.passed_over:
        click.echo(f"passed over: {found}", err=True)
    version = chosen.runtime.torch_version
    if isinstance(version, Missing):
        raise MachineLacks(
            f"{chosen.executable}: {version.reason}", "name an interpreter that has torch: --python EXE"
        )
    with tempfile.TemporaryDirectory(prefix="gputui-") as folder:
        start = copy_worker(Path(folder))
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        process = subprocess.Popen([chosen.executable, str(start), "join", rendezvous], stdin=subprocess.PIPE)
        try:
            status = process.wait()
        except KeyboardInterrupt:  # the terminal sends it to the process too
            process.wait()
            return EXIT_INTERRUPTED
        finally:
            process.terminate()
            process.wait()
    return EXIT_USAGE if status == 1 else status


@click.command()
@click.argument("name", required=False)
@click.option("--python", metavar="EXE", help="Interpreter to measure.")
@json_option
def profiles(name: str | None, python: str | None, as_json: bool) -> None:
    """List the profiles; or show NAME in full, with what would run here, what would not, and why."""
    if name is not None:
        _show(name, python, as_json)
    elif as_json:
        listed = [
            {"name": p.name, "question": p.question, "budget_s": p.budget_s, "launches": p.replicates}
            for p in shipped_profiles()
        ]
        print_json({"profiles": listed})
    else:
        rows = [
            (Span(one.name, "accent"), format_whole_seconds(one.budget_s), f" {one.question}")
            for one in shipped_profiles()
        ]
        with printed() as page:
            page.table(table_of(("", "", ""), rows, right=(1,), breaks=(2,)))
            page.line()
            page.hint("next", "gputui profiles NAME, or gputui run NAME")


@click.command()
@click.argument("file", type=FILE)
def new_workload(file: Path) -> None:
    """Write FILE: a commented workload that runs at once, to be changed into your own."""
    write_template(file)
    click.echo(f"wrote {file}; run it: gputui run {shlex.quote(str(file))} --db a.db")


def _show(name: str, python: str | None, as_json: bool) -> None:
    shipped = None if is_step_file(name) else find_profile(name)
    chosen = choose_interpreter(python)
    profile = shipped or profile_of_step(Path(name), chosen.executable)
    plan = resolve_plan(profile, chosen, describe_machine())
    if as_json:
        print_json(plan.to_plain())
        return
    version = chosen.runtime.torch_version
    torch = f"torch {version.reason}" if isinstance(version, Missing) else f"torch {version}"
    click.echo(f"{profile.name}: {profile.question}")
    up_to = "up to " if profile.replicates > 1 else ""
    launches = f"{up_to}{profile.replicates} launch{'es' if profile.replicates > 1 else ''} per case"
    click.echo(f"at most {format_seconds(profile.budget_s)}, {launches}")
    python_version = chosen.runtime.python_version
    click.echo(f"measured with Python {python_version}, {torch} ({chosen.found_as})")
    for found in chosen.passed_over:
        click.echo(f"passed over: {found}")
    for command in profile.commands:
        words = clean_text(shlex.join(command.argv).replace("\n", "\\n"))
        click.echo(f"  {command.workload:<12} {words}")
        matching = f"each match of {command.pattern!r}" if command.pattern else "from start to end"
        click.echo(f"  {'':<12} timed: {matching}")
    for workload in dict.fromkeys(c.case.work.workload for c in plan.cases if not c.case.is_program):
        click.echo(f"  {workload:<12} {profile.workload_named(workload).question}")
    _cases(plan)


def _cases(plan: Plan) -> None:
    runs = [c for c in plan.cases if c.outcome is None]
    click.echo(f"\nwould run here ({len(runs)}):")
    for one in runs:
        click.echo(f"  {one.case.name}")
        for part in filter(None, one.note.split("; ")):
            click.echo(f"    {part}")
    reasons = reasons_of(plan)
    if reasons:
        click.echo(f"\nwould not ({sum(map(len, reasons.values()))}):")
    for reason, names in reasons.items():
        for name in names:
            click.echo(f"  {name}")
        for line in wrapped(f"    {shown(reason)}", shutil.get_terminal_size().columns, breaks=False):
            click.echo(line)
