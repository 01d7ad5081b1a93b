"""Comparisons in each of their forms, kept in tests/services/compare/golden, reviewed when they change.

    python tests/makers/comparison_forms.py

regenerates them.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from hand_made import make_case
from journals import GPU_MACHINE, H200, PRICE, journal_lines, make_telemetry, write_lines, write_telemetry
from stored_runs import run_id_of, store

from gputui.model.journal import Block, Price
from gputui.services.compare.formats import WITH_ENERGY, comparison_text
from gputui.services.compare.session import ask
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

FOLDER = Path(__file__).parents[1] / "services" / "compare" / "golden"
SIDES: dict[str, tuple[str, ...]] = {
    "two": ("a.db", "b.db"),
    "three": ("a.db", "b.db", "c.db"),
    "gpu": ("dear.db", "cheap.db"),
}
"""A box that is slower in one of two cases, three boxes, and two GPUs with prices and power."""
ENDINGS = {"text": "txt", "markdown": "md", "csv": "csv", "json": "json", "html": "html"}


def store_sides() -> None:
    """The result files of all comparisons, in the current directory."""
    for number, (name, label, gpt_ms) in enumerate(
        (("a.db", "old box", 100.0), ("b.db", "new box", 160.0), ("c.db", "", 98.0)), start=1
    ):
        store(Path(name).absolute(), number, label=label, gpt_ms=gpt_ms)
    _store_gpu("dear.db", 8, 0.08, 3.6)
    _store_gpu("cheap.db", 9, 0.1, 1.2)


def _store_gpu(name: str, number: int, step_s: float, usd_per_hour: float) -> None:
    price: Price = replace(PRICE, usd_per_hour=usd_per_hour, gpu_count=1)
    lines = journal_lines(
        run_id=run_id_of(number),
        cases=(
            make_case(device_class="gpu", precision="amp"),
            make_case("conv_train", device_class="gpu", precision="fp32"),
        ),
        skipped=(make_case("gpt_train", device_class="gpu", precision="amp"),),
        launches=3,
        machine=replace(GPU_MACHINE, gpus=(H200,)),
        price=price,
    )
    for place, line in enumerate(lines):
        if isinstance(line, Block):
            of_launch = 1 + 1e-3 * (line.launch_id - 2) + 1e-3 * (line.index % 3)
            ns = round(line.steps * step_s * (1 + line.case_id) * of_launch * 1e9)
            lines[place] = replace(line, wall_ns=ns, device_ns=ns, cpu_ns=ns)
    run_dir = write_lines(Path(name).absolute().with_suffix(""), lines)
    write_telemetry(run_dir, make_telemetry(seconds=40, gpus=1))
    store_run(Path(name), read_journal(run_dir), read_telemetry(run_dir))


def forms() -> dict[str, str]:
    """Each comparison in each form, by the name of its file; of the current directory's result files."""
    made: dict[str, str] = {}
    for name, files in SIDES.items():
        asked = ask(files)
        answers = {with_energy: asked.compared(0, with_energy=with_energy) for with_energy in (False, True)}
        for form, ending in ENDINGS.items():
            answer = answers[form in WITH_ENERGY]
            text = comparison_text(asked, answer, form, width=100, is_verbose=True)
            made[f"{name}.{ending}"] = _lasting(text) if form == "html" else text
    return made


def _lasting(page: str) -> str:
    """A page without its style and version, an element a line."""
    return re.sub(r"(?s)<style>.*?</style>|(?<=<footer>)[^<]*", "", page).replace("><", ">\n<")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, chdir(place):
        os.environ["GPUTUI_DB"] = str(Path("none.db").absolute())
        store_sides()
        FOLDER.mkdir(exist_ok=True)
        for name, text in forms().items():
            (FOLDER / name).write_text(text, encoding="utf-8", newline="")
