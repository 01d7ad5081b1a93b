"""The pages of the documentation, in the wheel or in a clone."""

from __future__ import annotations

import importlib.resources
import re
from importlib.resources.abc import Traversable
from pathlib import Path

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
