"""Words that read like a translation stay out of what users see: pages, help, screens, messages."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from pathlib import Path

import click

from gputui.cli import gputui
from gputui.cli.options import help_page
from gputui.cli.verbs import COMMANDS
from gputui.document.page import console_on

NOT = (
    "inconclusive",
    "b against a",
    "smallest ratio that would have shown",
    "ceilings",
    "use of the device",
    "of its own",
    "nothing that is recorded",
    "held the CPUs",
    "kept from CPUs by others",
    "kept back by Benjamini",
    "s left of its budget",
    "NO REFERENCE",
    "on neither side",
    "most of it is how much launches vary elsewhere",
    "for 1M TFLOP",
    "of the lead",
    "is no command",
    "is no whole number",
    "left with status",
    "paid for beside",
    "beside the work",
    "Hold the picture",
    "Turn the order",
    "the host is watched",
    "told apart",
    "is told",
    "are told",
    "was told",
    "told in",
    "is said",
    "have told",
)
MACHINE_WORDS = {"NO REFERENCE", "ceilings", "inconclusive"}
"""Of JSON and CSV, and only as whole texts."""


def pages(repository: Path) -> Iterator[tuple[str, str]]:
    """The pages for users, and all screens, by name."""
    docs = [p for p in (repository / "docs").glob("*.md") if p.name != "result-file.md"]  # names of columns
    for page in (repository / "README.md", *docs, *(repository / "tests" / "tui" / "golden").glob("*.txt")):
        yield page.name, page.read_text(encoding="utf-8")


def helps() -> Iterator[tuple[str, str]]:
    """What `--help --all` of each command prints."""
    out = console_on(io.StringIO(), 80, is_terminal=False)
    with click.Context(gputui, info_name="gputui") as context:
        yield "gputui --help", "\n".join(help_page(context, out).written)
        for name in (command.name for command in COMMANDS):
            found = gputui.get_command(context, name)
            assert found is not None
            page = help_page(click.Context(found, context, info_name=name), out, shows_all=True)
            yield f"gputui {name} --help", "\n".join(page.written)


def messages(repository: Path) -> Iterator[tuple[str, str]]:
    """Every text in the code but docstrings: what may become a message, a label or a cell."""
    for module in (repository / "gputui").rglob("*.py"):
        passed_over: set[int] = set()
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):  # parents before their parts
            text = ""
            if isinstance(node, ast.Expr):
                passed_over.add(id(node.value))
            elif isinstance(node, ast.JoinedStr):
                passed_over.update(map(id, node.values))
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_shown = id(node) not in passed_over and node.value not in MACHINE_WORDS
                text = node.value if is_shown else ""
            if text:
                yield f"{module.relative_to(repository)}:{getattr(node, 'lineno', 0)}", text


def test_such_words_stand_nowhere_that_users_read(repository: Path) -> None:
    wanted = re.compile(rf"(?<![\w`])(?:{'|'.join(map(re.escape, NOT))})(?![\w`])")
    found = [*pages(repository), *helps(), *messages(repository)]
    assert {name: word[0] for name, text in found if (word := wanted.search(" ".join(text.split())))} == {}
    names = " ".join(name for name, _ in found)
    looked_at = ("README.md", "compare.md", "compare-evidence", "run --help", "suggestions.py:")
    assert all(one in names for one in looked_at)
    assert wanted.search("0.4 of its own, or so")
    assert not wanted.search("a lead of its owner, `ceilings`")
