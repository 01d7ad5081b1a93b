"""Additional worker processes: the worker starts them, sends them questions, and they end with it.

Each connects back over a Unix socket. A launcher such as torchrun puts its processes into separate sessions,
where a signal to the worker's group does not reach them; the closing connection does, also when the worker is
killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any  # Any: JSON

from ..contract import Unsupported
from ..failures import RemoteError, is_ours, is_out_of_memory, log
from ..foreign_json import read_json

CONNECT_S = 120.0
"""For all of them: a launcher, and an interpreter that imports torch from a cold disk."""
ANSWER_S = 300.0
HELLO_S = 10.0
END_S = 5.0
_LONGEST_PLACE_BYTES = 80
"""Of a temporary directory: the full path of a socket may have about 100 bytes."""
_MOST_LINE_BYTES = 16 * 2**20


class RankLost(Exception):
    """One of the processes exited, or did not answer in time."""


class RankGroup:
    """The processes of one case, as the worker sees them. `close` ends them all."""

    def __init__(
        self,
        module: str,
        count: int,
        *,
        launcher: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
        rendezvous: str = "",
        listener: socket.socket | None = None,
        guests: Sequence[Lines] = (),
    ) -> None:
        """Start `count` processes that run `serve(link)` of a module of this package.

        `launcher` precedes `-m MODULE ...` on the command line. If some of them run on other hosts, all
        connect to `rendezvous`, where `listener` is, and `guests` are the connections of these hosts, closed
        with the rest. Raises RankLost if they do not all connect.
        """
        package = __name__.rsplit(".", 2)[0]
        self._guests = guests
        self._per_host = count // (len(self._guests) + 1)
        self._folder = _folder()
        """A temporary directory for all of them: torchrun leaves its own files there."""
        self._links: dict[int, Lines] = {}
        where = rendezvous or str(self._folder / "s")
        listener = listener or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not rendezvous:
                listener.bind(where)
                listener.listen(count)
            self._process = subprocess.Popen(
                [*launcher, "-m", __name__, where, f"{package}.{module}"],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {}), **package_root(), "TMPDIR": str(self._folder)},
            )
            try:
                self._accept(listener, count)
            except BaseException:
                self.close()
                raise
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            listener.close()

    def _accept(self, listener: socket.socket, count: int) -> None:
        deadline_s = time.monotonic() + CONNECT_S
        while len(self._links) < count:
            readable, _, _ = select.select([listener, *(g.socket for g in self._guests)], [], [], 0.2)
            if listener in readable:
                link = Lines(noticing_loss(listener.accept()[0]))
                try:
                    self._links[int(link.take(time.monotonic() + HELLO_S)["rank"])] = link
                except (EOFError, RankLost, ValueError, KeyError, TypeError):
                    link.socket.close()  # a host that is not needed, or another program that found the port
            elif readable:
                raise RankLost("another host left before its ranks began")
            elif self._process.poll() is not None:
                raise RankLost(f"the launcher ended with status {self._process.returncode} before they began")
            elif time.monotonic() > deadline_s:
                raise RankLost(f"{len(self._links)} of {count} processes began within {CONNECT_S:.0f} s")

    @property
    def pid(self) -> int:
        """The process that was started: the launcher, or the only rank."""
        return self._process.pid

    def ask(self, rank: int, **message: object) -> dict[str, Any]:
        """One rank's answer. Raises RankLost."""
        return self._answers([rank], message)[0]

    def ask_all(self, **message: object) -> list[dict[str, Any]]:
        """All answers, by rank, once all are there. Raises RankLost as soon as one rank is gone."""
        return self._answers(sorted(self._links), message)

    def _answers(self, ranks: Sequence[int], message: Mapping[str, object]) -> list[dict[str, Any]]:
        deadline_s = time.monotonic() + ANSWER_S
        answers: dict[int, dict[str, Any]] = {}
        waiting = {self._links[rank].socket: rank for rank in ranks}
        watched = {link.socket: rank for rank, link in self._links.items()}
        guests = [
            guest.socket for guest in self._guests
        ]  # send nothing, and become readable when they are gone
        try:
            for rank in ranks:
                self._links[rank].send(message)
            while waiting:
                readable, _, _ = select.select(
                    [*watched, *guests], [], [], max(deadline_s - time.monotonic(), 0)
                )
                if not readable:
                    raise RankLost(f"rank {min(waiting.values())} gave no answer for {ANSWER_S:.0f} s")
                if any(guest in readable for guest in guests):
                    raise RankLost("another host is gone: gputui join waits there no longer")
                for ready in readable:  # a closed connection becomes readable too, asked or not
                    rank = watched[ready]
                    answers[rank] = self._links[rank].take(deadline_s)
                    waiting.pop(ready, None)
        except OSError as error:
            raise RankLost(f"rank {error.args[0] if error.args else '?'} is gone") from error
        except EOFError as error:
            where = "" if rank < self._per_host else " on another host"
            raise RankLost(f"rank {rank}{where} ended before its work was done") from error
        for rank in ranks:
            if "error" in answers[rank]:
                _raise(answers[rank])
        return [answers[rank] for rank in ranks]

    def close(self) -> None:
        """End them: they exit when their connection closes; a launcher that does not is killed."""
        for link in (*self._links.values(), *self._guests):
            link.socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


