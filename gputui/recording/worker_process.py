"""One worker as a child process: started in its own group or forked, read through a FIFO, ended with all its
children."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # Any: a worker's JSON

from gputui.model.absent import Missing
from gputui.model.journal import (
    TRACES_NAME,
    Block,
    CaseEnd,
    CaseWarm,
    Figure,
    Kernel,
    Line,
    MemoryPoint,
    Operator,
    ProfiledPass,
    TimeSlice,
    WorkerReady,
    trace_name,
)
from gputui.model.plan import OUTCOMES, Plan, PlannedLaunch
from gputui.model.serving import LOADS, REQUEST_OUTCOMES, LoadNow, LoadStep, RequestRow, Requests, ServerFound
from gputui.recording.pacing import profiled_s
from gputui.recording.run_directory import boot_id, process_start
from gputui.sources.processes import read_stat
from gputui.worker import FIGURE_BETTER, FIGURE_COMBINES, FIGURE_SUFFIXES
from gputui.worker.accelerator import narrow
from gputui.worker.foreign_json import read_json, read_json_file
from gputui.worker.layouts import NCHW, NHWC
from gputui.worker.ranks import Lines, RankLost
from gputui.worker.variables import without_falsifying

_FORK_S = 10.0
"""From a request to the fork's first word."""


