"""stdout and stderr of the commands: they replace what a stream cannot show; and who reads them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import click

from gputui.document.background import settle
from gputui.document.page import Console, Page, console_on
from gputui.document.spans import Line, Span, command_spans, in_encoding
from gputui.document.spans import wrapped as lines_in
from gputui.errors import clean_lines, clean_text

if TYPE_CHECKING:
    from gputui.services.results.run_forms import NextStep

_KERNEL_NAMES = ("JPY_PARENT_PID", "JPY_SESSION_NAME")
"""Set by Jupyter for kernels, and not for its terminals."""
_NOTEBOOK_PREFIXES = ("COLAB_", "KAGGLE_KERNEL_", "KAGGLE_URL_")
_CI_NAMES = (
    "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI", "JENKINS_URL", "TEAMCITY_VERSION", "TF_BUILD",
    "DRONE", "BITBUCKET_BUILD_NUMBER", "CODEBUILD_BUILD_ID",
)  # fmt: skip
_PERSON_NAMES = ("SSH_TTY", "SSH_CONNECTION", "TMUX", "STY")
"""Somebody came to debug a job, or opened a terminal beside the notebook."""
CELL, CI = "a notebook cell", "a CI job"


def no_terminal() -> str:
    """Why no screen can be drawn, as `there is no terminal to draw on`; empty if one can."""
    drawn_in = unattended()
    if drawn_in:
        return f"{drawn_in} has no terminal to draw on"
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return ""
    return "there is no terminal to draw on"


@functools.cache
def unattended() -> str:
    """CELL or CI if output goes to a log that nobody can answer, though it may be a pty; else empty."""
    if os.environ.get("GPUTUI_TERMINAL"):
        return ""
    return where(os.environ)


def where(environ: Mapping[str, str]) -> str:
    """CELL, CI or empty, for a process with these variables."""
    if any(name in environ for name in _KERNEL_NAMES):  # JupyterLab may have been started in tmux
        return CELL
    if any(name in environ for name in _PERSON_NAMES):
        return ""
    if any(name.startswith(_NOTEBOOK_PREFIXES) for name in environ):
        return CELL
    if any(name in environ for name in _CI_NAMES) or environ.get("CI", "").lower() in ("true", "1"):
        return CI
    return ""


_WIDEST_PROSE = 100
_ITEM = re.compile(r"\s*(?:-|\d+\.) ")
_COMMAND = re.compile(r": (?=(?:gputui|ssh|ssh-\w+|sbatch|\S+ -m pip) )")
_ANSWERS = ("y", "yes", "n", "no", "")


class _Output:
    """A text stream without `buffer`, so that nothing bypasses it."""

    def __init__(self, stream: TextIO, *, cleans: bool) -> None:
        self.stream = stream
        self._cleans = cleans

    @property
    def encoding(self) -> str:
        """Of the stream; streams in memory support every character."""
        return self.stream.encoding or "utf-8"

    @property
    def errors(self) -> str | None:
        return self.stream.errors

    def write(self, text: str) -> int:
        """Write a text, including newlines."""
        if not isinstance(text, str):
            raise TypeError(f"text is written here, not {type(text).__name__}")
        clean = clean_lines(text) if self._cleans else text
        self.stream.write(in_encoding(clean, self.encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks at it, who can be asked and for whom a line can be rewritten."""
        return self.stream.isatty() and not unattended()

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True


