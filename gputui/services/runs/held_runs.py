"""Which runs are in progress here, from the locks that their supervisors hold. Read-only."""

from __future__ import annotations

from pathlib import Path

from gputui.recording.lock import Holder, boot_id, is_held, read_holder
from gputui.services.support.paths import directories_in, run_directories


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
