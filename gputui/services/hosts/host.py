"""Hosts as a user names them, the command that starts a shell on each, and why one could not be reached.

What to type then is made of what the user named and of the user's ssh config; what a host printed is only
quoted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.errors import GputuiError, clean_text
from gputui.services.prices import MAX_USD_PER_HOUR

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
LONGEST_TEXT = 1000
"""Of what a host says in a message."""


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
) -> tuple[Host, ...]:
    """All named hosts in order, this box first. Raises GputuiError for the first that is wrong."""
    hosts = [Host(LOCAL, ())] if with_local else []
    hosts += [*map(ssh_host, addresses), *map(via_host, vias)]
    if not hosts:
        raise GputuiError(
            "no host is named",
            "--host [USER@]HOST, --hosts FILE, --via COMMAND or --local",
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


SSH_FAILED = 255
_SHOWN = 120

_ENDINGS: tuple[tuple[str, str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "if the box was set up anew: {ssh} says which key to remove",
    ),
    (
        "Host key verification failed|No .* host key is known",
        "its host key is not known here yet",
        "log in once, and compare the key: {ssh}",
    ),
    (
        "Could not resolve hostname",
        "there is no such host",
        "correct the name, or add it to ~/.ssh/config",
    ),
    (
        "Connection refused",
        "no ssh server answers at this address and port",
        "is the box up, and the port right?",
    ),
    (
        "Connection timed out|Operation timed out|No route to host|Network is unreachable",
        "it does not answer",
        "is the box up? its address and firewall: {ssh}",
    ),
    (
        "Too many authentication failures",
        "it refused after too many keys",
        "name the key in ~/.ssh/config: IdentityFile, with IdentitiesOnly yes",
    ),
    (
        "Permission denied|Authentication failed|passphrase",
        "it accepts none of your keys without a question",
        "log in once: {ssh}; then ssh-add, or {copy}",
    ),
    (
        "Connection closed|Connection reset|kex_exchange_identification|Broken pipe|not responding",
        "it closed the connection",
        "try again: {ssh}",
    ),
    (
        "Bad configuration option|Bad owner or permissions on|no argument after",
        "ssh does not accept its config",
        "{ssh}",
    ),
)


def why_unreachable(host: Host, status: int | None, said: str, printed: str) -> tuple[str, str]:
    """What happened, and what to do: from the exit status of its command, its stderr, and its stdout.

    `status` is None if the command was ended because no answer came in time.
    """
    ssh = how_to_log_in(host)
    if host.is_ssh and status in (SSH_FAILED, None):
        for pattern, why, hint in _ENDINGS:
            if re.search(pattern, said):
                copy = shlex.join(("ssh-copy-id", *_port(host), host.prefix[-1]))
                return why, hint.format(ssh=ssh, copy=copy)
    if status is None:
        what = f"; it printed {quoted(_last_line(printed))}" if printed.strip() else ""
        return (
            f"its login gives no shell in time{what}",
            f"its shell's start-up files may be waiting: {ssh}",
        )
    said_last = _last_line(said) if host.is_ssh else _last_line(said.strip().partition("\n")[0])
    printed_last = _last_line(printed)
    if printed_last:
        return (
            f"its login runs another command than gputui's; it printed {quoted(printed_last)}",
            "a ForceCommand or a start-up file that exits; gputui needs a plain shell there",
        )
    if status in (126, 127) and not said_last:
        said_last = "no such command"
    what = f" and said {quoted(said_last)}" if said_last else ""
    return f"its command ended with status {status}{what}", f"try it: {ssh}"


def text_from(plain: object) -> str:
    """A text in a message of a host, cleaned. Raises TypeError for anything else."""
    if not isinstance(plain, str):
        raise TypeError(f"{plain!r:.40} is not a text")
    return clean_text(plain[:LONGEST_TEXT])


def quoted(text: str, longest: int = _SHOWN) -> str:
    """What a host said, cleaned, as a quotation that it cannot end."""
    inner = clean_text(text)[:longest].replace('"', "'")
    return f'"{inner}"'


def how_to_log_in(host: Host) -> str:
    """The command a user would type to get a shell there."""
    if not host.is_ssh:
        return shlex.join((*host.prefix, "sh"))
    return shlex.join((*_program(host), *_port(host), host.prefix[-1]))


def _program(host: Host) -> tuple[str, ...]:
    return host.prefix[: host.prefix.index("-T")]


def _port(host: Host) -> tuple[str, ...]:
    at = host.prefix.index("-p") if "-p" in host.prefix else len(host.prefix)
    return host.prefix[at : at + 2]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
