"""`gputui run`: measure a profile and store the result."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.cli.recovered import tell_recovered
from gputui.cli.watching import HOW_TO_LEAVE, finish, hold_signals, watch
from gputui.errors import EXIT_DONE, GputuiError, MachineLacks
from gputui.machine import describe_machine, storage_warning
from gputui.model.absent import Missing
from gputui.model.plan import Plan
from gputui.services.interpreters import Chosen, choose_interpreter
from gputui.services.own_steps import is_step_file, profile_of_step
from gputui.services.places import default_result_file, hash_key
from gputui.services.pricing import price_of
from gputui.services.profiles import Profile, find_profile
from gputui.services.resolving import Choices, resolve_plan
from gputui.services.running import LiveRun, RunRequest, start_runs, wait_until_begun
from gputui.store.opening import expanded
from gputui.store.selecting import check_label
from gputui.store.writing import check_writable

if TYPE_CHECKING:
    from gputui.model.machine import Machine
    from gputui.services.repeating import Model


@click.command()
@click.argument("profile", required=False)
@click.option(
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Result file.  [$GPUTUI_DB, else results.db]",
)
@click.option("--python", "pythons", multiple=True, metavar="EXE", help="Interpreter to measure; repeatable.")
@click.option("--device", default="", metavar="D", help="cpu, gpu, gpu:N, or the UUID of a GPU.")
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Only this workload; repeatable.")
@click.option("--launches", type=click.IntRange(1, 100), help="Launches per case.  [the profile's]")
@click.option("--label", default="", help="A name for this run.")
@click.option("--price", type=float, metavar="USD_PER_H", help="What the whole box costs per hour.")
@click.option("--instance", metavar="TYPE", help="Take the list price of this instance type.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Order of launches and random inputs.")
@click.option("--trace", is_flag=True, help="Profile each case that can be, and keep its Chrome trace.")
@click.option("--like", metavar="F@RUN", help="Repeat the cases of a stored run, as often.")
@click.option("--detach", is_flag=True, help="Start it and return at once; see it with `gputui attach`.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    profile: str | None,
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
    like: str | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Measure PROFILE and store the result.

    A name, a .toml file, or a workload of your own in a .py file; without one, `quick`. With --like it is
    the .toml or .py file whose programs or workload the other run had, if it had any.
    """
    check_label(label)
    model = None if like is None else _model(like, profile)
    named = profile or ("" if model is not None else "quick")
    shipped = find_profile(named) if named and not is_step_file(named) else None
    tell_recovered()
    target = expanded(default_result_file() if db is None else db).absolute()
    machine = describe_machine(hash_key())
    price_found = price_of(price, instance, machine)
    if db is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    check_writable(target)
    if seed is None:
        seed = secrets.randbelow(2**31) if model is None else model.run.summary.seed
    choices = Choices(device=device, only=only, replicates=launches, seed=seed, keeps_traces=trace)

    requests = []
    for stated in pythons or (None,):
        chosen = choose_interpreter(stated, on_probe=_say_probing)
        is_own = bool(named) and shipped is None
        given = profile_of_step(Path(named), chosen.interpreter.executable) if is_own else shipped
        chosen_profile = _profile(given, model, machine, chosen)
        plan = resolve_plan(chosen_profile, chosen.interpreter, machine, choices)
        if not plan.launches:
            raise _nothing_to_run(chosen_profile, plan, chosen)
        _announce(plan, chosen, target)
        requests.append(RunRequest(plan, chosen.interpreter.runtime, label, price_found))
    warning = storage_warning(target, machine.layers)
    if warning:
        click.echo(warning, err=True)

    if detach:
        runs = start_runs(requests, target)
        wait_until_begun(runs)
        return _leave(runs, as_json, target, model)
    if sys.stderr.isatty():
        click.echo(HOW_TO_LEAVE, err=True)
    hold_signals()
    runs = start_runs(requests, target)
    watched = watch(runs, [request.plan for request in requests])
    return finish(runs, watched, target, as_json=as_json, like="" if model is None else model.selector)


def _model(like: str, profile: str | None) -> Model:
    """The run to repeat, once it is clear that a profile beside it is one that it may need."""
    from gputui.services.repeating import read_model

    if profile is not None and not profile.endswith((".py", ".toml")):
        raise GputuiError(
            f"profile {profile} with --like {like}: the cases are those of the other run",
            "leave the profile out; only a .py or .toml file is read beside it, for what result files lack",
        )
    return read_model(like)


def _profile(given: Profile | None, model: Model | None, machine: Machine, chosen: Chosen) -> Profile:
    """What is to be measured; of a run that is repeated it is said first what differs here."""
    if model is None:
        if given is None:
            raise ValueError("a run has a profile or a model")
        return given
    from gputui.services.repeating import differences_here, repetition_of

    repetition = repetition_of(model, given)
    summary = model.run.summary
    label = f" ({summary.label})" if summary.label else ""
    click.echo(f"like run {summary.short_id}{label} of {model.text}", err=True)
    differs = differences_here(model, machine, chosen.interpreter.runtime)
    for what, there, here in differs:
        click.echo(f"differs: {what}: {there} there, {here} here", err=True)
    if not differs:
        click.echo("differs: nothing that is recorded", err=True)
    for name, reason in repetition.refused:
        click.echo(f"not repeated: {name}: {reason}", err=True)
    if repetition.left_out:
        click.echo(f"not repeated: {_counted(repetition.left_out, 'case')} not tried there either", err=True)
    return repetition.profile


def _leave(runs: Sequence[LiveRun], as_json: bool, target: Path, model: Model | None) -> int:
    """Say how runs that were left to themselves are found again."""
    if as_json:
        click.echo(json.dumps({"schema": 1, "runs": [{"run_id": run.run_id} for run in runs]}, indent=1))
        return EXIT_DONE
    name = runs[0].short_id
    click.echo(f"run {' and '.join(run.short_id for run in runs)} goes on by itself")
    click.echo(f"watch it: gputui attach {name}; end it: gputui stop {name}")
    if model is not None:
        mine = shlex.quote(f"{target}@{name}")
        click.echo(f"then: gputui compare {shlex.quote(model.selector)} {mine}")
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


def _nothing_to_run(profile: Profile, plan: Plan, chosen: Chosen) -> MachineLacks:
    reasons = dict.fromkeys(c.reason for c in plan.cases if c.reason)
    version = chosen.interpreter.runtime.torch_version
    if isinstance(version, Missing) and profile.cases:
        return MachineLacks(
            f"profile {profile.name} needs torch: {version.reason} in {chosen.interpreter.executable}",
            "pip install torch, or name an interpreter that has it: --python ~/envs/torch/bin/python",
        )
    return MachineLacks(
        f"profile {profile.name}: nothing can run here: {'; '.join(reasons)}", "gputui profiles"
    )
