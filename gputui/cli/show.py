"""`gputui show`: one run in full."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from gputui.cli.output import console, step_lines
from gputui.cli.watching import ALL_HELP
from gputui.document.page import Page
from gputui.document.spans import Line, Span
from gputui.errors import EXIT_DONE
from gputui.metrics import with_unit
from gputui.model.absent import Missing
from gputui.model.plan import TRACE_PROFILE
from gputui.model.units import counted, format_percent
from gputui.services.results.labels import run_heading, run_heading_in_one
from gputui.services.results.selectors import from_here, is_there, run_and_file, run_in
from gputui.services.results.traces import HOW_TO_OPEN, traces_of
from gputui.services.results.worker_logs import where_messages_are
from gputui.services.serving.curve import serving_of
from gputui.services.serving.text import API_PRICE_HELP, api_price_from
from gputui.services.support.paths import exports_cache
from gputui.store.opening import expanded
from gputui.store.reading import TelemetrySummary, open_result
from gputui.store.selecting import find_run

COMMON = ("--verbose", "--all", "--json")


@click.command()
@click.argument("run", metavar="[RUN|F@RUN]", default="latest")
@click.argument("file", required=False, type=click.Path(path_type=Path, readable=False))
@click.option("--trust", is_flag=True, help="Read a file with macros or triggers too.")
@click.option(
    "--top",
    type=click.IntRange(0, 400),
    help="Print the step of the main case with this many operators.  [5 with -v]",
)
@click.option("--case", "words", default="", metavar="WORDS", help="Print the step of the case of this name.")
@click.option("--all", "shows_all", is_flag=True, help=ALL_HELP)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Add the box, a step by operator, telemetry, efficiency, notes, and why cases were not measured.",
)
@click.option("--api-price", type=api_price_from, metavar="IN,OUT", help=API_PRICE_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
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
) -> int:
    """Show RUN (its short id, its label, `latest` or `latest~1`) of FILE; without them, the latest run."""
    path, selector = run_and_file(run, file)
    with open_result(path, trust, as_stored=as_json) as result:
        found = run_in(
            result, find_run(result.summaries(), "latest" if selector is None else selector).run_id
        )
        comparable = () if as_json or verbose else result.measured_summaries()
        passes = result.profiled(found.summary.run_id)
        telemetry = result.telemetry_summary(found.summary.run_id)
        loads = serving_of(found, result.serving(found.summary.run_id))
        events, warnings = result.events(found.summary.run_id), result.warnings
    for warning in warnings:
        click.echo(warning, err=True)
    if as_json:
        from gputui.services.results.json import run_as_json

        plain = {"schema": 1, **run_as_json(found, passes)}
        if not isinstance(loads, Missing):
            from gputui.services.serving.json import serving_as_json

            plain["serving"] = serving_as_json(loads, found.summary.price)
        click.echo(json.dumps(plain, indent=1))
        return EXIT_DONE

    if found.summary.profile == TRACE_PROFILE:
        from gputui.cli.traces import show_trace

        show_trace(found, passes[0], [event.message for event in events], top, is_verbose=verbose)
        return EXIT_DONE
    from gputui.cli.results import print_run
    from gputui.cli.serving import print_serving
    from gputui.cli.step_breakdown import write_breakdowns
    from gputui.services.results.next_steps import next_steps

    out = console()
    heading = ["", *run_heading(found)] if verbose else run_heading_in_one(found)
    footer: list[Line] = [(Span(line),) for line in where_messages_are(found)]
    warnings_kept = sum(event.level != "info" for event in events)
    named = _export_named(run, file) if path.parent == exports_cache() else path
    if not verbose:
        if warnings_kept:
            kept = counted(warnings_kept, "warning")
            footer.append((Span(f"{kept}: ", "dim"), Span("--verbose", "accent")))
        steps = next_steps([found], named, comparable, passes=passes.values())
        if named != path:  # nothing is stored in an export
            steps = (
                step
                for step in steps
                if step.command.startswith(("gputui show", "gputui replay", "gputui compare"))
            )
        footer += step_lines(steps, out)
    page = Page(out)
    if verbose or words or top is not None:
        again = f"gputui show {found.summary.short_id} {shlex.quote(from_here(str(named)))}"
        write_breakdowns(page, found, passes, 5 if top is None else top, words=words, command=again)
    if isinstance(loads, Missing):
        print_run(out, found, heading, footer, is_verbose=verbose, shows_all=shows_all, passes=passes)
    else:
        print_serving(out, found, loads, heading, footer, is_verbose=verbose, api_price=api_price)
    if verbose:
        for trace in traces_of(found.summary.run_id, path):
            page.line(f"trace: {trace}; {HOW_TO_OPEN}")
        for line in (*_telemetry(telemetry), *(f"{event.level}: {event.message}" for event in events)):
            page.line(line)
    page.show()
    return EXIT_DONE


def _export_named(run: str, file: Path | None) -> Path:
    """The directory that was named, in place of its copy in the cache, which does not last."""
    if file is not None:
        return file
    return Path(run) if is_there(expanded(Path(run))) else Path(run.rpartition("@")[0])


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
    host = telemetry.host
    if not isinstance(host, Missing) and not isinstance(host.cpu_busy_mean_pct, Missing):
        steal = host.cpu_steal_mean_pct
        stolen = "" if isinstance(steal, Missing) else f", {steal:.0f} % taken by the hypervisor"
        yield (f"host: CPU {with_unit(host.cpu_busy_mean_pct, 'cores')}{stolen} ({host.samples} samples)")
