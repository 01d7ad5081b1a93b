"""The pages of the documentation, for `gputui help TOPIC`."""

from __future__ import annotations

import importlib.resources
import re
from importlib.resources.abc import Traversable
from pathlib import Path

from gputui.errors import GputuiError

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]*)\)")


def topics() -> dict[str, Traversable]:
    """The pages by name, in the wheel or in a clone."""
    inside = importlib.resources.files("gputui").joinpath("docs")
    place = inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "docs"
    pages = {page.name.removesuffix(".md"): page for page in place.iterdir() if page.name.endswith(".md")}
    return {name: pages[name] for name in sorted(pages)}


def page_of(topic: str) -> str:
    """The text of a page, with links as the names of topics. Raises GputuiError if there is none.

    A topic may end in `.md`, which tells the page of a command from its help.
    """
    topic, found = topic.removesuffix(".md"), topics()
    if topic not in found:
        import difflib

        close = difflib.get_close_matches(topic, found, n=1)
        hint = f"did you mean `gputui help {close[0]}`?" if close else f"topics: {', '.join(found)}"
        raise GputuiError(f"no command or help topic '{topic}'", hint)
    return _LINK.sub(_plain, found[topic].read_text(encoding="utf-8"))


def _plain(link: re.Match[str]) -> str:
    words, target = link.groups()
    name = target.partition("#")[0].removesuffix(".md")
    if "://" in target:
        return f"{words} <{target}>"
    return f"{words} (gputui help {name}.md)" if name in topics() else words
