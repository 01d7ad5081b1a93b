"""Hosts as a user names them, and the command that starts a shell on each."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.errors import GputuiError
from gputui.services.prices.price_list import MAX_USD_PER_HOUR

_ADDRESS = re.compile(
    r"(?P<destination>(?:[^@\s:]+@)?(?:\[[0-9A-Fa-f:.%\w]+\]|[^@\s:\[\]]+))(?::(?P<port>\d{1,5}))?"
)
_SSH_OPTIONS = (
    "BatchMode=yes",  # a question would wait for ever
    "ConnectTimeout=15",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "RemoteCommand=none",
)
LOCAL = "this box"
MOST_HOSTS = 512


@dataclass(frozen=True, slots=True)
class Host:
    """One machine to reach."""

    name: str
    """As the user named it; never stored in a result file."""
    prefix: tuple[str, ...]
    """The command that runs the words after it there; empty for this machine."""
    is_ssh: bool = False
    """Whether it takes one text for the login shell rather than words."""
    python: str = ""
    """The interpreter to measure with; empty for the first that has torch."""
    usd_per_hour: float | None = None
    directory: str = ""
    """Where gputui makes the one directory that it writes there; empty for `~/.gputui`."""
    clock_ahead_s: float = 0.0
    """By which the times of its run are corrected; 0 for a clock that is right within a minute."""

    def command(self, script: str) -> list[str]:
        """The command that runs a script in `sh` there: one line without single quotes, backslashes and
        exclamation marks, since the login shell may be any."""
        if self.is_ssh:
            return [*self.prefix, f"exec sh -c '{script}'"]
        return [*self.prefix, "sh", "-c", script]


def ssh_program(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """$GPUTUI_SSH, a program and its options as a shell would split them, else `ssh`."""
    try:
        return tuple(shlex.split(environ.get("GPUTUI_SSH", ""))) or ("ssh",)
    except ValueError as error:
        raise GputuiError(f"GPUTUI_SSH: {error}", "such as: ssh -F FILE") from error


def ssh_host(address: str) -> Host:
    """A host from `[USER@]HOST[:PORT]`, or a name of the user's ssh config. Raises GputuiError."""
    found = _ADDRESS.fullmatch(address)
    if found is None or address.startswith("-"):
        raise GputuiError(
            f"--host {address}: is not [USER@]HOST[:PORT]",
            "a name that `ssh NAME` knows, or ann@10.0.0.7:2222",
        )
    options = [word for option in _SSH_OPTIONS for word in ("-o", option)]
    port = ["-p", found["port"]] if found["port"] else []
    destination = found["destination"].replace("[", "").replace("]", "")
    return Host(address, (*ssh_program(), "-T", *options, *port, "--", destination), is_ssh=True)


def via_host(command: str) -> Host:
    """A host behind a command that runs a program there: `docker exec -i NAME`. Raises GputuiError."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise GputuiError(f"--via {command}: {error}", "close the quote") from error
    if not words:
        raise GputuiError("--via: names no command", "such as --via 'docker exec -i NAME'")
    return Host(command, words)


def hosts_in(file: Path) -> list[str]:
    """The addresses in a file, one in each line; `#` begins a comment. Raises GputuiError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GputuiError(
            f"--hosts {file}: cannot be read ({error})", "a file with one host per line"
        ) from error
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def hosts_from(
    addresses: Sequence[str],
    vias: Sequence[str],
    *,
    with_local: bool,
    pythons: Iterable[str] = (),
    prices: Iterable[str] = (),
    directory: str = "",
    others: Sequence[Host] = (),
) -> tuple[Host, ...]:
    """All named hosts in order, this box first and `others` last.

    Raises GputuiError for the first that is wrong.
    """
    hosts = [Host(LOCAL, ())] if with_local else []
    hosts += [*map(ssh_host, addresses), *map(via_host, vias), *others]
    if not hosts:
        raise GputuiError(
            "no host is named",
            "--host [USER@]HOST, --hosts FILE, --via COMMAND, --slurm PARTITION or --local",
        )
    if len(hosts) > MOST_HOSTS:
        raise GputuiError(f"{len(hosts)} hosts are named", f"at most {MOST_HOSTS}")
    names = [host.name for host in hosts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise GputuiError(f"{twice} is named twice", "name each host once")
    python_of = _by_host("--python", pythons, names)
    price_of = {name: _price(name, text) for name, text in _by_host("--price", prices, names).items()}
    return tuple(
        replace(
            host,
            python=python_of.get(host.name, python_of.get("", "")),
            usd_per_hour=price_of.get(host.name, price_of.get("")),
            directory=directory,
        )
        for host in hosts
    )


def _by_host(option: str, texts: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """Values by host; without a host, for all of them, under the empty name."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        name = {"local": LOCAL}.get(name, name)
        if separator and name not in names:
            raise GputuiError(
                f"{option} {text}: {name} is not among the hosts", f"one of {', '.join(names[:8])}"
            )
        found[name] = value
    return found


def _price(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= MAX_USD_PER_HOUR:
        shown = f"{name}={text}" if name else text
        raise GputuiError(
            f"--price {shown}: is not a price of a box", "USD per hour for the whole box, such as HOST=2.49"
        )
    return number
