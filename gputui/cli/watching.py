"""Runs in progress, followed until they are stored, then shown; and `gputui attach` and `gputui stop`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any  # Any: what is passed on

import click

from gputui.cli.options import all_cases_option, json_results_option, notify_option
from gputui.cli.output import beneath, console, print_json, report_recovered, step_lines, warn
from gputui.cli.progress import Progress
from gputui.document.page import Console, console_on
from gputui.document.spans import Line, Span, command_lines
from gputui.errors import (
    EXIT_CASE_FAILED,
    EXIT_DONE,
    EXIT_HUNG_UP,
    EXIT_NO_RESULT,
    EXIT_TERMINATED,
    GputuiError,
)
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED, STOPPED, ProfiledPass, RunEnd
from gputui.model.plan import Plan
from gputui.model.result import Run
from gputui.model.units import format_percent, format_whole_seconds
from gputui.recording.run_directory import Spec
from gputui.services.results.labels import has_failed, has_measured
from gputui.services.results.run_forms import HOW_TO_OPEN, NextStep, traces_of, where_messages_are
from gputui.services.results.selectors import from_here
from gputui.services.runs.alerts import Alerts, alerts_of, notification
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.process import (
    LiveRun,
    called,
    find_in_progress,
    follow,
    is_of_this_boot,
    runs_in_progress,
    see_stored,
    start_runs,
    wait_until_begun,
)
from gputui.services.runs.process import stop as end_run
from gputui.services.runs.progress import ProgressTracker
from gputui.services.serving.curve import ServingRun
from gputui.store.journal_reader import JournalTail, TelemetryTail

_STEPS_NAMED = 2
WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HOW_TO_LEAVE = "Ctrl-C ends it and keeps what is measured, Ctrl-\\ leaves it running"
VERBOSE_HELP = "Add efficiency, notes, and why cases were not measured."


def hold_signals() -> None:
    """Block signals until `watch` can forward them, so that none is lost while a supervisor starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def continuing(runs: Sequence[LiveRun]) -> tuple[str, ...]:
    """That these runs of one supervisor continue, and what to type, in lines that can be copied."""
    ids, first = " and ".join(run.short_id for run in runs), runs[0].short_id
    return (
        f"run {ids} continues; to see it, or to end it:",
        f"  gputui attach {first}",
        f"  gputui stop {first}",
    )


def detached(specs: Sequence[Spec], *, as_json: bool, like: str = "") -> int:
    """Start runs, leave them to themselves, and say how they are found again and compared with `like`."""
    runs = start_runs(specs)
    wait_until_begun(runs)
    if as_json:
        print_json({"runs": [{"run_id": run.run_id} for run in runs]})
        return EXIT_DONE
    mine = shlex.quote(f"{runs[0].target}@{runs[0].short_id}")
    then = ("then:", f"  gputui compare {shlex.quote(like)} {mine}") if like else ()
    for line in (*continuing(runs), *then):
        click.echo(line)
    return EXIT_DONE


def measured(specs: Sequence[Spec], target: Path, *, notifies: bool, **shown: Any) -> int:
    """Start runs, watch them to their ends, and show their results as `finish` does with `shown`."""
    hold_signals()
    runs = start_runs(specs)
    plans = [spec.plan for spec in specs]
    watched = watch(runs, plans, alerts_of(runs, plans) if notifies else None)
    return finish(runs, watched, target, **shown)


