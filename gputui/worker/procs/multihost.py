"""Several hosts: the first listens on its own port and assigns the others their ranks.

The hosts that join start their ranks with torchrun, and these connect to the worker of the first host as its
own do. They run only code of this package, and only while the first host asks for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any  # JSON

from ..contract import Unsupported
from ..variables import without_falsifying
from .ranks import END_S, HELLO_S, Lines, RankLost, end, noticing_loss, package_root

JOIN_S = 120.0
"""How long the other hosts have to join."""
RETRY_S = 1.0
RANKS = ("workloads.ddp_rank",)
"""Modules whose ranks a joining host may be asked to start."""
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of netdevice(7)


class Refused(Exception):
    """The first host refused this one, and said why."""


def address_of(text: str) -> tuple[str, int]:
    """Split `10.0.0.1:29400` into host and port. Raises ValueError if it has another form."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65535:
        raise ValueError(text)
    return host, int(port)


class Hosts:
    """The hosts of one case, as the first of them sees them."""

    def __init__(self, rendezvous: str, count: int) -> None:
        """Listen at `ADDRESS:PORT`, an address of this host. Raises OSError if that fails."""
        self._count = count
        self.listener = socket.create_server(address_of(rendezvous), backlog=64)
        self.guests: list[Lines] = []
        """The hosts that joined; a connection closes when its host is gone."""

    def call(self, module: str, per_host: int, threads: int, patience_s: float) -> None:
        """Wait for the others and have each start its ranks, with `threads` threads each.

        Raises RankLost if they do not come, Unsupported if one has another torch.
        """
        deadline_s = time.monotonic() + min(patience_s, JOIN_S)
        wanted = self._count - 1
        while len(self.guests) < wanted:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self.listener], [], [], left_s)[0]:
                raise RankLost(
                    f"{len(self.guests)} of {wanted} other hosts joined: start gputui join there first"
                )
            guest = Lines(noticing_loss(self.listener.accept()[0]))
            with contextlib.suppress(OSError, EOFError, RankLost, KeyError):
                self._receive(guest)
                continue
            guest.socket.close()  # another program that found the port
        for node, guest in enumerate(self.guests, 1):
            place = {"hosts": self._count, "node": node, "per_host": per_host, "threads": threads}
            guest.send({"do": "start", "module": module, **place})

    def _receive(self, guest: Lines) -> None:
        theirs, ours = str(guest.take(time.monotonic() + HELLO_S)["torch"]), metadata.version("torch")
        theirs = theirs if re.fullmatch(r"[0-9A-Za-z.+_-]{1,40}", theirs) else "of another version"
        if theirs != ours:
            guest.send({"do": "leave", "why": f"torch {ours} is there, {theirs} here"})
            guest.socket.close()
            raise Unsupported(f"torch {theirs} is on another host, {ours} here: ranks need the same")
        self.guests.append(guest)

    def close(self) -> None:
        """Close the connections to the other hosts."""
        self.listener.close()
        for guest in self.guests:
            guest.socket.close()


def join(rendezvous: str, say: Callable[[str], None]) -> None:
    """Start ranks for each multi-host case measured at `rendezvous`, until this process is ended.

    `say` gets one line for each event. Raises Refused, or ValueError if it is not `ADDRESS:PORT`.
    """
    address = address_of(rendezvous)
    say(f"waiting for a run at {rendezvous}; Ctrl-C ends")
    reported = ""
    while True:
        try:
            first = Lines(noticing_loss(socket.create_connection(address)))
        except OSError as error:
            if reported != (why := f"nobody is there yet: {error.strerror or error}"):
                say(reported := why)
        else:
            with (
                first.socket,
                contextlib.suppress(EOFError, ConnectionError, RankLost),
            ):  # it may exit before it has read all its input
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
    package = __name__.rsplit(".", 2)[0]
    with (
        tempfile.TemporaryDirectory(prefix="gputui-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as log,
    ):
        process = subprocess.Popen(
            [*launcher, "-m", f"{package}.procs.ranks", rendezvous, f"{package}.{request['module']}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **without_falsifying(os.environ),
                **rank_environment(int(request["threads"]), first.socket.getsockname()[0]),
                **package_root(),
                "TMPDIR": folder,
            },
        )
        try:
            while process.poll() is None:
                if select.select([first.socket], [], [], 0.2)[
                    0
                ]:  # the first host sends nothing more: it is gone
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(END_S)
                    return "the case has ended"
        finally:
            end(process)
        if process.returncode == 0:
            return "the case has ended"
        log.seek(0)
        return f"its ranks ended with status {process.returncode}: {_error_in(log.read())}"


def _error_in(log: bytes) -> str:
    """The most informative line: the last one of a traceback that is not torchrun's."""
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b", line)]
    return (named or lines or ["it said nothing"])[0][:300]


def torchrun(per_host: int, rendezvous: str = "", hosts: int = 1, node: int = 0) -> tuple[str, ...]:
    """The torchrun command for the ranks of one host. Several hosts meet at the port after ours."""
    python = (sys.executable, "-m", "torch.distributed.run")
    ranks = ("--max-restarts=0", f"--nproc-per-node={per_host}")
    if not rendezvous:
        return (*python, *ranks, "--standalone")
    address, port = address_of(rendezvous)
    place = (f"--master-addr={address}", f"--master-port={port + 1}")
    return (*python, *ranks, f"--nnodes={hosts}", f"--node-rank={node}", *place)


def rank_environment(threads: int, address: str) -> dict[str, str]:
    """Sets a rank's number of threads, and the interface of an address of this host for gloo."""
    counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return {**counts, **_interface_at(address)}


def _interface_at(address: str) -> dict[str, str]:
    """The network interface with an address of this host, unless the user named one.

    Without it gloo resolves the host's name, which containers often cannot.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or sys.platform != "linux":
        return {}
    import fcntl

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        wanted = socket.inet_aton(socket.gethostbyname(address))
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(asked, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
                if found[20:24] == wanted:
                    return {"GLOO_SOCKET_IFNAME": name}
    return {}