class Zygote:
    """Its latest worker answers as a `subprocess.Popen` does. Used by one thread.

    Its environment is that of its workers. Forks of one process share the layout of its memory, so they agree
    more than separate processes do.
    """

    pid: int
    """Of the latest worker."""

    def __init__(
        self, interpreter: Sequence[str], start_file: Path, environment: dict[str, str], log: Path
    ) -> None:
        """Start it. Raises OSError if the interpreter cannot be started."""
        ours, theirs = socket.socketpair()
        self._lines = Lines(ours)
        self._is_ready = False
        self._status: int | None = None
        log.parent.mkdir(exist_ok=True)
        with theirs, log.open("ab") as file:
            self._process = subprocess.Popen(
                [*interpreter, str(start_file), "zygote"],
                stdin=theirs.fileno(),
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def is_ready(self, timeout_s: float) -> bool:
        """Whether it can fork a worker within this time. Raises EOFError once it has ended."""
        with contextlib.suppress(RankLost):
            self._is_ready = self._is_ready or "ready" in self._take(timeout_s)
        return self._is_ready

    def is_alive(self) -> bool:
        """Whether it can fork another worker."""
        return self._process.poll() is None

    def fork(self, words: Sequence[str], log: Path) -> None:
        """Make a worker with these words on its command line. Raises OSError if none came."""
        self._is_ready = False
        try:
            self._lines.send({"words": words, "log": str(log)})
            self.pid, self._status = int(self._take(_FORK_S)["pid"]), None
        except (EOFError, RankLost, LookupError) as error:
            raise OSError(f"no fork came: {error}") from error

    def poll(self) -> int | None:
        """Exit status of the latest worker, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._status

    def wait(self, timeout: float) -> None:
        """Wait until the latest worker has ended. Raises subprocess.TimeoutExpired."""
        if self._status is None:
            try:
                self._status = int(self._take(timeout)["status"])
            except RankLost as error:
                raise subprocess.TimeoutExpired("a forked worker", timeout) from error
            except EOFError:  # the kernel kills a worker together with its zygote
                self.close()
                self._status = -signal.SIGKILL

    def _take(self, timeout_s: float) -> dict[str, Any]:
        return self._lines.take(time.monotonic() + timeout_s)

    def close(self) -> int:
        """End it, and with it a worker that it still has; returns its exit status, which it may have had."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._lines.socket.close()  # afterwards: it ends by itself where this closes
        return self._process.wait()


def may_fork(plan: Plan, launch: PlannedLaunch) -> bool:
    """Whether the worker of a launch may be a fork: torch in one process, on the CPU, without a compiler.

    A compiler starts processes and keeps files open; a GPU's driver does not survive a fork.
    """
    return (
        sys.platform == "linux"
        and launch.needs_torch
        and launch.device.torch_device == "cpu"
        and all(plan.cases[case_id].case.variant.mode != "compile" for case_id in launch.case_ids)
    )


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
        reader = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.channel = os.fdopen(reader, "rb", buffering=0)
        """What it sends; `read` does not wait."""
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
                        env=worker_environment(launch, described["cases"][0]),
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
        with contextlib.suppress(OSError, ValueError):
            return read_stat(self._process.pid).cpu_ticks / os.sysconf("SC_CLK_TCK")
        return 0.0

    def messages(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Those that more from its channel completes; lines that are not JSON objects become `{"kind":
        "garbage"}`."""
        *lines, self._pending = (self._pending + data).split(b"\n")
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
        self.channel.close()
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


def worker_environment(launch: PlannedLaunch, case: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a worker: the user's, narrowed to one device and a number of threads.

    Without the variables that falsify rows, unless its case, as a launch describes it, is the user's. A
    program of the user chooses its threads itself.
    """
    is_program = "command" in case
    is_of_user = is_program or bool(case.get("step_file"))
    environment = dict(os.environ) if is_of_user else without_falsifying(os.environ)
    threads = str(launch.threads)
    for name in () if is_program else ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = threads
    environment["KINETO_LOG_LEVEL"] = "6"  # below 6 the profiler's C++ writes to stderr
    environment["PYTHONUNBUFFERED"] = "1"
    narrow(environment, launch.device.torch_device, launch.device.visible)
    return environment


_OfCase = Block | CaseWarm | Figure | ProfiledPass | ServerFound | LoadNow | LoadStep | Requests | CaseEnd
_AS_SENT: Mapping[str, type[Block | CaseWarm | ServerFound | LoadNow | LoadStep | CaseEnd]] = {
    "block": Block,
    "warm": CaseWarm,
    "server": ServerFound,
    "load_now": LoadNow,
    "load_step": LoadStep,
    "case_end": CaseEnd,
}
"""Lines with the fields of their message."""


def described_launch(
    plan: Plan, launch: PlannedLaunch, run_dir: Path, aim_s: float, limit_s: float
) -> dict[str, Any]:
    """The JSON of a launch: its blocks should end `aim_s` after its start, and must after `limit_s`."""
    return {
        "device": launch.device.torch_device,
        # A number may mean another device to a driver than to torch.
        "device_name": launch.device.name if launch.device.visible.isdigit() else "",
        "threads": launch.threads,
        "seed": plan.seed,
        "replicate": launch.replicate,
        "allowance_s": aim_s,
        "limit_s": limit_s,
        "most_blocks": plan.most_blocks,
        "rendezvous": plan.rendezvous,
        "cases": [_described_case(plan, case_id, run_dir) for case_id in launch.case_ids],
        "profiled": launch.profiled,
        "profiled_s": profiled_s(plan, launch),
    }


def _described_case(plan: Plan, case_id: int, run_dir: Path) -> dict[str, Any]:
    command = plan.command_of(case_id)
    if command is not None:
        return {"case_id": case_id, "command": asdict(command)}
    load = plan.load_of(case_id)
    if load is not None:
        return {"case_id": case_id, "load": asdict(load)}
    case = plan.cases[case_id].case
    return {
        "step_file": plan.step_file,
        "case_id": case_id,
        "workload": case.work.workload,
        "size": case.work.size,
        "precision": case.variant.precision,
        "mode": case.variant.mode,
        "trace": str(run_dir / TRACES_NAME / trace_name(case.name)) if plan.keeps_traces else "",
    }


def line_of(kind: str, message: dict[str, Any], launch: PlannedLaunch, started_ns: int) -> Line:
    """The line that records a message of this kind, from the worker of a launch that was started then.

    Raises LookupError, TypeError or ValueError if it is malformed, or of a case of another launch.
    """
    launch_id = launch.launch_id
    if kind == "ready":
        t_ns = int(message["t_ns"])
        return WorkerReady(launch_id, t_ns - started_ns, int(message["threads_used"]), t_ns)
    line: _OfCase
    if kind == "figure":
        line = _figure(launch_id, message)
    elif kind == "profiled":
        line = profiled_pass_of(launch_id, message)
    elif kind == "requests":
        rows = tuple(RequestRow(**row) for row in message.pop("rows"))
        line = Requests(launch_id=launch_id, rows=rows, **message)
    else:
        line = _AS_SENT[kind](launch_id=launch_id, **message)
    if not _makes_sense(line) or line.case_id not in launch.case_ids:
        raise ValueError(line)
    return replace(line, reason=without_paths(line.reason)) if isinstance(line, CaseEnd) else line


def _makes_sense(line: _OfCase) -> bool:
    match line:
        case Block():
            return line.wall_ns > 0 and line.steps > 0
        case CaseWarm():
            return line.layout in ("", NHWC, NCHW)
        case LoadNow():
            return line.over_ns > 0
        case LoadStep():
            return line.load in LOADS and line.window_end_ns >= line.window_start_ns
        case Requests():
            return all(row.outcome in REQUEST_OUTCOMES for row in line.rows)
        case CaseEnd():
            return line.outcome in OUTCOMES
    return True


def _figure(launch_id: int, message: dict[str, Any]) -> Figure:
    """A worker's figure. Raises LookupError, TypeError or ValueError if it is malformed."""
    value, reason = message.pop("value"), without_paths(str(message.pop("reason")))
    figure = Figure(launch_id=launch_id, value=Missing(reason) if value is None else float(value), **message)
    known = figure.better in FIGURE_BETTER and figure.combine in FIGURE_COMBINES
    fits = isinstance(figure.value, Missing) or 0 <= figure.value < math.inf
    if not (known and fits and figure.unit in FIGURE_SUFFIXES and figure.observations >= 0):
        raise ValueError(figure)
    return figure


def profiled_pass_of(launch_id: int, message: dict[str, Any]) -> ProfiledPass:
    """A worker's profiled pass. Raises LookupError, TypeError or ValueError if it is malformed."""
    parts: dict[str, tuple[type[Any], str]] = {  # Any: rows of four kinds
        "operators": (Operator, ""),
        "slices": (TimeSlice, ""),
        "kernels": (Kernel, ""),
        "memory": (MemoryPoint, "reserved_bytes"),
    }
    for name, (kind, may_lack) in parts.items():
        for row in message[name]:
            if may_lack and row[may_lack] is None:
                row[may_lack] = Missing("there is no caching allocator")
        message[name] = tuple(kind(**row) for row in message[name])
    message["reason"] = without_paths(str(message["reason"]))
    found = ProfiledPass(launch_id=launch_id, **message)
    fault = found.fault()
    if fault:
        raise ValueError(fault)
    return found
