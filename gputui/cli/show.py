"""`gputui show`: one run in full."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from gputui.cli.options import all_cases_option, file_argument, json_option, trust_option
from gputui.cli.output import console, print_json, step_lines, warn
from gputui.document.page import Page
from gputui.document.spans import Line, Span
from gputui.document.table import Table, table_of
from gputui.errors import GputuiError
from gputui.metrics import with_unit
from gputui.model.absent import Missing, to_plain
from gputui.model.journal import ProfiledPass
from gputui.model.plan import TRACE_PROFILE
from gputui.model.result import CaseResult, Run
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.results.conditions import RecordedUse, recorded_use
from gputui.services.results.headline import answering_run
from gputui.services.results.labels import plain_case_name, run_heading, run_heading_in_one, some_of
from gputui.services.results.run_forms import (
    HOW_TO_OPEN,
    next_steps,
    run_as_json,
    traces_of,
    where_messages_are,
)
from gputui.services.results.selectors import from_here, is_there, run_and_file, run_in
from gputui.services.results.step_breakdown import breakdown_of, is_believed, profiled_cases, step_parts
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.serving.text import API_PRICE_HELP, api_price_from, serving_as_json
from gputui.services.support.paths import exports_cache
from gputui.store.opening import expanded
from gputui.store.reading import StoredEvent, TelemetrySummary, open_result
from gputui.store.selecting import find_run

COMMON = ("--verbose", "--all", "--json")
_READ = ("gputui show", "gputui results", "gputui compare")
"""How next steps begin that store nothing."""


@click.command()
@click.argument("run", metavar="[RUN|F@RUN]", default="latest")
@file_argument
@trust_option
@click.option(
    "--top",
    type=click.IntRange(0, 400),
    help="Print the step of the main case with this many operators.  [5 with -v]",
)
@click.option("--case", "words", default="", metavar="WORDS", help="Print the step of the case of this name.")
@all_cases_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Add the box, a step by operator, telemetry, efficiency, notes, and why cases were not measured.",
)
@click.option("--api-price", type=api_price_from, metavar="IN,OUT", help=API_PRICE_HELP)
@json_option
def command(
    run: str,
    file: Path | None,
    trust: bool,
    top: int | None,
    words: str,
    shows_all: bool,
    verbose: bool,
    api_price: tuple[float, float] | None,
    as_json: bool,
) -> None:
    """Show RUN (its short id, its label, `latest` or `latest~1`) of FILE; without them, the latest run."""
    path, selector = run_and_file(run, file)
    with open_result(path, trust, as_stored=as_json) as result:
        wanted = "latest" if selector is None else selector
        exact = find_run(result.summaries(), wanted), ()
        chosen, said = exact if as_json else answering_run(result, wanted)
        id_ = chosen.run_id
        found = run_in(result, id_)
        comparable = () if as_json or verbose else result.measured_summaries()
        passes, telemetry = result.profiled(id_), result.telemetry_summary(id_)
        loads = serving_of(found, result.serving(id_))
        events, used = result.events(id_), recorded_use(found, telemetry)
        warn((*result.warnings, *said))
    if as_json:
        _print_json(found, passes, loads, used)
        return
    if found.summary.profile == TRACE_PROFILE:
        _print_trace(found, passes[0], events, path, 20 if verbose and top is None else top)
        return
    from gputui.services.run_page import run_page, serving_page

    out = console()
    got = [] if isinstance(used, Missing) else [f"It got {used.text}.", *([] if verbose else [""])]
    heading = [*got, *(["", *run_heading(found)] if verbose else run_heading_in_one(found))]
    footer: list[Line] = [(Span(line),) for line in where_messages_are(found)]
    named = path
    if path.parent == exports_cache():  # a copy of the directory that was named, which does not last
        named = file or Path(run if is_there(expanded(Path(run))) else run.rpartition("@")[0])
    if not verbose:
        if warnings_kept := sum(event.level != "info" for event in events):
            kept = counted(warnings_kept, "warning")
            footer.append((Span(f"{kept}: ", "dim"), Span("--verbose", "accent")))
        steps = next_steps([found], named, comparable, passes=passes.values())
        if named != path:  # nothing is stored in an export
            steps = (one for one in steps if one.command.startswith(_READ))
        footer += step_lines(steps, out)
    if isinstance(loads, Missing):
        page = run_page(out, found, heading, footer, is_verbose=verbose, shows_all=shows_all, passes=passes)
    else:
        page = serving_page(out, found, loads, heading, footer, is_verbose=verbose, api_price=api_price)
    if verbose or words or top is not None:
        again = f"gputui show {found.summary.short_id} {shlex.quote(from_here(str(named)))}"
        _write_breakdowns(page, found, passes, 5 if top is None else top, words=words, command=again)
    if verbose:
        for trace in traces_of(found.summary.run_id, path):
            page.line(f"trace: {trace}; {HOW_TO_OPEN}")
        page.part((*_telemetry(telemetry), *(f"{event.level}: {event.message}" for event in events)))
    page.show()


def _print_json(
    run: Run, passes: Mapping[int, ProfiledPass], loads: ServingRun | Missing, used: RecordedUse | Missing
) -> None:
    plain = run_as_json(run, passes)
    if not isinstance(loads, Missing):
        plain["serving"] = serving_as_json(loads, run.summary.price)
    if not isinstance(used, Missing):
        plain["recorded"] = to_plain(used)
    print_json(plain)


def _print_trace(
    run: Run, profiled: ProfiledPass, events: Sequence[StoredEvent], path: Path, most: int | None
) -> None:
    from gputui.cli.traces import show_trace
    from gputui.services.traces.imported import stored_run

    named = shlex.quote(f"{from_here(str(path))}@{run.summary.short_id}")
    show_trace(stored_run(run, profiled, [event.message for event in events]), named, most)


def _telemetry(telemetry: TelemetrySummary) -> Iterator[str]:
    for device in telemetry.devices:
        parts = []
        if not isinstance(device.power_median_w, Missing) and not isinstance(device.power_max_w, Missing):
            parts.append(f"power {device.power_median_w:.0f} W, at most {device.power_max_w:.0f}")
        if not isinstance(device.temperature_max_c, Missing):
            parts.append(f"temperature up to {device.temperature_max_c:.0f} °C")
        if not isinstance(device.sm_clock_median_mhz, Missing):
            parts.append(f"clock {with_unit(device.sm_clock_median_mhz, 'MHz')}")
        for share, word in ((device.power_capped_share, "power-capped"), (device.slowed_share, "slowed")):
            if not isinstance(share, Missing) and share > 0:
                parts.append(f"{word} {format_percent(share)} of the time")
        yield (f"GPU {device.device_index}: {'; '.join(parts)} ({device.samples} samples)")
    busy, steal = telemetry.cpu_busy_mean_pct, telemetry.cpu_steal_mean_pct
    if not isinstance(busy, Missing):
        stolen = "" if isinstance(steal, Missing) else f", {steal:.0f} % taken by the hypervisor"
        yield (f"host: CPU {with_unit(busy, 'cores')}{stolen} ({telemetry.host_samples} samples)")


def _write_breakdowns(
    page: Page, run: Run, passes: Mapping[int, ProfiledPass], top: int, *, words: str = "", command: str = ""
) -> None:
    """The step of the main case in full, of the other profiled ones a line each, and how to see those.

    Nothing if none was profiled. With `words` only the steps of the cases that have them in their name, in
    full; raises GputuiError if none has. `command` shows this run.
    """
    found = profiled_cases(run, passes)
    asked = set(words.lower().replace(":", " ").split())
    called = {
        case.case_id: f"{plain_case_name(case.case)} {case.case.name}".lower().split() for case in found
    }
    chosen = [case for case in found if asked <= set(called[case.case_id])] if words else found[:1]
    if words and not chosen:
        raise GputuiError(
            f"--case {words}: this run profiled no case of that name",
            f"these were profiled: {some_of([plain_case_name(case.case) for case in found])}"
            if found
            else "it profiled none: gputui run --trace profiles every case that can be",
        )
    from gputui.services.run_page import write_step

    for case in chosen:
        page.line()
        write_step(page, case, passes[case.case_id], top)
    others = [] if words else found[1:]
    if others:
        page.line()
        page.table(_others_table(others, passes))
        name = shlex.quote(plain_case_name(others[0].case))
        page.spans((Span("in full: ", "dim"), Span(f"{command} --case {name}", "accent")))


def _others_table(cases: Sequence[CaseResult], passes: Mapping[int, ProfiledPass]) -> Table:
    """How long a step takes, how much of it is idle, and its largest part, or why that is not known."""
    rows = []
    for case in cases:
        breakdown = breakdown_of(passes[case.case_id], case)
        if isinstance(breakdown, Missing):
            rows.append((plain_case_name(case.case), "", "", "", f"not profiled: {breakdown.reason}"))
            continue
        idle = sum(breakdown.idle.values())
        part, share, _ = step_parts(breakdown)[0]
        length = format_seconds(breakdown.step_ns * 1e-9)
        busy = format_percent(1 - idle), format_percent(idle)
        rough = "" if is_believed(breakdown) else " (rough)"
        rows.append((plain_case_name(case.case), length, *busy, f"{part} {format_percent(share)}{rough}"))
    headings = ("a step of each other profiled case", "per step", "busy", "idle", "largest part")
    return table_of(headings, rows, (1, 2, 3), breaks=(0, 4))
