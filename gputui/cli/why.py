"""`gputui why`: where the time of a step goes, of a program as it is, or of a trace."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import click

from gputui.cli.options import db_option, machine_option, price_option
from gputui.cli.output import print_or_write, printed, warn
from gputui.cli.record import ProgramCommand, prepared, recorded, say_if_heard
from gputui.cli.traces import (
    NextSteps,
    compared_stored_traces,
    next_steps,
    read_runs,
    trace_in,
    write_difference,
    write_step_answer,
)
from gputui.errors import EXIT_DONE, EXIT_HUNG_UP, GputuiError
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import counted, format_seconds
from gputui.recording.recorder import Foreground, Recorder
from gputui.services.results.conditions import Evidence
from gputui.services.results.headline import answering_run
from gputui.services.results.labels import run_heading_in_one
from gputui.services.results.selectors import Selection, from_here, run_and_file, run_in
from gputui.services.results.step_answer import (
    BACKWARD,
    BY_HAND,
    COMPILED,
    PROFILED,
    StepAnswer,
    answer_of_case,
)
from gputui.services.results.step_breakdown import profiled_cases
from gputui.services.support.output_files import json_text
from gputui.services.traces.difference import change_sentence, difference_of
from gputui.services.traces.forms import answer_of, as_json, brief
from gputui.services.traces.imported import TraceRun, contents_of, with_others
from gputui.services.traces.ranks import rank_lines
from gputui.store.reading import open_result
from gputui.store.selecting import MAX_LABEL, check_label
from gputui.store.writing import store_run
from gputui.worker.foreign_json import read_json_file

DIRECTORY, STEPS, AFTER = "GPUTUI_WHY_DIRECTORY", "GPUTUI_WHY_STEPS", "GPUTUI_WHY_AFTER"
"""Variables of the program's environment, which its half reads: the module that Python imports there as
`sitecustomize`. That imports nothing of gputui, since the program may run in any interpreter."""
IN_PROGRAM = Path(__file__).resolve().parents[1] / "services" / "traces" / "in_program"
_MOST_STEPS = 1000
_COMMAND_KEPT = 200
"""Characters of a command that are stored."""
_MUCH_APART, _FEW_LONG = 0.2, 1.5
"""Of a step: a mean that lies further from the median is worth a note."""
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
@click.option("--top", type=click.IntRange(0, 400), metavar="N", help="Add N operators and kernels.")
@click.option("--brief", "is_brief", is_flag=True, help="As Markdown, for a colleague.")
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it there: .json, else as --brief.",
)
@price_option
@machine_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TRACE | RUN | F@RUN | -- COMMAND...")
def command(
    steps: int | None,
    after: int | None,
    label: str,
    top: int | None,
    is_brief: bool,
    is_json: bool,
    output: Path | None,
    words: tuple[str, ...],
    **kept_as: Any,
) -> int:
    """Explain a step of COMMAND, a Python program that uses torch, or of a trace or a stored run.

    The program runs as it is, with its own output and exit status. A few of its steps are profiled and
    stored; what they tell goes to stderr. Two traces or runs: how they differ.
    """
    check_label(label)
    if not words:
        raise GputuiError("nothing to explain", _WhyCommand.form)
    if is_brief and is_json:
        raise GputuiError(
            "--brief and --json: one of them", "a file takes its form from its name: -o why.json"
        )
    form = _form(output, is_brief=is_brief, is_json=is_json)
    if click.get_current_context().meta[ProgramCommand.HAS_MARK]:
        if form and output is None:
            raise GputuiError(f"--{form}: stdout is the program's own", f"-o {_FILES[form]}")
        program = next((word for word in words[1:] if word.endswith(".py")), words[0])
        label = label or Path(program).name
        return _run(words, _environment(steps, after), label, (form, output, top), **kept_as)
    return _explain_stored(words, label, (form, output, top))


def _explain_stored(words: Sequence[str], label: str, how: Form) -> int:
    """Explain a trace or a stored run, or how two of them differ; of several traces also who waits."""
    form, output, top = how
    are_traces = len(words) > 1 and all(word.endswith(_TRACES) for word in words)
    runs = read_runs([Path(word) for word in words]) if are_traces else ()
    of_ranks = rank_lines(runs)
    if of_ranks and not form:
        with printed() as page:
            page.part(tuple(of_ranks))
        return EXIT_DONE
    if len(words) == 2:
        is_file = [word.endswith(_TRACES) for word in words]
        if any(is_file) and not runs:
            stored = words[is_file.index(True)]
            raise GputuiError(f"{' and '.join(words)}: a trace and a stored run", f"gputui import {stored}")
        found = (
            difference_of(runs[:1], runs[1:])
            if runs
            else compared_stored_traces(words[0], words[1], trust=False)
        )
        write_difference(found, _DIFFERENCE_FORMS[form], output)
        return EXIT_DONE
    if len(words) > 1:
        raise GputuiError(
            f"{len(words)} traces or runs: one is explained, or how two differ",
            f"a command follows --: gputui why -- {shlex.join(words)}",
        )
    path = Path(words[0])
    if not path.name.endswith(_TRACES):
        answer, again, origin = _of_run(words[0])
    else:
        (run,) = read_runs([path], label)
        answer, again, origin = answer_of(run), (), ""
    if form:
        _write_form(form, output, answer, origin)
    else:
        with printed() as page:
            write_step_answer(page, answer, top, again)
    return EXIT_DONE


Form = tuple[str, Path | None, int | None]
"""`brief`, `json` or none, where to, and how many operators the page has."""
_FILES = {"brief": "why.md", "json": "why.json"}
_TRACES = (".json", ".json.gz")
_DIFFERENCE_FORMS = {"": "text", "brief": "markdown", "json": "json"}


def _form(output: Path | None, *, is_brief: bool, is_json: bool) -> str:
    """`brief` or `json`, as stated or as a file is called; empty for the page of a terminal."""
    if is_json or (output is not None and output.suffix == ".json" and not is_brief):
        return "json"
    return "brief" if is_brief or output is not None else ""


def _write_form(form: str, output: Path | None, answer: StepAnswer, ran: str, change: str = "") -> None:
    """Markdown or JSON, on stdout or to a file."""
    if form == "brief":
        print_or_write(brief(answer, ran, change), output)
    else:
        print_or_write(json_text(as_json(answer, ran, change)), output)


def _of_run(named: str) -> tuple[StepAnswer, NextSteps, str]:
    """Why a stored run is as fast as it is, what to do with it, and what it came from.

    Raises GputuiError if there is none of that name, or no step of it was profiled.
    """
    path, selector = run_and_file(named, None)
    if path.suffix in (".py", ".sh"):
        how = f"python {path}" if path.suffix == ".py" else f"sh {path}"
        raise GputuiError(f"{path} is a program: it is explained while it runs", f"gputui why -- {how}")
    with open_result(path) as result:
        chosen, newest = answering_run(result, selector or "latest")
        run = run_in(result, chosen.run_id)
        passes = result.profiled(run.summary.run_id)
        trace = trace_in(result, run.summary.run_id) if run.summary.profile == TRACE_PROFILE else None
        origin = result.origins()[run.summary.run_id]
        warn((*result.warnings, *newest))
    whole = shlex.quote(f"{from_here(str(path))}@{run.summary.short_id}")
    answer: StepAnswer | Missing = Missing("no step was profiled")
    if trace is not None:
        answer = answer_of(trace)
    for case in profiled_cases(run, passes)[:1] if trace is None else ():
        evidence = Evidence((Selection(named, path, (run,), (), {}),))
        answer = answer_of_case(case, run, passes[case.case_id], evidence, " ".join(run_heading_in_one(run)))
    if isinstance(answer, Missing):
        raise GputuiError(f"{named}: {answer.reason}", "gputui run --trace profiles every case that can be")
    return answer, next_steps(whole), origin


def _run(words: tuple[str, ...], environ: dict[str, str], label: str, how: Form, **kept_as: Any) -> int:
    """Record a program to its end and explain it; returns its exit status."""
    spec, box = prepared(has_program=True, label=f"{label[: MAX_LABEL - 8]} (whole)", **kept_as)
    foreground = Foreground()
    with tempfile.TemporaryDirectory(prefix="gputui-why-") as directory:

        def explain(recorder: Recorder) -> None:
            if not foreground.hung_up:
                _explain(Path(directory), words, Path(spec.target), label, how, recorder)

        environ = {**environ, DIRECTORY: directory}
        status = recorded(words, spec, box, foreground, environ=environ, at_end=explain)
    if foreground.hung_up:
        os._exit(EXIT_HUNG_UP)  # there is nobody to report to
    return status


def _environment(steps: int | None, after: int | None) -> dict[str, str]:
    """The program's: ours, where its Python finds what profiles it."""
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", _SILENT),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(IN_PROGRAM), path))),
        STEPS: str(steps or 0),
        AFTER: str(after or 0),
    }


