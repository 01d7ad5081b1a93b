"""A cluster of one machine: `sinfo`, `sbatch`, `squeue`, `sacct` and `scancel` that print what Slurm prints.

A job is really executed: its script, with its words, in its directory, as a session with the environment of
the submission, as slurmd does. `hold` keeps jobs in the queue.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

PROGRAMS = ("sinfo", "sbatch", "squeue", "sacct", "scancel")
NODES = (
    "gpu01|64|gpu:a100:8(S:0-1)|idle",
    "gpu02|64|gpu:a100:8(S:0-1)|mixed",
    "gpu03|64|gpu:a100:8(S:0-1)|down*",
    "cpu01|128|(null)|allocated",
)
_START = """
while [ -e {directory}/hold ]; do sleep 0.05; done
[ -e {directory}/{job}.cancelled ] && exit 0
echo $$ >{directory}/{job}.pid
cd {chdir} && exec /bin/sh "$@" >{output} 2>&1
"""


class Cluster:
    """Its commands lie in `bin`, which is to be put on the path."""

    def __init__(self, directory: Path, nodes: tuple[str, ...] = NODES) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        self.bin.mkdir(parents=True)
        (directory / "nodes").write_text("\n".join(nodes) + "\n")
        for name in PROGRAMS:
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {directory} {name} "$@"\n')
            script.chmod(0o755)

    def submitted(self) -> list[list[str]]:
        """The words of every sbatch."""
        return [json.loads(path.read_text()) for path in sorted(self.directory.glob("*.words"))]

    def hold(self) -> None:
        """Let no job begin."""
        (self.directory / "hold").touch()

    def release(self) -> None:
        """Let jobs begin."""
        (self.directory / "hold").unlink()


def _sinfo(directory: Path, words: list[str]) -> int:
    assert words[:2] == ["--noheader", "--Node"]
    if "--partition=nowhere" in words:
        return 0
    named = next((w.partition("=")[2] for w in words if w.startswith("--nodes=")), "")
    print(
        "\n".join(line for line in (directory / "nodes").read_text().splitlines() if line.startswith(named))
    )
    return 0


def _sbatch(directory: Path, words: list[str]) -> int:
    if any(word.startswith("--account=wrong") for word in words):
        print("sbatch: error: Batch job submission failed: Invalid account", file=sys.stderr)
        return 1
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    script = [word for word in words if not word.startswith("-")]
    job = "41"
    while True:
        try:
            with (directory / f"{job}.words").open("x") as file:
                json.dump(words, file)
            break
        except FileExistsError:
            job = str(int(job) + 1)
    start = _START.format(directory=directory, job=job, chdir=options["--chdir"], output=options["--output"])
    if os.fork() == 0:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        environment = {**os.environ, "SLURM_JOB_ID": job}
        os.execve("/bin/sh", ["sh", "-c", start, "sh", *script], environment)
    print(job)
    return 0


def _state(directory: Path, job: str) -> str:
    try:
        os.kill(int((directory / f"{job}.pid").read_text()), 0)
    except FileNotFoundError:
        return "CANCELLED" if (directory / f"{job}.cancelled").exists() else "PENDING"
    except ProcessLookupError:
        return "COMPLETED"
    return "RUNNING"


def _squeue(directory: Path, words: list[str]) -> int:
    job = next(word.partition("=")[2] for word in words if word.startswith("--jobs="))
    state = _state(directory, job)
    if state not in ("PENDING", "RUNNING"):
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    print(f"{state}|{'Resources' if state == 'PENDING' else 'None'}")
    return 0


def _sacct(directory: Path, words: list[str]) -> int:
    job = next(word.partition("=")[2] for word in words if word.startswith("--jobs="))
    print(f"{_state(directory, job):>40}")
    return 0


def _scancel(directory: Path, words: list[str]) -> int:
    job = words[-1]
    state = _state(directory, job)
    if "--state=PENDING" in words and state == "PENDING":
        (directory / f"{job}.cancelled").touch()
    elif "--batch" in words and state == "RUNNING":
        os.kill(int((directory / f"{job}.pid").read_text()), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    place, program, *rest = sys.argv[1:]
    sys.exit(globals()[f"_{program}"](Path(place), rest))
