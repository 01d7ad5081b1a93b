"""`gputui snapshot` in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from command_line import gputui

from gputui.errors import EXIT_MACHINE_LACKS

HEAVY = {"textual", "duckdb", "numpy", "pandas", "torch", "rich", "msgspec", "psutil", "asyncio"}
AFTER_SNAPSHOT = """
import json, sys
from gputui.cli import main
try:
    main(["snapshot", "--processes"])
except SystemExit as ended:
    status = ended.code
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def snapshot(*words: str, env: Mapping[str, str] | None = None) -> Any:  # Any: JSON
    done = gputui("snapshot", "--json", *words, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_host_is_one_line_with_rates() -> None:
    done = gputui("snapshot")
    assert (done.returncode, done.stderr) == (0, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith("host  ")
    for part in ("CPU ", "memory ", "load ", "network in ", "disk read "):
        assert part in first


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_SNAPSHOT], capture_output=True, text=True, check=True, timeout=60
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    assert set(modules) & HEAVY == set()


def test_json_has_the_host_with_units_in_its_names() -> None:
    found = snapshot()
    assert found["schema"] == 1
    assert found["processes"] == {"missing": "not asked for"}
    host = found["host"]
    assert (host["source"], host["problem"]) == ("host", None)
    assert host["values"]["memory_total_bytes"] > 0
    assert host["values"]["cpu_busy_pct"] >= 0
    assert 0 <= host["age_s"] < 60


def test_without_a_gpu_the_reason_is_told_and_it_may_be_required() -> None:
    done = gputui("snapshot", "--require-gpu", "--processes")
    assert done.returncode == EXIT_MACHINE_LACKS
    assert done.stdout.startswith("host  ")
    assert "no GPU can be read here" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_words_are_refused() -> None:
    assert gputui("snapshot", "--gpu").returncode == 2
