"""Batch jobs of Slurm through its own commands, on a machine where jobs are submitted."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from gputui.errors import GputuiError

JOB_NAME = "job"
"""Holds the id of the job, in the directory of its run."""
JOB_SCRIPT, JOB_LOG = "job.sh", "job.log"
REQUEST_NAME, DESCRIBED_NAME, ENDED_NAME = "request.json", "described.json", "ended"
"""What a job is asked; what it found its node to be; its exit status."""
ASKED_EVERY_S = 10.0
"""How often Slurm is asked about a job: its controller serves everyone."""
_TIMEOUT_S = 60.0
_OVER = re.compile(
    r"(BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT)\b"
)


def nodes(partition: str, named: str = "") -> list[list[str]]:
    """Name, CPUs, GRES and state of every node of a partition, or of those named like `gpu[1-4]`.

    Raises GputuiError.
    """
    only = [f"--nodes={named}"] if named else []
    words = ["sinfo", "--noheader", "--Node", f"--partition={partition}", *only, "--format=%N|%c|%G|%T"]
    return [[field.strip() for field in line.split("|")] for line in _said(words).splitlines() if "|" in line]


def submit(run_dir: Path, archive: Path, options: Sequence[str]) -> str:
    """Submit the script of a run; returns the id of its job. Raises GputuiError."""
    where = [f"--chdir={run_dir}", f"--output={run_dir / JOB_LOG}"]
    said = _said(
        ["sbatch", "--parsable", *where, *options, str(run_dir / JOB_SCRIPT), str(archive), str(run_dir)]
    )
    found = re.search(r"^(\d+)", said, re.MULTILINE)
    if found is None:
        raise GputuiError(f"sbatch printed no id of a job: {said.strip()[:200]}", "")
    return found[1]


class SlurmJob:
    """The job of a run. For one thread."""

    def __init__(self, run_dir: Path) -> None:
        self.id = (run_dir / JOB_NAME).read_text(encoding="ascii").strip()
        self._run_dir = run_dir
        self._state = ""
        self._asked_s = 0.0

    def state(self) -> str:
        """As `PENDING (Resources)` or `RUNNING`; empty once Slurm does not know it any more.

        Asks Slurm at most every ten seconds; a question that fails leaves the state as it was.
        """
        now_s = time.monotonic()
        if not self._asked_s or now_s - self._asked_s > ASKED_EVERY_S:
            self._asked_s = now_s
            try:
                said = _said(["squeue", "--noheader", f"--jobs={self.id}", "--format=%T|%r"])
            except GputuiError as error:
                said = "" if "Invalid job id" in error.message else self._state
            word, _, reason = said.strip().partition("|")
            self._state = f"{word} ({reason})" if reason not in ("", "None") else word
        return self._state

    def is_over(self) -> bool:
        """Whether it has ended, or was ended."""
        if (self._run_dir / ENDED_NAME).exists():
            return True
        state = self.state()
        return not state or _OVER.match(state) is not None

    def how_it_ended(self) -> str:
        """What became of it: `TIMEOUT`, or the last line of its log; empty if neither is known."""
        with contextlib.suppress(OSError):
            log = (self._run_dir / JOB_LOG).read_text(encoding="utf-8", errors="replace").split("\n")
            if lines := [line.strip() for line in log if line.strip()]:
                return lines[-1][:300]
        with contextlib.suppress(GputuiError):
            said = _said(["sacct", "--noheader", "--allocations", f"--jobs={self.id}", "--format=State%40"])
            return said.strip()[:80]
        return ""

    def cancel(self) -> None:
        """Have it end: at once while it is queued, else with what is finished kept."""
        for words in (["--state=PENDING"], ["--batch", "--signal=TERM"]):
            with contextlib.suppress(GputuiError):
                _said(["scancel", *words, self.id])
        self._asked_s = 0.0


def _said(words: Sequence[str]) -> str:
    """What a command of Slurm prints. Raises GputuiError if it fails."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise GputuiError(
            f"there is no {words[0]} on the path", "name a box that submits jobs: --slurm LOGIN:PARTITION"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GputuiError(f"{words[0]}: {type(error).__name__}", "does Slurm answer there?") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GputuiError(
            f"{words[0]}: {' '.join(lines)[:300] or f'status {done.returncode}'}",
            "options that your cluster asks for go beside the partition: --slurm 'gpu --account=NAME'",
        )
    return done.stdout.decode(errors="replace")
