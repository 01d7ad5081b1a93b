"""`gputui compare`: result files, or the variants of one, side by side."""

from __future__ import annotations

import math
from pathlib import Path

import click
from click.core import ParameterSource

from gputui.cli.options import all_rows_option, trust_option
from gputui.cli.output import console, no_terminal, print_or_write, warn
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_NO_RESULT, EXIT_UNDECIDED, GputuiError
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import counted
from gputui.services.compare.columns import COLUMNS, ENERGY, ComparisonColumn
from gputui.services.compare.fleet import FLEET_FROM, Fleet, ranking_of
from gputui.services.compare.formats import WITH_ENERGY, comparison_text, form_of, ranking_text
from gputui.services.compare.pairing import DIMENSIONS
from gputui.services.compare.session import ComparisonRequest, ask, shared_options
from gputui.services.compare.suggestions import CANNOT_TELL, FAIL, PASS, check_gate, gate_lines
from gputui.services.results.selectors import every_file

FORMATS = ("text", "markdown", "csv", "json", "html")


def _percent(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """A percentage from 0 to below 100, with or without its sign. Raises GputuiError for anything else."""
    if text is None:
        return None
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number < 100:
        raise GputuiError(
            f"--fail-if-slower {text}: must be a percentage from 0 to below 100",
            "5 allows 95 % of the baseline's rate",
        )
    return number


COMMON = (
    "--by", "--verbose", "--all", "--output", "--baseline", "--pool",
    "--fail-if-slower", "--columns", "--tui", "--a", "--b",
)  # fmt: skip


class _Sides(click.Command):
    """A command whose `--a` and `--b` take all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        side = ""
        for word in args:
            if word.startswith("-"):
                side = word if word in ("--a", "--b") else ""
            elif side and spread[-1] != side:
                spread.append(side)
            spread.append(word)
        return super().parse_args(ctx, spread)


OPTIONS = shared_options()


@click.command(cls=_Sides)
@click.argument("files", nargs=-1, metavar="F[@RUN]...")
@click.option("--a", "traces_a", multiple=True, metavar="TRACE...", help="torch.profiler traces of side a.")
@click.option("--b", "traces_b", multiple=True, metavar="TRACE...", help="torch.profiler traces of side b.")
@click.option(
    "--step", "step_range", default="", metavar="NAME", help="Traces: ranges of this name are the steps."
)
@click.option("--window", metavar="START:END", help="Traces: only this part, in seconds.")
@click.option("--by", help=f"Within the files: {', '.join(DIMENSIONS)}.", **OPTIONS["by"])
@click.option("--baseline", help="The side to use as baseline.  [the first]", **OPTIONS["baseline"])
@click.option("--pool", help="Pool the launches of all runs of a side.", **OPTIONS["pool"])
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    metavar="FORM",
    help=f"{', '.join(FORMATS)}.  [text]",
)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.option(
    "--columns",
    **OPTIONS["columns"],
    help=f"Columns of text and markdown: {', '.join(column.name for column in COLUMNS)}.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file; its extension (.html, .md, .csv, .json) sets the format.",
)
@click.option(
    "--fail-if-slower",
    "slower_pct",
    callback=_percent,
    metavar="PCT",
    help="Exit 1 if a rate is clearly more than PCT % lower, 5 if it cannot tell.",
)
@click.option(
    "--unsure",
    type=click.Choice(("pass", "fail")),
    help="With --fail-if-slower: exit 0 or 1, not 5, if undecided.",
)
@click.option("--fail-if-unsure", is_flag=True, help="The same as --unsure fail.")
@click.option(
    "--matrix", is_flag=True, help=f"From {FLEET_FROM} sides on: each against the baseline, not a ranking."
)
@all_rows_option
@click.option("-v", "--verbose", is_flag=True, help="Add notes, reasons, costs and what was left out.")
@trust_option
@click.option("--tui", "on_screen", is_flag=True, help="Open the Compare screen.")
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    by: str | None,
    baseline: str | None,
    pool: bool,
    form: str,
    as_json: bool,
    columns: tuple[ComparisonColumn, ...],
    output: Path | None,
    slower_pct: float | None,
    unsure: str | None,
    fail_if_unsure: bool,
    shows_all: bool,
    verbose: bool,
    trust: bool,
    on_screen: bool,
    traces_a: tuple[str, ...],
    traces_b: tuple[str, ...],
    step_range: str,
    window: str | None,
    matrix: bool,
) -> int:
    """Compare result files, the first as the baseline; of one file its variants, of two traces their steps.

    F takes the newest run of each case, F@RUN one run: its short id, its label, `latest` or `latest~1`.
    A directory is all result files in it.
    Exits with 6 if there is nothing to compare.
    """
    is_named = as_json or _is_stated(context, "form")
    if as_json and form not in ("text", "json"):
        raise GputuiError(f"--json and --format {form}: one of them", "leave the other out")
    form = "json" if as_json else form
    if output is not None and not on_screen and not is_named and output.suffix.lower() not in ("", ".txt"):
        form = form_of(output)
    are_traces = bool(files) and all(file.endswith((".json", ".json.gz")) for file in files)
    if traces_a or traces_b or are_traces:
        _compare_traces(context, files, traces_a, traces_b, form, output, step_range, window)
        return EXIT_DONE
    if not files:
        raise GputuiError(
            "no file is named", "name two, such as a.db b.db; one alone: its precisions, devices or threads"
        )
    if step_range or window:
        raise GputuiError("--step and --window apply to traces only", "leave them out")
    if on_screen:
        return _show(context, ComparisonRequest(files, by or "", baseline or "", pool, trust, columns))
    if columns and form not in ("text", "markdown"):
        raise GputuiError(f"--columns: {form} has all of them", "leave it out, or --format markdown")
    files = every_file(files)
    is_gate = slower_pct is not None or unsure is not None or fail_if_unsure
    may_rank = not (columns or verbose or matrix or is_gate or baseline)
    if may_rank and (by or len(files) >= FLEET_FROM):
        ranking = ranking_of(files, by or "", pool=pool, trust=trust)
        if ranking is not None:
            warn(ranking[1])
            _rank(ranking[0], form, output, shows_all)
            return EXIT_DONE
    asked = ask(files, by=by, pool=pool, trust=trust, with_passes=len(files) < FLEET_FROM or not may_rank)
    if all(run.summary.profile == TRACE_PROFILE for run in asked.evidence.runs):
        _compare_stored_traces(files, form, output, trust)
        return EXIT_DONE
    warn(asked.warnings)
    with_energy = form in WITH_ENERGY or ENERGY in columns
    first = 0 if baseline is None else asked.baseline(baseline)
    if fail_if_unsure and unsure == "pass":
        raise GputuiError("--unsure pass and --fail-if-unsure: one or the other", "leave one of them out")
    unsure = "fail" if fail_if_unsure else unsure
    if unsure == "pass" and slower_pct is None:
        raise GputuiError("--unsure pass needs --fail-if-slower PCT", "such as --fail-if-slower 5")
    unsure_exit = {"pass": EXIT_DONE, "fail": EXIT_CASE_FAILED}.get(unsure or "", EXIT_UNDECIDED)
    try:
        answer = asked.compared(first, with_energy=with_energy)
    except GputuiError as error:
        raise (GputuiError(error.message, error.hint, unsure_exit) if is_gate else error) from None
    if output is not None or form != "text":
        print_or_write(comparison_text(asked, answer, form, columns, None, verbose), output)
    else:
        from gputui.services.compare.reports import comparison_pages

        for page in comparison_pages(asked, answer, columns, console(), verbose, shows_all):
            page.show()
    if not is_gate:
        if answer.headline.is_empty and (output is not None or form != "text"):
            click.echo(f"gputui: {answer.headline.text}", err=True)
        return EXIT_NO_RESULT if answer.headline.is_empty else EXIT_DONE
    result = check_gate(answer.comparisons, asked.ignore, slower_pct, asked.evidence)
    others = [comparison.b.name for comparison in answer.comparisons]
    warn(gate_lines(result, slower_pct, others, answer.comparisons[0].a.name))
    return {PASS: EXIT_DONE, FAIL: EXIT_CASE_FAILED, CANNOT_TELL: unsure_exit}[result.end]


def _rank(fleet: Fleet, form: str, output: Path | None, shows_all: bool) -> None:
    from gputui.services.compare.fleet_forms import write_fleet

    if form == "text" and output is None:
        write_fleet(console(), fleet, shows_all)
    else:
        print_or_write(ranking_text(fleet, form), output)


def _compare_traces(
    context: click.Context,
    files: tuple[str, ...],
    a: tuple[str, ...],
    b: tuple[str, ...],
    form: str,
    output: Path | None,
    step_range: str,
    window: str | None,
) -> None:
    """Describe how the steps of traces differ; they have no rates, so most options do not go with them."""
    from gputui.cli.traces import compared_traces, write_difference

    _allow_only(
        context,
        {"files", "traces_a", "traces_b", "form", "as_json", "output", "step_range", "window"},
        "traces: go with --a, --b, --step, --window, --format, --json and -o",
    )
    if files and (a or b):
        raise GputuiError(f"{files[0]}: is it side a or side b?", "name all traces after --a and --b")
    if files and len(files) != 2:
        raise GputuiError(
            f"{counted(len(files), 'trace')}: two are compared",
            f"gputui compare {files[0]} OTHER, or --a ... --b ...; gputui import describes one",
        )
    if not files and not (a and b):
        raise GputuiError(f"--{'b' if a else 'a'}: no trace is named for this side", "--a X... --b Y...")
    write_difference(compared_traces(a or files[:1], b or files[1:], step_range, window), form, output)


def _compare_stored_traces(files: tuple[str, ...], form: str, output: Path | None, trust: bool) -> None:
    from gputui.cli.traces import compared_stored_traces, write_difference

    if len(files) != 2:
        raise GputuiError(
            f"{counted(len(files), 'file')} with nothing but traces: two traces are compared",
            "a.db@RUN b.db@RUN",
        )
    write_difference(compared_stored_traces(*files, trust), form, output)


def _show(context: click.Context, request: ComparisonRequest) -> int:
    """The Compare screen, which knows sides but neither formats nor checks."""
    from gputui.cli.screens import show_app

    _allow_only(
        context,
        {"files", "on_screen", *OPTIONS},
        "--tui goes with files, --by, --baseline, --columns, --pool and --trust",
    )
    if why := no_terminal():
        raise GputuiError(f"--tui: {why}", "without --tui the comparison is printed")
    context.find_root().close()  # the screen stays, and reads as often as it is asked to
    return show_app("compare", *request.words)


def _allow_only(context: click.Context, allowed: set[str], message: str) -> None:
    """Raise GputuiError if another parameter is stated."""
    if any(_is_stated(context, name) for name in context.params if name not in allowed):
        raise GputuiError(message, "leave the other options out")


def _is_stated(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT
