"""`gputui run`: measure a profile and store the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gputui.cli.recovered import tell_recovered
from gputui.cli.watching import HOW_TO_LEAVE, finish, hold_signals, watch
from gputui.errors import EXIT_DONE
from gputui.model.absent import Missing
from gputui.model.plan import Plan
from gputui.services.interpreters import Chosen
from gputui.services.running import LiveRun, start_runs, wait_until_begun
from gputui.services.starting import Asked, launches_from, prepare, price_from


@click.command()
@click.argument("profile", default="quick")
@click.option(
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Result file.  [$GPUTUI_DB, else results.db]",
)
@click.option("--python", "pythons", multiple=True, metavar="EXE", help="Interpreter to measure; repeatable.")
@click.option("--device", default="", metavar="D", help="cpu, gpu, gpu:N, or the UUID of a GPU.")
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Only this workload; repeatable.")
@click.option("--launches", type=launches_from, metavar="N", help="Launches per case.  [the profile's]")
@click.option("--label", default="", help="A name for this run.")
@click.option("--price", type=price_from, metavar="USD_PER_H", help="What the whole box costs per hour.")
@click.option("--instance", metavar="TYPE", help="Take the list price of this instance type.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Order of launches and random inputs.")
@click.option("--trace", is_flag=True, help="Profile each case that can be, and keep its Chrome trace.")
@click.option("--detach", is_flag=True, help="Start it and return at once; see it with `gputui attach`.")
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
    trace: bool,
    detach: bool,
    as_json: bool,
) -> int:
    """Measure PROFILE and store the result.

    A name, a .toml file, or a workload of your own in a .py file; without one, `quick`.
    """
    tell_recovered()
    asked = Asked(
        profile=profile,
        db=db,
        pythons=pythons,
        device=device,
        only=only,
        launches=launches,
        label=label,
        price=price,
        instance=instance,
        seed=seed,
        keeps_traces=trace,
    )
    prepared = prepare(asked, on_probe=_say_probing, on_planned=_announce)
    requests, target = prepared.requests, prepared.target
    if prepared.warning:
        click.echo(prepared.warning, err=True)

    if detach:
        runs = start_runs(requests, target)
        wait_until_begun(runs)
        return _leave(runs, as_json)
    if sys.stderr.isatty():
        click.echo(HOW_TO_LEAVE, err=True)
    hold_signals()
    runs = start_runs(requests, target)
    watched = watch(runs, [request.plan for request in requests])
    return finish(runs, watched, target, as_json=as_json)


def _leave(runs: Sequence[LiveRun], as_json: bool) -> int:
    """Say how runs that were left to themselves are found again."""
    if as_json:
        click.echo(json.dumps({"schema": 1, "runs": [{"run_id": run.run_id} for run in runs]}, indent=1))
        return EXIT_DONE
    name = runs[0].short_id
    click.echo(f"run {' and '.join(run.short_id for run in runs)} goes on by itself")
    click.echo(f"watch it: gputui attach {name}; end it: gputui stop {name}")
    return EXIT_DONE


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