def _explain(
    directory: Path, words: tuple[str, ...], target: Path, label: str, how: Form, recorder: Recorder
) -> None:
    """Store the trace and say what it tells, or why there is none; the program's exit status stays."""
    told = [read_json_file(path) for path in sorted(directory.glob("told-*.json"))]
    profiled = [one for one in told if "trace" in one]
    if not profiled:
        say_if_heard(f"nothing was profiled: {_why_not(told)}")
        return
    of_ranks = [one for one in profiled if one["has_steps"]]
    one = (of_ranks or profiled)[0]
    command = shlex.join(words)
    paths = [directory / str(of["trace"]) for of in of_ranks or [one]]
    try:
        read, *others = read_runs(paths, label)
    except GputuiError as error:
        why = _why_not(told) if not of_ranks else error.message  # a launcher, which does no steps
        say_if_heard(f"nothing was profiled: {why}")
        return
    try:
        run = with_others(read, recorder.cpu, recorder.short_id, one.get("looks_waited_ns", 0))
        before_ns = round(_step_s(one) * 1e9) if one["has_steps"] else 0
        notes = (*run.notes, *_notes(one), f"{PROFILED}{_heading(run, one)}")
        run = replace(run, found=replace(run.found, before_ns=before_ns), notes=notes)
        stored = store_run(
            target, contents_of(run, recorder.machine), (), imported_from=command[:_COMMAND_KEPT]
        )
        with open_result(target) as result:  # what changed since the same command was explained before
            origins, id_ = result.origins(), stored.run_id
            same = [one for one in origins if origins[one] == command[:_COMMAND_KEPT] and one != id_]
            change = change_sentence(trace_in(result, same[0]), run) if same else ""
    except GputuiError as error:
        say_if_heard(f"the steps were profiled, but {error.message}\n  {error.hint}")
        return
    file, short_id = from_here(str(target)), stored.run_id[-8:]
    again = (
        (f"gputui why -- {command}", "after a change: what it did"),
        (f"gputui why {shlex.quote(f'{file}@{short_id}')} --brief", "as Markdown, for a colleague"),
    )
    answer, (form, output, top) = answer_of(run), how
    lines = rank_lines((run, *others))
    with printed(sys.stderr) as page:
        write_step_answer(page, answer, top, again, (change, f"stored in {file} as {short_id}"))
        page.part(("", *lines) if lines else ())
    recorder.warn(f"steps of it are profiled in {short_id}", "info")
    if form:
        try:
            _write_form(form, output, answer, command, change)
        except GputuiError as error:
            say_if_heard(f"{error.message}\n  {error.hint}")


