"""One worker as a child process: started in its own group, read through a FIFO, ended with all its
children."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any  # Any: a worker's JSON

from gputui.model.plan import PlannedLaunch
from gputui.recording.lock import boot_id, process_start
from gputui.recording.zygote import Zygote
from gputui.worker.foreign_json import read_json, read_json_file

LINE_LIMIT_BYTES = 1 << 20
_PART = r"[^\s/'\":,]+"
"""One component of a path in a message."""
WORKER_NAME = "worker.json"
"""In a run directory: identifies the worker of the current launch."""
END_GRACE_S = 5.0
"""How long a worker may live after its last message, or after SIGTERM."""


def log_of(run_dir: Path, launch_id: int) -> Path:
    """Path of the log of a launch's worker."""
    return run_dir / "logs" / f"{_name(launch_id)}.log"


def _name(launch_id: int) -> str:
    return f"launch-{launch_id:03d}"


class WorkerProcess:
    """A launch in progress. Used by one thread."""

    def __init__(
        self,
        interpreter: Sequence[str],
        start_file: Path,
        run_dir: Path,
        launch: PlannedLaunch,
        described: Mapping[str, Any],
        zygote: Zygote | None = None,
    ) -> None:
        """Start it, as a fork of `zygote` if there is one.

        Raises OSError if the interpreter cannot be started, or a FIFO cannot be made.
        """
        name = _name(launch.launch_id)
        self._log = log_of(run_dir, launch.launch_id)
        self._log.parent.mkdir(exist_ok=True)
        self._fifo = run_dir / f"{name}.fifo"
        description = run_dir / f"{name}.json"
        description.write_text(json.dumps(described))
        os.mkfifo(self._fifo, 0o600)
        # Opened for reading and writing, it opens at once and never reaches its end.
        self._reader = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pending = b""
        self.started_ns = time.monotonic_ns()  # before it can send anything
        words = ["run", str(description), str(self._fifo)]
        self._process: subprocess.Popen[bytes] | Zygote
        try:
            if zygote is not None:
                zygote.fork(words, self._log)
                self._process = zygote
            else:
                with self._log.open("ab") as log:  # appending, so that `cut_log` leaves no hole
                    self._process = subprocess.Popen(
                        [*interpreter, str(start_file), *words],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=worker_environment(launch, is_program="command" in described["cases"][0]),
                        start_new_session=True,
                    )
        except OSError:
            self._close_channel()
            raise
        self._note = run_dir / WORKER_NAME
        with contextlib.suppress(OSError):  # a full disk: the file only helps to clean up after a crash
            self._note.write_text(
                json.dumps([self._process.pid, process_start(self._process.pid), boot_id()])
            )

    @property
    def exit_status(self) -> int | None:
        """As in Python, negative for a signal; None while it runs."""
        return self._process.poll()

    def cpu_s(self) -> float:
        """CPU time that it has had, without its children; 0 where the system does not say."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def messages(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Its messages so far, waiting up to `timeout_s` for the first; lines that are not JSON objects
        become `{"kind": "garbage"}`."""
        readable, _, _ = select.select([self._reader], [], [], timeout_s)
        while readable:
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._reader, 1 << 16)
                self._pending += data
            readable, _, _ = select.select([self._reader], [], [], 0)
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > LINE_LIMIT_BYTES:
            self._pending = b""
            yield {"kind": "garbage"}
        for line in lines:
            try:
                message = read_json(line)
            except ValueError:
                message = None
            yield message if isinstance(message, dict) else {"kind": "garbage"}

    def wait_for_exit(self, timeout_s: float = END_GRACE_S) -> None:
        """Give it time to exit by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def end(self) -> None:
        """End the process and its whole group, by SIGTERM and then by SIGKILL, and remove the FIFO."""
        for number, grace_s in ((signal.SIGTERM, END_GRACE_S), (signal.SIGKILL, END_GRACE_S)):
            alive = self._process.poll() is None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            if alive:
                self.wait_for_exit(grace_s)
        self._close_channel()
        with contextlib.suppress(OSError):
            self._note.unlink()

    def _close_channel(self) -> None:
        os.close(self._reader)
        with contextlib.suppress(OSError):
            self._fifo.unlink()

    def cut_log(self, limit_bytes: int) -> bool:
        """Empty the log if it exceeds the limit; returns whether it did."""
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > limit_bytes:
                os.truncate(self._log, 0)
                return True
        return False

    def log_tail(self, lines: int = 5) -> str:
        """The last lines of its output, or after a crash of its code the innermost calls.

        Paths are shortened to their last component.
        """
        with contextlib.suppress(OSError):
            size = self._log.stat().st_size
            with self._log.open("rb") as log:
                log.seek(max(size - 4096, 0))
                text = log.read().decode(errors="replace")
            _, is_crash, calls = text.rpartition("(most recent call first):\n")  # by faulthandler
            shown = calls.split("\n")[:lines] if is_crash else text.strip().split("\n")[-lines:]
            return "\n".join(without_paths(line) for line in shown)
        return ""


def end_left_worker(run_dir: Path) -> bool:
    """End the worker and its group that a killed supervisor left behind; returns whether there was one."""
    note = run_dir / WORKER_NAME
    try:
        pid, start, boot = read_json_file(note)
    except (OSError, ValueError, TypeError):
        return False
    is_left = boot == boot_id() and start is not None and process_start(pid) == start
    if is_left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        note.unlink()
    return is_left


def without_paths(text: str) -> str:
    """The text with every absolute path shortened to its last component, since paths name people.

    A home directory itself becomes `~`: its last component is a name.
    """
    text = re.sub(rf"(?<![\w.])/+(?:home|Users)/+{_PART}/*(?!{_PART}|/)", "~", text)
    return re.sub(rf"(?<![\w.])(?:/+{_PART})+/+(?={_PART})", "", text)


def worker_environment(launch: PlannedLaunch, *, is_program: bool = False) -> dict[str, str]:
    """The environment of a worker: the user's, narrowed to one device and a number of threads.

    A user's program chooses its threads itself.
    """
    environment = dict(os.environ)
    threads = str(launch.threads)
    for name in () if is_program else ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = threads
    environment["KINETO_LOG_LEVEL"] = "6"  # below 6 the profiler's C++ writes to stderr
    environment["PYTHONUNBUFFERED"] = "1"
    if launch.device.device_class == "cpu" or launch.device.torch_device == "cuda":
        hip = environment.get("HIP_VISIBLE_DEVICES")  # torch on ROCm prefers it
        allowed = environment.get("CUDA_VISIBLE_DEVICES", "") if hip is None else hip
        environment["CUDA_VISIBLE_DEVICES"] = _narrowed(launch.device.visible, allowed)
        if hip is not None:
            environment["HIP_VISIBLE_DEVICES"] = environment["CUDA_VISIBLE_DEVICES"] or "-1"
    return environment


def _narrowed(visible: str, allowed_names: str) -> str:
    """One device among those that the user allowed: torch counts numbers from the first of them."""
    allowed = [name.strip() for name in allowed_names.split(",")]
    if visible.isdigit() and allowed != [""] and int(visible) < len(allowed):
        return allowed[int(visible)]
    return visible
