"""More processes of a worker, on this host and on others: they answer its questions, and end with it.

Each connects back over a socket. A launcher such as torchrun puts its processes into separate sessions, where
a signal to the worker's group does not reach them; the closing connection does, also when the worker is
killed.

Of several hosts, the first listens on its own port and assigns the others their ranks. The hosts that join
start their ranks with torchrun, and these connect to the worker of the first host as its own do. They run
only code of this package, and only while the first host asks for it.
"""

from __future__ import annotations

import json
import math
import os
import queue
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any  # Any: JSON

from .contract import Unsupported
from .failures import RemoteError, is_ours, is_out_of_memory, log
from .foreign_json import read_json
from .variables import without_falsifying

CONNECT_S = 120.0
"""For all of them: a launcher, and an interpreter that imports torch from a cold disk."""
ANSWER_S = 300.0
HELLO_S = 10.0
END_S = 5.0
JOIN_S = 120.0
"""How long the other hosts have to join."""
RETRY_S = 1.0
RANKS = ("workloads.ddp",)
"""Modules whose ranks a joining host may be asked to start."""
_LONGEST_PLACE_BYTES = 80
"""Of a temporary directory: the full path of a socket may have about 100 bytes."""
_MOST_LINE_BYTES = 16 * 2**20
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of netdevice(7)
_PACKAGE = __name__.rpartition(".")[0]


class RankLost(Exception):
    """One of the processes exited, or did not answer in time."""


class Refused(Exception):
    """The first host refused this one, and said why."""