@contextmanager
def readable_output() -> Iterator[None]:
    """Replace control characters and those that its stream cannot encode in all output."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        None if stream is None else cast(TextIO, _Output(stream, cleans=True)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def beneath(stream: TextIO) -> TextIO:
    """The underlying stream, for control sequences."""
    return stream.stream if isinstance(stream, _Output) else stream


def drawn_on(stream: TextIO) -> TextIO:
    """The stream for callers that clean names themselves and draw with control sequences; still encoded."""
    return cast(TextIO, _Output(beneath(stream), cleans=False))


def confirmed(question: str) -> bool:
    """Whether the user says yes; no is the default. Raises click.Abort, with a word, for Ctrl-C."""
    settle()
    asked = f"{question} [y/N]"
    try:
        while (
            answer := click.prompt(asked, default="n", show_default=False, err=True).strip().lower()
        ) not in _ANSWERS:
            click.echo("please answer y or n", err=True)
    except click.Abort:
        click.echo("\nstopped at the question, which counts as no", err=True)
        raise
    return bool(answer.startswith("y"))


def console(stream: TextIO | None = None) -> Console:
    """On stdout, or on `stream`: as wide as the terminal, or 80 columns (or $COLUMNS) without one."""
    return console_on(drawn_on(sys.stdout if stream is None else stream))


@contextmanager
def printed(stream: TextIO | None = None) -> Iterator[Page]:
    """A page for stdout, or for `stream`, which is shown once it is written."""
    page = Page(console(stream))
    yield page
    page.show()


def print_json(values: Mapping[str, object]) -> None:
    """An object on stdout, with the version of its schema."""
    from gputui.services.support.output_files import json_text

    click.echo(json_text(values), nl=False)


def warn(warnings: Iterable[str]) -> None:
    """Each in a line of stderr."""
    for warning in warnings:
        click.echo(warning, err=True)


def print_hint(text: str, typed: str) -> None:
    """On stdout what there is more, and what to type for it."""
    with printed() as page:
        page.hint(text, typed)


def step_lines(steps: Iterable[NextStep], out: Console) -> Iterator[Line]:
    """`next: gputui compare a.db OTHER.db  # why`, and the other commands below it."""
    for number, step in enumerate(steps):
        prefix = "      " if number else "next: "
        width = out.width if out.is_terminal else None
        yield from command_spans(step.command, width, prefix, step.why)


def print_or_write(text: str, path: Path | None) -> None:
    """Print a text, or write it to a file and name that on stderr. Raises GputuiError if that fails."""
    if path is None:
        click.echo(text, nl=False)
        return
    from gputui.services.support.output_files import write_output

    write_output(path, text)
    print(f"wrote {path}", file=sys.stderr)


def say(text: str, style: str = "", lead: str = "") -> None:
    """Print a line for people, wrapped; a command at its end stays whole, so that it can be copied.

    `lead` stands before it and stands out.
    """
    found = _COMMAND.search(text)
    words, command = (text[: found.end()], text[found.end() :]) if found else (text, "")
    with printed(sys.stderr) as page:
        if not page.out.is_terminal or len(lead + text) <= page.width:
            page.spans((Span(lead, "title"), Span(words, style), Span(command, "accent")))
            return
        first, *rest = lines_in(lead + words, page.width, len(lead) + 2, breaks=False)
        page.spans((Span(lead, "title"), Span(first[len(lead) :], style)))
        for line in rest:
            page.spans((Span(line, style),))
        if command:
            page.spans((Span(f"  {command}", "accent"),))


def wrapped(text: str, stream: TextIO) -> str:
    """A line, wrapped at words to the width of a terminal; unchanged for other streams."""
    if not stream.isatty():
        return text
    return "\n".join(lines_in(text, shutil.get_terminal_size().columns, 2, breaks=False))


def reflowed(text: str) -> str:
    """Markdown whose prose is as wide as the terminal, or 80 cells, and at most 100; code and tables stay."""
    width = min(console().width, _WIDEST_PROSE)
    pieces: list[tuple[str, bool]] = []
    is_code = False
    for line in text.split("\n"):
        is_code ^= line.startswith("```")
        is_prose = bool(line.strip()) and not is_code and not line.startswith(("|", "#", "```", "  gputui "))
        if is_prose and pieces and pieces[-1][1] and not _ITEM.match(line):
            pieces[-1] = f"{pieces[-1][0]} {line.strip()}", True
        else:
            pieces.append((line, is_prose))
    lines: list[str] = []
    for piece, is_prose in pieces:
        item = _ITEM.match(piece)
        lines += lines_in(piece, width, len(item[0]) if item else None, breaks=False) if is_prose else [piece]
    return "\n".join(lines)


def shown(text: str, stream: TextIO | None = None) -> str:
    """One line as the stream (stdout by default) will show it, to determine its width."""
    found = sys.stdout if stream is None else stream
    return in_encoding(clean_text(text), getattr(found, "encoding", None) or "utf-8")


def report_recovered() -> None:
    """Store runs whose supervisors died; reports each in one line on stderr."""
    from gputui.services.runs.process import recover_orphans

    warn(recover_orphans())


def report_missing_home() -> None:
    """Report on stderr that files go to the temporary directory, if they do."""
    from gputui.services.support.paths import missing_home

    warn(filter(None, [missing_home()]))
