"""The pages of the documentation, in the wheel or in a clone, and what in them answers a question."""

from __future__ import annotations

import importlib.resources
import math
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

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


_UNIT = re.compile(r"\n\n+(?!```)|\n(?=- |\d+\. |\|)")
"""Ends a paragraph with its example, an item of a list, or a row of a table."""
_LIST = re.compile(r":\n\n((?:- [^\n]*\n(?:(?!- )[^\n]+\n)*)+)")
"""A list behind the words that announce it; a short one is a part of their paragraph."""
_SHORT_LIST = 700
_TABLE_HEAD = re.compile(r"^\|.*\|\n\|[-:| ]+\|$", re.MULTILINE)
MOST_FOUND, LEAST_SCORE = 3, 0.4
"""Paragraphs that are shown, and the score of the last as a share of the first's."""
_K1, _B = 1.2, 0.4
"""Of BM25, within what Robertson and Zaragoza (2009) found to do well; rows of tables are short."""
_WEIGHTS = {"questions": 1.5} | dict.fromkeys(("architecture", "json", "result-file", "engines", "sql"), 0.5)
"""Of pages that are made of questions, and of those for who reads code and tables of the file."""
_HEADING_WEIGHT, _PAGE_WEIGHT = 3, 1
"""How often words of the heading and of the page's name count beside those of the paragraph."""
_SAME = (
    "gpu card cuda",
    "box machine server instance host",
    "container pod docker kubernetes",
    "remove delete erase rm",
    "stop kill cancel abort end",
    "price cost money cheap dollar usd",
    "heat hot temperature",
    "memory oom vram ram",
    "color colour",
    "amp bf16 fp16 mixed",
    "fast slow speed performance",
    "use using used usage utilization utilisation",
    "mac macos macbook",
    "key shortcut hotkey keyboard keybinding",
    "setting config configuration",
    "accurate accuracy reliable",
    "crash segfault broken",
    "monitor nvtop htop gpustat",
    "several multiple multi",
    "measure measurement benchmark test",
    "llm vllm sglang",
    "notebook jupyter",
    "keep kept store save",
    "install setup",
)
"""Words that people type for the first of each group."""
_SILENT = re.compile(
    "an?|the|is|are|its?|i|me|my|you|your|to|of|in|on|for|and|or|do|does|did|how|what|why|when|which|can|be|with"
    "|this|that|there|from|at|by|if|not|has|have|will|much|many|per"
)


def page_of(topic: str) -> str:
    """The text of a page with links as the names of topics, or else the paragraphs that answer a question.

    A topic may end in `.md`, which tells the page of a command from its help. Raises GputuiError if nothing
    is found.
    """
    name, pages = topic.removesuffix(".md"), topics()
    if name in pages:
        return text_of(pages[name])
    found = found_in_pages(topic)
    if not found or not topic.strip():
        import difflib

        close = difflib.get_close_matches(name, pages, n=1)
        hint = f"did you mean `gputui help {close[0]}`?" if close else f"topics: {', '.join(pages)}"
        raise GputuiError(f"no command or help topic '{topic}'", hint)
    return "\n\n".join(
        f"{one.heading}\n\n{_filled(one.text)}\n\n  gputui help {one.page}.md\n" for one in found
    )


def _filled(text: str) -> str:
    """The text filled to the terminal, its example as it is."""
    width = min(shutil.get_terminal_size().columns, 100)
    prose, _, example = text.partition("```")
    filled = textwrap.fill(" ".join(prose.split()), width, break_long_words=False, break_on_hyphens=False)
    code = textwrap.indent(example.strip("`").partition("\n")[2].rstrip(), "  ")
    return "\n\n".join(filter(None, (filled, code)))


class Paragraph(NamedTuple):
    """A paragraph, an item or a row of a page, with the heading above it."""

    page: str
    heading: str
    text: str


def found_in_pages(question: str) -> list[Paragraph]:
    """The paragraphs that answer a question best, at most MOST_FOUND; none if no word of it is in any.

    Ranked by BM25 over stems: words that few paragraphs have count most.
    """
    asked = set(_stems(question))
    pieces = [piece for name, page in topics().items() for piece in _paragraphs(name, text_of(page))]
    counts = [
        Counter(
            _stems(piece.text) + _HEADING_WEIGHT * _stems(piece.heading) + _PAGE_WEIGHT * _stems(piece.page)
        )
        for piece in pieces
    ]
    usual = sum(count.total() for count in counts) / len(counts)
    having = Counter(stem for count in counts for stem in asked & count.keys())

    def score(index: int) -> float:
        count, page = counts[index], pieces[index].page
        shared = asked & count.keys()
        weight = _WEIGHTS.get(page, 1.0) * len(shared) / max(len(asked), 1)
        return weight * sum(
            math.log(1 + (len(counts) - having[stem] + 0.5) / (having[stem] + 0.5))
            * (_K1 + 1) * count[stem] / (count[stem] + _K1 * (1 - _B + _B * count.total() / usual))
            for stem in shared
        )  # fmt: skip

    scores = [(score(index), index) for index in range(len(pieces))]
    least = max(LEAST_SCORE * max(scores)[0], 1e-9)
    return [pieces[index] for found, index in sorted(scores, reverse=True)[:MOST_FOUND] if found >= least]


def _paragraphs(page: str, text: str) -> Iterator[Paragraph]:
    heading, text = "", _LIST.sub(_announced, _TABLE_HEAD.sub("\n", text))
    for unit in _UNIT.split(
        re.sub(r"```.*?```", lambda code: code[0].replace("\n\n", "\n"), text, flags=re.S)
    ):
        if unit.startswith("#"):
            first, _, unit = unit.partition("\n")
            heading = first.lstrip("#").strip()
        if re.search("[a-z]", unit):
            yield Paragraph(
                page,
                heading,
                unit.strip().strip("|").replace(" | ", ": ").replace("\\|", "|").strip(),
            )


def _announced(found: re.Match[str]) -> str:
    """The list in one line, if it is short."""
    items = [item.strip() for item in re.split(r"^- ", found[1], flags=re.MULTILINE)]
    return found[0] if len(found[1]) > _SHORT_LIST else f": {'; '.join(filter(None, items))}\n"


def _stems(text: str) -> list[str]:
    words = (word for word in re.findall(r"[a-z0-9]+", text.lower()) if not _SILENT.fullmatch(word))
    return [_FIRST.get(stem, stem) for stem in map(_stem, words)]


def _stem(word: str) -> str:
    return re.sub(r"(?<=...)(ies|ing|ed|es|s|e|y)$", "", word)


_FIRST = {_stem(word): _stem(group.split()[0]) for group in _SAME for word in group.split()}
