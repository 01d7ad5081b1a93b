"""Pictures of the Results and Compare screens, kept as text in tests/tui/golden, reviewed when they change.

    python tests/makers/screen_goldens.py

regenerates them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import chdir
from datetime import datetime, tzinfo
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from journals import GPU_MACHINE
from shell_app import make_app, only_coloured, picture, press, rows_of, settled
from stored_runs import HOSTILE, store

from gputui.services.results import labels as wording

FOLDER = Path(__file__).parents[1] / "tui" / "golden"
SIZES = ((80, 24), (120, 40), (200, 50))
FLOW: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("results-runs", ("3",)),
    ("results-overview", ("down", "enter")),
    ("results-cases", ("tab",)),
    ("results-step", ("tab",)),
    ("results-timeline", ("tab",)),
    ("compare-nothing", ("4",)),
    ("compare-rows", ("3", "escape", "down", "space", "up", "space", "c")),
    ("compare-evidence", ("enter",)),
    ("compare-reasons", ("escape", "down", "enter", "end")),
    ("compare-costs", ("escape", "v", "v")),
    ("compare-by", ("g",)),
    ("compare-sides", ("escape", "V", "V", "3", "up", "up", "space", "c")),
    ("compare-sides-next", ("n",)),
)
"""Pictures in the order they are reached, and the keys that lead to each."""

GPU_FLOW: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("results-gpu-overview", ()),
    ("results-gpu-timeline", ("tab",) * 3),
    ("results-gpu-timeline-of-a-case", ("n",)),
)
"""Pictures of the run of `store_on_gpu`."""


class _Then(datetime):
    """A clock of the year of the runs: days of other years are shown with the year."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Then:
        return cls(2026, 11, 20, tzinfo=tz)


def store_three(directory: Path) -> Path:
    """The result file of the pictures."""
    db = directory / "a.db"
    store(db, 1, label="fast box", seconds=26.0)
    store(db, 2, label=HOSTILE, gpt_ms=160.0, seconds=26.0)
    store(db, 3, status="interrupted", machine=GPU_MACHINE, profiled=False)
    return db


def store_on_gpu(db: Path) -> Path:
    """A second file, with a run on a GPU."""
    place = db.with_name("gpu.db")
    store(place, 5, label="throttled", machine=GPU_MACHINE, on_gpu=True, seconds=26.0)
    return place


async def pictures(
    width: int, height: int, *, ascii_only: bool = False, only_by_colour: list[str] | None = None
) -> dict[str, str]:
    """All pictures at one size, of the result file that GPUTUI_DB names.

    Appends the rows in which nothing but a colour tells the state to `only_by_colour`.
    """
    found = [] if only_by_colour is None else only_by_colour
    before = vars(wording)["datetime"]
    vars(wording)["datetime"] = _Then
    try:
        app = make_app(ascii_only=ascii_only)
        taken: dict[str, str] = {}
        with chdir(Path(os.environ["GPUTUI_DB"]).parent):
            async with app.run_test(size=(width, height)) as pilot:
                await settled(pilot)
                for name, keys in FLOW:
                    await press(pilot, *keys)
                    taken[f"{name}-{width}x{height}"] = without_header(picture(app))
                    found += only_coloured(rows_of(app))
                app.open_screen("results", (f"{Path('gpu.db').absolute()}@latest",))
                await settled(pilot)
                for name, keys in GPU_FLOW:
                    await press(pilot, *keys)
                    taken[f"{name}-{width}x{height}"] = without_header(picture(app))
                    found += only_coloured(rows_of(app))
        return taken
    finally:
        vars(wording)["datetime"] = before


def without_header(text: str) -> str:
    """The picture below the line that names the screens, which depends on what is installed."""
    return text.partition("\n")[2]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ["GPUTUI_REFERENCES"] = str(Path(place) / "references")
        os.environ["GPUTUI_DB"] = str(store_three(Path(place)))
        store_on_gpu(Path(os.environ["GPUTUI_DB"]))
        for size in SIZES:
            for name, text in asyncio.run(pictures(*size)).items():
                FOLDER.mkdir(exist_ok=True)
                (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
