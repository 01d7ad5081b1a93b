"""The commands below `gputui db`, and `gputui share`: what is in result files, and what goes in and out."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import click

from gputui.cli.options import FILE, db_option, file_argument, json_option, trust_option
from gputui.cli.output import (
    confirmed,
    print_hint,
    print_json,
    printed,
    report_recovered,
    unattended,
    warn,
    wrapped,
)
from gputui.document.spans import Span
from gputui.document.table import Cell, table_of
from gputui.errors import GputuiError
from gputui.model.units import counted
from gputui.services.results.browser import list_runs
from gputui.services.results.labels import day, device_words, torch_words
from gputui.services.results.selectors import (
    chosen_files,
    files_in,
    from_here,
    is_there,
    locate_run,
    readable,
    result_file_of,
)
from gputui.services.runs.process import called, import_journal, runs_in_progress
from gputui.services.support.paths import default_result_file, make_directory_for, runs_of_others
from gputui.store.merging import merge_files
from gputui.store.opening import SUFFIXES, expanded
from gputui.store.reading import open_result, warnings_of
from gputui.store.selecting import check_label
from gputui.store.writing import StoredRun, label_run, remove_run

_MOST, _SHOWN = 20, 5
"""Files that get a line each when they are merged, and how many do where there are more."""


@click.command()
@file_argument
@trust_option
@json_option
def runs(file: Path | None, trust: bool, as_json: bool) -> None:
    """List the runs of FILE, newest first, and on stderr those in progress.

    FILE may be a directory: all result files in it.
    """
    report_recovered()
    warn(filter(None, [runs_of_others()]))
    in_progress = [run for together in runs_in_progress() for run in together]
    for run in in_progress:
        click.echo(f"in progress: {called(run)} into {run.target}: gputui attach {run.short_id}", err=True)
    path = result_file_of(expanded(file or default_result_file()).absolute())
    is_begun = any(run.target == path for run in in_progress)
    if (file is None or is_begun) and not path.exists():  # a new file is created when its first run ends
        nothing = f"nothing is stored in {path} yet"
        if not in_progress:
            raise GputuiError(nothing, "measure this box: gputui run; or name a file: gputui runs a.db")
        if not is_begun:
            there = shlex.quote(str(in_progress[0].target))
            click.echo(f"{nothing}\n  name another file: gputui runs {there}", err=True)
        if as_json:
            print_json({"runs": [], "in_progress": [run.run_id for run in in_progress]})
        return
    is_directory = is_there(path) and path.is_dir()
    listed = readable(
        [str(path)],
        lambda files: list_runs([Path(file) for file in files], trust, as_json),
        lambda file: list_runs([Path(file)], trust),
        warn,
    )
    warn(warning for file in (files_in(path) if is_directory else [path]) for warning in warnings_of(file))
    if as_json:
        from gputui.services.results.run_forms import summary_as_json

        plain = [
            {**summary_as_json(one.summary), **({"file": str(one.path)} if is_directory else {})}
            for one in listed
        ]
        print_json({"runs": plain, "in_progress": [run.run_id for run in in_progress]})
        return
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
    headings += ["file"] if is_directory else []
    with printed() as page:
        narrow = {6: 1} if page.out.is_terminal else {}  # a pipe gets everything
        page.table(table_of(headings, rows, breaks=(2, 4, 5), priorities=narrow))
        if listed:
            where = shlex.quote(from_here(str(listed[0].path)))
            page.hint("next", f"gputui show {listed[0].summary.short_id} {where}")


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="IN...")
@click.option("-o", "--output", "out", required=True, type=FILE, metavar="OUT")
@json_option
def merge(files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Copy all runs of the files IN into OUT, which may exist; merging twice adds nothing."""
    with click.progressbar(
        length=len(files), label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        named = [result_file_of(expanded(path)) for path in files]
        results = merge_files(named, out, lambda done: bar.update(done - bar.pos))
    typed = {path.resolve(): file for path, file in zip(named, files, strict=True)}
    if as_json:
        plain = [
            {
                "file": str(typed.get(one.source, one.source)),
                "added": one.added,
                "already_there": one.already_there,
            }
            for one in results
        ]
        print_json({"file": str(out), "merged": plain})
        return
    for merged in results[:_SHOWN] if len(results) > _MOST else results:
        there = f", {merged.already_there} were there already" if merged.already_there else ""
        click.echo(f"{typed.get(merged.source, merged.source)}: {len(merged.added)} added{there}")
    if len(results) > _MOST:
        added = sum(len(one.added) for one in results)
        known = sum(one.already_there for one in results)
        more = f"and {len(results) - _SHOWN} more files"
        click.echo(f"{more}: {counted(added, 'run')} added in all, {known} were there")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "--parquet",
    "directory",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The export's directory, created if it does not exist.",
)
@json_option
def export(files: tuple[str, ...], directory: Path, as_json: bool) -> None:
    """Add the runs of F, or F@RUN alone, to Parquet files in DIR; exporting twice adds nothing.

    F may be a directory: all result files in it. DIR itself can be named wherever a result file can.
    """
    from gputui.store.parquet import export_runs

    paths, only = chosen_files(files)
    with click.progressbar(
        length=len(paths), label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        done = export_runs(paths, directory, only, lambda count: bar.update(count - bar.pos))
    if as_json:
        print_json({"directory": str(directory), "files": len(paths), **asdict(done)})
        return
    there = f", {counted(done.already_there, 'run')} already there" if done.already_there else ""
    click.echo(
        f"{counted(len(done.added), 'run')} of {counted(len(paths), 'file')} added to {directory}{there}"
    )
    if done.added:
        place = shlex.quote(str(directory))
        print_hint("next", f"gputui runs {place}, gputui show latest {place}, gputui help engines.md")


@click.command()
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="TRACE|RUNDIR...")
@db_option
@click.option("--label", default="", help="Label of a trace's run.  [its file name]")
@click.option(
    "--step",
    "step_range",
    default="",
    metavar="NAME",
    help="Ranges of this name are the steps.  [ProfilerStep]",
)
@click.option("--window", metavar="START:END", help="Only this part of a trace, in seconds from its start.")
@json_option
def import_(
    sources: tuple[Path, ...],
    db: Path | None,
    label: str,
    step_range: str,
    window: str | None,
    as_json: bool,
) -> None:
    """Store traces of torch.profiler (.json, .json.gz) as runs, to show and compare.

    Also stores run directories: of runs that were cut short, or copied from another box.
    """
    run_dirs = [source for source in sources if source.is_dir()]
    traces = [source for source in sources if source not in run_dirs]
    for source in traces:
        if source.suffix in SUFFIXES:
            with open_result(source):  # raises if it is none
                raise GputuiError(
                    f"{source}: a result file is not imported",
                    f"read it as it is: gputui show {source}; or copy its runs: gputui merge {source} -o OUT",
                )
    if run_dirs and (label or step_range or window):
        raise GputuiError(
            "--label, --step and --window apply to traces only", "leave them out for run directories"
        )
    target = default_result_file() if db is None else db
    if db is None:
        make_directory_for(target)
    imported: list[StoredRun] = []
    if traces:
        from gputui.cli.traces import import_traces

        imported += import_traces(traces, target, label, step_range, window, is_quiet=as_json)
    for run_dir in run_dirs:
        stored = import_journal(run_dir, target)
        imported.append(stored)
        if as_json:
            continue
        what = "already there" if stored.already_there else f"{stored.cases} cases, {stored.blocks} blocks"
        click.echo(f"{stored.run_id[-8:]} {stored.status}: {what} ({stored.db})")
        warn(f"  left out: {left_out}" for left_out in stored.left_out)
    if as_json:
        plain = [{key: value for key, value in asdict(one).items() if key != "db"} for one in imported]
        print_json({"file": str(target), "runs": plain})


