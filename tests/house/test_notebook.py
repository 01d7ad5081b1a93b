"""The notebook in docs/, executed by a real kernel."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any  # outputs of cells

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow
MOST_BYTES = 150_000


def texts_of(cell: Any) -> str:
    """What a cell printed and showed, as text."""
    return "".join(
        str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
        for output in cell.outputs
    )


def test_every_cell_of_the_notebook_runs_and_its_file_stays_small(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(repository / "docs" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    saved = tmp_path / "saved.ipynb"
    nbformat.write(notebook, saved)
    print(f"saved notebook: {saved.stat().st_size} bytes")
    assert saved.stat().st_size < MOST_BYTES
    outputs = {
        cell.source.partition("\n")[0]: texts_of(cell) for cell in notebook.cells if cell.cell_type == "code"
    }
    escapes = set(re.findall(r"\x1b\[[^A-Za-z]*[A-Za-z]", "".join(outputs.values())))
    assert {
        escape for escape in escapes if not escape.endswith("m")
    } == set()  # colours, which notebooks show
    measured = next(
        text for source, text in outputs.items() if source.startswith("!gputui run quick --only gemm")
    )
    assert re.search(r"^gemm \S+ \S+ +[\d.]+ [GT]FLOP/s", measured, re.MULTILINE)
    assert "1 run of 1 machine" in next(text for source, text in outputs.items() if "gputui.run" in source)
    assert "faster" in next(text for source, text in outputs.items() if source.startswith("judged = "))
    assert "\x1b" not in next(text for source, text in outputs.items() if source.startswith("judged = "))
    drawn = [
        o for cell in notebook.cells for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})
    ]
    assert len(drawn) == 2
