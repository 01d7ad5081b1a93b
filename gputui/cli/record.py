"""`gputui record`: telemetry of the box while any program runs."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any  # Any: click's signature

import click

from gputui.cli.options import db_option, machine_option, price_option
from gputui.cli.output import print_json, report_missing_home
from gputui.errors import EXIT_DONE, EXIT_HUNG_UP, EXIT_NOT_STORED, GputuiError, NotStored
from gputui.machine.describing import describe_machine
from gputui.model.absent import Missing, to_plain
from gputui.model.machine import Machine, Runtime
from gputui.model.plan import (
    RECORD_PROFILE,
    WHOLE_BOX,
    Case,
    Plan,
    PlannedCase,
    PlannedDevice,
    PlannedLaunch,
    program_case,
)
from gputui.model.units import format_seconds, number_from
from gputui.recording.recorder import Foreground, Recorder
from gputui.recording.run_directory import Spec
from gputui.services.prices import price_of
from gputui.services.results.conditions import RecordedUse, recorded_use
from gputui.services.results.selectors import from_here
from gputui.services.runs.process import import_journal, lay_out, new_run_id, writable_target
from gputui.services.support.paths import hash_key
from gputui.store.reading import open_result
from gputui.store.selecting import check_label
from gputui.worker.command import ProgramEnd, signal_name

EXIT_OURS, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
"""As those of `env`, so that they differ from the program's exit codes."""
SHORTEST_S, LONGEST_S = 0.1, 60.0
LONGEST_FOR_S = 365 * 24 * 3600.0
VERSION = 1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class ProgramCommand(click.Command):
    """A command that runs another after `--`: then its own errors end with 125, also those of its options."""

    form = "gputui record [OPTIONS] -- COMMAND ..."
    takes_other_words = False
    HAS_MARK = "gputui.has_mark"
    """Whether there was a `--`, in `meta` of the context."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        has_mark = "--" in args
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except (click.UsageError, GputuiError) as error:
            if has_mark or not self.takes_other_words:
                error.exit_code = EXIT_OURS  # type: ignore[misc]  # click declares it in the class
            raise
        context.meta[self.HAS_MARK] = has_mark
        words = context.params.get("words")
        if words and not has_mark and not self.takes_other_words:
            raise GputuiError(f"{words[0]!r}: only gputui's options go before --", self.form, EXIT_OURS)
        if has_mark and not words:
            raise GputuiError("no command follows --", self.form, EXIT_OURS)
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GputuiError as error:
            runs_program = ctx.meta[self.HAS_MARK] or not self.takes_other_words
            if runs_program and error.exit_code not in (EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND):
                error.exit_code = EXIT_OURS
            raise


@click.command(cls=ProgramCommand, context_settings={"allow_interspersed_args": False})
@db_option
@click.option(
    "--interval",
    type=number_from("--interval", float, "seconds between readings, such as 1", (SHORTEST_S, LONGEST_S)),
    default="1.0",
    show_default=True,
    metavar="S",
    help="Seconds between readings.",
)
@click.option(
    "--for",
    "seconds",
    type=number_from("--for", float, "seconds, up to a year", (SHORTEST_S, LONGEST_FOR_S)),
    metavar="S",
    help="Stop after S seconds; only without COMMAND.",
)
@click.option("--label", default="", help="A label; recordings with the same label are compared.")
@price_option
@machine_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, after what COMMAND prints.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(
    interval: float, seconds: float | None, as_json: bool, words: tuple[str, ...], **kept_as: Any
) -> int:
    """Record the box while COMMAND runs, and end with its exit code; without one, until Ctrl-C."""
    if words and seconds is not None:
        raise GputuiError(
            f"--for {seconds:.15g} does not apply: a recording of a command ends when the command does",
            "leave --for out, or bound the command: gputui record -- timeout 60 COMMAND ...",
        )
    spec, box = prepared(has_program=bool(words), seconds=seconds, **kept_as)
    foreground = Foreground()
    status = recorded(words, spec, box, foreground, interval=interval, as_json=as_json)
    if foreground.hung_up:
        os._exit(EXIT_HUNG_UP)  # there is nobody to report to
    return status


def recorded(
    words: tuple[str, ...],
    spec: Spec,
    box: Machine,
    foreground: Foreground,
    *,
    interval: float = 1.0,
    environ: Mapping[str, str] | None = None,
    at_end: Callable[[Recorder], None] = lambda _: None,
    as_json: bool = False,
) -> int:
    """Record a program, or without one the box, and store that; returns the exit status.

    `at_end` is called once the program has ended, while lines can still be added. Raises GputuiError if the
    program cannot be started, or nothing can be stored.
    """
    run_dir, target = lay_out(spec), Path(spec.target)
    try:
        recorder = Recorder(run_dir, spec, box, interval)
    except OSError as error:
        raise NotStored(
            f"{run_dir}: cannot be written to ({error.strerror})",
            "set GPUTUI_STATE to a directory you can write to",
        ) from error
    told = ""
    try:
        with recorder.telemetry:
            if words:
                end = foreground.run(words, recorder.program_begun, recorder.cpu.end, environ)
            else:
                status = _watch(spec.plan.budget_s, interval, foreground, recorder)
    except OSError as error:
        recorder.close(EXIT_OURS, "the program was never started")
        shutil.rmtree(run_dir, ignore_errors=True)  # it never began
        code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
        message = f"{words[0]}: cannot be started: {error.strerror}"
        raise GputuiError(message, "nothing was recorded", code) from error
    if words:
        outcome, reason = _outcome_of(end)
        wall_s = recorder.program_ended(outcome, reason, end.ended_ns, end.cpu_ns, end.exit_status)
        at_end(recorder)
        is_cut = outcome == "interrupted"
        recorder.end("interrupted" if is_cut else "finished", reason if is_cut else "")
        status = end.exit_status if end.exit_status >= 0 else 128 - end.exit_status
        told = ": " + ", ".join(filter(None, (format_seconds(wall_s), reason)))
    run_id = _store(run_dir, target, recorder, told)
    if as_json:
        from gputui.services.results.run_forms import run_as_json

        with open_result(target) as result:
            run = result.run(run_id)
            used = recorded_use(run, result.telemetry_summary(run_id))
        print_json({**run_as_json(run), "recorded": to_plain(used)})
    return status


def _watch(seconds: float, interval: float, foreground: Foreground, recorder: Recorder) -> int:
    """Record without a program, for so long or until Ctrl-C, which is its normal end."""
    until = f"for {format_seconds(seconds)}" if seconds else "until Ctrl-C"
    say_if_heard(f"recording every {interval:g} s {until}")
    foreground.wait(seconds or None)
    number = foreground.stopped_by
    if number in (0, signal.SIGINT):
        recorder.end("finished", "")
        return EXIT_DONE
    recorder.end("interrupted", f"stopped by {signal_name(number)}")
    return 128 + number


def _store(run_dir: Path, target: Path, recorder: Recorder, told: str) -> str:
    """Store a finished recording. Raises NotStored, and its journal is kept."""
    name, file = run_dir.name[-8:], shlex.quote(from_here(str(target)))
    try:
        run_id = import_journal(run_dir, target).run_id
    except GputuiError as error:
        message = f"recorded but not stored: {error.message}"
        recorder.close(EXIT_NOT_STORED, message)
        hint = f"its journal is kept: gputui import {shlex.quote(str(run_dir))} --db FILE"
        raise NotStored(message, hint) from error
    recorder.close(0, "")
    if recorder.failure:
        raise NotStored(f"run {name} is stored in part: {recorder.failure}", "make space there")
    say_if_heard(f"recorded as {name} in {file}{told}{_used(run_id, target)}\n  gputui show {name} {file}")
    return run_id


def _used(run_id: str, target: Path) -> str:
    """What the program got of the box; empty without a program, or while another writes to the file."""
    used: RecordedUse | Missing = Missing("not read")
    with suppress(GputuiError), open_result(target) as result:
        used = recorded_use(result.run(run_id), result.telemetry_summary(run_id))
    return "" if isinstance(used, Missing) else f"; {used.text}"


def say_if_heard(text: str) -> None:
    """Print a line of gputui's among those of a program."""
    with suppress(OSError):  # the terminal is gone
        click.echo(f"gputui: {text}", err=True)