class Lines:
    """JSON lines over a socket."""

    def __init__(self, connected: socket.socket) -> None:
        """A connection to another host fails about a minute after that loses power or network."""
        self.socket = connected
        self._pending = b""
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
                if hasattr(socket, name):  # Linux names
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(self, message: Mapping[str, object]) -> None:
        """Send one line. Raises OSError if the other end is closed."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def take(self, deadline_s: float) -> dict[str, Any]:
        """The next line. Raises EOFError at the end of the stream, RankLost if it makes no sense or does not
        come in time."""
        while b"\n" not in self._pending:
            left_s = min(max(deadline_s - time.monotonic(), 0), 10**6)
            if not select.select([self.socket], [], [], left_s)[0]:
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
        with suppress(ValueError):
            message = read_json(line)
            if isinstance(message, dict):
                return message
        raise RankLost("an answer that makes no sense came")


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
        self._guests = guests
        self._per_host = count // (len(guests) + 1)
        self._links: dict[int, Lines] = {}
        # For all of them: torchrun leaves its own files there. Its path must have room for a socket's name.
        is_short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PLACE_BYTES
        self._folder = Path(tempfile.mkdtemp(prefix="gputui-", dir=None if is_short else "/tmp"))
        where = rendezvous or str(self._folder / "s")
        listener = listener or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            with listener:
                if not rendezvous:
                    listener.bind(where)
                    listener.listen(count)
                self._process = subprocess.Popen(
                    [*launcher, "-m", __name__, where, f"{_PACKAGE}.{module}"],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **(environment or {}), **_package_root(), "TMPDIR": str(self._folder)},
                )
                undo.callback(self.close)
                self._accept(listener, count)
            undo.pop_all()

    def _accept(self, listener: socket.socket, count: int) -> None:
        deadline_s = time.monotonic() + CONNECT_S
        while len(self._links) < count:
            readable, _, _ = select.select([listener, *(g.socket for g in self._guests)], [], [], 0.2)
            if listener in readable:
                link = Lines(listener.accept()[0])
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
        watched = {link.socket: rank for rank, link in self._links.items()}
        guests = [guest.socket for guest in self._guests]  # send nothing, and become readable when gone
        try:
            for rank in ranks:
                self._links[rank].send(message)
            while missing := set(ranks) - answers.keys():
                left_s = max(deadline_s - time.monotonic(), 0)
                readable, _, _ = select.select([*watched, *guests], [], [], left_s)
                if not readable:
                    raise RankLost(f"rank {min(missing)} gave no answer for {ANSWER_S:.0f} s")
                if any(guest in readable for guest in guests):
                    raise RankLost("another host is gone: gputui join waits there no longer")
                for ready in readable:  # a closed connection becomes readable too, asked or not
                    rank = watched[ready]
                    answers[rank] = self._links[rank].take(deadline_s)
        except OSError as error:
            raise RankLost(f"rank {error.args[0] if error.args else '?'} is gone") from error
        except EOFError as error:
            where = "" if rank < self._per_host else " on another host"
            raise RankLost(f"rank {rank}{where} ended before its work was done") from error
        for answer in (answers[rank] for rank in ranks if "error" in answers[rank]):
            # Raised here as it was there; its type and text tell what it means.
            if answer["kind"] == "Unsupported" and answer["is_ours"]:
                raise Unsupported(answer["error"])
            raise RemoteError(str(answer["kind"]), str(answer["error"]))
        return [answers[rank] for rank in ranks]

    def close(self) -> None:
        """End them: they exit when their connection closes; a launcher that does not is killed."""
        for link in (*self._links.values(), *self._guests):
            link.socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        _end(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


class RankLink:
    """The connection to the worker, in one of its processes. When it closes, this process exits at once."""

    def __init__(self, where: str) -> None:
        """Connect to the path of a socket, or to `ADDRESS:PORT` on another host."""
        if where.startswith("/"):
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.connect(where)
        else:
            connected = socket.create_connection(address_of(where))
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
            with suppress(OSError):  # the listening thread notices the end
                self._lines.send(reply)


def call_hosts(
    rendezvous: str, count: int, module: str, per_host: int, threads: int, patience_s: float
) -> tuple[socket.socket, list[Lines]]:
    """Wait at `ADDRESS:PORT`, an address of this host, until all are there; each of the others then starts
    its ranks, with `threads` threads each. Returns where these will connect, and the other hosts, whose
    connections close when they are gone.

    Raises OSError if this host cannot listen there, RankLost if others do not come, Unsupported if one has
    another torch.
    """
    deadline_s = time.monotonic() + min(patience_s, JOIN_S)
    wanted, ours = count - 1, metadata.version("torch")
    guests: list[Lines] = []
    with ExitStack() as undo:
        listener = undo.enter_context(socket.create_server(address_of(rendezvous), backlog=64))
        while len(guests) < wanted:
            left_s = max(deadline_s - time.monotonic(), 0)
            if not select.select([listener], [], [], left_s)[0]:
                came = f"{len(guests)} of {wanted} other hosts joined"
                raise RankLost(f"{came}: start gputui join there first")
            guest = Lines(undo.enter_context(listener.accept()[0]))
            try:
                theirs = str(guest.take(time.monotonic() + HELLO_S)["torch"])
            except (OSError, EOFError, RankLost, KeyError):
                guest.socket.close()  # another program that found the port
                continue
            theirs = theirs if re.fullmatch(r"[0-9A-Za-z.+_-]{1,40}", theirs) else "of another version"
            if theirs != ours:
                with suppress(OSError):
                    guest.send({"do": "leave", "why": f"torch {ours} is there, {theirs} here"})
                raise Unsupported(f"torch {theirs} is on another host, {ours} here: ranks need the same")
            guests.append(guest)
        for node, guest in enumerate(guests, 1):
            place = {"hosts": count, "node": node, "per_host": per_host, "threads": threads}
            guest.send({"do": "start", "module": module, **place})
        undo.pop_all()
    return listener, guests


def join(rendezvous: str, say: Callable[[str], None]) -> None:
    """Start ranks for each multi-host case measured at `rendezvous`, until this process is ended.

    `say` gets one line for each event. Raises Refused, or ValueError if it is not `ADDRESS:PORT`.
    """
    address = address_of(rendezvous)
    say(f"waiting for a run at {rendezvous}; Ctrl-C ends")
    reported = ""
    while True:
        try:
            first = Lines(socket.create_connection(address))
        except OSError as error:
            if reported != (why := f"nobody is there yet: {error.strerror or error}"):
                say(reported := why)
        else:
            # The first host may exit before it has read all its input.
            with first.socket, suppress(EOFError, ConnectionError, RankLost):
                first.send({"torch": metadata.version("torch")})
                request = first.take(math.inf)
                if request.get("do") == "leave":
                    raise Refused(request["why"])
                say("ranks are started")
                say(_take_part(first, request, rendezvous))
                reported = ""
        time.sleep(RETRY_S)


def _take_part(first: Lines, request: dict[str, Any], rendezvous: str) -> str:
    """Run this host's ranks for one case until they exit or the first host is gone; returns how it went.

    torchrun runs in a separate session, so that Ctrl-C ends it once. Its output is hidden, but its last line
    is reported if it failed.
    """
    launcher = torchrun(int(request["per_host"]), rendezvous, int(request["hosts"]), int(request["node"]))
    if request["module"] not in RANKS:
        raise Refused(f"ranks of {request['module']!r} are not known here: use the same gputui on both")
    with (
        tempfile.TemporaryDirectory(prefix="gputui-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as log_file,
    ):
        process = subprocess.Popen(
            [*launcher, "-m", __name__, rendezvous, f"{_PACKAGE}.{request['module']}"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            env={
                **without_falsifying(os.environ),
                **rank_environment(int(request["threads"]), first.socket.getsockname()[0]),
                **_package_root(),
                "TMPDIR": folder,
            },
        )
        try:
            while process.poll() is None:
                if select.select([first.socket], [], [], 0.2)[0]:  # it sends nothing more: it is gone
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(END_S)
                    return "the case has ended"
        finally:
            _end(process)
        if process.returncode == 0:
            return "the case has ended"
        log_file.seek(0)
        return f"its ranks ended with status {process.returncode}: {_error_in(log_file.read())}"


def _error_in(log: bytes) -> str:
    """The most informative line: the last one of a traceback that is not torchrun's."""
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b", line)]
    return (named or lines or ["it said nothing"])[0][:300]


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Terminate a launcher, unless it has exited, and with it its ranks; kill it if it does not exit."""
    launcher.terminate()
    try:
        launcher.wait(END_S)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def _package_root() -> dict[str, str]:
    """The environment in which an interpreter finds this package under its current name."""
    root = Path(__file__).resolve().parents[len(__name__.split(".")) - 1]
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}


def address_of(text: str) -> tuple[str, int]:
    """Split `10.0.0.1:29400` into host and port. Raises ValueError if it has another form."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65535:
        raise ValueError(text)
    return host, int(port)


