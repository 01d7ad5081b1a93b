"""What the Run screen has done outside of the event loop: it looks, starts, follows and stops in threads."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from gputui.errors import GputuiError
from gputui.model.result import Run
from gputui.recording.probing import ChosenInterpreter
from gputui.recording.run_directory import Spec
from gputui.services.doctor.disturbances import disturbances, gpus_of
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.profiles.user_workload import is_step_file
from gputui.services.results.case_table import CaseLine, case_lines
from gputui.services.results.expected import performance_checks
from gputui.services.results.kept_files import HOW_TO_OPEN, end_of_log, traces_of
from gputui.services.results.labels import case_name, outcome_words, torch_in
from gputui.services.results.next_steps import NextStep, next_steps
from gputui.services.results.selectors import run_in
from gputui.services.results.throughput import speeds_of
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.options import Draft, read_draft
from gputui.services.runs.process import (
    LiveRun,
    called,
    endings,
    follow,
    is_of_this_boot,
    runs_in_progress,
    start_runs,
    stop,
    target_of,
    wait_until_begun,
)
from gputui.services.runs.progress import CaseProgress, LogTail, ProgressTracker
from gputui.services.runs.recovery import recover_orphans, see_stored
from gputui.services.runs.start import DraftChecker, prepare
from gputui.services.runs.watching import watch_runs
from gputui.services.serving.curve import serving_of
from gputui.services.serving.text import headline_of
from gputui.services.support.paths import error_log, keep_error
from gputui.store.journal_reader import TelemetryTail
from gputui.store.text import clean_text
from gputui.tui.screens.run.model import EndedRuns, InProgress, RunModel, WatchedRuns, sentence

TELL_EVERY_S = 1.0
Tell = Callable[[Callable[[RunModel], None]], None]
"""Has the event loop do something to the model; may be called from any thread."""
_Jobs = queue.SimpleQueue[Callable[[], object]]


class BackgroundTasks:
    """Threads that work for one screen; all are daemons, so that none holds up the end of the program."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._checker = DraftChecker()
        self._drafts, self._jobs = _Jobs(), _Jobs()
        """Each is done one after the other, by a thread of its own."""
        self._closed = threading.Event()
        self._following = threading.Event()
        """Set to end the thread that follows."""
        self._started: dict[str, tuple[LiveRun, ...]] = {}
        """Runs whose supervisor is a child of this process."""
        self._logs: dict[tuple[str, int], tuple[str, ...]] = {}
        """What was read of logs, by run and launch."""

    def open(self) -> None:
        """Begin to look."""
        self._begin(self._drafts, self._read_profiles, self._find_default_file)
        self._begin(self._jobs, self._recover)
        watch_runs(self._know_runs, self._closed)

    def close(self) -> None:
        """Report nothing from now on. Waits for no thread."""
        self._closed.set()
        self.unwatch()
        for jobs in (self._drafts, self._jobs):
            jobs.put(lambda: None)

    def check(self, draft: Draft, editing: str, *, anew: bool = False) -> None:
        """Find out what is wrong with a draft, and what would run, while this field is edited.

        With `anew`, what is known of the box and its interpreters is forgotten first.
        """
        if anew:
            self._drafts.put(self._checker.forget)
        self._drafts.put(lambda: self._check(draft, editing))

    def start(self, draft: Draft, *, anyway: bool = False) -> None:
        """Start runs, as `gputui run --detach` does; `anyway` if the user was asked about disturbances."""
        self._jobs.put(lambda: self._start(draft, anyway=anyway))

    def watch(self, run_id: str) -> None:
        """Follow the runs of the supervisor that executes this one; nothing else is followed."""
        self.unwatch()
        self._following = ends = threading.Event()
        self._in_thread("journal", lambda: self._watch(run_id, ends))

    def unwatch(self) -> None:
        """Follow nothing; the run goes on."""
        self._following.set()

    def stop(self, run_id: str) -> None:
        """Ask the supervisor of a run to end its runs."""
        self._jobs.put(lambda: self._stop(run_id))

    def _begin(self, jobs: _Jobs, *first: Callable[[], object]) -> None:
        for job in first:
            jobs.put(job)
        threading.Thread(target=self._work, args=(jobs,), name="run screen: jobs", daemon=True).start()

    def _in_thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(work,), name=f"run screen: {name}", daemon=True).start()

    # In threads

    def _work(self, jobs: _Jobs) -> None:
        while not self._closed.is_set():
            self._guarded(jobs.get())

    def _know_runs(self, groups: Sequence[tuple[LiveRun, ...]]) -> None:
        found = tuple(map(_in_progress, groups))
        self._say(lambda model: model.know_in_progress(found))

    def _probing(self, path: str) -> None:
        self._say(lambda model: setattr(model, "probing", path))

    def _read_profiles(self) -> None:
        profiles = shipped_profiles()
        self._say(lambda model: model.know_profiles(profiles))

    def _find_default_file(self) -> None:
        default = str(target_of(None))
        self._say(lambda model: setattr(model, "default_file", default))

    def _check(self, draft: Draft, editing: str) -> None:
        """Look at a draft, unless a newer one waits."""
        if self._drafts.empty():
            checked = self._checker.check(draft, editing, self._probing)
            self._say(lambda model: model.know_checked(checked))

    def _recover(self) -> None:
        """What earlier runs left behind is stored first, as by every command."""
        if said := "; ".join(recover_orphans()):
            self._say(lambda model: model.say(said, "warn"))

    def _start(self, draft: Draft, *, anyway: bool) -> None:
        asked, wrong = read_draft(draft)
        if wrong:
            raise next(iter(wrong.values()))
        prepared = prepare(asked, on_probe=self._probing)
        launches = [launch for spec in prepared.specs for launch in spec.plan.launches]
        found = () if anyway else disturbances(prepared.machine, gpus_of(launches, prepared.machine))
        if found:
            said = tuple(f"{check.topic}: {check.found}" for check in found)
            self._say(lambda model: model.know_disturbed(said))
            return
        runs = start_runs(prepared.specs)
        wait_until_begun(runs)
        started = _in_progress(runs)
        self._started[started.run_ids[0]] = runs

        def begun(model: RunModel) -> None:
            model.probing = ""
            model.know_started(started)
            if prepared.warnings:
                model.say("; ".join(prepared.warnings), "warn")

        self._say(begun)

    def _stop(self, run_id: str) -> None:
        runs = self._runs_of(run_id)
        if runs:
            stop(runs[0], signal.SIGTERM)

    def _runs_of(self, run_id: str) -> tuple[LiveRun, ...]:
        """The runs of a supervisor, by one of them; none if they have ended."""
        mine = self._started.get(run_id)
        if mine is not None:
            return mine
        return next((g for g in runs_in_progress() if run_id in (run.run_id for run in g)), ())

    def _watch(self, run_id: str, ends: threading.Event) -> None:
        runs = self._runs_of(run_id)
        if not runs:
            raise GputuiError(f"run {run_id[-8:]} is no longer in progress", "see the results")
        specs = [Spec.read(run.run_dir) for run in runs]
        plans = tuple(spec.plan for spec in specs)
        group = _in_progress(runs)
        with_python = ", ".join(dict.fromkeys(_runtime_words(spec) for spec in specs))
        watched = WatchedRuns(
            group, plans, str(runs[0].target), with_python, tuple(str(run.run_dir / "logs") for run in runs)
        )
        self._say(lambda model: model.know_watched(watched))
        is_here = is_of_this_boot(runs[0])
        progress = ProgressTracker(plans, is_of_this_clock=is_here)
        histories = [HistoryReader(TelemetryTail(run.run_dir).poll) for run in runs] if is_here else []
        told_s = 0.0
        for index, line in follow(runs, TELL_EVERY_S):
            if ends.is_set():
                return
            if line is not None:
                progress.hear(index, line)
            if monotonic() - told_s >= TELL_EVERY_S and (line is None or told_s):
                told_s = monotonic()
                self._show_progress(runs, progress, histories)
        self._show_progress(runs, progress, histories)
        ended = finished(runs, progress, group)
        self._started.pop(run_id, None)
        if ended.wrong is not None:
            _keep(ended.wrong)
        self._say(lambda model: model.know_ended(ended))

    def _show_progress(
        self, runs: tuple[LiveRun, ...], progress: ProgressTracker, histories: Sequence[HistoryReader]
    ) -> None:
        """`histories` of the runs; empty if they are not of this boot, so that their clock is another."""
        picture = progress.picture(histories)
        words = tuple(self._in_full(said, runs[said.run]) for said in picture.last_words)
        picture = replace(picture, last_words=words)
        self._say(lambda model: model.know_progress(runs[0].run_id, picture))

    def _in_full(self, said: LogTail, run: LiveRun) -> LogTail:
        """With more of the log than the journal holds; read once."""
        key = (run.run_id, said.launch_id)
        if key not in self._logs:
            self._logs[key] = end_of_log(run.run_dir, said.launch_id)
        return replace(said, lines=self._logs[key] or said.lines)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except GputuiError as error:
            refused = error
        except OSError as error:
            refused = GputuiError(str(error))
        else:
            return
        _keep(refused)
        self._say(lambda model: model.know_refused(refused))

    def _say(self, change: Callable[[RunModel], None]) -> None:
        if not self._closed.is_set():
            self._tell(change)


class DemoTasks(BackgroundTasks):
    """Follows a made-up run, and starts no process: no run, and no interpreter to ask what it has."""

    def __init__(self, tell: Tell) -> None:
        from gputui.services.playback.demo import BOXES, MadeUpProgress, interpreter_of

        super().__init__(tell)
        self._progress, self._one_at_a_time = MadeUpProgress(), threading.Lock()
        self._checker = DraftChecker(BOXES[0], ChosenInterpreter(interpreter_of(BOXES[0]), "made up"))
        self._group = InProgress(("demo",), "demo", outlives=False)

    def open(self) -> None:
        self._begin(self._drafts, self._read_profiles, self._find_default_file)
        self._say(lambda model: model.know_in_progress((self._group,)))

    def check(self, draft: Draft, editing: str, *, anew: bool = False) -> None:
        executes = draft["python"] or is_step_file(draft["profile"])
        (self._refuse if executes else super().check)(draft, editing)

    def _refuse(self, *_: object, **__: object) -> None:
        self._say(
            lambda model: model.know_refused(
                GputuiError("the demo starts and stops nothing", "on your own box: gputui run quick")
            )
        )

    start = stop = _refuse

    def _watch(self, run_id: str, ends: threading.Event) -> None:
        watched = WatchedRuns(self._group, (self._progress.plan,), "demo.db", "a made-up torch")
        self._say(lambda model: model.know_watched(watched))
        while not ends.is_set():
            with self._one_at_a_time:  # the thread that followed before may still be here
                picture = self._progress.picture()
            self._say(lambda model, picture=picture: model.know_progress(run_id, picture))  # type: ignore[misc]
            ends.wait(TELL_EVERY_S)


def _keep(error: GputuiError) -> None:
    """In the log of errors."""
    keep_error(error_log(), "run", sentence(error))


def _in_progress(runs: tuple[LiveRun, ...]) -> InProgress:
    return InProgress(
        tuple(run.run_id for run in runs), " and ".join(clean_text(called(run)) for run in runs)
    )


def _runtime_words(spec: Spec) -> str:
    runtime = spec.runtime
    if not runtime.python_version:
        return ""  # a load on a server asks no interpreter
    return f"Python {runtime.python_version}, {torch_in(runtime)}"


def finished(runs: tuple[LiveRun, ...], progress: ProgressTracker, group: InProgress) -> EndedRuns:
    """See that runs are stored, and read them back. What is wrong belongs to the end."""
    target = runs[0].target
    said: list[str] = []
    rows: list[CaseLine] = []
    wrong: GputuiError | None = None
    results: list[Run] = []
    steps: tuple[NextStep, ...] = ()
    headlines: tuple[str, ...] = ()
    try:
        for index, run in enumerate(runs):
            said += see_stored(run, progress.stored.get(index))
        from gputui.store.reading import open_result  # duckdb: only who opens a file pays for it

        with open_result(target) as file:
            results = [run_in(file, run.run_id) for run in runs]
            headlines = tuple(
                headline_of(
                    one, serving_of(one, file.serving(one.summary.run_id)), file.profiled(one.summary.run_id)
                )
                for one in results
            )
            passes = file.profiled(runs[0].run_id) if len(runs) == 1 else {}
            steps = tuple(next_steps(results, target, file.measured_summaries(), passes=passes.values()))
        for number, result in enumerate(results, 1):
            rows += result_rows(result, f"[{number}] " if len(results) > 1 else "")
            said += [f"trace: {trace}; {HOW_TO_OPEN}" for trace in traces_of(result.summary.short_id, target)]
    except GputuiError as error:
        wrong = error
        rows = rows or rows_of_progress(progress.picture().cases)
    checks = tuple(check for result in results for check in performance_checks(result))
    return EndedRuns(
        group,
        str(target),
        "; ".join(endings(progress.ended.values(), len(runs))),
        tuple(rows),
        tuple(said),
        wrong,
        headlines=headlines,
        checks=checks,
        next_steps=steps,
    )


def rows_of_progress(cases: Sequence[CaseProgress]) -> list[CaseLine]:
    """What was measured, as the supervisor reported it: all there is to show of a run that is not stored."""
    return [
        CaseLine(
            case.name,
            case.rate,
            case.spread,
            "" if case.rate else f"{case.state}: {case.reason}" if case.reason else case.state,
            case.peak,
            gave=case.gave,
        )
        for case in cases
    ]


def result_rows(result: Run, prefix: str = "") -> list[CaseLine]:
    """The cases of a stored run in few words, those with a rate first."""
    measured = speeds_of(result)
    rows, _ = case_lines(result, measured, lambda case: prefix + case_name(case))
    return rows + [
        CaseLine(prefix + case_name(case), why=outcome_words(case))
        for case in result.cases
        if all(case is not one for one, _ in measured)
    ]
