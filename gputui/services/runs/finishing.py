"""The end of a run: it is stored by its supervisor or, if that was killed, by the process that watched it."""

from __future__ import annotations

import shlex

from gputui.errors import NotStored
from gputui.model.journal import Stored
from gputui.services.runs.process import LiveRun, full_disk_words, wait_until_begun
from gputui.services.runs.recovery import recover_now


def see_stored(run: LiveRun, last: Stored | None) -> tuple[str, ...]:
    """Make sure that a finished run is stored; returns messages if its supervisor was killed, or had no room.

    `last` is the last line of its journal, None if it is missing: then this process stores the run. Raises
    NotStored, with where its journal is kept.
    """
    if last is not None:
        if last.exit_status:
            why = last.message.removeprefix("gputui: ").split("\n")[0] or f"status {last.exit_status}"
            raise NotStored(
                f"run {run.short_id} was measured but not stored: {why}",
                f"its journal is kept: gputui import {shlex.quote(str(run.run_dir))} --db FILE",
            )
        return ()
    wait_until_begun([run])
    full = full_disk_words(run)
    how = f"ended: {full}" if full else "was killed"
    found = recover_now(run.run_dir)
    if found is not None and found.stored is None:
        raise NotStored(found.message)
    ended = f"the supervisor of run {run.short_id} {how}"
    return (ended, found.message) if found is not None and found.message else (ended,)
