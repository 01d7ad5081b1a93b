"""Traces of torch.profiler: stored by `gputui import`, described side by side by `gputui compare`."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from gputui.cli.output import console, print_hint, print_or_write, printed
from gputui.document.drawings import stacked_bar
from gputui.document.page import Page, console_on
from gputui.document.table import Table
from gputui.errors import GputuiError
from gputui.model.plan import TRACE_PROFILE
from gputui.services.results.selectors import from_here, run_and_file
from gputui.services.results.step_answer import StepAnswer, sentence, tells_nothing
from gputui.services.results.step_breakdown import step_parts
from gputui.services.support.output_files import json_text
from gputui.services.traces.difference import TraceDifference, difference_of, sentences
from gputui.services.traces.difference import as_json as difference_as_json
from gputui.services.traces.forms import (
    answer_of,
    answer_parts,
    difference_as_markdown,
    difference_as_page,
    difference_parts,
    tables_of,
)
from gputui.services.traces.imported import TraceRun, contents_of, read_run, stored_run
from gputui.services.traces.ranks import rank_lines
from gputui.services.traces.window import described, window_from
from gputui.store.reading import ResultFile, open_result
from gputui.store.selecting import find_run
from gputui.store.writing import StoredRun, store_run

_SHOWN_FROM_BYTES = 20 * 2**20
"""Smaller files are read before anybody looks at a bar."""


def read_runs(
    paths: Sequence[Path], label: str = "", step_range: str = "", window: str | None = None
) -> tuple[TraceRun, ...]:
    """Each trace, with a bar for large ones. Raises GputuiError for the first that cannot be read."""
    window_s = None if window is None else window_from(window)
    runs = []
    for path in paths:
        with _bar(path) as bar:
            runs.append(read_run(path, label, step_range, window_s, bar))
    return tuple(runs)


def import_traces(
    paths: Sequence[Path], target: Path, label: str, step_range: str, window: str | None, *, is_quiet: bool
) -> list[StoredRun]:
    """Store each trace as a run; unless `is_quiet` print the steps, and of several ranks who waits."""
    if label and len(paths) > 1 and len({path.name for path in paths}) < len(paths):
        raise GputuiError(f"--label {label}: {len(paths)} traces would have it", "import them one by one")
    runs, imported = [], []
    for path in paths:
        (run,) = read_runs([path], label, step_range, window)
        stored = store_run(target, contents_of(run), (), imported_from=path.name)
        imported.append(stored)
        if is_quiet:
            continue
        there = ", was there already" if stored.already_there else ""
        where = run.device or "CPU"
        rank = "" if run.rank is None else f", rank {run.rank}"
        latest = stored.run_id[-8:]
        click.echo(f"{latest} {run.name}: {where}{rank}, {described(run.window)}{there} ({stored.db})")
        click.echo(f"  {sentence(answer_of(run))}")
        for note in run.notes:
            click.echo(f"  {note}")
        runs.append(run)
    if is_quiet:
        return imported
    for line in rank_lines(runs):
        click.echo(line)
    file = shlex.quote(from_here(str(target)))
    print_hint("next", f"gputui show {latest} {file} --verbose")
    return imported


NextSteps = Sequence[tuple[str, str]]
"""Commands, and what they are for."""


def show_trace(run: TraceRun, named: str, most: int | None) -> None:
    """Print one stored trace, which `named` selects; with `most`, so many of its operators and kernels."""
    with printed() as page:
        write_step_answer(page, answer_of(run), most, next_steps(named))


def next_steps(named: str) -> NextSteps:
    """What to do with a stored trace."""
    return (
        (f"gputui why {named} --top 20", "its operators and kernels"),
        (f"gputui why {named} --brief", "as Markdown, for a colleague"),
    )


def write_step_answer(
    page: Page, answer: StepAnswer, most: int | None, next_steps: NextSteps = (), more: Sequence[str] = ()
) -> None:
    """The answer, its evidence and causes; with `most`, so many operators and kernels.

    Below them what `more` there is to say, and what to do next.
    """
    page.line(sentence(answer), "title")
    page.line(answer.where, "dim")
    if not tells_nothing(answer.found):
        page.part(Table((stacked_bar(step_parts(answer.breakdown, names_waits=True)),)))
    tables = () if most is None else tables_of(answer, page.width, most)
    for part in answer_parts(answer, tables):
        if isinstance(part, str):
            page.line()
        page.part(part)
    for note in ("", *answer.notes) if answer.notes else ():
        page.line(note, "dim")
    page.part(("", *filter(None, more)) if any(more) else ())
    for typed, what_for in next_steps:
        page.hint(what_for, typed)


def compared_traces(
    a: Sequence[str], b: Sequence[str], step_range: str, window: str | None
) -> TraceDifference:
    """How the steps of two sides of trace files differ."""
    sides = [read_runs([Path(file) for file in side], "", step_range, window) for side in (a, b)]
    return difference_of(*sides)


def compared_stored_traces(a: str, b: str, trust: bool) -> TraceDifference:
    """The same of two stored traces, each named by `F[@RUN]`."""
    return difference_of([_stored(a, trust)], [_stored(b, trust)])


def _stored(text: str, trust: bool) -> TraceRun:
    path, selector = run_and_file(text, None)
    with open_result(path, trust) as result:
        return trace_in(result, find_run(result.summaries(), selector or "latest").run_id)


def trace_in(result: ResultFile, run_id: str) -> TraceRun:
    """One stored trace. Raises GputuiError if the run is none."""
    run = result.run(run_id)
    if run.summary.profile != TRACE_PROFILE:
        raise GputuiError(f"{run.summary.short_id} is not a trace", "gputui compare says how two runs differ")
    notes = [event.message for event in result.events(run_id)]
    return stored_run(run, result.profiled(run_id)[0], notes)


def write_difference(found: TraceDifference, form: str, output: Path | None) -> None:
    """Print a difference, or write it to a file."""
    if form == "csv":
        raise GputuiError("--format csv: traces have no rates to list", "--format json has all figures")
    if form == "json":
        text = json_text(difference_as_json(found))
    elif form in ("html", "markdown"):
        text = difference_as_page(found) if form == "html" else difference_as_markdown(found)
    else:
        held = io.StringIO()
        page = Page(console() if output is None else console_on(held, 120))
        page.part(sentences(found))
        for part in difference_parts(found, page.width):
            if isinstance(part, tuple):
                page.line()
            page.part(part)
        page.show()
        if output is None:
            return
        text = held.getvalue()
    print_or_write(text, output)


@contextmanager
def _bar(path: Path) -> Iterator[Callable[[int, int], object] | None]:
    """What tells how far a file is read, on a terminal; None for a small file."""
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    if size < _SHOWN_FROM_BYTES or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=size, label=f"reading {path.name}", file=sys.stderr) as bar:
        at = 0

        def seen(done: int, _: int) -> None:
            nonlocal at
            bar.update(done - at)
            at = done

        yield seen
