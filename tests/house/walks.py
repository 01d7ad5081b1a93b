"""The two walks of docs/architecture.md, found by following a value through the running program.

`python tests/house/walks.py` prints them; with `--write` it writes them into the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
if __name__ == "__main__":  # pytest has them already
    sys.path += [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "makers")]

from nvml.standin import standin_environment  # noqa: E402
from pty_harness import Terminal  # noqa: E402

from gputui.model.units import format_rate  # noqa: E402

TRACER = Path(__file__).parent / "tracer"
PAGE = REPOSITORY / "docs" / "architecture.md"
POWER_MW = 417_300
BLOCK_NS = 123_456_789
_MOST_CHANGES = 5
_POWER_ENDS = ("CellDiff.diff_lines",)
_BLOCK_ENDS = ("Page.table",)
_BLOCK_BEGINS = {"nanoseconds": "gputui/worker/timing.py"}
_DRAWS = "0 field 186 {}\n"
_SCENARIO = f"driver gpus 1\n0 name NVIDIA H200\n0 power_limit_mw 700000\n{_DRAWS.format(288_000)}"
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
"""In a worker: every block takes exactly as long, and warm-up steps another time."""


def walk_of_power(place: Path) -> tuple[str, ...]:
    """From the driver's answer to the cells of the monitor."""
    shown = f"{POWER_MW / 1000:.0f} W"
    forms: dict[str, list[float | str]] = {
        "milliwatts": [POWER_MW],
        "watts": [POWER_MW / 1000],
        "text": [shown],
    }
    traced = _traced(place, forms, {"milliwatts": "gputui/sources/"}, _POWER_ENDS)
    environment = traced | standin_environment(_SCENARIO)
    scenario = Path(environment["GPUTUI_NVML_SCENARIO"])

    def draw(power_mw: int) -> None:
        with scenario.open("a") as file:  # a file that is written anew may be read while it is empty
            file.write(_DRAWS.format(power_mw))

    with Terminal([sys.executable, "-m", "gputui"], 100, 30, environment=environment) as terminal:
        for _ in range(_MOST_CHANGES):  # Textual itself may have drawn the frame in which it changed
            terminal.wait_for("288 W")
            draw(POWER_MW)
            terminal.wait_for(shown)
            if (place / "left.jsonl").exists():
                break
            draw(288_000)
        terminal.type(b"q")
        assert terminal.ended() == 0
    return _shortest(place)


def walk_of_block(place: Path) -> tuple[str, ...]:
    """From the time of a block to a row of `compare`."""
    forms: dict[str, list[float | str]] = {"nanoseconds": [BLOCK_NS, str(BLOCK_NS)]}
    environment = _traced(place, forms, _BLOCK_BEGINS, _BLOCK_ENDS)
    files = place / "files"
    (place / "spin.toml").write_text(_PROFILE)
    result = files / "a.db"
    _gputui(environment, "run", place / "spin.toml", "--db", result)
    import duckdb

    with duckdb.connect(str(result)) as connection:
        # On a busy box its threads waited for a CPU, and their speed is then found by another way.
        connection.execute("UPDATE blocks SET waited_ns = 0")
        rows = connection.execute(
            "SELECT DISTINCT steps, units_per_step, unit FROM blocks JOIN cases USING (run_id, case_id)"
        ).fetchall()
    ((steps, units, unit),) = rows
    seconds = BLOCK_NS * 1e-9 / (steps * units)
    rate = format_rate(1 / seconds, unit).partition(" ")[0]  # its unit stands in a column of its own
    forms |= {"seconds for each unit": [seconds], "units for each second": [1 / seconds], "text": [rate]}
    _write_forms(place, forms, _BLOCK_BEGINS, _BLOCK_ENDS)
    _gputui(environment, "compare", result, result)
    return _shortest(place)


def _traced(
    place: Path,
    forms: Mapping[str, Sequence[float | str]],
    begins: Mapping[str, str],
    ends: Sequence[str] = (),
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
    place: Path,
    forms: Mapping[str, Sequence[float | str]],
    begins: Mapping[str, str],
    ends: Sequence[str] = (),
) -> None:
    config = {"forms": forms, "begins": begins, "ends": ends}
    (place / "forms.json").write_text(json.dumps(config), encoding="utf-8")


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


def _shortest(place: Path) -> tuple[str, ...]:
    lines = (place / "left.jsonl").read_text(encoding="utf-8").splitlines()
    ways = [tuple(left["way"]) for left in map(json.loads, lines) if left["form"] == "text"]
    return min(ways, key=len)


def numbered(walk: Sequence[str]) -> str:
    """The walk as the page shows it."""
    rows = []
    for number, hop in enumerate(walk, 1):
        where, _, name = hop.partition(" ")
        is_code = where.startswith("gputui/")
        rows.append(
            f"{number}. `{where.removeprefix('gputui/')}`: `{name}`" if is_code else f"{number}. {hop}"
        )
    return "\n".join(rows)


def with_walk(page: str, name: str, walk: Sequence[str]) -> str:
    """The page with this walk between its two marks."""
    before, begin, rest = page.partition(f"<!-- walk: {name} -->\n")
    _, end, after = rest.partition("<!-- end of walk -->")
    assert end, f"docs/architecture.md has no place for the walk {name}"
    return f"{before}{begin}{numbered(walk)}\n{end}{after}"


WALKS = {"power": walk_of_power, "block": walk_of_block}


def main(words: Sequence[str]) -> None:
    for name, follow in WALKS.items():
        with tempfile.TemporaryDirectory() as directory:
            walk = follow(Path(directory))
        print(f"{name}: {len(walk)} hops\n{numbered(walk)}\n")
        if "--write" in words:
            PAGE.write_text(with_walk(PAGE.read_text(encoding="utf-8"), name, walk), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
