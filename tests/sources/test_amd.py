"""AMD GPUs in a file tree that follows the kernel's documentation of amdgpu."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gputui.model.absent import Missing
from gputui.model.telemetry import LOST, DeviceSample
from gputui.sources import amd
from gputui.sources.amd import AmdLive

BEHIND_A_SWITCH = "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
DIRECT = "pci0000:40/0000:40:08.1/0000:44:00.0"

GPU = {
    "vendor": "0x1002",
    "device": "0x744c",
    "class": "0x030000",
    "product_name": "Instinct MI210",
    "unique_id": "a1b2c3d4e5f60718",
    "gpu_busy_percent": "73",
    "mem_busy_percent": "12",
    "mem_info_vram_total": str(64 * 2**30),
    "mem_info_vram_used": str(5 * 2**30),
    "pp_dpm_sclk": "0: 500Mhz\n1: 1700Mhz *\n2: 2482Mhz",
    "pp_dpm_mclk": "0: 96Mhz *\n1: 1600Mhz",
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "16.0 GT/s PCIe",
    "max_link_width": "16",
    "power/runtime_status": "active",
    "ras/umc_err_count": "ue: 2\nce: 40",
    "hwmon/hwmon4/name": "amdgpu",
    "hwmon/hwmon4/temp1_label": "edge",
    "hwmon/hwmon4/temp1_input": "54000",
    "hwmon/hwmon4/temp1_crit": "100000",
    "hwmon/hwmon4/temp2_label": "junction",
    "hwmon/hwmon4/temp2_input": "61000",
    "hwmon/hwmon4/temp2_crit": "110000",
    "hwmon/hwmon4/power1_average": "212000000",
    "hwmon/hwmon4/power1_cap": "250000000",
    "hwmon/hwmon4/power1_cap_default": "300000000",
    "hwmon/hwmon4/freq1_label": "sclk",
    "hwmon/hwmon4/freq1_input": "1702000000",
    "hwmon/hwmon4/freq2_label": "mclk",
    "hwmon/hwmon4/freq2_input": "1600000000",
    "hwmon/hwmon4/pwm1": "51",
    "hwmon/hwmon4/pwm1_max": "255",
}
WHOLE = {
    "name": "Instinct MI210",
    "uuid": "a1b2c3d4e5f60718",
    "driver": "amdgpu 6.3.6",
    "pci_address": "0000:44:00.0",
    "sm_busy_pct": 73,
    "memory_busy_pct": 12,
    "memory_used_bytes": 5 * 2**30,
    "memory_total_bytes": 64 * 2**30,
    "power_w": 212.0,
    "power_limit_w": 250.0,
    "power_limit_default_w": 300.0,
    "temperature_c": 54.0,
    "temperature_limit_c": 100.0,
    "temperature_junction_c": 61.0,
    "temperature_junction_limit_c": 110.0,
    "sm_clock_mhz": 1702.0,
    "sm_clock_max_mhz": 2482.0,
    "memory_clock_mhz": 1600.0,
    "memory_clock_max_mhz": 1600.0,
    "fan_pct": 20.0,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "ecc_uncorrected_count": 2,
}


class Clock:
    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns


class Box:
    """A /sys whose cards a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.write("sys/module/amdgpu", {"version": "6.3.6"})

    def write(self, directory: str, files: Mapping[str, str]) -> Path:
        place = self.root / directory
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text + "\n")
        return place

    def add(
        self,
        card: int,
        place: str = DIRECT,
        changed: Mapping[str, str | None] | None = None,
        driver: str = "amdgpu",
    ) -> Path:
        """A card; `changed` replaces the content of files, None removes one."""
        files = {**GPU, **(changed or {})}
        present = {name: text for name, text in files.items() if text is not None}
        device = self.write(f"sys/devices/{place}", present)
        drivers = self.root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(drivers)
        drm = device / "drm" / f"card{card}"
        drm.mkdir(parents=True)
        (drm / "device").symlink_to(device)
        listed = self.root / "sys/class/drm"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / f"card{card}").symlink_to(drm)
        (listed / f"card{card}-DP-1").symlink_to(drm)
        return device

    def open(self) -> AmdLive:
        source = AmdLive(self.root, self.clock)
        assert source.open() is None
        return source


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def only(source: AmdLive, device: int = 0) -> DeviceSample:
    (sample,) = source.sample(device)
    return sample


def test_a_gpu_reports_all_that_its_driver_documents(box: Box) -> None:
    box.add(1)
    source = box.open()
    assert source.devices() == (0,)
    sample = only(source)
    assert (sample.device, sample.source, sample.problem) == (0, "amd", None)
    assert sample.values == WHOLE


def test_without_the_driver_the_reason_says_what_to_do(tmp_path: Path) -> None:
    absent = AmdLive(tmp_path).open()
    assert absent is not None
    assert "modprobe amdgpu" in absent.reason


def test_a_driver_without_a_gpu_has_nothing(box: Box) -> None:
    assert AmdLive(box.root).open() == Missing("the amdgpu driver has no GPU that is visible here")


def test_other_vendors_and_other_drivers_are_left_alone(box: Box) -> None:
    box.add(0, "pci0000:00/0000:00:02.0", {"vendor": "0x8086"})
    box.add(1, "pci0000:00/0000:00:03.0", driver="radeon")
    box.add(2)
    assert box.open().devices() == (0,)


