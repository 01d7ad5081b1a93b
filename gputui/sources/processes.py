"""The processes behind the PIDs that a driver reports, and how to end one of them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.telemetry import AT_SECOND_READING, ENDED, FOREIGN, HIDDEN, GpuUse, ProcessSample
from gputui.sources.base import read_file, target_of, text_of

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: the host's
_KERNEL = 2
"""PID of the parent of all threads of the kernel; in a PID namespace there are none, and 2 is another's."""
_COMMAND_KEPT_NS = 10 * 10**9
"""A command line is read again this often: a process may have replaced its program."""
_LONGEST_COMMAND = 4096
_GPU_FILE = re.compile(r"/dev/(?:nvidia|dri/|kfd|dxg)")

NOT_OF_HERE = Missing("a process of the host: this container cannot look at it")
ANOTHER_HERE = Missing("a process of the host: in this container its PID is another's, which holds no GPU")
UNSURE = Missing("cannot be told from a process of the host: its open files may not be looked at")
ZOMBIE = Missing("a zombie: it has ended, and its parent has not taken notice")
NO_PROC = Missing("this system has no /proc")


class Stat(NamedTuple):
    """The parts of /proc/PID/stat that are used."""

    name: str
    state: str
    """One letter; `Z` for a zombie."""
    parent_pid: int
    cpu_ticks: int
    start_ticks: int
    """Since boot."""
    resident_pages: int


@dataclass(slots=True)
class _Known:
    """What is cached about a process between calls."""

    start_ticks: int
    refused: Missing | None
    """Why this is not the process that the driver means."""
    user: str | Missing = ENDED
    name: str | None = None
    command: str | Missing = ENDED
    command_ns: int = 0
    cpu_ticks: int = 0
    cpu_ns: int | None = None
    cpu_pct: float | Missing = AT_SECOND_READING


class ProcessTable:
    """Joins the driver's PIDs with /proc. For one thread.

    `is_inside` says whether the host's PIDs mean nothing here; None asks the kernel.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        clock: Callable[[], int] = time.monotonic_ns,
        is_inside: bool | None = None,
    ) -> None:
        self._proc = str(root / "proc")
        self._clock = clock
        self._is_inside = _is_in_a_pid_namespace(self._proc) if is_inside is None else is_inside
        self._has_proc = Path(self._proc, "self").exists()
        self._hides = _is_hiding(self._proc)
        self._ticks_per_s = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        self._known: dict[int, _Known] = {}
        self._users: dict[int, str] = {}

    def look_up(self, uses: Sequence[GpuUse]) -> tuple[ProcessSample, ...]:
        """Every process once, in the driver's order; CPU shares cover the time since the last call."""
        by_pid: dict[int, list[GpuUse]] = {}
        for use in uses:
            by_pid.setdefault(use.pid, []).append(use)
        return self._samples(by_pid)

    def look_up_all(self) -> tuple[ProcessSample, ...]:
        """Every process that this user may see, except threads of the kernel."""
        try:
            pids = sorted(int(entry.name) for entry in os.scandir(self._proc) if entry.name.isdigit())
        except OSError:
            return ()
        return tuple(
            sample
            for sample in self._samples(dict.fromkeys(pids, ()))
            if not isinstance(sample.start_ticks, Missing)
            and (self._is_inside or _KERNEL not in (sample.pid, sample.parent_pid))
        )

    def _samples(self, by_pid: Mapping[int, Sequence[GpuUse]]) -> tuple[ProcessSample, ...]:
        samples = tuple(self._sample(pid, tuple(uses)) for pid, uses in by_pid.items())
        self._known = {pid: known for pid, known in self._known.items() if pid in by_pid}
        return samples

    def _sample(self, pid: int, uses: tuple[GpuUse, ...]) -> ProcessSample:
        stat = self._stat(pid)
        if isinstance(stat, Missing):
            self._known.pop(pid, None)
            return _unresolved(pid, uses, stat)
        known = self._known.get(pid)
        if known is None or known.start_ticks != stat.start_ticks:  # the PID was reused
            known = self._known[pid] = _Known(stat.start_ticks, self._refused(pid) if uses else None)
        if known.refused is not None:
            return _unresolved(pid, uses, known.refused)
        self._update(pid, known, stat)
        has_ended = stat.state in "ZX"
        return ProcessSample(
            pid=pid,
            uses=uses,
            parent_pid=stat.parent_pid,
            user=known.user,
            command=ZOMBIE if has_ended else known.command,
            cpu_pct=ZOMBIE if has_ended else known.cpu_pct,
            memory_bytes=ZOMBIE if has_ended else stat.resident_pages * self._page_bytes,
            elapsed_s=max(0.0, _since_boot_s() - stat.start_ticks / self._ticks_per_s),
            start_ticks=stat.start_ticks,
        )

    def _stat(self, pid: int) -> Stat | Missing:
        if not self._has_proc:
            return NO_PROC
        try:
            return read_stat(pid, self._proc)
        except PermissionError:
            return FOREIGN
        except (OSError, ValueError):
            if pid in self._known:
                return ENDED
            if self._is_inside:
                return NOT_OF_HERE
            return HIDDEN if self._hides else ENDED

    def _update(self, pid: int, known: _Known, stat: Stat) -> None:
        now_ns = self._clock()
        if known.name != stat.name or now_ns - known.command_ns >= _COMMAND_KEPT_NS:
            known.name, known.command_ns = stat.name, now_ns
            known.command, known.user = self._command(pid, stat.name), self._user(pid)
        if known.cpu_ns is None:
            known.cpu_ticks, known.cpu_ns = stat.cpu_ticks, now_ns
        elif now_ns > known.cpu_ns:
            seconds = max(0, stat.cpu_ticks - known.cpu_ticks) / self._ticks_per_s
            known.cpu_pct = 100 * seconds / ((now_ns - known.cpu_ns) / 1e9)
            known.cpu_ticks, known.cpu_ns = stat.cpu_ticks, now_ns

    def _refused(self, pid: int) -> Missing | None:
        """Why a PID is not believed: in a PID namespace it may be the host's, so the process must hold a
        GPU."""
        if not self._is_inside:
            return None
        try:
            files = list(Path(self._proc, str(pid), "fd").iterdir())
        except PermissionError:
            return UNSURE
        except OSError:
            return NOT_OF_HERE
        return None if any(_GPU_FILE.match(target_of(file)) for file in files) else ANOTHER_HERE

    def _user(self, pid: int) -> str | Missing:
        try:
            user_id = Path(self._proc, str(pid)).stat().st_uid
        except PermissionError:
            return FOREIGN
        except OSError:
            return ENDED
        if user_id not in self._users:
            self._users[user_id] = user_name(user_id)
        return self._users[user_id]

    def _command(self, pid: int, name: str) -> str | Missing:
        try:
            raw = read_file(f"{self._proc}/{pid}/cmdline")
        except PermissionError:
            return FOREIGN
        except OSError:
            return ENDED
        # Kernel threads have none; tools show their name in brackets.
        return decoded(raw[:_LONGEST_COMMAND].rstrip(b"\0").replace(b"\0", b" ")) or f"[{name}]"


