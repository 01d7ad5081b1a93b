"""`gputui profiles` and `new-workload`: what can be measured, what would run here, and how to add to it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click

from gputui.cli.options import FILE, json_option
from gputui.cli.output import print_json, printed, shown
from gputui.document.spans import Span, wrapped
from gputui.document.table import table_of
from gputui.model.absent import Missing
from gputui.model.plan import Plan
from gputui.model.units import format_seconds, format_whole_seconds
from gputui.services.profiles.loader import find_profile, shipped_profiles
from gputui.store.text import clean_text


@click.command()
@click.argument("name", required=False)
@click.option("--python", metavar="EXE", help="Interpreter to measure.")
@json_option
def command(name: str | None, python: str | None, as_json: bool) -> None:
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
    from gputui.services.profiles.user_workload import write_template

    write_template(file)
    click.echo(f"wrote {file}; run it: gputui run {shlex.quote(str(file))} --db a.db")


def _show(name: str, python: str | None, as_json: bool) -> None:
    from gputui.machine.describing import describe_machine
    from gputui.services.profiles.interpreters import choose_interpreter
    from gputui.services.profiles.planner import resolve_plan
    from gputui.services.profiles.user_workload import is_step_file, profile_of_step

    shipped = None if is_step_file(name) else find_profile(name)
    chosen = choose_interpreter(python)
    profile = shipped or profile_of_step(Path(name), chosen.interpreter.executable)
    plan = resolve_plan(profile, chosen.interpreter, describe_machine())
    if as_json:
        print_json(plan.to_plain())
        return
    version = chosen.interpreter.runtime.torch_version
    torch = f"torch {version.reason}" if isinstance(version, Missing) else f"torch {version}"
    click.echo(f"{profile.name}: {profile.question}")
    up_to = "up to " if profile.replicates > 1 else ""
    launches = f"{up_to}{profile.replicates} launch{'es' if profile.replicates > 1 else ''} per case"
    click.echo(f"at most {format_seconds(profile.budget_s)}, {launches}")
    python_version = chosen.interpreter.runtime.python_version
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
    from gputui.services.runs.start import reasons_of

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
