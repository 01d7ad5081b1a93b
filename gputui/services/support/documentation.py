"""The pages of the documentation, in the wheel or in a clone, and what in them answers a question."""

from __future__ import annotations

import difflib
import importlib.resources
import math
import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from gputui.errors import GputuiError

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]*)\)")


def topics() -> dict[str, Traversable]:
    """The pages by name, in alphabetical order."""
    inside = importlib.resources.files("gputui").joinpath("docs")
    place = inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "docs"
    pages = {page.name.removesuffix(".md"): page for page in place.iterdir() if page.name.endswith(".md")}
    return {name: pages[name] for name in sorted(pages)}


def text_of(page: Traversable) -> str:
    """The Markdown of a page, with links as the names of topics."""
    return _LINK.sub(_plain, page.read_text(encoding="utf-8"))


def _plain(link: re.Match[str]) -> str:
    words, target = link.groups()
    name = target.partition("#")[0].removesuffix(".md")
    if "://" in target:
        return f"{words} <{target}>"
    return f"{words} (gputui help {name}.md)" if name in topics() else words


MOST_FOUND = 3
"""Paragraphs that are shown."""
_FOR_PROGRAMS = {"architecture", "engines", "json", "result-file", "sql"}
"""Pages that answer no question of a user."""
_SILENT = re.compile(
    "an?|the|is|are|its?|i|me|my|you|your|to|of|in|on|for|and|or|doe?s?|did|how|what|why|when|which|can|be|with|this"
    "|that|there|from|at|by|if|not|has|have|will|much|many|per"
)


def page_of(topic: str) -> str:
    """The text of a page with links as the names of topics, or else paragraphs with the words of a question.

    A topic may end in `.md`, which tells the page of a command from its help. Raises GputuiError if nothing
    is found.
    """
    name, pages = topic.removesuffix(".md"), topics()
    if name in pages:
        return text_of(pages[name])
    pieces = [
        (page, heading, paragraph, _words(f"{page} {heading}"), _words(paragraph))
        for page in sorted(pages.keys() - _FOR_PROGRAMS)
        for heading, paragraph in _paragraphs(text_of(pages[page]))
    ]
    asked = _words(topic)
    having = {word: sum(word in above | below for *_, above, below in pieces) for word in asked}
    rarity = {word: math.log(len(pieces) / count) for word, count in having.items() if count}
    found = []
    for page, heading, paragraph, above, below in pieces:
        shared = [word for words in (above, above | below) for word in words & rarity.keys()]
        score = sum(rarity[word] for word in shared) * (1.5 if page == "questions" else 1.0)
        found.append((score, -len(above), -len(paragraph), page, heading, paragraph))
    if not rarity:
        close = difflib.get_close_matches(name, pages, n=1)
        hint = f"did you mean `gputui help {close[0]}`?" if close else f"topics: {', '.join(pages)}"
        raise GputuiError(f"no command or help topic '{topic}'", hint)
    best = sorted(found, reverse=True)[:MOST_FOUND]
    return "\n\n".join(
        f"{heading}\n\n{paragraph}\n\n  gputui help {page}.md\n" for *_, page, heading, paragraph in best
    )


def _words(text: str) -> set[str]:
    """Its words without their endings, but for those that every sentence has."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {re.sub(r"(?<=...)(ing|ed|es|s|e|y)$", "", word) for word in words if not _SILENT.fullmatch(word)}


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Each paragraph and item of a list, with the heading above it."""
    heading = ""
    for piece in re.split(r"\n\n+(?!```)|\n(?=- )", text):
        if piece.startswith("#"):
            heading = piece.partition("\n")[0].lstrip("# ")
        else:
            yield heading, piece
