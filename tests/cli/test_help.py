"""`--help`: the verbs on one screen, the options of a command; and two ways to name what left that screen."""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import click
import pytest
from command_line import gputui_here, printed

from gputui.cli import gputui
from gputui.cli.options import help_page
from gputui.cli.verbs import COMMANDS, SPELT, Command, understood
from gputui.document.page import console_on
from gputui.document.theme import sgr

ROOT = click.Context(gputui, info_name="gputui")


def context_of(name: str) -> click.Context:
    found = gputui.get_command(ROOT, name)
    assert found is not None
    return click.Context(found, ROOT, info_name=name)


def lines_of(context: click.Context, *, common: tuple[str, ...] = (), shows_all: bool = False) -> list[str]:
    out = console_on(io.StringIO(), 80, is_terminal=False)
    return help_page(context, out, common, shows_all=shows_all).written


def options_in(lines: list[str]) -> list[str]:
    """The names of the options that a help lists, in its order."""
    below = lines[lines.index("Options:") + 1 :] if "Options:" in lines else []
    return [line.split("  ")[1].split(" ")[0].rstrip(",") for line in below if line.startswith("  -")]


def test_the_first_screen_has_the_verbs_below_the_questions_that_they_answer() -> None:
    lines = lines_of(ROOT)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == [
        "gputui:", "LOOK", "MEASURE", "EXPLAIN", "DECIDE", "FILES", "SETUP", "HELP",
    ]  # fmt: skip
    verbs = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert verbs == [
        "monitor", "check", "run", "bakeoff", "serve-bench", "record", "why", "show", "compare",
        "pick", "gpu", "share",
    ]  # fmt: skip
    assert "gputui db: runs, merge, export, import, label, rm" in lines[-5]
    assert "gputui self: completion, paths" in lines[-4]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_fits_a_terminal_and_with_all_it_has_every_option(command: Command) -> None:
    name, _, function = command.module.partition(":")
    context, module = context_of(command.name), importlib.import_module(f"gputui.cli.{name}")
    declared_as = getattr(module, function or "command")
    declared = [one for one in declared_as.params if isinstance(one, click.Option)]
    of_file = [one for one in vars(module).values() if isinstance(one, click.Command)]
    stated = getattr(module, "COMMON", ())
    assert set(stated) <= {parameter.opts[-1] for one in of_file for parameter in one.params}
    common = tuple(option for option in stated if option in {one.opts[-1] for one in declared})
    short, full = lines_of(context, common=common), lines_of(context, shows_all=True)
    assert len(short) <= 23
    assert max(map(len, [*short, *full])) <= 80

    instead = [one.option.split()[1] for one in COMMANDS if one.option.startswith(f"{command.name} ")]
    every = [*(one.opts[0] for one in declared), *instead]
    assert options_in(full) == [*every, "-h"]
    first = [next(one.opts[0] for one in declared if one.opts[-1] == name) for name in common]
    shown = options_in(short)
    assert shown[: len(first)] == first[: len(shown)]
    assert set(instead) <= set(shown)
    left = len(every) - len(shown)
    more = f"{left} more option{'s' if left > 1 else ''}"
    assert (short[-1].startswith(more) and short[-1].endswith(f": gputui {command.name} --help --all")) is (
        left > 0
    )
    has_examples = declared_as.epilog is not None
    assert has_examples is ("and examples" in short[-1]) is ("  Examples:" in full)


@pytest.mark.parametrize(
    ("variables", "has_styles", "has_colours"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, False, False)],
    ids=["terminal", "NO_COLOR", "dumb"],
)
def test_on_a_terminal_titles_are_bold_and_what_can_be_typed_is_cyan(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], has_styles: bool, has_colours: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = console_on(io.StringIO(), 80, is_terminal=True)
    screen, of_run = ("\n".join(help_page(one, out).written) for one in (ROOT, context_of("run")))
    for typed, text in (("  compare", screen), ("gputui db", screen), ("  --device D", of_run)):
        assert (f"\x1b[{sgr('accent', out.palette)}m{typed}" in text) is has_colours
    for title, text in (("MEASURE", screen), ("Options:", of_run)):
        assert (f"\x1b[1m{title}\x1b[0m" in text) is has_styles
    assert ("mHow fast is it?" in screen) is has_styles


def test_colours_reach_a_terminal_and_nothing_else() -> None:
    assert "\x1b[36m  monitor" in gputui_here("--help", env={"FORCE_COLOR": "1", "TERM": "xterm"}).stdout
    assert "\x1b" not in gputui_here("--help").stdout + gputui_here("run", "--help").stdout


def test_the_help_of_everything_names_every_command_and_every_option_of_gputui_alone() -> None:
    lines = lines_of(ROOT, shows_all=True)
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {one.name for one in COMMANDS}
    assert set(options_in(lines)) >= {"-V", "--debug", "--price", "--host"}


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["run", "--attach", "4086", "--json"], ["attach", "4086", "--json"]),
        (["run", "--attach=4086"], ["attach", "4086"]),
        (["monitor", "--processes", "--once", "--json"], ["snapshot", "--processes", "--json"]),
        (["run", "quick", "--label", "--list-of-mine"], ["run", "quick", "--label", "--list-of-mine"]),
        (["record", "--once"], ["record", "--once"]),
        (["help"], ["--help"]),
        (["help", "run", "--all"], ["run", "--help", "--help"]),
        (["help", "sql"], ["help", "sql"]),
        (["db"], ["db", "--help"]),
        (["run", "--all"], ["run", "--all"]),
        (["run", "-h", "--all"], ["run", "-h", "--help"]),
        (["compare", "a.db", "b.db"], ["compare", "a.db", "b.db"]),
        (["pick", "a.db", "--job", "1M img train"], ["advise", "a.db", "--job", "1M img train"]),
        (["pick", "--job=1M img train", "a.db"], ["advise", "--job=1M img train", "a.db"]),
        (["pick", "gpt-oss-20b"], ["pick", "gpt-oss-20b"]),
        ([], []),
    ],
    ids=lambda words: " ".join(words),
)
def test_words_are_understood_as_those_of_a_command(words: list[str], same: list[str]) -> None:
    assert understood(words) == same


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("run --list", "profiles"),
        ("self paths --json", "paths --json"),
        ("db runs nowhere.db", "runs nowhere.db"),
        ("db rm latest nowhere.db", "rm latest nowhere.db"),
        ("show --tui nowhere.db", "results nowhere.db"),
        ("monitor --demo --gpus 2", "demo --gpus 2"),
        ("run --join nowhere", "join nowhere"),
        ("run --template nowhere.txt", "new-workload nowhere.txt"),
        ("pick --job nonsense nowhere.db", "advise --job nonsense nowhere.db"),
    ],
)
def test_a_name_of_before_and_its_place_on_the_screen_do_the_same(
    capsys: pytest.CaptureFixture[str], words: str, same: str
) -> None:
    assert printed(capsys, *words.split()) == printed(capsys, *same.split())


def test_what_belongs_to_another_program_is_not_read_as_help(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    echo = ("printf", "%s ", "run", "--attach", "--help", "--all")
    assert gputui_here("record", "--db", tmp_path / "a.db", "--", *echo).returncode == 0
    assert capfd.readouterr().out == "run --attach --help --all "


def test_no_two_commands_share_a_name_or_a_place() -> None:
    assert len({one.name for one in COMMANDS}) == len({*SPELT.values()}) == len(COMMANDS)
