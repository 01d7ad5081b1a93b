"""Why a host could not be reached, in one line, from how its command ended and what it printed.

What to type is made of what the user named and of the user's ssh config; what a host printed is only quoted.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from gputui.services.hosts.host import Host
from gputui.store.text import clean_text

SSH_FAILED = 255
_SHOWN = 120
_CONFIG_TIMEOUT_S = 5.0
_PLAIN_NAME = re.compile(r"[\w.:%-]+")

_ENDINGS: tuple[tuple[str, str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "if the box was set up anew: {remove}, then {ssh}",
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
                remove = _how_to_forget_key(host) if "{remove}" in hint else ""
                return why, hint.format(ssh=ssh, remove=remove, copy=_how_to_copy_key(host))
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


def quoted(text: str, longest: int = _SHOWN) -> str:
    """What a host said, cleaned, as a quotation that it cannot end."""
    inner = clean_text(text)[:longest].replace('"', "'")
    return f'"{inner}"'


def how_to_log_in(host: Host) -> str:
    """The command a user would type to get a shell there."""
    if not host.is_ssh:
        return shlex.join((*host.prefix, "sh"))
    return shlex.join((*_program(host), *_port(host), host.prefix[-1]))


def _how_to_copy_key(host: Host) -> str:
    return shlex.join(("ssh-copy-id", *_port(host), host.prefix[-1]))


def _how_to_forget_key(host: Host) -> str:
    """The command that removes the key of a host from where the user's ssh keeps it."""
    config = _ssh_config(host)
    name = config.get("hostkeyalias") or config.get("hostname", "")
    if not _PLAIN_NAME.fullmatch(name):
        name = host.prefix[-1].rpartition("@")[2]
    port = config.get("port") or "".join(_port(host)[1:]) or "22"
    if port != "22" and port.isdigit() and "hostkeyalias" not in config:
        name = f"[{name}]:{port}"
    usual = Path("~/.ssh/known_hosts").expanduser()
    stated = config.get("userknownhostsfile", "")
    files = [Path(file).expanduser() for file in (stated, *stated.split()) if file]
    kept = next((file for file in files if file.is_file()), usual)
    where = [] if kept == usual else ["-f", str(kept)]
    return shlex.join(("ssh-keygen", *where, "-R", name))


def _ssh_config(host: Host) -> dict[str, str]:
    """What the user's ssh config says of a host, which is not asked; empty if the program cannot tell."""
    command = (*_program(host), "-G", *_port(host), "--", host.prefix[-1])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CONFIG_TIMEOUT_S,
            check=True,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.decode(errors="replace").splitlines()
    return {key: value for key, _, value in (line.partition(" ") for line in lines)}


def _program(host: Host) -> tuple[str, ...]:
    return host.prefix[: host.prefix.index("-T")]


def _port(host: Host) -> tuple[str, ...]:
    at = host.prefix.index("-p") if "-p" in host.prefix else len(host.prefix)
    return host.prefix[at : at + 2]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
