"""Follows the runs of one supervisor in a thread, from their journals to what they come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.result import Run
from gputui.recording.run_directory import Spec
from gputui.services.playback.demo import MadeUpProgress
from gputui.services.results.kept_files import HOW_TO_OPEN, end_of_log, traces_of
from gputui.services.results.labels import torch_in
from gputui.services.results.next_steps import NextStep, next_steps
from gputui.services.results.selectors import run_in
from gputui.services.runs.alerts import endings
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.process import LiveRun, called, follow, is_of_this_boot, see_stored
from gputui.services.runs.progress import ProgressSnapshot, ProgressTracker
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.support.background import Job
from gputui.store.journal_reader import TelemetryTail
from gputui.store.text import clean_text

TELL_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Watched:
    """The runs of one supervisor, and how far they are."""

    called: str
    """Short ids, with labels; safe to show."""
    profile: str
    into: str
    """The result file, and the interpreters."""
    progress: ProgressSnapshot


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of runs."""

    runs: tuple[LiveRun, ...]
    status: str
    """As `finished`, or why not."""
    results: tuple[Run, ...] = ()
    """As they are stored; empty if they could not be stored or read, which `wrong` is about."""
    loads: tuple[ServingRun | Missing, ...] = ()
    passes: tuple[tuple[int, ProfiledPass], ...] = ()
    steps: tuple[NextStep, ...] = ()
    """What to do next."""
    said: tuple[str, ...] = ()
    """What else is to be known: that a supervisor was killed, where a trace lies."""
    wrong: GputuiError | None = None


Tell = Callable[[Job[Ended], Watched], None]
"""Takes how far runs are; called in the thread that follows them."""


def follow_to_end(runs: tuple[LiveRun, ...], tell: Tell, job: Job[Ended]) -> Ended:
    """Tell how far they are, about once a second, until all are stored or their supervisor is gone."""
    specs = [Spec.read(run.run_dir) for run in runs]
    is_here = is_of_this_boot(runs[0])
    tracker = ProgressTracker([spec.plan for spec in specs], is_of_this_clock=is_here)
    histories = [HistoryReader(TelemetryTail(run.run_dir).poll) for run in runs] if is_here else []
    names = " and ".join(clean_text(called(run)) for run in runs)
    pythons = ", ".join(dict.fromkeys(filter(None, map(_runtime_words, specs))))
    into = f"into {runs[0].target}" + (f" with {pythons}" if pythons else "")
    told_s = 0.0
    for index, line in follow(runs, TELL_EVERY_S):
        job.say("")
        if line is not None:
            tracker.hear(index, line)
        elif monotonic() - told_s >= TELL_EVERY_S:
            told_s = monotonic()
            tell(job, Watched(names, specs[0].plan.profile, into, tracker.picture(histories)))
    tell(job, Watched(names, specs[0].plan.profile, into, tracker.picture(histories)))
    return ended(runs, tracker)


def follow_the_demo(tell: Tell, wait: Callable[[float], object], job: Job[Ended]) -> Ended:
    """Tell how far a made-up run is, for as long as somebody wants to know."""
    made_up = MadeUpProgress()
    while True:
        job.say("")
        tell(
            job, Watched("demo", made_up.plan.profile, "into demo.db with a made-up torch", made_up.picture())
        )
        wait(TELL_EVERY_S)


def ended(runs: tuple[LiveRun, ...], tracker: ProgressTracker) -> Ended:
    """See that runs are stored, and read them back. What is wrong belongs to the end."""
    found = Ended(runs, "; ".join(endings(tracker.ended.values(), len(runs))))
    said: list[str] = []
    try:
        for index, run in enumerate(runs):
            said += see_stored(run, tracker.stored.get(index))
        return _read(replace(found, said=tuple(said)))
    except GputuiError as error:
        return replace(found, said=tuple(said), wrong=error)


def _read(found: Ended) -> Ended:
    from gputui.store.reading import open_result  # duckdb: only who opens a file pays for it

    target = found.runs[0].target
    with open_result(target) as file:
        results = tuple(run_in(file, run.run_id) for run in found.runs)
        loads = tuple(serving_of(one, file.serving(one.summary.run_id)) for one in results)
        passes = file.profiled(found.runs[0].run_id) if len(results) == 1 else {}
        steps = tuple(next_steps(results, target, file.measured_summaries(), passes=passes.values()))
    traces = [trace for one in results for trace in traces_of(one.summary.short_id, target)]
    said = (*found.said, *(f"trace: {trace}; {HOW_TO_OPEN}" for trace in traces))
    return replace(found, results=results, loads=loads, passes=tuple(passes.items()), steps=steps, said=said)


def whole_logs(runs: Sequence[LiveRun], progress: ProgressSnapshot) -> ProgressSnapshot:
    """With more of each failed worker's log than the journal holds."""
    words = tuple(
        replace(said, lines=end_of_log(runs[said.run].run_dir, said.launch_id) or said.lines)
        for said in progress.last_words
    )
    return replace(progress, last_words=words)


def _runtime_words(spec: Spec) -> str:
    runtime = spec.runtime
    if not runtime.python_version:
        return ""  # a load on a server asks no interpreter
    return f"Python {runtime.python_version}, {torch_in(runtime)}"
