"""The command line: one file per command, imported only when it is called."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from gputui.cli.options import COMPLETES, ascii_option, explained, help_option, live_options, no_mouse_option
from gputui.cli.output import readable_output, reflowed, wrapped
from gputui.cli.verbs import COMMANDS, ELSEWHERE, GROUPS, NOUNS, SPELT, Command, understood
from gputui.errors import (
    EXIT_BUG,
    EXIT_CASE_FAILED,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    GputuiError,
    NoFile,
    clean_text,
)
from gputui.version import version

_INSTEAD_OF_OPTIONS = {
    "--slurm": "of nodes that you hold (salloc), each: gputui bakeoff --via 'srun -w NODE'",
    "--against": "gputui run --launches N measures more at once; then gputui compare F@RUN a.db",
    "--resolve": "gputui run --launches N measures more at once",
}
"""What to type for options that earlier versions had."""
_READING = frozenset(
    (
        *("compare", "advise", "pick", "gpu", "runs", "show"),
        *("merge", "export", "share", "label", "rm"),
    )
)
"""Commands that read result files and end: each by one deadline."""


class _Lazy(click.Group):
    """A group that lists its commands without importing them: those of the first screen, or of a noun."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        groups = [NOUNS[self.name]] if self.name in NOUNS else [g for g in GROUPS if g.title and not g.noun]
        names = [one.name for group in groups for one in group.commands if not one.option]
        return names if self.name in NOUNS else [*names, *NOUNS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        group = NOUNS.get(self.name or "")
        if group is None and cmd_name in NOUNS:
            return _Lazy(cmd_name, params=[help_option()], help=NOUNS[cmd_name].question)
        found = (one for one in (group.commands if group else COMMANDS) if one.name == cmd_name)
        return next(map(_loaded, found), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.resilient_parsing or args[0].startswith("-"):  # a shell completes what is not complete
            return super().resolve_command(ctx, args)
        if args[0] == "help":
            from gputui.services.support.documentation import page_of

            click.echo_via_pager(reflowed(page_of(" ".join(args[1:]))))
            ctx.exit()
        if self.get_command(ctx, args[0]) is None:
            typed = f"{ctx.command_path} {args[0]}".partition(" ")[2]
            raise GputuiError(f"no command `{typed}`; {_meant(args[0])}")
        if args[0] in _READING:
            from gputui.store.opening import one_deadline

            ctx.with_resource(one_deadline())
        return super().resolve_command(ctx, args)


def _loaded(found: Command) -> click.Command:
    name, _, function = found.module.partition(":")
    module = importlib.import_module(f"gputui.cli.{name}")
    command = explained(getattr(module, function or "command"), found.name, getattr(module, "COMMON", ()))
    if COMPLETES in os.environ:
        from gputui.cli.installation import add_completions

        add_completions(command, found.name)
    return command


def _meant(word: str) -> str:
    """What to type instead of an unknown command."""
    import difflib
    import shlex

    from gputui.services.profiles.loader import shipped_profiles

    if word.endswith(".db"):
        return f"to see what is in it: gputui show {shlex.quote(word)}"
    if word.endswith((".json", ".json.gz")):
        return f"to read a trace: gputui import {shlex.quote(word)}"
    may_be = {one.name: one.may_be_meant for one in COMMANDS}
    close = [name for name in difflib.get_close_matches(word, may_be, n=1) if may_be[name]]
    meant = SPELT[ELSEWHERE.get(word, *close)] if close or word in ELSEWHERE else ""
    if word in (profile.name for profile in shipped_profiles()):
        meant = f"run {word}"
    return f"you may mean `gputui {meant}`" if meant else "gputui --help lists the commands"


def _print_version(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    if is_set:
        click.echo(f"gputui, version {version()}")
        context.exit()


@click.group(
    cls=_Lazy,
    params=[help_option()],
    invoke_without_command=True,
    context_settings={"color": True},  # else click silently strips what looks like an escape sequence
)
@click.option(
    "--version",
    "-V",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@live_options
@ascii_option
@click.option("--notify", is_flag=True, help="Ring the terminal bell when a run ends or fails.")
@no_mouse_option
@click.option("--host", "addresses", multiple=True, metavar="[USER@]HOST[:PORT]", help="Watch another box.")
@click.pass_context
def gputui(context: click.Context, /, debug: bool, **given: object) -> int:
    """Profile GPUs and CPUs, and compare runs across machines and runtimes.

    Without a command it opens the live monitor; keys 2 to 5 open the other screens. Begin with
    `gputui run quick --db a.db` on one box, and with b.db on another; then `gputui compare a.db b.db`.
    """
    if context.invoked_subcommand is None:
        from gputui.cli.screens import monitor

        return int(context.invoke(monitor, **given))
    for parameter in context.command.params:
        if given.get(str(parameter.name)):
            option = parameter.opts[-1]
            raise GputuiError(
                f"{option} before {context.invoked_subcommand}: it is for the screens that `gputui` opens",
                f"gputui {option}; or see gputui {context.invoked_subcommand} --help",
            )
    return EXIT_DONE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status; errors are reported without a traceback."""
    if COMPLETES in os.environ:
        import gputui.cli.installation  # noqa: F401  # tells click how bash is answered

        sys.exit(_status_of(sys.argv[1:]))  # click writes bytes, of words that need no cleaning
    with readable_output():
        status = _status_of(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(status)


def _status_of(words: list[str]) -> int:
    ours = words.index("--") if "--" in words else len(words)  # the rest belongs to another program
    debug = "--debug" in words[:ours]
    words = understood([w for w in words[:ours] if w != "--debug"]) + words[ours:]
    try:
        status = gputui.main(words, prog_name="gputui", standalone_mode=False)
    except GputuiError as error:
        if debug:
            raise
        if isinstance(error, NoFile):
            from gputui.cli.watching import first_run_into

            error = first_run_into(error.path) or error
        _print_error(error.message, error.hint)
        status = error.exit_code
    except click.ClickException as error:
        _print_error(*_explained(error))
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as ended:
        if getattr(ended, "code", 1) != 1:  # click's for a closed pipe; signals end with others
            raise
        status = EXIT_DONE  # the reader of the output closed it
        _give_up_output()
    except OSError as error:
        if debug:
            raise
        from gputui.store.opening import has_working_directory

        if isinstance(error, FileNotFoundError) and not has_working_directory():
            _print_error("the directory this shell is in has been removed", "cd to another one")
            status = EXIT_USAGE
        else:
            _print_error(str(error), "")
            status = EXIT_CASE_FAILED
        _give_up_output()
    except Exception as error:
        if debug:
            raise
        _print_error(
            f"this is a bug in gputui: {type(error).__name__}: {error}", "gputui --debug ... shows where"
        )
        status = EXIT_BUG
    return _flushed(status if isinstance(status, int) else EXIT_DONE)


def _explained(error: click.ClickException) -> tuple[str, str]:
    """What is wrong with the words of a command, and how it is called."""
    text = error.format_message().rstrip(".")
    text = _plain_numbers(text[:1].lower() + text[1:])
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdigit():
        text = f"{error.option_name} is out of range: no argument here may be negative"
    if context is None:
        return text, "gputui --help lists the commands"
    name = context.command_path.removeprefix("gputui").strip()
    name = SPELT.get(name, name)
    called = f"gputui {name}".strip()
    words = " ".join(context.command.collect_usage_pieces(context))
    hint = f"{called} {words}; {called} --help explains the options"
    required = [p for p in context.command.params if isinstance(p, click.Option) and p.required]
    if required and (isinstance(error, click.NoSuchOption) or getattr(error, "param", None) in required):
        hint = f"{required[0].opts[0]} {required[0].help or required[0].make_metavar(context)}"
    if isinstance(error, click.NoSuchOption) and error.option_name in _INSTEAD_OF_OPTIONS:
        hint = _INSTEAD_OF_OPTIONS[error.option_name]
    elif isinstance(error, click.NoSuchOption) and error.possibilities:
        import difflib

        text = error.message[:1].lower() + error.message[1:].rstrip(".")
        close = difflib.get_close_matches(error.option_name, error.possibilities, n=1, cutoff=0.7)
        ending = {SPELT[one.name] for one in COMMANDS if not one.may_be_meant}
        if close and f"{name} {close[0]}" not in ending:
            hint = f"did you mean {close[0]}? {called} --help explains the options"
    return f"{name}: {text}" if name else text, hint


def _plain_numbers(text: str) -> str:
    """Click's `'x' is not a valid integer range` and `0<=x<=100`, in words."""
    text = re.sub(r"a valid integer( range)?\b", "a whole number", text)
    return re.sub(r"in the range (\S+?)<=x<=(\S+)", r"in the range \1 to \2", text)


def _flushed(status: int) -> int:
    """Flush the output and return the status; otherwise Python would fail at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except OSError as error:
        _print_error(f"the output cannot be written: {error.strerror}", "")
        _give_up_output()
        return status or EXIT_CASE_FAILED
    return status


def _give_up_output() -> None:
    """Silently discard what is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(nowhere)


def _print_error(message: str, hint: str) -> None:
    """Print an error on stderr, cleaned: file names may contain control characters.

    Words stay whole at the end of a line, but a command stays in one line, to be copied.
    """
    for line in (f"gputui: {clean_text(message)}", f"  {clean_text(hint)}" if hint else ""):
        if line:
            has_command = " gputui " in line or " -m pip " in line
            click.echo(line if has_command else wrapped(line, sys.stderr), err=True)