def end_process(pid: int, start_ticks: int, number: int, root: Path = Path("/")) -> None:
    """Send a signal to the process that started at this time, never to another that reused its PID.

    Raises GputuiError if it has ended, if the PID belongs to another process now, or without permission.
    """
    handle = None
    try:
        # With the handle opened first, the process that is checked is the one that gets the signal.
        handle = _held(pid)
        stat = read_stat(pid, str(root / "proc"))
        if stat.start_ticks != start_ticks:
            raise GputuiError(
                f"process {pid} has ended, and {stat.name!r} has its number now: nothing was sent",
                "choose it again if that one is meant",
            )
        if stat.state in "ZX":
            raise GputuiError(
                f"process {pid} has ended, and waits for its parent {stat.parent_pid}: nothing was sent",
                "it goes when its parent takes notice, or ends",
            )
        if handle is not None and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
    except PermissionError as error:
        raise GputuiError(
            f"process {pid} belongs to another user: nothing was sent", "its owner or root can end it"
        ) from error
    except (OSError, ValueError) as error:
        raise GputuiError(f"process {pid} has ended: nothing was sent") from error
    finally:
        if handle is not None:
            os.close(handle)


def _held(pid: int) -> int | None:
    """A handle that stays with this process; None if the system has none. Raises ProcessLookupError."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox
        return None


def read_stat(pid: int, proc: str = "/proc") -> Stat:
    """Read the stat of one process. Raises OSError if it does not exist, ValueError if the file is
    malformed."""
    # proc_pid_stat(5); the name is in brackets and may itself contain brackets and spaces.
    head, _, tail = read_file(f"{proc}/{pid}/stat").rpartition(b")")
    fields = tail.split()
    if len(fields) < 22:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields")
    return Stat(
        name=decoded(head.partition(b"(")[2]),
        state=fields[0].decode(errors="replace"),
        parent_pid=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
    )


def decoded(raw: bytes) -> str:
    """Text of a process; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")


def _unresolved(pid: int, uses: tuple[GpuUse, ...], why: Missing) -> ProcessSample:
    return ProcessSample(pid, uses, why, why, why, why, why, why, why)


def _is_in_a_pid_namespace(proc: str) -> bool:
    link = target_of(Path(proc, "self", "ns", "pid"))
    return link != "" and link != _FIRST_PID_NAMESPACE


def _is_hiding(proc: str) -> bool:
    mounts = text_of(f"{proc}/self/mounts")
    return (
        re.search(r"^\S+ /proc proc \S*hidepid=(?:2|4|invisible|ptraceable)", mounts, re.MULTILINE)
        is not None
    )


def _since_boot_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def user_name(user_id: int) -> str:
    """The account's name; its number if it has none."""
    import pwd  # missing on Windows

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