def prepared(
    *,
    has_program: bool,
    seconds: float | None = None,
    db: Path | None,
    label: str,
    price: float | None,
    machine: str,
) -> tuple[Spec, Machine]:
    """A recording that is about to begin, and the box that it is of."""
    report_missing_home()
    box = describe_machine(name=machine, hash_key=hash_key())
    run_id, label = new_run_id(), check_label(label)
    case = PlannedCase(0, recorded_case(label, run_id), None, "")
    device = PlannedDevice(WHOLE_BOX, "", "", "", "")
    launch = PlannedLaunch(0, 0, (0,), device, box.cpu.usable_cores, 1.0, needs_torch=False)
    plan = Plan(
        profile=RECORD_PROFILE,
        profile_version=VERSION,
        seed=0,
        replicates=1,
        budget_s=seconds or 0.0,
        cases=(case,) if has_program else (),
        launches=(launch,) if has_program else (),
        interpreter=(),
    )
    runtime = Runtime.without_torch(Missing("unknown: a recording asks no interpreter"))
    paid, target = price_of(price, None, box), writable_target(db)
    return Spec(run_id, plan, runtime, label, paid, target=str(target)), box


def recorded_case(label: str, run_id: str) -> Case:
    """The case of a recorded program: its label identifies the work; without one it matches no other."""
    return program_case(
        f"{RECORD_PROFILE}:{label}" if label else RECORD_PROFILE,
        VERSION,
        is_whole=True,
        device_class=WHOLE_BOX,
        unit="run",
        units=1.0,
        identity=() if label else (("run_id", run_id),),
    )


def _outcome_of(end: ProgramEnd) -> tuple[str, str]:
    """Outcome and reason: `interrupted` if it was stopped, `failed` if it exited with an error."""
    if end.exit_status == 0:
        return "ok", ""
    if end.exit_status > 0:
        return "failed", f"exited with status {end.exit_status}"
    name = signal_name(-end.exit_status)
    if -end.exit_status in _STOPS:
        return "interrupted", f"stopped by {name}"
    return "failed", f"it died of {name}"
