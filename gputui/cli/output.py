"""stdout and stderr as commands see them: the one place where text becomes what a stream can show."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

from gputui.services.support.plain_text import in_encoding
from gputui.store.text import clean_lines, clean_text

if TYPE_CHECKING:
    from rich.console import Console


class _Output:
    """A text stream; it has no `buffer`, so that nothing is written past it."""

    def __init__(self, stream: TextIO, *, cleans: bool) -> None:
        self.stream = stream
        self._cleans = cleans

    @property
    def encoding(self) -> str:
        """Of the stream; one in memory has every character."""
        return self.stream.encoding or "utf-8"

    @property
    def errors(self) -> str | None:
        """How the stream itself treats what it cannot encode."""
        return self.stream.errors

    def write(self, text: str) -> int:
        """Write text, line ends included."""
        if not isinstance(text, str):
            raise TypeError(f"text is written here, not {type(text).__name__}")
        clean = clean_lines(text) if self._cleans else text
        self.stream.write(in_encoding(clean, self.encoding))
        return len(text)

    def flush(self) -> None:
        """Hand on what is held back."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Of the stream."""
        return self.stream.fileno()

    def writable(self) -> bool:
        """Always."""
        return True


@contextmanager
def readable_output() -> Iterator[None]:
    """While it lasts, what is printed holds no control characters and none that its stream cannot encode."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        None if stream is None else cast(TextIO, _Output(stream, cleans=True)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def beneath(stream: TextIO) -> TextIO:
    """The stream itself: for bytes that a terminal is to obey."""
    return stream.stream if isinstance(stream, _Output) else stream


def drawn_on(stream: TextIO) -> TextIO:
    """The stream for who has cleaned names before and draws with control sequences; encoded as any other."""
    return cast(TextIO, _Output(beneath(stream), cleans=False))


def console() -> Console:
    """On stdout, as wide as the terminal, or 80 columns (or $COLUMNS) where there is none."""
    from gputui.services.support.text_tables import console_on  # rich is slow to import

    return console_on(drawn_on(sys.stdout))


def wrapped(text: str, stream: TextIO) -> str:
    """A line, broken at words where `stream` is a narrower terminal; elsewhere it stays whole."""
    if not stream.isatty():
        return text
    import textwrap  # a pipe need not wait for it

    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False, tabsize=1
    )


def shown(text: str, stream: TextIO | None = None) -> str:
    """One line as the stream (stdout) will show it: for who must know how long it gets."""
    found = sys.stdout if stream is None else stream
    return in_encoding(clean_text(text), getattr(found, "encoding", None) or "utf-8")
