"""`gputui import`: store traces of torch.profiler, or the journal of a run directory."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE, GputuiError
from gputui.services.runs.recovery import import_journal
from gputui.services.support.paths import default_result_file, make_directory_for
from gputui.store.opening import SUFFIXES
from gputui.store.reading import open_result


@click.command()
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, readable=False),
    metavar="TRACE|RUNDIR...",
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Result file.  [$GPUTUI_DB, else see `gputui paths`]",
)
@click.option("--label", default="", help="Label of a trace's run.  [its file name]")
@click.option(
    "--step",
    "step_range",
    default="",
    metavar="NAME",
    help="Ranges of this name are the steps.  [ProfilerStep]",
)
@click.option("--window", metavar="START:END", help="Only this part of a trace, in seconds from its start.")
def command(
    sources: tuple[Path, ...], db: Path | None, label: str, step_range: str, window: str | None
) -> int:
    """Store traces of torch.profiler (.json, .json.gz) as runs, to show and compare.

    Also stores run directories: of runs that were cut short, or copied from another box.
    """
    is_trace = [not source.is_dir() for source in sources]
    for source, is_one in zip(sources, is_trace, strict=True):
        if is_one and source.suffix in SUFFIXES:
            with open_result(source):  # raises if it is none
                raise GputuiError(
                    f"{source}: a result file is not imported",
                    f"read it as it is: gputui show {source}; or copy its runs: gputui merge {source} -o OUT",
                )
    if not all(is_trace) and (label or step_range or window):
        raise GputuiError(
            "--label, --step and --window apply to traces only", "leave them out for run directories"
        )
    target = default_result_file() if db is None else db
    if db is None:
        make_directory_for(target)
    if any(is_trace):
        from gputui.cli.traces import import_traces

        import_traces(
            [s for s, is_one in zip(sources, is_trace, strict=True) if is_one],
            target,
            label,
            step_range,
            window,
        )
    for run_dir in (s for s, is_one in zip(sources, is_trace, strict=True) if not is_one):
        stored = import_journal(run_dir, target)
        what = "already there" if stored.already_there else f"{stored.cases} cases, {stored.blocks} blocks"
        click.echo(f"{stored.run_id[-8:]} {stored.status}: {what} ({stored.db})")
        for left_out in stored.left_out:
            click.echo(f"  left out: {left_out}", err=True)
    return EXIT_DONE
