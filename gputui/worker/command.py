"""Runs a program and times it from outside: from start to end, or between matches in its output."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: the JSON of a launch

from . import MIN_BLOCKS
from .channel import CaseReport, Channel


@dataclass(frozen=True)
class ProgramEnd:
    exit_status: int
    """As Python gives it: negative for a signal."""
    ended_ns: int
    cpu_ns: int
    """Of the program and the children it waited for."""


def end_of(program: subprocess.Popen[bytes]) -> ProgramEnd:
    """Wait until a program has exited."""
    _, status, usage = os.wait4(program.pid, 0)
    ended_ns = time.monotonic_ns()
    program.returncode = os.waitstatus_to_exitcode(status)
    return ProgramEnd(program.returncode, ended_ns, round((usage.ru_utime + usage.ru_stime) * 1e9))


def signal_name(number: int) -> str:
    """`SIGKILL`; for a real-time signal only its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


MAX_BLOCKS = 100_000
"""Per launch; a program that reports more is ended."""
LINE_LIMIT_BYTES = 16_384
"""The pattern is matched against this much of a line."""
LOG_HEAD_BYTES = LOG_TAIL_BYTES = 512 * 1024
"""How much of a program's output is kept from either end."""
GRACE_S = 3.0
"""Between SIGTERM and SIGKILL."""
_LINE_END = re.compile(rb"[\r\n]+")
"""Progress bars rewrite their line with a bare carriage return."""


