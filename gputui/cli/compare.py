"""`gputui compare`: result files, or the variants of one, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any  # what click passes on

import click
from click.core import ParameterSource

from gputui.cli.options import all_rows_option, trust_option
from gputui.cli.output import console, no_terminal, print_or_write, warn
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_NO_RESULT, EXIT_UNDECIDED, GputuiError
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import counted, number_from
from gputui.services.compare.columns import COLUMNS, ENERGY
from gputui.services.compare.fleet import FLEET_FROM, ranking_of
from gputui.services.compare.formats import WITH_ENERGY, comparison_text, form_of, ranking_text
from gputui.services.compare.pairing import DIMENSIONS
from gputui.services.compare.session import NO_FILE, ComparisonRequest, asked_of, shared_options
from gputui.services.compare.suggestions import CANNOT_TELL, FAIL, PASS, check_gate, gate_lines
from gputui.services.results.selectors import readable, select_all

FORMATS = ("text", "markdown", "csv", "json", "html")


def _percent(text: str) -> float:
    """A percentage, with or without its sign. Raises GputuiError for anything else."""
    hint = "5 allows 95 % of the baseline's rate"
    return number_from("--fail-if-slower", float, hint, (0, 99.9))(text.removesuffix("%"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(ComparisonRequest):
    """What is compared, how it is written, and whether it passes."""

    form: str
    output: Path | None = None
    shows_all: bool
    verbose: bool
    matrix: bool
    slower_pct: float | None = None
    unsure: str = ""

    @property
    def is_for_reader(self) -> bool:
        """Whether pages are drawn, as wide as the terminal."""
        return self.form == "text" and self.output is None

    @property
    def is_gate(self) -> bool:
        return self.slower_pct is not None or bool(self.unsure)


_UNSURE_EXITS = {"pass": EXIT_DONE, "fail": EXIT_CASE_FAILED, "": EXIT_UNDECIDED}
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
    type=_percent,
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
    /,
    as_json: bool,
    fail_if_unsure: bool,
    on_screen: bool,
    traces_a: tuple[str, ...],
    traces_b: tuple[str, ...],
    step_range: str,
    window: str | None,
    **stated: Any,
) -> int:
    """Compare result files, the first as the baseline; of one file its variants, of two traces their steps.

    F takes the newest run of each case, F@RUN one run: its short id, its label, `latest` or `latest~1`.
    A directory is all result files in it.
    Exits with 6 if there is nothing to compare.
    """
    files, form, output = stated["files"], stated["form"], stated["output"]
    if as_json:
        if form not in ("text", "json"):
            raise GputuiError(f"--json and --format {form}: one of them", "leave the other out")
        stated["form"] = "json"
    elif output and not (on_screen or _is_stated(context, "form") or output.suffix.lower() in ("", ".txt")):
        stated["form"] = form_of(output)
    if fail_if_unsure:
        if stated["unsure"] == "pass":
            raise GputuiError("--unsure pass and --fail-if-unsure: one or the other", "leave one of them out")
        stated["unsure"] = "fail"
    options = _Options(**{name: value for name, value in stated.items() if value is not None})
    if traces_a or traces_b or (files and all(file.endswith((".json", ".json.gz")) for file in files)):
        _allow_only(
            context,
            {"files", "traces_a", "traces_b", "form", "as_json", "output", "step_range", "window"},
            "traces: go with --a, --b, --step, --window, --format, --json and -o",
        )
        from gputui.cli.traces import compared_traces, write_difference

        sides = _sides_of_traces(files, traces_a, traces_b)
        write_difference(compared_traces(*sides, step_range, window), options.form, options.output)
        return EXIT_DONE
    if not files:
        raise GputuiError(*NO_FILE)
    if step_range or window:
        raise GputuiError("--step and --window apply to traces only", "leave them out")
    if on_screen:
        return _show(context, options)
    if options.columns and options.form not in ("text", "markdown"):
        raise GputuiError(f"--columns: {options.form} has all of them", "leave it out, or --format markdown")
    if options.unsure == "pass" and options.slower_pct is None:
        raise GputuiError("--unsure pass needs --fail-if-slower PCT", "such as --fail-if-slower 5")
    read = partial(select_all, trust=options.trust, with_passes=True)
    return readable(
        options.files, lambda files: _compare(replace(options, files=files)), lambda file: read([file]), warn
    )


def _compare(options: _Options) -> int:
    """Many sides are ranked, unless what is asked needs each beside the baseline."""
    files, by, columns = options.files, options.by, options.columns
    may_rank = not (columns or options.verbose or options.matrix or options.is_gate or options.baseline)
    if may_rank and (by or len(files) >= FLEET_FROM):
        ranking = ranking_of(files, by, pool=options.pool, trust=options.trust)
        if ranking is not None:
            warn(ranking[1])
            if options.is_for_reader:
                from gputui.services.compare.fleet_forms import write_fleet

                write_fleet(console(), ranking[0], options.shows_all)
            else:
                print_or_write(ranking_text(ranking[0], options.form), options.output)
            return EXIT_DONE
    with_passes = len(files) < FLEET_FROM or not may_rank
    pool, trust = options.pool, options.trust
    selections = select_all(files, trust=trust, pool=pool, with_passes=with_passes)
    asked = asked_of(selections, by=by or None, pool=pool, trust=trust)
    if all(run.summary.profile == TRACE_PROFILE for run in asked.evidence.runs):
        _compare_stored_traces(options)
        return EXIT_DONE
    warn(asked.warnings)
    with_energy = options.form in WITH_ENERGY or ENERGY in columns
    first = asked.baseline(options.baseline) if options.baseline else 0
    unsure_exit = _UNSURE_EXITS[options.unsure]
    try:
        answer = asked.compared(first, with_energy=with_energy)
    except GputuiError as error:
        raise (GputuiError(error.message, error.hint, unsure_exit) if options.is_gate else error) from None
    if options.is_for_reader:
        from gputui.services.compare.reports import comparison_pages

        for page in comparison_pages(asked, answer, columns, console(), options.verbose, options.shows_all):
            page.show()
    else:
        text = comparison_text(asked, answer, options.form, columns, None, options.verbose)
        print_or_write(text, options.output)
    if not options.is_gate:
        if answer.headline.is_empty and not options.is_for_reader:
            click.echo(f"gputui: {answer.headline.text}", err=True)
        return EXIT_NO_RESULT if answer.headline.is_empty else EXIT_DONE
    result = check_gate(answer.comparisons, asked.ignore, options.slower_pct, asked.evidence)
    others = [comparison.b.name for comparison in answer.comparisons]
    warn(gate_lines(result, options.slower_pct, others, answer.comparisons[0].a.name))
    return {PASS: EXIT_DONE, FAIL: EXIT_CASE_FAILED, CANNOT_TELL: unsure_exit}[result.end]


def _sides_of_traces(
    files: Sequence[str], a: Sequence[str], b: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The traces of both sides. Raises GputuiError if they do not make two."""
    if files and (a or b):
        raise GputuiError(f"{files[0]}: is it side a or side b?", "name all traces after --a and --b")
    if files and len(files) != 2:
        raise GputuiError(
            f"{counted(len(files), 'trace')}: two are compared",
            f"gputui compare {files[0]} OTHER, or --a ... --b ...; gputui import describes one",
        )
    if not files and not (a and b):
        raise GputuiError(f"--{'b' if a else 'a'}: no trace is named for this side", "--a X... --b Y...")
    return a or files[:1], b or files[1:]


def _compare_stored_traces(options: _Options) -> None:
    from gputui.cli.traces import compared_stored_traces, write_difference

    if len(options.files) != 2:
        raise GputuiError(
            f"{counted(len(options.files), 'file')} with nothing but traces: two traces are compared",
            "a.db@RUN b.db@RUN",
        )
    write_difference(compared_stored_traces(*options.files, options.trust), options.form, options.output)


def _show(context: click.Context, options: _Options) -> int:
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
    return show_app("compare", *options.words)


def _allow_only(context: click.Context, allowed: set[str], message: str) -> None:
    """Raise GputuiError if another parameter is stated."""
    if any(_is_stated(context, name) for name in context.params if name not in allowed):
        raise GputuiError(message, "leave the other options out")


def _is_stated(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT
