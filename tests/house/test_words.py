"""Words that read like a translation stay out of what users see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NOT = (
    "b against a",
    "smallest ratio that would have shown",
    "ceilings",
    "use of the device",
    "nothing that is recorded",
    "held the CPUs",
    "kept from CPUs by others",
    "kept back by Benjamini",
    "NO REFERENCE",
    "on neither side",
    "most of it is how much launches vary elsewhere",
    "of the lead",
    "is no command",
    "is no whole number",
    "left with status",
    "beside the work",
    "Hold the picture",
    "Turn the order",
    "the host is watched",
)


def pages(repository: Path) -> list[Path]:
    docs = [p for p in (repository / "docs").glob("*.md") if p.name != "result-file.md"]  # names of columns
    return [repository / "README.md", *docs, *(repository / "tests" / "tui" / "golden").glob("*.txt")]


@pytest.mark.parametrize("words", NOT)
def test_such_words_stand_in_no_page_and_on_no_screen(repository: Path, words: str) -> None:
    wanted = re.compile(rf"(?<![\w`]){re.escape(words)}(?![\w`])")
    found = [
        p.name for p in pages(repository) if wanted.search(" ".join(p.read_text(encoding="utf-8").split()))
    ]
    assert found == []