def torchrun(per_host: int, rendezvous: str = "", hosts: int = 1, node: int = 0) -> tuple[str, ...]:
    """The torchrun command for the ranks of one host. Several hosts meet at the port after ours."""
    place: tuple[str, ...] = ("--standalone",)
    if rendezvous:
        address, port = address_of(rendezvous)
        master = (f"--master-addr={address}", f"--master-port={port + 1}")
        place = (f"--nnodes={hosts}", f"--node-rank={node}", *master)
    python = (sys.executable, "-m", "torch.distributed.run")
    return (*python, "--max-restarts=0", f"--nproc-per-node={per_host}", *place)


def rank_environment(threads: int, address: str) -> dict[str, str]:
    """Sets a rank's number of threads, and the interface of an address of this host for gloo, unless the user
    named one: without it gloo resolves the host's name, which containers often cannot."""
    environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if "GLOO_SOCKET_IFNAME" not in os.environ and sys.platform == "linux":
        interfaces = (name for name, own in _addresses() if own == socket.gethostbyname(address))
        with suppress(OSError, StopIteration):
            environment["GLOO_SOCKET_IFNAME"] = next(interfaces)
    return environment


def _addresses() -> Iterator[tuple[str, str]]:
    """The network interfaces of this host that have an address, and the first of each."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                found = fcntl.ioctl(asked, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
                yield name, socket.inet_ntoa(found[20:24])


if __name__ == "__main__":
    import_module(sys.argv[2]).serve(RankLink(sys.argv[1]))
