"""Follows runs until they are stored, and reports their results: shared by `run`, `attach` and `stop`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any  # Any: what is passed on

import click

from gputui.cli.output import beneath, console, print_json, step_lines, warn
from gputui.cli.progress import Progress
from gputui.document.page import Console, console_on
from gputui.document.spans import Line, Span, command_lines
from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_HUNG_UP, EXIT_NO_RESULT, GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED, STOPPED, RunEnd, Stored
from gputui.model.plan import Plan
from gputui.model.result import Run
from gputui.model.serving import SERVE_PROFILE
from gputui.recording.run_directory import Spec
from gputui.services.profiles.loader import Profile
from gputui.services.results.labels import has_failed, has_measured
from gputui.services.results.next_steps import NextStep, next_steps
from gputui.services.results.selectors import from_here, run_in
from gputui.services.results.traces import HOW_TO_OPEN, traces_of
from gputui.services.results.worker_logs import where_messages_are
from gputui.services.runs.alerts import Alerts
from gputui.services.runs.alerts_watch import notification
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.held_runs import LiveRun
from gputui.services.runs.process import (
    called,
    follow,
    is_of_this_boot,
    start_runs,
    stop,
    wait_until_begun,
)
from gputui.services.runs.recovery import see_stored
from gputui.services.serving.curve import serving_of
from gputui.store.journal_reader import TelemetryTail
from gputui.store.reading import open_result

_STEPS_NAMED = 2
"""At the end of a run."""
WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HOW_TO_LEAVE = "Ctrl-C ends it and keeps what is measured, Ctrl-\\ leaves it running"
VERBOSE_HELP = "Add efficiency, notes, and why cases were not measured."


@dataclass(frozen=True, slots=True)
class Watched:
    """The last journal lines of runs, by index; a run whose supervisor was killed has none."""

    ended: dict[int, RunEnd] = field(default_factory=dict)
    stored: dict[int, Stored] = field(default_factory=dict)


def hold_signals() -> None:
    """Block signals until `watch` can forward them, so that none is lost while a supervisor starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def alerts_of(runs: Sequence[LiveRun], plans: Sequence[Plan], *, is_late: bool = False) -> Alerts:
    """The alerts of these runs; `is_late` if they began before this process."""
    return Alerts(plans, " and ".join(called(run) for run in runs), is_late=is_late)


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
) -> Watched:
    """Show progress until every run is stored, or its supervisor is gone.

    SIGINT and SIGTERM end the runs; a hang-up and SIGQUIT end this process and leave the runs. `left` is for
    a viewer of runs that another process started: it says these lines after SIGINT or SIGTERM, and leaves the
    runs too. `keys` is what a terminal says of that.
    The terminal rings for `alerts`; other streams get none of them.
    """
    watched = Watched()

    def pass_on(number: int, frame: FrameType | None) -> None:
        called = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        progress.interject(f"{called}: ending the run and keeping what is finished ...")
        try:
            stop(runs[0], signal.Signals(number))
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
            if isinstance(line, RunEnd):
                watched.ended[index] = line
            elif isinstance(line, Stored):
                watched.stored[index] = line
    if alerts is not None:
        _ring(alerts.end())
    return watched


def _ring(text: str) -> None:
    """Ring on stderr, where the progress is shown."""
    if text and sys.stderr.isatty():
        sys.stderr.flush()
        beneath(sys.stderr).buffer.write(notification(text))
        sys.stderr.flush()


def finish(
    runs: Sequence[LiveRun],
    watched: Watched,
    target: Path,
    *,
    as_json: bool,
    is_verbose: bool = False,
    shows_all: bool = False,
    like: str = "",
    profile: Profile | None = None,
    api_price: tuple[float, float] | None = None,
) -> int:
    """Results of every run, the next commands, and the exit status. Raises NotStored.

    6 if a run measured nothing and none of its cases failed.

    `like` is the run that was repeated, as `F@RUN`; empty for none; `profile` has its cases. `api_price`: of
    a hosted API, for a run of loads; USD per million tokens in and out.
    """
    was_killed = False
    for index, run in enumerate(runs):
        said = see_stored(run, watched.stored.get(index))
        warn(said)
        was_killed = was_killed or bool(said)
    from gputui.cli.results import print_run
    from gputui.services.compare.pairing import runtime_name
    from gputui.services.compare.resolve import Looks

    with open_result(target) as file:
        results = [run_in(file, run.run_id) for run in runs]
        loads = [
            serving_of(one, file.serving(one.summary.run_id))
            for one in results
            if one.summary.profile == SERVE_PROFILE
        ]
        passes = file.profiled(runs[0].run_id) if len(runs) == 1 else {}
        steps = next_steps(
            results,
            target,
            file.measured_summaries(),
            passes=passes.values(),
            like=like,
            profile=profile,
        )
    looks = [Looks.read(run.run_dir) for run in runs]
    if as_json:
        from gputui.services.results.json import run_as_json
        from gputui.services.results.step_tables import why_sentence

        plain = [{**run_as_json(result), "why": why_sentence(result, passes)} for result in results]
        found: dict[str, object] = {"runs": plain}
        if loads:
            from gputui.services.serving.json import serving_as_json

            found["serving"] = [
                None if isinstance(one, Missing) else serving_as_json(one, result.summary.price)
                for one, result in zip(loads, results, strict=True)
            ]
        if any(looks):
            found["looks"] = [None if one is None else asdict(one) for one in looks]
        print_json(found)
    elif loads:
        from gputui.cli.serving import print_serving

        for result, load in zip(results, loads, strict=True):
            if not isinstance(load, Missing):
                lines = list(_last_lines(target, results, steps, console()))
                click.echo()
                print_serving(
                    console(), result, load, footer=lines, is_verbose=is_verbose, api_price=api_price
                )
    else:
        out = console()
        for result, one in zip(results, looks, strict=True):
            if not out.is_terminal:  # which has the place of the picture
                click.echo()
            is_last = result is results[-1]
            which = [f"{result.summary.short_id}: {runtime_name(result.summary)}"]
            print_run(
                out,
                result,
                [*(which if len(results) > 1 else ()), *(() if one is None else one.lines())],
                list(_last_lines(target, results, steps, out)) if is_last else [],
                is_verbose=is_verbose,
                shows_all=shows_all,
                share=1 / len(results),
                headline="" if one is None else one.headline,
                passes=passes,
            )
    failed = any(map(has_failed, results)) or was_killed
    is_empty = any(result.cases and not has_measured(result) for result in results)
    warn(line for result in results for line in where_messages_are(result))
    status = exit_status_of(watched.ended)
    return status or (EXIT_CASE_FAILED if failed else EXIT_NO_RESULT if is_empty else EXIT_DONE)


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
