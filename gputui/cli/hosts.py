"""`--host` of `monitor`, `snapshot` and `doctor`: other machines over the user's own ssh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: what click decorates

import click
from click.core import ParameterSource

from gputui.errors import GputuiError

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

C = TypeVar("C", bound=Callable[..., Any])


def directory_given(context: click.Context, option: click.Parameter, directory: str) -> str:
    """The value of `--dir`, refused if given and blank, as by an unset variable of a script."""
    source = context.get_parameter_source(str(option.name))
    if not directory.strip() and source is not ParameterSource.DEFAULT:
        raise GputuiError("--dir '': names no directory", "without --dir it is ~/.gputui")
    return directory


def host_options(command: C) -> C:
    """`--host`, `--hosts`, `--via` and `--dir`, given to the command as `addresses`, `files`, `vias` and
    `directory`."""
    for option in (
        click.option(
            "--dir",
            "directory",
            default="",
            callback=directory_given,
            metavar="DIR",
            help="Where to write there; gputui makes its own in one that exists.  [~/.gputui]",
        ),
        click.option(
            "--via",
            "vias",
            multiple=True,
            metavar="COMMAND",
            help="A box reached by a command: 'docker exec -i NAME'.",
        ),
        click.option(
            "--hosts",
            "files",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A file with one host per line.",
        ),
        click.option(
            "--host",
            "addresses",
            multiple=True,
            metavar="[USER@]HOST[:PORT]",
            help="Another box; repeatable.",
        ),
    ):
        command = option(command)
    return command


def named_hosts(
    addresses: tuple[str, ...], files: tuple[Path, ...], vias: tuple[str, ...], directory: str
) -> tuple[Host, ...]:
    """The hosts of these options; none if none was given. Raises GputuiError."""
    if not (addresses or files or vias):
        return ()
    from gputui.services.hosts.host import hosts_from, hosts_in

    named = [*addresses, *(name for file in files for name in hosts_in(file))]
    return hosts_from(named, vias, with_local=False, directory=directory)