def test_gpus_are_numbered_by_their_address_and_keep_their_numbers(box: Box) -> None:
    box.add(0, "pci0000:80/0000:81:00.0")
    first = box.add(1, "pci0000:00/0000:03:00.0")
    source = box.open()
    assert source.devices() == (0, 1)
    assert only(source, 0).values["pci_address"] == "0000:03:00.0"
    (box.root / "sys/class/drm/card1").unlink()
    (first / "vendor").unlink()
    box.add(2, "pci0000:00/0000:01:00.0")
    assert source.devices() == (1, 2)
    problem = only(source, 0).problem
    assert problem is not None
    assert problem.reason.startswith(LOST)
    assert only(source, 2).values["pci_address"] == "0000:01:00.0"


def test_numbers_begin_behind_those_of_nvidias_gpus(box: Box) -> None:
    for address in ("0000:01:00.0", "0000:02:00.0"):
        (box.root / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    box.add(0)
    assert box.open().devices() == (2,)


def test_the_link_to_the_host_is_that_of_the_cards_own_switch(box: Box) -> None:
    box.add(0, BEHIND_A_SWITCH)
    bridge = {
        "vendor": "0x1002",
        "class": "0x060400",
        "max_link_speed": "16.0 GT/s PCIe",
        "max_link_width": "16",
    }
    upstream = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    box.write(upstream, {**bridge, "current_link_speed": "8.0 GT/s PCIe", "current_link_width": "4"})
    box.write(f"{upstream}/0000:02:00.0", {**bridge, "current_link_speed": "16.0 GT/s PCIe"})
    # The root port is the processor's.
    box.write("sys/devices/pci0000:00/0000:00:01.1", {"vendor": "0x1022", "class": "0x060400"})
    values = only(box.open()).values
    assert (values["pcie_generation"], values["pcie_width"]) == (3, 4)
    assert (values["pcie_generation_max"], values["pcie_width_max"]) == (4, 16)


def test_a_gpu_without_a_name_is_called_by_its_number(box: Box) -> None:
    box.add(0, changed={"product_name": None})
    assert only(box.open()).values["name"] == "AMD GPU 0x744c"


def test_a_gpu_without_an_edge_sensor_is_as_hot_as_its_junction(box: Box) -> None:
    box.add(0, changed={"hwmon/hwmon4/temp1_label": "junction", "hwmon/hwmon4/temp2_label": "mem"})
    values = only(box.open()).values
    assert (values["temperature_c"], values["temperature_limit_c"]) == (54.0, 100.0)
    assert values["temperature_junction_c"] == 54.0


def test_the_newer_name_of_the_power_sensor_goes_first(box: Box) -> None:
    box.add(0, changed={"hwmon/hwmon4/power1_input": "99000000"})
    assert only(box.open()).values["power_w"] == 99.0


def test_without_a_clock_sensor_the_current_level_tells(box: Box) -> None:
    gone: dict[str, str | None] = dict.fromkeys(("hwmon/hwmon4/freq1_input", "hwmon/hwmon4/freq2_input"))
    box.add(0, changed=gone)
    values = only(box.open()).values
    assert (values["sm_clock_mhz"], values["memory_clock_mhz"]) == (1700.0, 96.0)


def test_what_a_gpu_does_not_report_has_a_reason_and_leaves_the_rest(box: Box) -> None:
    device = box.add(0)
    for name in GPU:
        if name.startswith(("hwmon", "mem_", "gpu_busy", "ras", "pp_", "current", "unique")):
            (device / name).unlink()
    values = only(box.open()).values
    present = {key for key, value in values.items() if not isinstance(value, Missing)}
    assert present == {"name", "driver", "pci_address", "pcie_generation_max", "pcie_width_max"}
    assert {value.reason for value in values.values() if isinstance(value, Missing)} == {
        "this GPU, or its amdgpu driver, does not report it"
    }
    assert values.keys() == WHOLE.keys()


def test_nonsense_is_no_number(box: Box) -> None:
    box.add(
        0,
        changed={
            "gpu_busy_percent": "many",
            "current_link_speed": "Unknown",
            "hwmon/hwmon4/pwm1": "",
        },
    )
    values = only(box.open()).values
    assert values["sm_busy_pct"] == values["pcie_generation"] == values["fan_pct"]
    assert values["sm_busy_pct"] == Missing("the amdgpu driver's answer cannot be understood")


def test_a_gpu_that_sleeps_is_not_woken(box: Box) -> None:
    device = box.add(0)
    source = box.open()
    only(source)
    (device / "power/runtime_status").write_text("suspended\n")
    values = only(source).values
    assert values["sm_busy_pct"] == values["power_w"] == values["temperature_c"] == amd.ASLEEP
    assert values["name"] == "Instinct MI210"
    assert values.keys() == WHOLE.keys()


def test_what_seldom_changes_is_read_seldom(box: Box) -> None:
    device = box.add(0)
    source = box.open()
    only(source)
    (device / "hwmon/hwmon4/power1_cap").write_text("200000000\n")
    (device / "gpu_busy_percent").write_text("5\n")
    assert only(source).values["power_limit_w"] == 250.0
    assert only(source).values["sm_busy_pct"] == 5
    box.clock.now_ns += 11 * 10**9
    assert only(source).values["power_limit_w"] == 200.0


def test_processes_are_not_reported_and_closing_takes_nothing_away(box: Box) -> None:
    box.add(0)
    source = box.open()
    assert source.processes(0) == Missing("the amdgpu driver has no list of processes")
    source.close()
    source.close()
