"""A program in a real pty, with a terminal at the other end that answers, reads slowly, or stalls."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

import pyte

DEADLINE_S = 300.0
_LOOKS_EVERY_S = 0.1
"""What is no output, such as attributes of the terminal, changes without a word."""
"""Far beyond any normal duration; a test that waits this long has failed."""
_MODE_QUERY = re.compile(rb"\x1b\[\?(2026|2048)\$p")
_BACKGROUND_QUERY = b"\x1b]11;?\x1b\\"
_NOT_OF_PYTE = re.compile(rb"\x1b\[[<>=][0-9;]*u")
_PART_OF_SEQUENCE = re.compile(rb"\x1b(\[[?<>=]?[0-9;]*\$?)?$")
_TICK_S = 0.02


class _Screen(pyte.Screen):
    """Sends the terminal's answers to the program."""

    def __init__(self, columns: int, lines: int, say: Callable[[bytes], None]) -> None:
        super().__init__(columns, lines)
        self._say = say

    def write_process_input(self, data: str) -> None:
        self._say(data.encode())


@dataclass
class _Written:
    """A piece of output or an answer on its way, and since or until when."""

    data: bytes
    at_s: float


class Terminal:
    """Runs a command in a pty and is its terminal.

    With `bytes_per_s` the pty is drained at once and the terminal receives it at that rate, as behind SSH.
    """

    def __init__(
        self,
        command: Sequence[str],
        columns: int = 80,
        lines: int = 24,
        *,
        environment: Mapping[str, str] | None = None,
        answers: bool = True,
        bytes_per_s: float | None = None,
        answer_after_s: float = 0.0,
        background: str = "",
    ) -> None:
        """With a `background`, `#rrggbb`, it says that one; without one it does not know the question."""
        self.answers = answers
        self._background = background
        self._asked = 0
        self._bytes_per_s = bytes_per_s
        self._answer_after_s = answer_after_s
        self._late_answers: SimpleQueue[_Written | None] = SimpleQueue()
        """In the order of the queries, as from any terminal; timers would mix them up on a busy machine."""
        self.raw = bytearray()
        """Everything the terminal has received."""
        self.seen_s: list[tuple[int, float]] = []
        """Number of bytes received so far, and when."""
        self.lag_s = 0.0
        """Age of the newest received output."""
        self.longest_lag_s = 0.0
        self.screen = _Screen(columns, lines, self._answer)
        self._stream = pyte.ByteStream(self.screen)
        self._carried = b""
        self._changed = threading.Condition()
        self._reads = threading.Event()
        self._reads.set()
        self._ends = False
        self.master, slave = os.openpty()
        self._size(columns, lines)
        self.attributes_before = termios.tcgetattr(slave)
        self.started_s = monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._slave = slave
        """Kept open so that the terminal's attributes can be inspected afterwards."""
        self._thread = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._thread.start()
        self._answering = threading.Thread(target=self._answer_late, name="answers", daemon=True)
        self._answering.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._ends = True
        self._reads.set()
        self._thread.join(DEADLINE_S)
        self._end_answers()
        for fd in (self.master, self._slave):
            with contextlib.suppress(OSError):
                os.close(fd)

    # The terminal's state

    @property
    def text(self) -> str:
        """The screen as text, without trailing blanks."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def is_alternate(self) -> bool:
        """Whether the alternate screen is on."""
        return self._last("?1049h") > self._last("?1049l")

    @property
    def is_cursor_shown(self) -> bool:
        return self._last("?25h") >= self._last("?25l")

    @property
    def attributes_now(self) -> list[Any]:
        """Of the pty, as `tcgetattr` returns them."""
        return termios.tcgetattr(self._slave)

    def unread(self) -> bytes:
        """Unread input and answers: a shell would run them as commands."""
        attributes = termios.tcgetattr(self._slave)
        attributes[3] &= ~termios.ICANON
        attributes[6][termios.VMIN] = attributes[6][termios.VTIME] = 0
        termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        return os.read(self._slave, 4096) if select.select([self._slave], [], [], 0)[0] else b""

    def wait_for(self, what: str | Callable[[], bool], within_s: float = DEADLINE_S) -> None:
        """Wait until the screen contains a text, or a condition holds."""

        def is_so() -> bool:
            if isinstance(what, str):
                return any(what in line for line in self.screen.display)
            return what()

        deadline_s = monotonic() + within_s
        with self._changed:
            while not self._changed.wait_for(is_so, _LOOKS_EVERY_S):
                if monotonic() < deadline_s:
                    continue
                shown = "\n".join(self.screen.display)
                raise AssertionError(f"not within {within_s} s: {what}\n{shown}\n{bytes(self.raw[-300:])!r}")

    def wait_for_bytes(self, count: int, within_s: float = DEADLINE_S) -> None:
        """Wait until the terminal has received this many bytes in total."""
        self.wait_for(lambda: len(self.raw) >= count, within_s)

    # User actions

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Resize the window."""
        with self._changed:
            self.screen.resize(lines, columns)
        self._size(columns, lines)

    def freeze(self) -> None:
        """Stop reading."""
        self._reads.clear()

    def thaw(self) -> None:
        """Resume reading."""
        self._reads.set()

    def close(self) -> None:
        """Close the window: the kernel sends the program a hang-up."""
        self._ends = True
        self._reads.set()
        self._thread.join(DEADLINE_S)
        self._end_answers()
        os.close(self._slave)
        os.close(self.master)

    def signal(self, number: int) -> None:
        """Signal only the program."""
        self.process.send_signal(number)

    def ended(self, within_s: float = DEADLINE_S) -> int:
        """Wait for the exit status; negative for a signal."""
        status = self.process.wait(within_s)
        self._catch_up()
        return status

    # The program's cost

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far."""
        return cpu_s(self.process.pid)

    def rss_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    # Internals

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _last(self, mode: str) -> int:
        return self.raw.rfind(b"\x1b[" + mode.encode())

    def _answer(self, answer: bytes) -> None:
        if self.answers and self._answer_after_s:
            self._late_answers.put(_Written(answer, monotonic() + self._answer_after_s))
        elif self.answers:
            self._say(answer)

    def _answer_late(self) -> None:
        while (answer := self._late_answers.get()) is not None:
            threading.Event().wait(answer.at_s - monotonic())
            self._say(answer.data)

    def _end_answers(self) -> None:
        self._late_answers.put(None)
        self._answering.join(DEADLINE_S)

    def _say(self, answer: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.master, answer)

    def _read(self) -> None:
        waiting: deque[_Written] = deque()
        credit = 0.0
        last_s = monotonic()
        while not self._ends:
            self._reads.wait()
            ready = select.select([self.master], [], [], _TICK_S if waiting else 0.2)[0]
            if ready and self._reads.is_set():
                read = self._read_some()
                if read is None:
                    break
                waiting.append(_Written(read, monotonic()))
            now = monotonic()
            credit = min(credit + (now - last_s) * (self._bytes_per_s or 0), 4096.0) if waiting else 0.0
            last_s = now
            while waiting and (self._bytes_per_s is None or credit >= 1):
                count = len(waiting[0].data) if self._bytes_per_s is None else int(credit)
                credit -= min(count, len(waiting[0].data))
                self.lag_s = now - waiting[0].at_s
                self.longest_lag_s = max(self.lag_s, self.longest_lag_s)
                self._see(waiting[0].data[:count])
                waiting[0].data = waiting[0].data[count:]
                if not waiting[0].data:
                    waiting.popleft()

    def _read_some(self) -> bytes | None:
        try:
            return os.read(self.master, 65536)
        except OSError as error:
            if error.errno == errno.EIO:
                return None
            raise

    def _see(self, seen: bytes) -> None:
        if not seen:
            return
        with self._changed:
            self.raw += seen
            self.seen_s.append((len(self.raw), monotonic()))
            data = self._carried + seen
            cut = _PART_OF_SEQUENCE.search(data)
            self._carried = data[cut.start() :] if cut else b""
            if cut:
                data = data[: cut.start()]
            for query in _MODE_QUERY.finditer(data):
                if query[1] == b"2026":
                    self._answer(b"\x1b[?2026;2$y")
            while self._asked < self.raw.count(_BACKGROUND_QUERY):
                self._asked += 1
                if self._background:
                    parts = "/".join(2 * self._background[at : at + 2] for at in (1, 3, 5))
                    self._answer(f"\x1b]11;rgb:{parts}\x1b\\".encode())
            self._stream.feed(_NOT_OF_PYTE.sub(b"", data))
            self._changed.notify_all()

    def _catch_up(self) -> None:
        """Record when the program last wrote something."""
        end_s = monotonic() + DEADLINE_S
        while monotonic() < end_s and select.select([self.master], [], [], 0)[0] and self._thread.is_alive():
            with self._changed:
                self._changed.wait(0.05)
        with self._changed:
            pass


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process, from the scheduler's nanosecond counters."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def with_job_control(command: Sequence[str]) -> list[str]:
    """In a shell that says `put aside` once the command is stopped, and continues it after enter."""
    shell = f"{shlex.join(command)}; echo put aside; read line; fg"
    return ["sh", "-mc", shell]


END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
