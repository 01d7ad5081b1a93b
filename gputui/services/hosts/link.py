"""A link to one host: stdin and stdout of its command, over which the measuring half is sent.

What comes back is a stranger's: every line and every file has a limit, and names are compared with
known ones.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.resources
import json
import os
import re
import secrets
import select
import shlex
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, TypeVar  # Any: JSON of another machine

from gputui.errors import EXIT_BUG, EXIT_MACHINE_LACKS, GputuiError, bug_text, clean_text
from gputui.model.units import format_seconds
from gputui.recording.probing import measuring_half
from gputui.services.hosts.host import Host, quoted, why_unreachable
from gputui.worker.foreign_json import read_json

T = TypeVar("T")
AT_ONCE = 32
"""Hosts that are probed, sent to or started at the same time."""
LOGIN_TIMEOUT_S = 40.0
"""Until our first line comes; ssh itself tries to connect for 15 s."""
SENT_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 30.0
_LONGEST_LINE = 4 * 2**20
_LARGEST_PIECE = 2**20
_BANNER_BYTES = 2**18
_STDERR_KEPT = 2**14
_SIGNS_PER_S, _SIGNS_AT_ONCE = 20, 100
"""Signs of life; an agent sends at most four a second."""
_SLOWEST_BYTES_PER_S = 1000
_OUT_OF_SPACE = (28, 122)
_READ_ONLY = (13, 30)
"""EACCES and EROFS; above ENOSPC and EDQUOT. Of Linux, which may not be the system here."""

_PYTHONS = (
    "python3",
    "python3.13",
    "python3.12",
    "python3.11",
    "python3.10",
    "/venv/main/bin/python",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "~/miniconda3/bin/python",
    "~/anaconda3/bin/python",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
    "python",
)
"""Any of them may serve; which one measures is decided there."""
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./~+=@:-]+")
"""What no shell takes for anything else."""


class HostFailed(GputuiError):
    """One host cannot be used; the others can."""


class NothingThere(HostFailed):
    """gputui has made no directory on a host, and was not to make one."""


class LinkLost(HostFailed):
    """The link to a host broke, or its command did not answer; what was started there goes on."""


@functools.cache
def half() -> tuple[bytes, str]:
    """The zip, and its hash (SHA-256), without which nothing of it is run."""
    data = measuring_half()
    return data, hashlib.sha256(data).hexdigest()


def find_python(host: Host, run: str, none: str) -> str:
    """One line of `sh` that finds a Python that is new enough, and runs `$c` with the words `run`.

    Without one it runs `none`, with what was found instead in `$o`. On this box it is gputui's own Python, so
    that `bakeoff --local` looks for torch where `run` does.
    """
    stated = [host.python] if _PLAIN_PATH.fullmatch(host.python) and "/" in host.python else []
    if not host.prefix:
        stated.insert(0, shlex.quote(sys.executable))
    new_enough = "import sys; print(sys.version_info >= (3, 10)); print(sys.version.split()[0])"
    return (
        f't="{new_enough}"; try() {{ "$c" "$@" -c "$t" 2>/dev/null </dev/null; }}; '
        f"o=; for p in {' '.join((*stated, *_PYTHONS))}; do "
        'c=$(command -v "$p") || continue; '
        "v=$(try -I || try) || continue; "
        f'case "$v" in True*) exec "$c" {run};; *) o="$o $c "$(echo $v);; esac; done; '
        f"{none}"
    )


def _script(host: Host, nonce: str, makes: str) -> str:
    """The command that starts the first stage there."""
    data, digest = half()
    directory = base64.b64encode(host.directory.encode()).decode()
    stage = importlib.resources.files("gputui.recording").joinpath("own_directory.py").read_bytes()
    packed = base64.b64encode(zlib.compress(stage, 9)).decode()
    unpack = "import base64, sys, zlib; exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"
    run = f'-I -c "{unpack}" {packed} {nonce} {digest} {len(data)} "{directory}" "{makes}"'
    return find_python(host, run, f'echo "gputui {nonce} nopython $o"')


class FilePart(NamedTuple):
    """Part of a file of a host."""

    offset: int
    data: bytes


class Link(contextlib.AbstractContextManager["Link"]):
    """An open link. For one thread; `close` may come from any."""

    def __init__(self, host: Host, *, makes: bool = True) -> None:
        """Log in, send the measuring half unless it is there, and start it.

        Blocks until it answers. Raises HostFailed, with what to do, and NothingThere if gputui has no
        directory there and `makes` is false.
        """
        self.host = host
        self._buffer = b""
        self._said = b""
        self._is_ready = False
        self.received_bytes = 0
        """Of live messages, as compressed."""
        nonce = secrets.token_hex(8)
        try:
            self._process = subprocess.Popen(
                host.command(_script(host, nonce, "makes" if makes else "")),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for gputui, which ends the runs first
                bufsize=0,
            )
        except OSError as error:
            raise HostFailed(
                f"{host.prefix[0] if host.prefix else 'sh'} cannot be started ({error.strerror})",
                "is it installed?",
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        self._err = self._process.stderr.fileno()
        for descriptor in (self._in, self._out, self._err):
            os.set_blocking(descriptor, False)
        self._listens = [self._out, self._err]
        try:
            self._begin(nonce)
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hang_up(self) -> None:
        """Ask the command here to end; returns at once, and the thread that reads finds the link closed."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def close(self) -> None:
        """End the command here; what runs there goes on."""
        self.hang_up()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def ask(self, do: str, timeout_s: float = ANSWER_TIMEOUT_S, **fields: object) -> dict[str, Any]:
        """Send a request and return its only answer. Raises HostFailed if it is an error."""
        self.send(do, **fields)
        return self._answer(time.monotonic() + timeout_s)

    def send(self, do: str, **fields: object) -> None:
        """Send a request without waiting. Raises LinkLost."""
        self._write(json.dumps({"do": do, **fields}).encode() + b"\n", ANSWER_TIMEOUT_S)

    def pieces(self, do: str, longest_s: float, **fields: object) -> Iterator[FilePart | dict[str, Any]]:
        """Send a request and yield what it brings: pieces of a file as they come, then the last answer.

        Yields an empty piece for a sign of life. Raises LinkLost after 30 s of silence. Raises HostFailed,
        also if it takes longer than `longest_s` and its bytes over a slow link, or only says that it lives.
        """
        self.send(do, **fields)
        begun_s, signs, received = time.monotonic(), 0, 0
        while True:
            answer = self._answer(time.monotonic() + ANSWER_TIMEOUT_S)
            if not answer.get("more"):
                yield answer
                return
            packed, unpacked, offset = (answer.get(name, 0) for name in ("bytes", "unpacked", "offset"))
            if not all(type(n) is int and n >= 0 for n in (packed, unpacked, offset)):
                raise HostFailed("its answer makes no sense", _STRANGE)
            if packed > _LARGEST_PIECE or unpacked > _LARGEST_PIECE:
                raise HostFailed(f"it sent a piece of {max(packed, unpacked)} bytes", _STRANGE)
            deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
            data = self._unpacked(self._exactly(packed, deadline_s), unpacked) if packed else b""
            signs, received, took_s = signs + (not data), received + packed, time.monotonic() - begun_s
            if took_s > longest_s + received / _SLOWEST_BYTES_PER_S:
                raise HostFailed(f"its answer has no end after {format_seconds(took_s)}", _STRANGE)
            if signs > _SIGNS_AT_ONCE + _SIGNS_PER_S * took_s:
                raise HostFailed(f"it said {signs} times in {took_s:.1f} s that it goes on", _STRANGE)
            yield FilePart(offset, data)

    def messages(self, do: str, silence_s: float = ANSWER_TIMEOUT_S, **fields: object) -> Iterator[Any]:
        """Send a request and yield the JSON messages it brings, which are one compressed stream, without end.

        Raises HostFailed, and LinkLost after so many seconds without a whole message.
        """
        self.send(do, **fields)
        unpacker, text = zlib.decompressobj(), b""
        deadline_s = time.monotonic() + silence_s
        while True:
            packed = self._answer(deadline_s).get("bytes", 0)
            if type(packed) is not int or not 0 < packed <= _LARGEST_PIECE:
                raise HostFailed("its answer makes no sense", _STRANGE)
            try:
                text += unpacker.decompress(self._exactly(packed, deadline_s), _LONGEST_LINE)
            except zlib.error as error:
                raise HostFailed("what it sent is damaged", _STRANGE) from error
            *lines, text = text.split(b"\n")
            if unpacker.unconsumed_tail or len(text) > _LONGEST_LINE:
                raise HostFailed("it sent a line without an end", _STRANGE)
            self.received_bytes += packed
            for line in lines:
                yield _read(line)
            if lines:
                deadline_s = time.monotonic() + silence_s

    # The beginning

    def _begin(self, nonce: str) -> None:
        data, _ = half()
        answer = self._first_answer(nonce)
        if answer == {"state": "needs"}:
            self._write(data, SENT_TIMEOUT_S)
            answer = self._first_answer(nonce)
        if answer.get("state") == "ready":
            self._is_ready = True
            return
        reason, path = str(answer.get("reason", "")), quoted(str(answer.get("path", "")), 200)
        if answer.get("state") == "absent":
            raise NothingThere("nothing of gputui's is there", "")
        if answer.get("state") == "refused":
            raise HostFailed(
                f"its directory is refused: {quoted(reason, 300)}",
                f"choose one that only you may change: {_YOURS}",
            )
        if answer.get("code") in _OUT_OF_SPACE:
            raise HostFailed(
                f"no space is left for {path}", "free some space there, or choose another directory: --dir"
            )
        if answer.get("code") in _READ_ONLY:
            raise HostFailed(
                f"{path} cannot be written ({quoted(reason, 80)})",
                f"choose a writable directory: {_YOURS}",
            )
        raise HostFailed(f"{path}: {quoted(reason)}", "name another directory: --dir")

    def _first_answer(self, nonce: str) -> dict[str, Any]:
        """The next line that begins with our nonce; a login may print others before it."""
        deadline_s = time.monotonic() + LOGIN_TIMEOUT_S
        mark, printed = f"gputui {nonce} ".encode(), b""
        while True:
            line = self._line(deadline_s, printed)
            place = line.find(mark)  # what was printed before it may lack its line end
            if place < 0:
                printed += line + b"\n"
                if len(printed) > _BANNER_BYTES:
                    raise HostFailed("its login prints without an end", "check its shell's start-up files")
                continue
            text = line[place + len(mark) :]
            if text.startswith(b"nopython"):
                raise _no_python(text.decode(errors="replace").split()[1:])
            return _object(text)

    # Bytes

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        found = _object(self._line(deadline_s, b""))
        if "error" in found:
            code = found.get("code")
            raise HostFailed(
                f"it answered {quoted(str(found['error']), 400)}",
                f"it advises {quoted(str(found['hint']), 400)}" if found.get("hint") else "",
                code if code == EXIT_MACHINE_LACKS else 2,
            )
        return found

    def _unpacked(self, packed: bytes, length: int) -> bytes:
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(packed, length)
        except zlib.error as error:
            raise HostFailed("what it sent is damaged", _STRANGE) from error
        if len(data) != length or unpacker.unconsumed_tail:
            raise HostFailed("its answer has a different size than announced", _STRANGE)
        return data

    def _line(self, deadline_s: float, printed: bytes) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_LINE:
                raise HostFailed("it sent a line without an end", _STRANGE)
            self._fill(deadline_s, printed + self._buffer)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _exactly(self, count: int, deadline_s: float) -> bytes:
        while len(self._buffer) < count:
            self._fill(deadline_s, b"")
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _fill(self, deadline_s: float, printed: bytes) -> None:
        """Wait for more output. Raises LinkLost at its end, and at the deadline."""
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._lost(None, printed)
            readable, _, _ = select.select(self._listens, [], [], left_s)
            if self._err in readable:
                self._hear_stderr()
            if self._out in readable:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(self._out, 1 << 16)
                    if not data:
                        raise self._lost(self._ended(), printed)
                    self._buffer += data
                    return

    def _write(self, data: bytes, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        view = memoryview(data)
        while view:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._lost(None, b"")
            readable, writable, _ = select.select(self._listens[1:], [self._in], [], left_s)
            if readable:
                self._hear_stderr()
            if writable:
                try:
                    view = view[os.write(self._in, view[: 1 << 16]) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise self._lost(self._ended(), b"") from error

    def _hear_stderr(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._err, 1 << 16)
            self._said = (self._said + data)[-_STDERR_KEPT:]
            if not data:
                self._listens.remove(self._err)

    def _ended(self) -> int:
        """The exit status, with the rest of stderr read."""
        try:
            status = self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return 0
        with contextlib.suppress(OSError):
            while data := os.read(self._err, 1 << 16):
                self._said = (self._said + data)[-_STDERR_KEPT:]
        return status

    def _lost(self, status: int | None, printed: bytes) -> LinkLost:
        if status is None and self._is_ready and not self._said:
            return LinkLost("its answer does not come, or does not end", "is it overloaded, or gone?")
        why, hint = why_unreachable(
            self.host, status, self._said.decode(errors="replace"), printed.decode(errors="replace")
        )
        return LinkLost(why, hint)


_YOURS = "--dir /tmp makes one in /tmp that is yours alone"
_STRANGE = "something there interferes with gputui's messages: check its shell's start-up files"


def _read(line: bytes) -> Any:
    try:
        return read_json(line, _LONGEST_LINE)
    except ValueError as error:
        why = clean_text(str(error))[:120]
        raise HostFailed(f"its answer makes no sense ({why})", _STRANGE) from error


def _object(line: bytes) -> dict[str, Any]:
    found = _read(line)
    if not isinstance(found, dict):
        raise HostFailed("its answer makes no sense (it is not an object)", _STRANGE)
    return found


def _no_python(found: list[str]) -> HostFailed:
    pairs = [
        f"{path} is {version}" for path, _, version in zip(found[::3], found[1::3], found[2::3], strict=False)
    ]
    if not pairs:
        return HostFailed(
            "there is no Python",
            "install python3, or name an interpreter: --python HOST=EXE",
            EXIT_MACHINE_LACKS,
        )
    seen = quoted("; ".join(dict.fromkeys(pairs)), 200)
    return HostFailed(
        f"there is no Python 3.10 or newer ({seen})",
        "install one, or name the environment that has torch: --python HOST=EXE",
        EXIT_MACHINE_LACKS,
    )


def on_all(hosts: Sequence[Host], do: Callable[[Host], T]) -> list[T | GputuiError]:
    """The result of `do` for each host, or its error; for many hosts at the same time."""

    def one(host: Host) -> T | GputuiError:
        try:
            return do(host)
        except GputuiError as error:
            return error
        except Exception as error:  # the others go on
            return HostFailed(bug_text(error), "", EXIT_BUG)

    with ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
        return list(pool.map(one, hosts))
