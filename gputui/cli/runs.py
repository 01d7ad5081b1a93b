"""`gputui runs`: list the runs of a result file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from gputui.cli.output import console
from gputui.cli.recovered import report_recovered
from gputui.document.page import Page
from gputui.document.spans import Span
from gputui.document.table import Cell, table_of
from gputui.errors import EXIT_DONE, GputuiError
from gputui.services.results.run_lists import list_runs
from gputui.services.results.selectors import from_here, is_there, result_file_of, result_files_in
from gputui.services.runs.process import called, runs_in_progress
from gputui.services.support.paths import default_result_file, runs_of_others
from gputui.store.opening import expanded
from gputui.store.reading import warnings_of


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, readable=False))
@click.option("--trust", is_flag=True, help="Read a file with macros or triggers too.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(file: Path | None, trust: bool, as_json: bool) -> int:
    """List the runs of FILE, newest first, and on stderr those in progress.

    FILE may be a directory: all result files in it.
    """
    report_recovered()
    if left_out := runs_of_others():
        click.echo(left_out, err=True)
    in_progress = [run for together in runs_in_progress() for run in together]
    for run in in_progress:
        click.echo(f"in progress: {called(run)} into {run.target}: gputui attach {run.short_id}", err=True)
    path = result_file_of(expanded(default_result_file() if file is None else file).absolute())
    if any(run.target == path for run in in_progress) and not path.exists():
        return EXIT_DONE  # the first run of a new file, which is created when it ends
    if file is None and not path.exists():
        if not in_progress:
            raise GputuiError(
                f"nothing is stored in {path} yet",
                "measure this box: gputui run; or name a file: gputui runs a.db",
            )
        there = shlex.quote(str(in_progress[0].target))
        click.echo(f"nothing is stored in {path} yet\n  name another file: gputui runs {there}", err=True)
        if as_json:
            ids = [run.run_id for run in in_progress]
            click.echo(json.dumps({"schema": 1, "runs": [], "in_progress": ids}, indent=1))
        return EXIT_DONE
    is_directory = is_there(path) and path.is_dir()
    paths = result_files_in(path) if is_directory else [path]
    listed = list_runs(paths, trust, as_stored=as_json)
    for file_path in paths:
        for warning in warnings_of(file_path):
            click.echo(warning, err=True)
    if as_json:
        from gputui.services.results.json import summary_as_json

        plain = {
            "schema": 1,
            "runs": [
                {**summary_as_json(one.summary), **({"file": str(one.path)} if is_directory else {})}
                for one in listed
            ],
            "in_progress": [run.run_id for run in in_progress],
        }
        click.echo(json.dumps(plain, indent=1))
        return EXIT_DONE
    from gputui.services.results.labels import day, device_words, torch_words

    headings = ["run", "when", "profile", "status", "label", "box", "torch"]
    rows: list[tuple[Cell, ...]] = [
        (
            Span(one.summary.short_id, "accent"),
            Span(day(one.summary), "dim"),
            one.summary.profile,
            Span(one.summary.status, "" if one.summary.status == "finished" else "warn"),
            one.summary.label,
            device_words(one.summary),
            Span(torch_words(one.summary).removeprefix("torch "), "dim"),
            *([one.path.name] if is_directory else []),
        )
        for one in listed
    ]
    page = Page(console())
    narrow = {6: 1} if page.out.is_terminal else {}  # a pipe gets everything
    page.table(
        table_of([*headings, *(["file"] if is_directory else [])], rows, breaks=(2, 4, 5), priorities=narrow)
    )
    if listed:
        newest = listed[0]
        where = shlex.quote(from_here(str(newest.path)))
        page.hint("next", f"gputui show {newest.summary.short_id} {where}")
    page.show()
    return EXIT_DONE