def end(launcher: subprocess.Popen[bytes]) -> None:
    """Terminate a launcher, unless it has exited, and with it its ranks; kill it if it does not exit."""
    launcher.terminate()
    try:
        launcher.wait(END_S)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def _folder() -> Path:
    """A new temporary directory whose path is short enough for a socket, however long $TMPDIR is."""
    place = None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PLACE_BYTES else "/tmp"
    return Path(tempfile.mkdtemp(prefix="gputui-", dir=place))


def _raise(answer: Mapping[str, Any]) -> None:
    """Raise here what was raised there; its type and text tell what it means."""
    if answer["kind"] == "Unsupported" and answer["is_ours"]:
        raise Unsupported(answer["error"])
    raise RemoteError(str(answer["kind"]), str(answer["error"]))


def package_root() -> dict[str, str]:
    """The environment in which an interpreter finds this package under its current name."""
    root = Path(__file__).resolve().parents[len(__name__.split(".")) - 1]
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}


def noticing_loss(connected: socket.socket) -> socket.socket:
    """Make a connection fail about a minute after the other host loses power or network."""
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # Linux names
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


class Lines:
    """JSON lines over a socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._pending = b""

    def send(self, message: Mapping[str, object]) -> None:
        """Send one line. Raises OSError if the other end is closed."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def take(self, deadline_s: float) -> dict[str, Any]:
        """The next line. Raises EOFError at the end of the stream, RankLost if it makes no sense or does not
        come in time."""
        while b"\n" not in self._pending:
            left_s = min(max(deadline_s - time.monotonic(), 0), 10**6)
            readable, _, _ = select.select([self.socket], [], [], left_s)
            if not readable:
                raise RankLost("half an answer came, and then nothing")
            try:
                data = self.socket.recv(1 << 16)
            except OSError as error:  # reset, or the other host is silent
                raise EOFError from error
            if not data:
                raise EOFError
            self._pending += data
            if len(self._pending) > _MOST_LINE_BYTES:
                raise RankLost("a line without an end came")
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = read_json(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise RankLost("an answer that makes no sense came")
        return message


class RankLink:
    """The connection to the worker, in one of its processes. When it closes, this process exits at once."""

    def __init__(self, where: str) -> None:
        """Connect to the path of a socket, or to `ADDRESS:PORT` on another host."""
        if where.startswith("/"):
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.connect(where)
        else:
            address, _, port = where.rpartition(":")
            connected = noticing_loss(socket.create_connection((address, int(port))))
        self._lines = Lines(connected)
        self._lines.send({"rank": int(os.environ.get("RANK", "0"))})
        self._questions: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._questions.put(self._lines.take(math.inf))
        finally:
            os._exit(0)

    def serve(self, answers: Mapping[str, Callable[..., Mapping[str, object]]]) -> None:
        """Answer each question by the function that its `do` names, until the worker is gone.

        An exception in one of them is sent back and ends nothing.
        """
        while True:
            question = self._questions.get()
            try:
                reply = answers[question.pop("do")](**question)
            except Exception as error:  # sent to the worker, which decides the outcome of the case
                if not is_out_of_memory(error):  # an expected error in the search for the largest batch
                    log(error)
                reply = {"error": str(error)[:2000], "kind": type(error).__name__, "is_ours": is_ours(error)}
            with contextlib.suppress(OSError):  # the listening thread notices the end
                self._lines.send(reply)


if __name__ == "__main__":
    import_module(sys.argv[2]).serve(RankLink(sys.argv[1]))
