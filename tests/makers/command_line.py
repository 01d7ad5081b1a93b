"""The command line as people use it: real processes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any  # JSON

import pytest

from gputui.cli import main
from gputui.cli.watching import WATCHED
from gputui.model.journal import JOURNAL_NAME
from gputui.recording.run_directory import is_held

WORDS = (sys.executable, "-m", "gputui")
LONGEST_S = 300


def gputui(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*WORDS, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=LONGEST_S,
        check=False,
    )


def gputui_together(
    *words: str | Path, envs: Iterable[Mapping[str, str]]
) -> list[subprocess.CompletedProcess[str]]:
    """Run a command in several environments at the same time, for commands that wait rather than work."""
    started = list(envs)
    with ThreadPoolExecutor(len(started)) as executor:
        return list(executor.map(lambda env: gputui(*words, env=env), started))


def gputui_here(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which spares it the imports; it needs no terminal and gets no signal."""
    handlers = {number: signal.getsignal(number) for number in WATCHED}
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            with pytest.raises(SystemExit) as left:
                main(list(map(str, words)))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert isinstance(left.value.code, int)
    return subprocess.CompletedProcess(words, left.value.code, _text_of(out), _text_of(err))


def _text_of(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command that runs in this process."""
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def printed_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    """The JSON printed by a command in this process, which must succeed."""
    status, out, err = printed(capsys, *words, "--json")
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def start_gputui(*words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a command; stdout and stderr are combined."""
    return subprocess.Popen(
        [*WORDS, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
    )


def write_spin_profile(
    path: Path,
    *,
    replicates: int = 1,
    blocks: int = 5,
    threads: tuple[str, ...] = ("1",),
    workload: str = "spin",
) -> Path:
    """A profile of one workload at its smallest size for CPUs.

    Its budget is more than any box needs: the number of blocks ends a launch, a second for five.
    """
    listed = ", ".join(f'"{t}"' for t in threads)
    path.write_text(
        f"""schema = 1
version = 1
title = "{workload}"
question = "How fast is one thread?"
budget_s = 3600
replicates = {replicates}
blocks = {blocks}
[[case]]
workload = "{workload}"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = [{listed}]
"""
    )
    return path


def write_long_profile(path: Path) -> Path:
    """A profile whose run takes minutes unless it is ended."""
    return write_spin_profile(path, replicates=100, blocks=10)


def write_program_profile(
    path: Path, program: str, *, replicates: int = 1, name: str = "program", pattern: str = ""
) -> Path:
    """A profile of a program of the shell, which leaves the CPU to the test unless it computes."""
    path.write_text(
        f"""schema = 1
version = 1
title = "{name}"
question = "How long does it take?"
budget_s = 3600
replicates = {replicates}
{_command_of(name, program)}"""
    )
    if pattern:
        with path.open("a") as file:
            file.write(f'pattern = "{pattern}"\n')
    return path


def _command_of(name: str, program: str) -> str:
    return f"""[[command]]
name = "{name}"
version = 1
argv = ["sh", "-c", "{program}"]
"""


def write_sleeping_profile(path: Path) -> Path:
    """A profile whose run takes minutes unless it is ended."""
    program = "while sleep 0.1; do echo tick; done"
    return write_program_profile(path, program, replicates=100, name="ticks", pattern="tick")


def write_failing_profile(path: Path, *, waits_for: Path | None = None) -> Path:
    """A profile of a program that fails at once; with `waits_for` also of one that waits for that file.

    With `first_seed` the one that fails goes first.
    """
    write_program_profile(path, "echo the disk is gone >&2; exit 3", name="bad")
    if waits_for is not None:
        with path.open("a") as file:
            file.write(_command_of("waits", until_there(waits_for)))
    return path


def until_there(path: Path) -> str:
    """A program of the shell that ends once there is such a file."""
    return f"until [ -e {path} ]; do sleep 0.1; done"


def first_seed() -> int:
    """A seed with which two launches keep their order."""
    return next(seed for seed in range(100) if random.Random(seed).sample(range(2), 2) == [0, 1])


class Terminal:
    """A command in its own session on a pseudo-terminal of 80 columns."""

    def __init__(self, *words: str | Path) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ["COLUMNS"] = "80"
            os.execv(WORDS[0], [*WORDS, *map(str, words)])
        self.seen = b""

    def wait_for(self, text: bytes) -> None:
        """Read until the text appears."""
        while text not in self.seen:
            readable, _, _ = select.select([self._terminal], [], [], LONGEST_S)
            assert readable, self.seen
            self.seen += os.read(self._terminal, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def close(self) -> None:
        """Close the terminal, as a dropped connection does."""
        os.close(self._terminal)
        self._terminal = -1  # the number may soon be of another file

    def end(self) -> int:
        """Read until the command has ended; returns its exit status, negative for a signal."""
        ended = os.pidfd_open(self.pid)
        try:
            while self._read_some() or not select.select([ended], [], [], 0.05)[0]:
                pass
        finally:
            os.close(ended)
        while self._read_some():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read_some(self) -> bool:
        """Whether there was something to read; not of a terminal that was closed, or that nobody has open."""
        try:
            data = os.read(self._terminal, 4096)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EBADF):
                raise
            return False
        self.seen += data
        return bool(data)


def only_run_dir(state: Path | None = None) -> Path:
    """The only run directory."""
    (found,) = (state or Path(os.environ["GPUTUI_STATE"])).joinpath("runs").iterdir()
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds, within a generous limit."""
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_until_ended(run_dir: Path) -> None:
    """Wait until the supervisor of a run has ended, however it ends."""
    wait_until(lambda: (run_dir / JOURNAL_NAME).exists(), "the run does not begin")
    wait_until(lambda: not is_held(run_dir), "the supervisor does not end")


def without_roots_privilege() -> None:
    """For `preexec_fn`: makes root subject to file permissions."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2, 3):  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER of capabilities(7)
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; fails for others than root, who have none