def _heading(run: TraceRun, told: Mapping[str, Any]) -> str:
    """`CPU, torch 2.13.0; steps 20 to 25 of 240 of train.py`."""
    where = f"{run.device or 'CPU'}, torch {told.get('torch', '')}"
    if not told["has_steps"]:
        return f"{where}; a while of {run.name} as it is"
    first = int(told["first_step"])
    last = first + run.found.steps - 1
    whole = f" of {told['seen']}" if int(told.get("seen", 0)) >= last else ""  # else it was ended within
    which = f"steps {first} to {last}" if last > first else f"step {first}"
    return f"{where}; {which}{whole} of {run.name}"


def _notes(told: Mapping[str, Any]) -> Iterator[str]:
    """What only the program's half knows: what marks its steps, how they vary, what was compiled."""
    first, again = told["compiled"]
    if first or again:
        yield f"{COMPILED}{first} for the first time, {again} again"
    if not told["has_steps"]:
        return
    if float(told["backward_calls"]).is_integer():
        yield f"{BACKWARD}{told['backward_calls']:.0f}"
    if told["marks"] == "backward":
        yield BY_HAND
    middle_s, mean_s = (float(told.get(key, 0.0)) for key in ("step_s", "mean_step_s"))
    if abs(mean_s - middle_s) > _MUCH_APART * middle_s:
        is_mean = _step_s(told) == mean_s
        other = f"half of all steps take up to {format_seconds(middle_s)}"
        if not is_mean:
            other = f"all steps take {format_seconds(mean_s)} on average, with what lies between them"
        yield f"{other}: they vary, or something else runs now and then"


def _step_s(told: Mapping[str, Any]) -> float:
    """The median of steps that were not recorded; their mean where few long ones take most of the time."""
    middle_s, mean_s = (float(told.get(key, 0.0)) for key in ("step_s", "mean_step_s"))
    return mean_s if mean_s > _FEW_LONG * middle_s else middle_s


def _why_not(told: list[Any]) -> str:
    failed = next((one["failed"] for one in told if "failed" in one), "")
    if failed:
        return f"torch.profiler failed: {failed}"
    if not any("torch" in one for one in told):
        return "no Python that imports torch ran, or one that ignores PYTHONPATH (-E, -I, -S)"
    seen = max(int(one.get("seen", 0)) for one in told)
    if not seen:
        return "it ended before an optimizer step, and within 5 s of importing torch: let it run longer"
    if all(one.get("marks") != "optimizer" for one in told if one.get("seen")):
        calls = counted(seen, "call")
        return f"it ended after {calls} of backward() and no optimizer step: let it run longer"
    steps = counted(seen, "optimizer step")
    return f"it ended after {steps}, before the window: --after {max(seen // 2, 1)} --steps 1 begins earlier"
