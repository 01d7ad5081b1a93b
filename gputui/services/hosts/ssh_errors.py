"""Why a host could not be reached, in one line, from how its command ended and what it printed."""

from __future__ import annotations

import re
import shlex

from gputui.services.hosts.host import Host
from gputui.store.text import clean_text

SSH_FAILED = 255
_SHOWN = 120
_LONGEST_COMMAND = 300

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
        "log in once: {ssh}; then ssh-add, or ssh-copy-id {name}",
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
    offered = re.search(r"ssh-keygen -f [^\r\n]*", said)
    remove = f"ssh-keygen -R {host.name}" if offered is None else clean_text(offered[0])[:_LONGEST_COMMAND]
    words = {"name": host.name, "ssh": how_to_log_in(host), "remove": remove}
    if host.is_ssh and status in (SSH_FAILED, None):
        for pattern, why, hint in _ENDINGS:
            if re.search(pattern, said):
                return why, hint.format(**words)
    if status is None:
        what = f"; it printed: {_last_line(printed)}" if printed.strip() else ""
        return (
            f"its login gives no shell in time{what}",
            "its shell's start-up files may be waiting: {ssh}".format(**words),
        )
    said_last = _last_line(said) if host.is_ssh else _last_line(said.strip().partition("\n")[0])
    printed_last = _last_line(printed)
    if printed_last:
        return (
            f"its login runs another command than gputui's: {printed_last}",
            "a ForceCommand or a start-up file that exits; gputui needs a plain shell there",
        )
    if status in (126, 127) and not said_last:
        said_last = "no such command"
    return said_last or f"its command ended with status {status}", "try it: {ssh}".format(**words)


def how_to_log_in(host: Host) -> str:
    """The command a user would type to get a shell there."""
    if not host.is_ssh:
        return shlex.join((*host.prefix, "sh"))
    options = list(host.prefix[: host.prefix.index("-T")])
    if "-p" in host.prefix:
        options += host.prefix[host.prefix.index("-p") :][:2]
    return shlex.join((*options, host.prefix[-1]))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return clean_text(lines[-1])[:_SHOWN] if lines else ""
