"""The half that measures runs in interpreters that are older than gputui's own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gputui

PACKAGE = Path(gputui.__file__).parent
MEASURING = [
    PACKAGE / "errors.py",
    *(
        path
        for room in ("model", "sources", "machine", "worker", "recording")
        for path in sorted((PACKAGE / room).rglob("*.py"))
    ),
]


@pytest.mark.parametrize("path", MEASURING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_of_the_measuring_half_is_understood_by_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), filename=path.name, feature_version=(3, 10))
