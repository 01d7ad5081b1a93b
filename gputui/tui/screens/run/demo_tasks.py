"""The Run screen of `gputui demo`: a made-up run, and a box on which nothing is started."""

from __future__ import annotations

import threading

from gputui.errors import GputuiError
from gputui.recording.interpreters import ChosenInterpreter
from gputui.services.playback.demo import MadeUpProgress
from gputui.services.profiles.user_workload import is_step_file
from gputui.services.runs.start import DraftChecker
from gputui.tui.screens.run.background_tasks import TELL_EVERY_S, BackgroundTasks, Tell
from gputui.tui.screens.run.model import InProgress, WatchedRuns
from gputui.tui.screens.run.requests import CheckDraft, OpenComparison, OpenResults, Request, Unwatch, Watch

_DONE_HERE = (Watch, Unwatch, CheckDraft, OpenResults, OpenComparison)


class DemoTasks(BackgroundTasks):
    """Follows a made-up run. It starts no process: neither a run nor an interpreter to ask what it has."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(tell)
        self._progress = MadeUpProgress()
        box = self._progress.box
        self._checker = DraftChecker(box.machine, ChosenInterpreter(box.interpreter, "made up"))

    def open(self) -> None:
        """Show the run."""
        run_id = self._progress.run_id
        self._in_thread("drafts", self._check_drafts)
        self._say(lambda model: model.know_in_progress((InProgress((run_id,), run_id[-8:]),)))

    def refusal(self, request: Request) -> GputuiError | None:
        runs_code = isinstance(request, CheckDraft) and (
            request.anew or bool(request.draft.python) or is_step_file(request.draft.profile)
        )
        if isinstance(request, _DONE_HERE) and not runs_code:
            return None
        return GputuiError("the demo starts and stops nothing", "on your own box: gputui run quick")

    def _watch(self, run_id: str, ends: threading.Event) -> None:
        progress = self._progress
        runtime = progress.box.interpreter.runtime
        python = f"Python {runtime.python_version}, torch {runtime.torch_version}"
        group = InProgress((run_id,), run_id[-8:])
        watched = WatchedRuns(group, (progress.plan,), "demo.db", python)
        self._say_unless(ends, lambda model: model.know_watched(watched))
        while not ends.is_set():
            picture = progress.picture()
            self._say_unless(ends, lambda model, picture=picture: model.know_progress(run_id, picture))  # type: ignore[misc]
            ends.wait(TELL_EVERY_S)
