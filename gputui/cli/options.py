"""Options that several commands have, each declared once, and the help that lists those of a command."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar  # Any: what click decorates

import click
from click.core import ParameterSource

from gputui.cli.output import console
from gputui.cli.verbs import COMMANDS, GROUPS
from gputui.document.page import Console, Page
from gputui.document.spans import Span
from gputui.document.table import Cell, table_of
from gputui.errors import GputuiError, beginning
from gputui.model.units import counted, number_from

if TYPE_CHECKING:
    from gputui.services.hosts.host import Host

C = TypeVar("C", bound=Callable[..., Any])

COMPLETES = "_GPUTUI_COMPLETE"
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
    "--price",
    type=number_from("--price", float, "USD per hour, such as 2.49"),
    metavar="USD_PER_H",
    help="What the whole box costs per hour.",
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


def live_options(command: C) -> C:
    """How often the live view reads, and the price that it reckons with."""
    interval = click.option(
        "--interval",
        type=number_from("--interval", float, "seconds between samples, such as 1", (0.2, 10)),
        metavar="S",
        help="Seconds between samples, 0.2 to 10.  [1, or as last time]",
    )
    price = click.option(
        "--price",
        type=number_from("--price", float, "USD per hour, such as 2.49", (0.001, 1e6)),
        metavar="USD_PER_H",
        help="What the box costs per hour.",
    )
    return interval(price(command))


no_mouse_option = click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")


def run_options(*names: str, **helps: str) -> Callable[[C], C]:
    """The options of a run with these names; `helps` where another command says something else of one."""
    from gputui.services.runs.options import OPTIONS  # only who measures waits for it

    def decorate(command: C) -> C:
        for option in (one for one in reversed(OPTIONS) if one.name in names):
            command = click.option(
                f"--{option.name}",
                option.key,
                type=option.read,
                multiple=option.split is not None,
                metavar=option.metavar or None,
                help=helps.get(option.name, option.help),
            )(command)
        return command

    return decorate


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
    addresses: tuple[str, ...],
    files: tuple[Path, ...],
    vias: tuple[str, ...],
    directory: str,
    *,
    local: bool = False,
    pythons: tuple[str, ...] = (),
    prices: tuple[str, ...] = (),
) -> tuple[Host, ...]:
    """The hosts of these options. Raises GputuiError if none is named, or one is wrong."""
    from gputui.services.hosts.host import hosts_from, hosts_in

    named = [*addresses, *(name for file in files for name in hosts_in(file))]
    return hosts_from(named, vias, with_local=local, pythons=pythons, prices=prices, directory=directory)


_LINES, _WIDEST = 23, 80  # a terminal of 24 lines needs one for the prompt


def help_option(common: Sequence[str] = ()) -> click.Option:
    """`--help`, which shows the options `common` first; twice, all of them."""

    def show(context: click.Context, parameter: click.Parameter, times: int) -> None:
        if times and not context.resilient_parsing:
            help_page(context, console(), common, shows_all=times > 1).show()
            context.exit()

    return click.Option(
        ("-h", "--help"),
        count=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show this message; with --all, every option.",
    )


def explained(command: click.Command, name: str = "", common: Sequence[str] = ()) -> click.Command:
    """The command with this help, which also lists the options that `understood` replaces by commands."""
    made = copy.copy(command)
    replaced = (
        click.Option(
            one.option.split(" ")[1:2],
            is_flag=one.option.count(" ") == 1,
            metavar=one.option.split(" ")[-1],
            expose_value=False,
            help=f"{one.summary[0].upper()}{one.summary[1:]}.",
        )
        for one in COMMANDS
        if one.option.startswith(f"{name} ")
    )
    made.params = [*command.params, *replaced, help_option(common)]
    if isinstance(made, click.Group):
        made.commands = {below: explained(one) for below, one in made.commands.items()}
    return made


def help_page(
    context: click.Context, out: Console, common: Sequence[str] = (), *, shows_all: bool = False
) -> Page:
    """The help of the command of this context, in the lines of a terminal unless all of it is asked for."""
    command, path = context.command, context.command_path
    page = Page(replace(out, width=min(out.width, _WIDEST)))
    if context.parent is None and not shows_all:
        return _first_screen(page)
    page.line(f"{path} {' '.join(command.collect_usage_pieces(context))}", lead="Usage: ")
    for paragraph in ("", *_paragraphs(command)):
        page.line(paragraph and f"  {paragraph}")
    _list(page, "Commands:", _commands(context))
    options, begin = _options(context, None if shows_all else common), page.height
    for count in range(len(options), -1, -1):
        del page.lines[begin:]
        _list(page, "Options:", options[:count])
        if count < len(options):
            page.line()
            more = f"{counted(len(options) - count, 'more option')}{', and examples' * bool(command.epilog)}:"
            page.table(table_of(("", ""), [(more, Span(f"{path} --help --all", "accent"))]))
        if shows_all or page.height <= _LINES:
            break
    for line in (command.epilog or "").replace("\b\n", "").splitlines() if shows_all else ():
        page.line(line and f"  {line}")
    return page


def _first_screen(page: Page) -> Page:
    page.line(": see, measure and compare GPUs and CPUs. Alone it shows them live.", lead="gputui")
    rows: list[tuple[Cell, Cell]] = []
    for group in (one for one in GROUPS if one.title):
        shown = [one for one in group.commands if not one.option]
        below = Span(f"gputui {group.noun}: {', '.join(one.name for one in shown)}", "accent")
        rows.append((Span(group.title, "title"), below if group.noun else Span(group.question, "dim")))
        rows += [(Span(f"  {one.name}", "accent"), one.summary) for one in shown if not group.noun]
    rows += [
        ("", ""),
        (Span("HELP", "title"), "gputui VERB --help: its options; with --all, all of them"),
        ("", "gputui help WORDS: a paragraph, as of gputui help why is it slow"),
    ]
    page.table(table_of(("", ""), rows, breaks=(1,)))
    return page


def _list(page: Page, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        page.line()
        page.line(title, "title")
        cells = [(Span(f"  {typed} ", "accent"), does) for typed, does in rows]
        page.table(table_of(("", ""), cells, breaks=(1,)))


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(one.split()) for one in inspect.cleandoc(command.help or "").split("\n\n")]


def _options(context: click.Context, common: Sequence[str] | None) -> list[tuple[str, str]]:
    """First the options `common`, then those that stand for commands; None: all, in the order of declaration.

    Without the ranges that click adds: an error says what is in range.
    """
    found = [one for one in context.command.params if isinstance(one, click.Option)]
    if common is not None:
        places = {option: place for place, option in enumerate(common)}
        found = sorted(found[:-1], key=lambda one: places.get(one.opts[-1], len(places) + one.expose_value))
    records = (one.get_help_record(context) for one in found)
    return [(typed, re.sub(r"  \[[\d.]*<?=?x[<>=\d.]+\]", "", does)) for typed, does in filter(None, records)]


def _commands(context: click.Context) -> list[tuple[str, str]]:
    command = context.command
    if isinstance(command, click.Group) and command.commands:
        return [(name, _paragraphs(below)[0]) for name, below in command.commands.items()]
    return [
        (one.name, one.summary)
        for group in GROUPS
        if context.parent is None or group.noun == command.name
        for one in group.commands
    ]
