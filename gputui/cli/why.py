"""`gputui why`: where the time of a step goes, of a program as it is, or of a trace."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # JSON

import click

from gputui.analysis.attribution import BELIEVED_INFLATION
from gputui.cli.options import db_option
from gputui.cli.output import printed, warn
from gputui.cli.record import ProgramCommand, not_started
from gputui.cli.results import write_answer
from gputui.cli.show import write_step
from gputui.cli.traces import read_runs, show_trace, write_trace
from gputui.document.drawings import stacked_bar
from gputui.document.table import Table
from gputui.errors import EXIT_DONE, EXIT_HUNG_UP, GputuiError
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import counted, format_seconds
from gputui.recording.foreground import Foreground
from gputui.services.results.conditions import Evidence, findings_of_case
from gputui.services.results.labels import run_heading_in_one
from gputui.services.results.selectors import Selection, from_here, run_and_file, run_in
from gputui.services.results.step_tables import profiled_cases
from gputui.services.runs.process import writable_target
from gputui.services.share.card import step_of
from gputui.services.traces import in_program
from gputui.services.traces.imported import TraceRun, contents_of
from gputui.services.traces.in_program import AFTER, DIRECTORY, STEPS
from gputui.services.traces.window import described
from gputui.store.reading import open_result
from gputui.store.selecting import check_label, find_run
from gputui.store.writing import store_run
from gputui.worker.foreign_json import read_json_file

_MOST_STEPS = 1000
_SILENT = "99"
"""Above every level at which torch's profiler prints something of its work to stderr."""


class _WhyCommand(ProgramCommand):
    form = "gputui why -- python train.py; gputui why trace.json.gz"
    takes_other_words = True


@click.command(cls=_WhyCommand)
@click.option(
    "--steps",
    type=click.IntRange(1, _MOST_STEPS),
    metavar="N",
    help="Profile N steps.  [half a second of them, 3 at least]",
)
@click.option(
    "--after", type=click.IntRange(1), metavar="N", help="Begin after step N.  [when the program has settled]"
)
@db_option
@click.option("--label", default="", help="Label of what is stored.  [the program's name]")
@click.option("--top", type=click.IntRange(0, 400), default=5, metavar="N", help="Print N operators.  [5]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TRACE | RUN | F@RUN | -- COMMAND...")
def command(
    steps: int | None,
    after: int | None,
    db: Path | None,
    label: str,
    top: int,
    words: tuple[str, ...],
) -> int:
    """Explain a step of COMMAND, a Python program that uses torch, or of a trace or a stored run.

    The program runs as it is, with its own output and exit status. A few of its steps are profiled and
    stored; what they tell goes to stderr.
    """
    check_label(label)
    if not words:
        raise GputuiError("nothing to explain", _WhyCommand.form)
    if click.get_current_context().meta[ProgramCommand.HAS_MARK]:
        return _run(words, _environment(steps, after), db, label or _program(words), top)
    path = _only(words)
    if not path.name.endswith((".json", ".json.gz")):
        _explain_run(words[0], top)
        return EXIT_DONE
    (run,) = read_runs([path], label)
    with printed() as page:
        write_trace(page, run.found, run.device, f"{run.name}: {described(run.window)}", run.notes, top)
    return EXIT_DONE


def _explain_run(named: str, top: int) -> None:
    """Why a stored run is as fast as it is. Raises GputuiError if there is none of that name."""
    path, selector = run_and_file(named, None)
    with open_result(path) as result:
        run = run_in(result, find_run(result.summaries(), selector or "latest").run_id)
        passes = result.profiled(run.summary.run_id)
        said = [event.message for event in result.events(run.summary.run_id)]
        warn(result.warnings)
    if run.summary.profile == TRACE_PROFILE:
        show_trace(run, passes[0], said, top, is_verbose=False)
        return
    with printed() as page:
        write_answer(page, run, run_heading_in_one(run), passes)
        words, parts = step_of(run, passes)
        if parts:
            page.line(words, "dim")
            page.table(Table((stacked_bar(parts),)))
        found = profiled_cases(run, passes)[:1]
        for case in found:
            page.line()
            write_step(page, case, passes[case.case_id], top)
            evidence = Evidence((Selection(named, path, (run,), (), {}),))
            page.part(tuple(one.text for one in findings_of_case(case, run.summary, evidence)))
        if not found:
            page.line("no step was profiled: gputui run --trace profiles every case that can be")


