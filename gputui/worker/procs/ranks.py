"""More processes of a worker's own code: started by it, asked by it, and gone when it is.

Each connects back over a socket of the file system. A launcher such as torchrun puts its processes into
sessions of their own, where no signal to the worker's group reaches them; the end of the connection does,
also when the worker is killed.
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
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any  # Any: JSON

from ..contract import Unsupported
from ..failures import RemoteError, is_ours, is_out_of_memory, log

CONNECT_S = 120.0
"""For all of them to start: a launcher, and an interpreter that imports torch, from a cold disk."""
ANSWER_S = 300.0
HELLO_S = 10.0
END_S = 5.0
_LONGEST_PLACE_BYTES = 80
"""Of a temporary directory: the whole name of a socket may have about 100."""


class RankLost(Exception):
    """One of the processes ended, or gave no answer in time."""


@dataclass(frozen=True)
class OtherHosts:
    """Where ranks of other hosts come from."""

    rendezvous: str
    """`ADDRESS:PORT`, an address of this box."""
    listener: socket.socket
    guests: list[Lines]
    """The hosts that joined; a connection ends when its host is gone."""


class RankGroup:
    """The processes of one case, as the worker sees them. `close` ends them all."""

    def __init__(
        self,
        module: str,
        count: int,
        *,
        launcher: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
        hosts: OtherHosts | None = None,
    ) -> None:
        """Start `count` processes that run `serve(link)` of a module of this package.

        `launcher` is what stands before `-m MODULE ...`. Some of them may be those of other `hosts`, which
        were called and are let go with the rest. Raises RankLost if they do not all connect.
        """
        package = __name__.rsplit(".", 2)[0]
        self._guests = hosts.guests if hosts else []
        self._per_host = count // (len(self._guests) + 1)
        self._folder = _folder()
        """The temporary directory of all of them: torchrun leaves its own there."""
        self._links: dict[int, Lines] = {}
        where = hosts.rendezvous if hosts else str(self._folder / "s")
        listener = hosts.listener if hosts else socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if hosts is None:
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
                except (EOFError, RankLost, ValueError, KeyError):
                    link.socket.close()  # a host that is not needed, or something else that found the port
            elif readable:
                raise RankLost("another host left before its ranks began")
            elif self._process.poll() is not None:
                raise RankLost(f"the launcher ended with status {self._process.returncode} before they began")
            elif time.monotonic() > deadline_s:
                raise RankLost(f"{len(self._links)} of {count} processes began within {CONNECT_S:.0f} s")

    @property
    def pid(self) -> int:
        """The process that was started: the launcher, or the only one there is."""
        return self._process.pid

    def ask(self, rank: int, **message: object) -> dict[str, Any]:
        """What one of them answers. Raises RankLost."""
        return self._answers([rank], message)[0]

    def ask_all(self, **message: object) -> list[dict[str, Any]]:
        """What each answers, by rank, when all have. Raises RankLost as soon as one is gone."""
        return self._answers(sorted(self._links), message)

    def _answers(self, ranks: Sequence[int], message: Mapping[str, object]) -> list[dict[str, Any]]:
        deadline_s = time.monotonic() + ANSWER_S
        answers: dict[int, dict[str, Any]] = {}
        waiting = {self._links[rank].socket: rank for rank in ranks}
        watched = {link.socket: rank for rank, link in self._links.items()}
        guests = [guest.socket for guest in self._guests]  # say nothing, and are ready when they are gone
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
                for ready in readable:  # one that is gone reads as ready, whether it was asked or not
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
        """End them: they leave when their connection ends; a launcher that does not follow is killed."""
        for link in (*self._links.values(), *self._guests):
            link.socket.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _folder() -> Path:
    """A new temporary directory in which a socket has room for its name, however long $TMPDIR is."""
    place = None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PLACE_BYTES else "/tmp"
    return Path(tempfile.mkdtemp(prefix="gputui-", dir=place))


def _raise(answer: Mapping[str, Any]) -> None:
    """What was raised there is raised here; what it means is told from its type and words."""
    if answer["kind"] == "Unsupported" and answer["is_ours"]:
        raise Unsupported(answer["error"])
    raise RemoteError(str(answer["kind"]), str(answer["error"]))


def package_root() -> dict[str, str]:
    """The environment in which an interpreter finds this package, under the name that it has here."""
    root = Path(__file__).resolve().parents[len(__name__.split(".")) - 1]
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}


def noticing_loss(connected: socket.socket) -> socket.socket:
    """Have a connection end, a minute after the box at its other end has lost its power or its network."""
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # as Linux calls them
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connected


class Lines:
    """JSON lines over a socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._pending = b""

    def send(self, message: Mapping[str, object]) -> None:
        """One line. Raises OSError if nobody listens any more."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def take(self, deadline_s: float) -> dict[str, Any]:
        """The next line. Raises EOFError if there will be none, RankLost if it does not come in time."""
        while b"\n" not in self._pending:
            left_s = min(max(deadline_s - time.monotonic(), 0), 10**6)
            readable, _, _ = select.select([self.socket], [], [], left_s)
            if not readable:
                raise RankLost("half an answer came, and then nothing")
            try:
                data = self.socket.recv(1 << 16)
            except OSError as error:  # reset, or nothing heard of the other box any more
                raise EOFError from error
            if not data:
                raise EOFError
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Link:
    """The worker, as one of its processes sees it. When it is gone this process ends, whatever it does."""

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
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._asked.put(self._lines.take(math.inf))
        finally:
            os._exit(0)

    def serve(self, answer: Callable[[dict[str, Any]], Mapping[str, object]]) -> None:
        """Answer until the worker is gone; what `answer` raises is told and ends nothing."""
        while True:
            try:
                said = answer(self._asked.get())
            except Exception as error:  # told to the worker, which knows what becomes of the case
                if not is_out_of_memory(error):  # which is how the largest batch is found
                    log(error)
                said = {"error": str(error)[:2000], "kind": type(error).__name__, "is_ours": is_ours(error)}
            with contextlib.suppress(OSError):  # the listening thread sees the end
                self._lines.send(said)


if __name__ == "__main__":
    import_module(sys.argv[2]).serve(Link(sys.argv[1]))
