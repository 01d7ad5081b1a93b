"""Which runs are in progress here, from the locks that their supervisors hold. Read-only."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from gputui.recording.run_directory import Holder, boot_id, is_held, read_holder
from gputui.services.support.paths import directories_in, run_directories


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that a supervisor executes, or executed until a moment ago."""

    run_id: str
    run_dir: Path
    target: Path
    """The result file it will be stored in."""
    supervisor: subprocess.Popen[bytes] | None
    """The supervisor, if it is a child of this process."""

    @property
    def short_id(self) -> str:
        """The run's name on the command line."""
        return self.run_id[-8:]

    def is_executed(self) -> bool:
        """Whether its supervisor is alive."""
        return is_held(self.run_dir) if self.supervisor is None else self.supervisor.poll() is None


def held_runs() -> list[tuple[Holder, tuple[Path, ...]]]:
    """Living supervisors and the directories of their runs, those of the newest run first."""
    home, found, seen = run_directories(), list[tuple[Holder, tuple[Path, ...]]](), set[Path]()
    for run_dir in sorted(directories_in(home), reverse=True):
        holder = read_holder(run_dir)
        if run_dir in seen or holder is None or not is_held(run_dir):
            continue
        if holder.boot_id == boot_id() and not holder.lives_here():
            continue  # another process is recovering it now
        together = [d for d in map(Path, holder.run_dirs) if d.parent == home] or [run_dir]
        seen.update(together)
        found.append((holder, tuple(together)))
    return found


def runs_in_progress() -> list[tuple[LiveRun, ...]]:
    """The runs that living supervisors execute, newest first, grouped by supervisor."""
    return [
        tuple(LiveRun(d.name, d, Path(holder.target), None) for d in together)
        for holder, together in held_runs()
    ]