def _run(words: tuple[str, ...], environ: dict[str, str], db: Path | None, label: str, top: int) -> int:
    """Run a program to its end and explain it; returns its exit status."""
    target = writable_target(db)
    with tempfile.TemporaryDirectory(prefix="gputui-why-") as directory:
        foreground = Foreground()
        try:
            end = foreground.run(words, lambda _: None, {**environ, DIRECTORY: directory})
        except OSError as error:
            raise not_started(words[0], error, "nothing was profiled") from error
        if not foreground.hung_up:
            _explain(Path(directory), words, target, label, top)
    if foreground.hung_up:
        os._exit(EXIT_HUNG_UP)  # there is nobody to report to
    return end.exit_status if end.exit_status >= 0 else 128 - end.exit_status


def _only(words: tuple[str, ...]) -> Path:
    if len(words) > 1:
        raise GputuiError(
            f"{words[0]} and {words[1]}: one trace is explained, or a command after --",
            f"gputui compare {shlex.join(words[:2])}; gputui why -- {shlex.join(words)}",
        )
    return Path(words[0])


def _program(words: tuple[str, ...]) -> str:
    """`train.py` of `python -u train.py --lr 3`."""
    return Path(next((word for word in words[1:] if word.endswith(".py")), words[0])).name


def _environment(steps: int | None, after: int | None) -> dict[str, str]:
    """The program's: ours, where its Python finds what profiles it."""
    hook = str(Path(in_program.__file__).parent)
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", _SILENT),
        "PYTHONPATH": os.pathsep.join(filter(None, (hook, path))),
        STEPS: str(steps or 0),
        AFTER: str(after or 0),
    }


def _explain(directory: Path, words: tuple[str, ...], target: Path, label: str, top: int) -> None:
    """Store the trace and say what it tells, or why there is none; the program's exit status stays."""
    told = [read_json_file(path) for path in sorted(directory.glob("told-*.json"))]
    profiled = [one for one in told if "trace" in one]
    if not profiled:
        _say(f"nothing was profiled: {_why_not(told)}")
        return
    one = next((one for one in profiled if one["has_steps"]), profiled[0])  # of several ranks the first
    try:
        (run,) = read_runs([directory / str(one["trace"])], label)
        stored = store_run(target, contents_of(run), (), imported_from=shlex.join(words)[:200])
    except GputuiError as error:
        _say(f"the steps were profiled, but {error.message}\n  {error.hint}")
        return
    with printed(sys.stderr) as page:
        write_trace(page, run.found, run.device, _heading(run, one), run.notes, top)
    file = shlex.quote(from_here(str(target)))
    _say(f"stored as {stored.run_id[-8:]} in {file}\n  gputui show {stored.run_id[-8:]} {file} -v")


def _heading(run: TraceRun, told: Mapping[str, Any]) -> str:
    """`CPU, torch 2.13.0; steps 20 to 25 of 240; train.py as it is`."""
    where = f"{run.device or 'CPU'}, torch {told.get('torch', '')}"
    seen = told.get("seen")
    if not told["has_steps"]:
        return f"{where}; {run.name} as it is, {'soon after it began' if seen else 'which makes no steps'}"
    first = int(told["first_step"])
    last = first + run.found.steps - 1
    whole = "" if seen is None else f" of {seen}"
    which = f"steps {first} to {last}" if last > first else f"step {first}"
    heading = f"{where}; {which}{whole} of {run.name}"
    before_s = float(told["before_s"])
    if not before_s:
        return heading
    low, high = BELIEVED_INFLATION
    is_rough = not low <= run.found.window_ns / run.found.steps * 1e-9 / before_s <= high
    rough = ", so shares are rough" if is_rough else ""
    return f"{heading}; before, a step took {format_seconds(before_s)}{rough}"


def _why_not(told: list[Any]) -> str:
    failed = next((one["failed"] for one in told if "failed" in one), "")
    if failed:
        return f"torch.profiler failed: {failed}"
    if not any("torch" in one for one in told):
        return "no Python that imports torch ran, or one that ignores PYTHONPATH (-E, -I, -S)"
    seen = max(int(one.get("seen", 0)) for one in told)
    if not seen:
        return "it ended before an optimizer step, and within 5 s of importing torch: let it run longer"
    steps = counted(seen, "optimizer step")
    return f"it ended after {steps}, before the window: --after 1 --steps 1 begins earlier"


def _say(text: str) -> None:
    click.echo(f"gputui: {text}", err=True)