def watch(
    runs: Sequence[LiveRun],
    plans: Sequence[Plan],
    alerts: Alerts | None = None,
    *,
    left: Sequence[str] = (),
    keys: str = HOW_TO_LEAVE,
) -> ProgressTracker:
    """Show progress until every run is stored, or its supervisor is gone.

    SIGINT and SIGTERM end the runs; a hang-up and SIGQUIT end this process and leave the runs. `left` is for
    a viewer of runs that another process started: it says these lines after SIGINT or SIGTERM, and leaves the
    runs too. `keys` is what a terminal says of that.
    The terminal rings for `alerts`; other streams get none of them.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        called = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        progress.interject(f"{called}: ending the run and keeping what is finished ...")
        try:
            end_run(runs[0], signal.Signals(number))
        except GputuiError as error:
            progress.interject(f"{error.message}: {error.hint}")

    def hang_up(number: int, frame: FrameType | None) -> None:
        os._exit(EXIT_HUNG_UP)  # the terminal is gone, and the run belongs to its supervisor

    def leave(number: int, frame: FrameType | None) -> None:
        progress.interject(*(left or continuing(runs)))
        progress.give_back()
        os._exit(EXIT_DONE if number == signal.SIGQUIT else 128 + number)

    is_here = all(map(is_of_this_boot, runs))
    is_terminal = sys.stderr.isatty()
    live = is_terminal and console_on(sys.stderr).has_styles
    if is_terminal and not live:
        click.echo(keys, err=True)
    with Progress(
        plans,
        live=live,
        histories=[HistoryReader(TelemetryTail(run.run_dir).poll) for run in runs] if is_here else [],
        into=from_here(str(runs[0].target)),
        keys=keys,
    ) as progress:
        interrupt = leave if left else pass_on
        for number, handler in zip(WATCHED, (interrupt, interrupt, hang_up, leave), strict=True):
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        for index, line in follow(runs):
            if line is None:
                progress.tick()
                if alerts is not None:
                    _ring(alerts.tick())
                continue
            progress.hear(index, line)
            if alerts is not None:
                alerts.hear(index, line)
    if alerts is not None:
        _ring(alerts.end())
    return progress.tracker


def _ring(text: str) -> None:
    """Ring on stderr, where the progress is shown."""
    if text and sys.stderr.isatty():
        sys.stderr.flush()
        beneath(sys.stderr).buffer.write(notification(text))
        sys.stderr.flush()


def finish(
    runs: Sequence[LiveRun],
    watched: ProgressTracker,
    target: Path,
    *,
    as_json: bool,
    is_verbose: bool = False,
    shows_all: bool = False,
    like: str = "",
    api_price: tuple[float, float] | None = None,
) -> int:
    """Results of every run, the next commands, and the exit status. Raises NotStored.

    6 if a run measured nothing and none of its cases failed.

    `like` is the run that was repeated, as `F@RUN`; empty for none. `api_price`: of
    a hosted API, for a run of loads; USD per million tokens in and out.
    """
    was_killed = False
    for index, run in enumerate(runs):
        said = see_stored(run, watched.stored.get(index))
        warn(said)
        was_killed = was_killed or bool(said)
    from gputui.services.compare.pairing import runtime_name
    from gputui.services.run_page import read_ended, run_page, serving_page

    results, loads, passes, steps = read_ended(runs, like)
    if as_json:
        _print_json(results, loads, passes)
    for result, load in () if as_json else zip(results, loads, strict=True):
        out = console()
        if not out.is_terminal:  # which has the place of the picture
            click.echo()
        footer = list(_last_lines(target, results, steps, out)) if result is results[-1] else []
        if not isinstance(load, Missing):
            page = serving_page(out, result, load, footer=footer, is_verbose=is_verbose, api_price=api_price)
        else:
            which = [f"{result.summary.short_id}: {runtime_name(result.summary)}"]
            page = run_page(
                out,
                result,
                which if len(results) > 1 else (),
                footer,
                is_verbose=is_verbose,
                shows_all=shows_all,
                share=1 / len(results),
                passes=passes,
            )
        page.show()
    failed = any(map(has_failed, results)) or was_killed
    is_empty = any(result.cases and not has_measured(result) for result in results)
    warn(line for result in results for line in where_messages_are(result))
    status = exit_status_of(watched.ended)
    return status or (EXIT_CASE_FAILED if failed else EXIT_NO_RESULT if is_empty else EXIT_DONE)


def _print_json(
    results: Sequence[Run], loads: Sequence[ServingRun | Missing], passes: Mapping[int, ProfiledPass]
) -> None:
    from gputui.services.results.run_forms import run_as_json
    from gputui.services.results.step_answer import why_sentence
    from gputui.services.serving.text import serving_as_json

    plain = [{**run_as_json(result), "why": why_sentence(result, passes)} for result in results]
    serving = [
        None if isinstance(load, Missing) else serving_as_json(load, result.summary.price)
        for load, result in zip(loads, results, strict=True)
    ]
    print_json({"runs": plain, **({"serving": serving} if any(serving) else {})})


def exit_status_of(ended: Mapping[int, RunEnd]) -> int:
    """128 + signal for a run that was stopped, 1 for one that ended early otherwise, else 0: it came to its
    end, whatever it measured."""
    for end in ended.values():
        for number, reason in STOPPED.items():
            if end.reason == reason:
                return 128 + number
        if end.status != "finished" and end.reason != NOTHING_MEASURED:
            return EXIT_CASE_FAILED
    return EXIT_DONE


def _last_lines(
    target: Path, results: Sequence[Run], steps: Iterable[NextStep], out: Console
) -> Iterator[Line]:
    """Where the runs are, what to type next, and in an SSH shell how the file is fetched."""
    here = from_here(str(target))
    short_ids = [result.summary.short_id for result in results]
    for trace in (trace for short_id in short_ids for trace in traces_of(short_id, target)):
        yield (Span(f"trace: {from_here(str(trace))}; {HOW_TO_OPEN}"),)
    yield (Span(f"stored as {' and '.join(short_ids)} in {here}", "dim"),)
    yield from step_lines(islice(steps, _STEPS_NAMED), out)
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) == 4 and any(case.outcome == "ok" for result in results for case in result.cases):
        user = os.environ.get("USER") or "USER"
        _, _, address, port = connection
        option = "" if port == "22" else f"-P {port} "
        host = f"[{address}]" if ":" in address else address
        command = f"scp {option}{user}@{host}:{shlex.quote(str(target))} ."
        for line in command_lines(command, out.width if out.is_terminal else None, "fetch: "):
            yield (Span(line),)


@click.command()
@click.argument("run", default="")
@notify_option
@all_cases_option
@click.option("-v", "--verbose", is_flag=True, help=VERBOSE_HELP)
@json_results_option
def attach(run: str, notify: bool, shows_all: bool, verbose: bool, as_json: bool) -> int:
    """Watch a run until it ends, then show its results. Ctrl-C leaves; the run continues.

    RUN is its short id or label, needed if several are in progress. It may be a bakeoff; without it, also the
    last one of today that is not over.
    """
    from gputui.cli.bakeoff import see_through  # which `run` does not need, nor ssh
    from gputui.services.hosts.bakeoff import bakeoff_in_progress

    report_recovered()
    bakeoff = bakeoff_in_progress(run) if run or not runs_in_progress() else None
    if bakeoff is not None:
        return see_through(bakeoff, shows_all=shows_all, verbose=verbose, as_json=as_json, is_ours=False)
    runs = find_in_progress(run)
    keys = f"Ctrl-C leaves it running; to end it: gputui stop {runs[0].short_id}"
    return _seen_to_end(
        runs, continuing(runs), keys, notify, as_json=as_json, is_verbose=verbose, shows_all=shows_all
    )


@click.command()
@click.argument("run", default="")
@json_results_option
def stop(run: str, as_json: bool) -> int:
    """End RUN, store what is finished, and show that.

    RUN is its short id or label, needed if several are in progress; or the name of a bakeoff.
    """
    from gputui.cli.bakeoff import see_through
    from gputui.services.hosts.bakeoff import bakeoff_in_progress

    report_recovered()
    if not run:
        _check_only_one()
    bakeoff = bakeoff_in_progress(run)
    if bakeoff is not None:
        status = see_through(bakeoff, as_json=as_json, ends=True)
        return EXIT_DONE if status == EXIT_TERMINATED else status
    runs = find_in_progress(run)
    left = "the run is ending; to see its end:", f"  gputui attach {runs[0].short_id}"
    end_run(runs[0], signal.SIGTERM)
    status = _seen_to_end(runs, left, "Ctrl-C leaves it ending", as_json=as_json)
    return EXIT_DONE if status == EXIT_TERMINATED else status  # stopping it was the request


def _seen_to_end(
    runs: Sequence[LiveRun], left: Sequence[str], keys: str, notifies: bool = False, **shown: Any
) -> int:
    """Watch runs that another process started, and show their results as `finish` does with `shown`."""
    hold_signals()
    plans = [Spec.read(found.run_dir).plan for found in runs]
    watched = watch(
        runs, plans, alerts_of(runs, plans, is_late=True) if notifies else None, left=left, keys=keys
    )
    return finish(runs, watched, runs[0].target, **shown)


def first_run_into(path: Path) -> GputuiError | None:
    """Why there is no result file while the first run into it is in progress."""
    begun = [run for together in runs_in_progress() for run in together if run.target == path]
    if not begun:
        return None
    first = begun[-1]
    tracker = ProgressTracker([Spec.read(first.run_dir).plan], is_of_this_clock=is_of_this_boot(first))
    for line in JournalTail(first.run_dir).poll():
        tracker.hear(0, line)
    seen = tracker.picture()
    done = "" if seen.share_done is None else f", {format_percent(seen.share_done)} done"
    left = "" if seen.left_s is None else f", about {format_whole_seconds(seen.left_s)} left"
    return GputuiError(
        f"nothing is stored in {path} yet: its first run, {called(first)}, is in progress{done}{left}",
        f"watch it, and see its results at its end: gputui attach {first.short_id}",
    )


def _check_only_one() -> None:
    """Raise GputuiError if a bakeoff is in progress and something else too."""
    from gputui.services.hosts.bakeoff import bakeoffs_in_progress

    bakeoffs = bakeoffs_in_progress()
    runs = [called(run) for together in runs_in_progress() for run in together]
    if len(bakeoffs) > 1 or (bakeoffs and runs):
        names = [*(f"bakeoff {bakeoff.name}" for bakeoff in bakeoffs), *runs]
        raise GputuiError(f"{len(names)} runs are in progress: {', '.join(names)}", "name one of them")
