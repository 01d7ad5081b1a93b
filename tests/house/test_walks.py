"""The walks of docs/architecture.md match the running program."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvml.standin import c_compiler
from walks import PAGE, WALKS, with_walk


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("power", marks=pytest.mark.skipif(c_compiler() is None, reason="no C compiler")),
        pytest.param("block", marks=pytest.mark.slow),
    ],
)
def test_the_page_lists_every_function_that_the_value_passes(name: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_walk(page, name, WALKS[name](tmp_path)) == page, (
        "python tests/house/walks.py --write writes the page anew"
    )
