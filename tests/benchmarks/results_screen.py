"""How long the Results screen takes to show the telemetry of a run of a million rows, and a part of it.

Run from the repository root:

    python tests/benchmarks/results_screen.py [--rows 1000000]

The app is the real one, its terminal is Textual's for tests; times begin when the file is asked for and end
when the picture is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from journals import GPU_MACHINE, make_case, make_journal
from shell_app import make_app, picture, settled
from textual.events import Key

from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
from gputui.tui.app import MonitorApp
from gputui.tui.screens.results import ResultsScreen
from gputui.tui.widgets.scrolled import LinesPage

GPUS, HERTZ = 8, 10


def make_file(path: Path, rows: int) -> Path:
    """A run of three launches whose 8 GPUs were read 10 times a second, and its blocks all along it."""
    run_dir = make_journal(
        path.parent / "journal",
        launches=3,
        blocks=60,
        cases=tuple(make_case(name, device_class="gpu") for name in ("gemm", "conv_train")),
        machine=GPU_MACHINE,
    )
    store_run(path, read_journal(run_dir), read_telemetry(run_dir))
    with duckdb.connect(str(path)) as connection:
        values = (
            "90 + random() * 10 AS sm_busy_pct, 600 + random() * 100 AS power_w, 60 + random() * 9 AS"
            " temperature_c, 1500 + random() * 400 AS sm_clock_mhz, (random() * 8)::UBIGINT AS throttle_bits"
        )
        connection.execute("CREATE TEMP TABLE begun AS SELECT run_id, started_us FROM runs")
        connection.execute("DELETE FROM telemetry")
        connection.execute(
            f"INSERT INTO telemetry BY NAME SELECT run_id, (n % {GPUS})::SMALLINT AS device_index,"
            f" started_us + (n // {GPUS}) * {1_000_000 // HERTZ} AS t_us, {values}"
            f" FROM begun, range({rows}) AS numbers(n)"
        )
        stretch = rows / GPUS / HERTZ * 1e6
        connection.execute(
            "UPDATE blocks SET t_us = began + ((t_us - began) / greatest(span, 1) * ?)::BIGINT FROM"
            " (SELECT min(t_us) AS began, max(t_us) - min(t_us) AS span FROM blocks)",
            [0.9 * stretch],
        )
    return path


async def drawn(app: MonitorApp, *wanted: str) -> None:
    """Wait until these words are on the screen; searches the page first, as rendering takes a while."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pages = [page.text for page in app.screen.query(LinesPage) if page.id == "page"]
        if all(word in page for page in pages for word in wanted):
            shown = picture(app)
            if all(word in shown for word in wanted):
                return
        await asyncio.sleep(0.002)
    raise TimeoutError(f"{wanted} did not come:\n{picture(app)}")


async def timed(path: Path) -> dict[str, float]:
    """Seconds until each picture is drawn."""
    app = make_app()
    found = {}
    async with app.run_test(size=(200, 50)) as pilot:
        await settled(pilot)
        begun = time.monotonic()
        app.open_screen("results", (f"{path}@latest",))
        while not (isinstance(app.screen, ResultsScreen) and app.screen.is_ready):
            await asyncio.sleep(0.002)
        screen = app.screen
        while screen.level != "run":
            await asyncio.sleep(0.002)
        app.post_message(Key("shift+tab", None))
        await drawn(app, "cursor ", "clock")
        found["from opening to its telemetry"] = time.monotonic() - begun
        await settled(pilot)
        before = screen._run._timeline._series
        begun = time.monotonic()
        app.post_message(Key("plus", None))
        while screen._run._timeline._series is before:
            await asyncio.sleep(0.002)
        found["half of it, read anew"] = time.monotonic() - begun
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = make_file(Path(place) / "a.db", options.rows)
        print(f"{options.rows} rows, {path.stat().st_size / 2**20:.0f} MiB")
        runs = [asyncio.run(timed(path)) for _ in range(5)]
        for what in runs[0]:
            seconds = sorted(run[what] for run in runs)
            print(f"{what}: {seconds[2]:.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})")


if __name__ == "__main__":
    main()
