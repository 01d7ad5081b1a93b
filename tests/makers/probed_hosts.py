"""What hosts say they are, or why they cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.errors import GputuiError
from gputui.services.hosts.box import Box, describe
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import Link, on_all


def probed(hosts: Sequence[Host]) -> list[Box | GputuiError]:
    """The box of each host, or its error."""
    return on_all(hosts, _box)


def _box(host: Host) -> Box:
    with Link(host) as link:
        return describe(link, bytes(32))