class CommandLaunch:
    """Runs the program of one launch and reports on a channel, as `launch.Launch` does for workloads.

    The program stays in this process's group, so a signal to the group ends it too. Its output goes to our
    own stdout, which is the launch's log, up to a limit. Used by the main thread.
    """

    def __init__(
        self,
        described: dict[str, Any],
        channel: Channel,
        started_ns: int,
        *,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        case = described["cases"][0]
        self._command = case["command"]
        pattern = str(self._command["pattern"])
        self._pattern = re.compile(pattern) if pattern else None
        self._allowance_s = float(described["allowance_s"])
        self._deadline_ns = started_ns + round(self._allowance_s * 1e9)
        self._max_blocks = max_blocks
        self._report = CaseReport(channel, int(case["case_id"]))
        self._log = _BoundedLog()
        self._line = b""
        self._begun_ns = self._built_ns = 0
        self._matched_ns: int | None = None
        """When the last match was seen."""
        self._matches = 0
        self._woken, self._wakes = os.pipe()
        """Becomes readable when the program has exited."""
        self._ended: ProgramEnd | None = None

    def run(self) -> None:
        """Run the program until it exits, its time is up, or it has reported enough blocks."""
        argv = [str(word) for word in self._command["argv"]]
        self._begun_ns = time.monotonic_ns()
        try:
            program = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd=str(self._command["directory"]),
            )
        except OSError as error:
            self._log.write(f"{argv[0]}: cannot be started: {error.strerror}\n".encode())
            self._log.close()
            self._report.end("failed", f"the program cannot be started: {error.strerror}")
            return
        self._built_ns = time.monotonic_ns()
        threading.Thread(target=self._wait_for, args=[program], name="waiter", daemon=True).start()
        try:
            ended = self._listen(program)
        finally:
            self._log.close()
        self._report.end(*self._outcome(ended))

    def _wait_for(self, program: subprocess.Popen[bytes]) -> None:
        """In a thread, so that the end of the program is timestamped promptly."""
        self._ended = end_of(program)
        os.close(self._wakes)

    def _listen(self, program: subprocess.Popen[bytes]) -> ProgramEnd | None:
        """Read its output to the end; None if it had to be ended first."""
        assert program.stdout is not None
        output = program.stdout.fileno()
        open_ends = [output, self._woken]
        while self._report.blocks < self._max_blocks:
            left_s = (self._deadline_ns - time.monotonic_ns()) / 1e9
            readable = select.select(open_ends, [], [], left_s)[0] if left_s > 0 else []
            if not readable:
                break
            if output in readable:
                data = os.read(output, 1 << 16)
                self._hear(data, time.monotonic_ns())
                if not data:
                    open_ends.remove(output)
            elif self._ended is not None:  # all is read; a child it left behind may still hold the pipe open
                self._find_matches([self._line], self._ended.ended_ns)
                return self._ended
        self._end_group()
        return None

    def _end_group(self) -> None:
        """End every process of our group but ourselves: SIGTERM first, then SIGKILL."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        if select.select([self._woken], [], [], GRACE_S)[0]:
            return  # processes it left behind end with this one
        for place in Path("/proc").glob("[0-9]*"):  # without one, our own exit ends the group
            with suppress(OSError):
                pid = int(place.name)
                if pid != os.getpid() and os.getpgid(pid) == os.getpgrp():
                    os.kill(pid, signal.SIGKILL)
        select.select([self._woken], [], [], GRACE_S)

    def _hear(self, data: bytes, at_ns: int) -> None:
        """Log this output and look for matches in the lines it completes."""
        self._log.write(data)
        *lines, rest = _LINE_END.split(self._line + data)
        self._line = rest[:LINE_LIMIT_BYTES]
        self._find_matches(lines, at_ns)

    def _find_matches(self, lines: list[bytes], at_ns: int) -> None:
        """Count matches that arrive together as one block of several steps: their spacing is unknown."""
        if self._pattern is None:
            return
        texts = [line[:LINE_LIMIT_BYTES].decode(errors="replace") for line in lines if line.strip()]
        steps = sum(self._pattern.search(text) is not None for text in texts)
        if not steps:
            return
        self._matches += steps
        if self._matched_ns is None:
            build_ns = self._built_ns - self._begun_ns
            first_step_ns = at_ns - self._built_ns
            self._report.warm(build_ns=build_ns, first_step_ns=first_step_ns, warmup_ns=0, t_ns=at_ns)
        else:
            self._report.block(self._matched_ns, at_ns - self._matched_ns, steps)
        self._matched_ns = at_ns

    def _outcome(self, ended: ProgramEnd | None) -> tuple[str, str]:
        """The outcome of the case, and the reason."""
        if ended is not None and ended.exit_status > 0:
            return "failed", f"exited with status {ended.exit_status}"
        if ended is not None and ended.exit_status < 0:
            return "failed", f"it died of {signal_name(-ended.exit_status)}"
        share = f"its {self._allowance_s:.3g} s share"
        if self._pattern is None:
            if ended is None:
                return "skipped", f"too slow for {share}: raise --budget"
            self._report.block(self._begun_ns, ended.ended_ns - self._begun_ns, 1, ended.cpu_ns)
            return "ok", ""
        count = self._report.blocks
        if count >= MIN_BLOCKS:
            return "ok", ""
        if ended is not None and not self._matches:
            return "failed", "no line of its output matched the pattern"
        counts = f"{self._matches} match{'' if self._matches == 1 else 'es'}"
        counts += f", {count} block{'' if count == 1 else 's'}"
        if self._matches > count + 1:
            counts += " (its output comes in bursts: it is buffered)"
        if ended is None:
            return "skipped", f"{counts} in {share}, {MIN_BLOCKS} blocks are needed: raise --budget"
        return "skipped", f"{counts}; {MIN_BLOCKS} blocks are needed"


class _BoundedLog:
    """Copies a program's output to our stdout: the beginning as it comes, and then only the end."""

    def __init__(self) -> None:
        self._room = LOG_HEAD_BYTES
        self._tail = bytearray()
        self._left_out = 0

    def write(self, data: bytes) -> None:
        self._out(data[: self._room])
        self._tail += data[self._room :]
        self._room = max(self._room - len(data), 0)
        if len(self._tail) >= 2 * LOG_TAIL_BYTES:
            self._cut()

    def close(self) -> None:
        """Write the end of the output, and how much was left out."""
        self._cut()
        if self._left_out:
            self._out(b"\n[%d bytes left out]\n" % self._left_out)
        self._out(bytes(self._tail))

    def _cut(self) -> None:
        surplus = max(len(self._tail) - LOG_TAIL_BYTES, 0)
        self._left_out += surplus
        del self._tail[:surplus]

    def _out(self, data: bytes) -> None:
        with suppress(OSError):  # a full disk must not fail the measurement
            while data:
                data = data[os.write(1, data) :]
