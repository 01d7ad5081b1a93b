"""The notebook in docs/ and the recipe for notebooks, executed by real kernels."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any  # outputs of cells

import nbformat
import pytest
from environments import make_environment
from nbclient import NotebookClient

pytestmark = pytest.mark.slow
MOST_BYTES = 150_000
OF_COLAB = ("pandas==2.2.2", "numpy==2.0.2")
RECIPE_LACKS = ("duckdb", "msgspec", "pandas", "numpy", "pip")
"""What the recipe installs or the pins replace; pip comes with its command."""


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


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
    assert re.search(r"^matmul \S+ \S+ +[\d.]+ [GT]FLOP/s", without_colours(measured), re.MULTILINE)
    assert "1 run of 1 machine" in next(text for source, text in outputs.items() if "gputui.run" in source)
    assert "faster" in next(text for source, text in outputs.items() if source.startswith("judged = "))
    assert "\x1b" not in next(text for source, text in outputs.items() if source.startswith("judged = "))
    drawn = [
        o for cell in notebook.cells for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})
    ]
    assert len(drawn) == 2


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with torch, a kernel, and the pandas and numpy of Colab's image."""
    place = tmp_path_factory.mktemp("colab")
    python = make_environment(place / "env", RECIPE_LACKS)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-compile",
        "pip",
        *OF_COLAB,
    )
    subprocess.run(pip, check=True)
    kernel = place / "kernels" / "colab"
    kernel.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "colab", "language": "python"})
    )
    return python


def test_the_recipe_for_notebooks_runs_beside_the_packages_of_colab(
    colab: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (repository / "docs" / "installing.md").read_text(encoding="utf-8")
    section = page.partition("\n## A notebook\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^```(?:python)?\n(.+?)^```", section, re.MULTILINE | re.DOTALL)
    assert "2.2.2 and numpy 2.0.2" in section
    assert len(cells) == 3
    (tmp_path / "gputui").symlink_to(repository)
    shortened = cells[0].replace(" quick ", " quick --only gemm --launches 1 --blocks 5 --budget 120 ")
    assert shortened != cells[0]
    versions = "import numpy, pandas; [f'{m.__name__}=={m.__version__}' for m in (pandas, numpy)]"
    monkeypatch.setenv("PATH", f"{colab.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", str(colab.parents[2]))
    monkeypatch.setenv("PIP_NO_COMPILE", "1")  # all modules, where a few are imported
    sources = [text.replace("/content", str(tmp_path)) for text in (shortened, *cells[1:], versions)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources])
    NotebookClient(
        notebook, timeout=900, kernel_name="colab", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    measured, loaded, compared, kept = map(texts_of, notebook.cells)
    assert re.search(r"^matmul \S+ \S+ +[\d.]+ [GT]FLOP/s", without_colours(measured), re.MULTILINE)
    assert loaded.startswith("1 run of 1 machine in 1 file")
    assert "gemm" in compared
    assert kept == str(list(OF_COLAB))
    for cell in notebook.cells[1:3]:
        (html,) = (output["data"]["text/html"] for output in cell.outputs)
        assert "<table" in html
        assert "gemm" in html
