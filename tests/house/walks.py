"""The two walks of docs/architecture.md, found by following a value through the running program.

`python tests/house/walks.py` prints them; with `--write` it writes them into the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
for _rooms in ("tests", "tests/makers"):
    if str(REPOSITORY / _rooms) not in sys.path:
        sys.path.insert(0, str(REPOSITORY / _rooms))

from nvml.standin import standin_environment
from pty_harness import Terminal

from gputui.model.units import format_rate

TRACER = Path(__file__).parent / "tracer"
PAGE = REPOSITORY / "docs" / "architecture.md"
POWER_MW = 417_300
BLOCK_NS = 123_456_789
_BLOCK_ENDS = ("Page.table",)
_BLOCK_BEGINS = {"nanoseconds": "gputui/worker/timing/"}
_SCENARIO = "driver gpus 1\n0 name NVIDIA H200\n0 power_limit_mw 700000\n0 field 186 288000\n"
_PROFILE = """
schema = 1
version = 1
title = "spin"
question = "How fast is one thread?"
budget_s = 3600
replicates = 1
blocks = 5
[[case]]
workload = "spin"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1"]
"""
_CLOCK = f"""
if os.path.basename(sys.orig_argv[1]) == "start.py":
    import time
    _now_ns = 0

    def _reading_ns():
        global _now_ns
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_time_block":
            frame = frame.f_back
        _now_ns += 120_000_000 if frame is None else {BLOCK_NS}
        return _now_ns

    time.perf_counter_ns = _reading_ns
"""
"""In a worker: every block takes exactly as long, and a step of the warm-up another time."""


def walk_of_power(place: Path) -> tuple[str, ...]:
    """From the driver's answer to what a GPU draws to the cells of the monitor."""
    forms = {"milliwatts": [POWER_MW], "watts": [POWER_MW / 1000], "text": [f"{POWER_MW / 1000:.0f}"]}
    environment = _traced(
        place, forms, {"milliwatts": "gputui/sources/"}, ["CellDiff._line"]
    ) | standin_environment(_SCENARIO)
    with Terminal([sys.executable, "-m", "gputui"], 100, 30, environment=environment) as terminal:
        terminal.wait_for("288 W")
        Path(environment["GPUTUI_NVML_SCENARIO"]).write_text(_SCENARIO + f"0 field 186 {POWER_MW}\n")
        terminal.wait_for(f"{POWER_MW / 1000:.0f} W")
        terminal.type(b"q")
        assert terminal.ended() == 0
    return _shortest(place, "text")


def walk_of_block(place: Path) -> tuple[str, ...]:
    """From the time of a block to a row of `compare`."""
    forms: dict[str, list[float | str]] = {"nanoseconds": [BLOCK_NS, str(BLOCK_NS)]}
    environment = _traced(place, forms, _BLOCK_BEGINS, _BLOCK_ENDS)
    files = place / "files"
    (place / "spin.toml").write_text(_PROFILE)
    result = files / "a.db"
    _gputui(environment, "run", place / "spin.toml", "--db", result)
    import duckdb

    with duckdb.connect(str(result), read_only=True) as connection:
        rows = connection.execute(
            "SELECT DISTINCT steps, units_per_step, unit FROM blocks JOIN cases USING (run_id, case_id)"
        ).fetchall()
    ((steps, units, unit),) = rows
    seconds = BLOCK_NS * 1e-9 / (steps * units)
    rate = format_rate(1 / seconds, unit).removesuffix("/s")
    forms |= {"seconds for each unit": [seconds], "units for each second": [1 / seconds], "text": [rate]}
    _write_forms(place, forms, _BLOCK_BEGINS, _BLOCK_ENDS)
    _gputui(environment, "compare", result, result)
    return _shortest(place, "text")


def _traced(
    place: Path, forms: Mapping[str, Sequence[object]], begins: Mapping[str, str], ends: Sequence[str] = ()
) -> dict[str, str]:
    (place / "files").mkdir(parents=True)
    (place / "tracer").mkdir()
    code = (TRACER / "sitecustomize.py").read_text(encoding="utf-8")
    (place / "tracer" / "sitecustomize.py").write_text(code + _CLOCK, encoding="utf-8")
    _write_forms(place, forms, begins, ends)
    return {
        "GPUTUI_WALK": str(place),
        "GPUTUI_STATE": str(place / "files" / "state"),
        "HOME": str(place),
        "PYTHONPATH": os.pathsep.join([str(place / "tracer"), str(REPOSITORY)]),
    }


def _write_forms(
    place: Path, forms: Mapping[str, Sequence[object]], begins: Mapping[str, str], ends: Sequence[str] = ()
) -> None:
    told = {"forms": forms, "begins": begins, "ends": ends}
    (place / "forms.json").write_text(json.dumps(told), encoding="utf-8")


def _gputui(environment: Mapping[str, str], *words: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gputui", *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _shortest(place: Path, form: str) -> tuple[str, ...]:
    lines = (place / "left.jsonl").read_text(encoding="utf-8").splitlines()
    ways = [tuple(left["way"]) for left in map(json.loads, lines) if left["form"] == form]
    return min(ways, key=len)


if __name__ == "__main__":
    import tempfile

    for walk in (walk_of_power, walk_of_block):
        with tempfile.TemporaryDirectory() as directory:
            for number, hop in enumerate(walk(Path(directory)), 1):
                print(number, hop)
