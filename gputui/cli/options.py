"""Options that several commands have, each declared once, and the variable of shell completion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: what click decorates

import click
from click.core import ParameterSource

from gputui.errors import GputuiError, beginning

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

C = TypeVar("C", bound=Callable[..., Any])

COMPLETES = "_GPUTUI_COMPLETE"
"""The variable in which a shell asks for completions."""
_LONGEST_NAME = 80


def machine_from(text: str) -> str:
    """Check what the user calls a box. Raises GputuiError if it is long or not printable."""
    name = text.strip()
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise GputuiError(
            f"--machine: {beginning(name)!r} is not a name", f"up to {_LONGEST_NAME} printable characters"
        )
    return name


def directory_given(context: click.Context, option: click.Parameter, directory: str) -> str:
    """The value of `--dir`, refused if given and blank, as by an unset variable of a script."""
    source = context.get_parameter_source(str(option.name))
    if not directory.strip() and source is not ParameterSource.DEFAULT:
        raise GputuiError("--dir '': names no directory", "without --dir it is ~/.gputui")
    return directory


FILE = click.Path(path_type=Path, readable=False)
file_argument = click.argument("file", required=False, type=FILE)
db_option = click.option("--db", type=FILE, help="Result file.  [$GPUTUI_DB, else see `gputui paths`]")
json_option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
json_results_option = click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
trust_option = click.option("--trust", is_flag=True, help="Read files with macros or triggers too.")
machine_option = click.option(
    "--machine",
    type=machine_from,
    metavar="NAME",
    default="",
    envvar="GPUTUI_MACHINE",
    help="A name for this box, if nothing else identifies it.  [$GPUTUI_MACHINE]",
)
price_option = click.option(
    "--price", type=float, metavar="USD_PER_H", help="What the whole box costs per hour."
)
all_cases_option = click.option(
    "--all", "shows_all", is_flag=True, help="Show all cases, even if they do not fit the terminal."
)
all_rows_option = click.option(
    "--all", "shows_all", is_flag=True, help="Show all rows, even if they do not fit the terminal."
)
notify_option = click.option(
    "--notify",
    is_flag=True,
    help="Ring and show a desktop notification when the run ends, a case fails or memory runs out.",
)
detach_option = click.option(
    "--detach", is_flag=True, help="Start and return at once; `gputui attach` shows the run."
)
ascii_option = click.option(
    "--ascii", "is_ascii", is_flag=True, help="Draw with ASCII characters only.  [$GPUTUI_ASCII]"
)
no_mouse_option = click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")


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
