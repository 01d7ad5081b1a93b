"""Ten public dumps of `nvidia-smi` on the stand-in library: `gputui snapshot` says what they say."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any  # JSON printed by a subprocess

import pytest
from command_line import gputui

from nvml.dumps import NAMES, Dump
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


@cache
def snapshot(name: str) -> Any:
    done = gputui("snapshot", "--json", "--processes", env=standin_environment(Dump.named(name).scenario()))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def known(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not isinstance(value, dict)}


def test_ten_kinds_of_drivers_and_gpus_are_replayed() -> None:
    assert len(NAMES) == 10
    assert all(
        "github.com" in Dump.named(name).plain["source"] or "docs." in Dump.named(name).plain["source"]
        for name in NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_dump_is_read_and_no_other(name: str) -> None:
    dump = Dump.named(name)
    gpu, *instances = snapshot(name)["gpus"]
    assert gpu["problem"] is None
    expected = {key: value for key, value in dump.values().items() if value is not None}
    found = known(gpu["values"])
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)
    assert set(found) - set(expected) <= DERIVED | TOLD_WITH_OTHERS
    assert found["name"] == dump.plain["gpu"]["product_name"]
    assert found["driver"] == dump.plain["driver_version"]
    assert found.get("uuid") == dump.plain["gpu"].get("uuid")
    if "bus_id" in dump.plain["gpu"]:
        assert found["pci_address"] == dump.plain["gpu"]["bus_id"].lower()[4:]
    for instance, of_dump in zip(instances, dump.values_of_instances(), strict=True):
        assert {key: instance["values"][key] for key in of_dump} == of_dump


@pytest.mark.parametrize("name", NAMES)
def test_what_a_dump_does_not_have_is_absent_with_a_reason(name: str) -> None:
    gpu = snapshot(name)["gpus"][0]
    absent = [key for key, value in Dump.named(name).values().items() if value is None]
    assert absent, "no dump has everything"
    for key in absent:
        assert gpu["values"][key]["missing"], key


@pytest.mark.parametrize("name", NAMES)
def test_the_processes_are_those_of_the_dump_and_no_pid_is_made_up(name: str) -> None:
    listed = [
        (process["pid"], use["kind"], use["memory_bytes"], use["label"])
        for process in snapshot(name)["processes"]
        for use in process["uses"]
    ]
    dump = Dump.named(name)
    assert listed == [
        (
            process["pid"],
            process["type"],
            int(re.findall(r"\d+", process["used_memory"])[0]) << 20,
            f"0:{process['mig_device']}" if "mig_device" in process else "0",
        )
        for process in dump.processes
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_health_is_what_follows_from_the_dump(name: str) -> None:
    words = [one["word"] for one in snapshot(name)["gpus"][0]["health"]]
    assert [word for word in words if word != "SHARED"] == Dump.named(name).plain["health"]


def test_instances_have_the_ids_of_the_dump() -> None:
    ids = [
        (one["values"]["gpu_instance_id"], one["values"]["compute_instance_id"])
        for one in snapshot("h100_mig")["gpus"][1:]
    ]
    assert ids == [(2, 0), (3, 0), (9, 0), (10, 0)]


def test_a_gpu_that_shares_the_memory_of_the_host_has_no_figures_of_its_own() -> None:
    values = snapshot("gb10")["gpus"][0]["values"]
    for key in ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes"):
        assert values[key] == {"missing": "this GPU does not report it"}
    assert values["power_limit_w"] == {"missing": "this GPU does not report it"}
