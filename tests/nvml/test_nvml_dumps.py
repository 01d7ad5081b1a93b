"""Ten public dumps of `nvidia-smi` on the stand-in library: `gputui snapshot` says what they say."""

from __future__ import annotations

import json
import re
from typing import Any  # JSON printed by a subprocess

import pytest
from command_line import gputui
from nvml_dumps import NAMES, Dump

from nvml.standin import c_compiler, standin_environment

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler to build the stand-in with")

DERIVED = {"name", "driver", "uuid", "pci_address", "is_memory_shared"}
"""Names, checked below, and what follows from the memory."""
TOLD_WITH_OTHERS = {
    "memory_reserved_bytes",
    "memory_busy_pct",
    "remapped_rows_pending",
    "remapped_rows_failed",
}
"""What a call tells besides a figure that a dump has."""


def snapshot(name: str) -> Any:
    done = gputui("snapshot", "--json", "--processes", env=standin_environment(Dump.named(name).scenario()))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_says_what_a_dump_says_and_nothing_else(name: str) -> None:
    dump, shown = Dump.named(name), snapshot(name)
    gpu, *instances = shown["gpus"]
    assert gpu["problem"] is None
    expected = {key: value for key, value in dump.values().items() if value is not None}
    found = {key: value for key, value in gpu["values"].items() if not isinstance(value, dict)}
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)
    assert set(found) - set(expected) <= DERIVED | TOLD_WITH_OTHERS
    assert found["name"] == dump.plain["gpu"]["product_name"]
    assert found["driver"] == dump.plain["driver_version"]
    assert found.get("uuid") == dump.plain["gpu"].get("uuid")
    if "bus_id" in dump.plain["gpu"]:
        assert found["pci_address"] == dump.plain["gpu"]["bus_id"].lower()[4:]
    absent = [key for key, value in dump.values().items() if value is None]
    assert absent, "no dump has everything"
    assert all(gpu["values"][key]["missing"] for key in absent)
    assert [one["word"] for one in gpu["health"] if one["word"] != "SHARED"] == dump.plain["health"]
    for instance, of_dump in zip(instances, dump.values_of_instances(), strict=True):
        assert {key: instance["values"][key] for key in of_dump} == of_dump
    if name == "h100_mig":
        ids = [[one["values"][f"{kind}_instance_id"] for kind in ("gpu", "compute")] for one in instances]
        assert ids == [[2, 0], [3, 0], [9, 0], [10, 0]]
    if name == "gb10":  # which shares the memory of the host
        for key in ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "power_limit_w"):
            assert gpu["values"][key] == {"missing": "this GPU does not report it"}
    assert [
        (process["pid"], use["kind"], use["memory_bytes"], use["label"])
        for process in shown["processes"]
        for use in process["uses"]
    ] == [
        (
            process["pid"],
            process["type"],
            int(re.findall(r"\d+", process["used_memory"])[0]) << 20,
            f"0:{process['mig_device']}" if "mig_device" in process else "0",
        )
        for process in dump.processes
    ]