@click.command()
@click.argument("run", metavar="RUN|F@RUN")
@click.argument("text")
@file_argument
@json_option
def label(run: str, text: str, file: Path | None, as_json: bool) -> None:
    """Give RUN of FILE another label; an empty TEXT removes it."""
    new = check_label(text)
    path, found = locate_run(run, file)
    label_run(path, found.run_id, new)
    if as_json:
        print_json({"run_id": found.run_id, "file": str(path), "label": new})
        return
    click.echo(f"{found.short_id} is now {new}" if new else f"{found.short_id} now has no label")


@click.command()
@click.argument("run", metavar="RUN|F@RUN")
@file_argument
@click.option("--yes", is_flag=True, help="Remove without asking.")
@json_option
def rm(run: str, file: Path | None, yes: bool, as_json: bool) -> None:
    """Remove RUN (its short id, its label, `latest` or `latest~1`) from FILE, for good."""
    path, found = locate_run(run, file, guesses=False)
    if not yes:
        named = f" ({found.label})" if found.label else ""
        what = f"run {found.short_id}{named}: {found.profile}, {found.status}, {day(found)}"
        if unattended() or not sys.stdin.isatty():
            raise GputuiError(f"{what} is not removed without confirmation", "add --yes")
        if not confirmed(f"remove {what}, from {path}?"):
            click.echo("nothing was removed", err=True)
            return
    remove_run(path, found.run_id)
    if as_json:
        print_json({"run_id": found.run_id, "file": str(path)})
        return
    click.echo(f"removed {found.short_id} from {path}")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "-o",
    "--output",
    "--card",
    "outs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="FILE.html, .md: a report; FILE.png, .svg, .txt: a card; FILE.db: a result file.",
)
@click.option("--with-label", "label", is_flag=True, help="Keep the labels of runs.")
@click.option("--with-price", "price", is_flag=True, help="Keep the price of the box.")
@click.option("--with-ids", "ids", is_flag=True, help="Keep the ids of runs, boxes and GPUs.")
@click.option(
    "--with-names", "names", is_flag=True, help="Keep the names of your programs, parameters and kernels."
)
@click.option(
    "--with-messages", "messages", is_flag=True, help="Keep events and reasons in other programs' words."
)
@trust_option
@json_option
def share(
    files: tuple[str, ...],
    outs: tuple[Path, ...],
    trust: bool,
    as_json: bool,
    **kept: bool,
) -> None:
    """Write the runs of F, or F@RUN alone, to one file to hand on, and list what is in it.

    Labels, paths, ids, prices and texts that gputui does not know are left out or replaced.
    """
    from gputui.services.share.sharing import share as written

    if len(outs) > 1:
        raise GputuiError(f"{' and '.join(map(str, outs))}: one file is written", "call it once for each")
    (out,) = outs
    shared = written(files, out, [name for name, is_kept in kept.items() if is_kept], trust=trust)
    warn(shared.unread)
    click.echo(f"wrote {out}", err=True)
    if as_json:
        print_json({"file": str(out), "in_it": shared.held, "not_in_it": shared.left_out})
        return
    for heading, lines in (("in it:", shared.held), ("left out:", shared.left_out)):
        click.echo(heading)
        for line in lines:
            click.echo(wrapped(f"  {line}", sys.stdout))
