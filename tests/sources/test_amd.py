"""AMD GPUs in file trees that follow the kernel's documentation of amdgpu, and what users published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import amd_trees
import pytest
from amd_trees import DECLARED, MI300X_LOADED, mi300x, radeon_7900xtx, table, table_of_attributes

from gputui.model.absent import Missing
from gputui.model.telemetry import (
    AT_SECOND_READING,
    HW_SLOWDOWN,
    LOST,
    POWER_CAP,
    SW_THERMAL,
    DeviceSample,
    GpuUse,
    Value,
)
from gputui.sources import amd
from gputui.sources.amd import RESIDENCIES, AmdGpu, AmdGpus, Throttling, live_values, read_table

BEHIND_A_SWITCH = "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
DIRECT = "pci0000:40/0000:40:08.1/0000:44:00.0"

NONSENSE = Missing("the amdgpu driver's answer cannot be understood")

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
    "driver": "amdgpu 6.16.13",
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
    "partition_count": Missing("the kernel's compute driver lists no card at this address here"),
    "energy_mj": Missing("this GPU, or its amdgpu driver, does not report it"),
    "throttle_bits": Missing("this GPU, or its amdgpu driver, does not report it"),
}


class Box(amd_trees.Box):
    """A /sys whose cards a test adds."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.now_ns = 10**12

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
        device = self.card(card, place, present, driver)
        (self.root / f"sys/class/drm/card{card}-DP-1").symlink_to(device / "drm" / f"card{card}")
        return device

    def gpus(self, *, has_units: bool = False) -> tuple[AmdGpu, ...]:
        found = AmdGpus(self.root, lambda: self.now_ns, has_units=has_units).open()
        assert not isinstance(found, Missing)
        return found

    def gpu(self) -> AmdGpu:
        (gpu,) = self.gpus()
        return gpu


def only_below(root: Path) -> AmdGpu:
    found = AmdGpus(root).open()
    assert not isinstance(found, Missing)
    (gpu,) = found
    return gpu


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def only(gpu: AmdGpu) -> DeviceSample:
    (sample,) = gpu.sample()
    return sample


def stored(gpu: AmdGpu, *, full: bool = True) -> dict[str, float | int]:
    """What runs store of it."""
    values = gpu.read(full=full)
    assert not isinstance(values, Missing)
    return values


def test_a_gpu_reports_all_that_its_driver_documents(box: Box) -> None:
    box.add(1)
    sample = only(box.gpu())
    assert (sample.device, sample.source, sample.problem) == (0, "amd", None)
    assert sample.values == WHOLE


def test_without_a_driver_or_a_gpu_the_reason_says_so_and_what_to_do(tmp_path: Path) -> None:
    absent = AmdGpus(tmp_path).open()
    assert isinstance(absent, Missing)
    assert "modprobe amdgpu" in absent.reason
    assert AmdGpus(Box(tmp_path).root).open() == Missing("the amdgpu driver has no GPU that is visible here")


def test_other_vendors_and_drivers_are_left_alone_and_numbers_begin_behind_nvidias(box: Box) -> None:
    for address in ("0000:01:00.0", "0000:02:00.0"):
        (box.root / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    box.add(0, "pci0000:00/0000:00:02.0", {"vendor": "0x8086"})
    box.add(1, "pci0000:00/0000:00:03.0", driver="radeon")
    box.add(2)
    assert (box.gpu().number, box.gpu().address) == (2, "0000:44:00.0")


def test_gpus_are_numbered_by_their_address_and_keep_their_numbers(box: Box) -> None:
    box.add(0, "pci0000:80/0000:81:00.0")
    first = box.add(1, "pci0000:00/0000:03:00.0")
    gpus = box.gpus()
    assert [(gpu.number, gpu.address) for gpu in gpus] == [(0, "0000:03:00.0"), (1, "0000:81:00.0")]
    (box.root / "sys/class/drm/card1").unlink()
    (first / "vendor").unlink()
    problem = only(gpus[0]).problem
    assert problem is not None
    assert problem.reason.startswith(LOST)
    assert only(gpus[1]).values["pci_address"] == "0000:81:00.0"


def test_the_graphics_unit_of_a_processor_is_behind_the_cards_and_left_out_of_runs(box: Box) -> None:
    box.add(0, "pci0000:00/0000:01:00.0", {"mem_info_vram_total": str(512 * 2**20)})
    box.add(1, "pci0000:40/0000:44:00.0")
    assert [gpu.address for gpu in box.gpus(has_units=True)] == ["0000:44:00.0", "0000:01:00.0"]
    assert box.gpu().address == "0000:44:00.0"


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
    values = only(box.gpu()).values
    assert (values["pcie_generation"], values["pcie_width"]) == (3, 4)
    assert (values["pcie_generation_max"], values["pcie_width_max"]) == (4, 16)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"product_name": None}, {"name": "AMD GPU 0x744c"}),
        (
            {"hwmon/hwmon4/temp1_label": "junction", "hwmon/hwmon4/temp2_label": "mem"},
            {"temperature_c": 54.0, "temperature_limit_c": 100.0, "temperature_junction_c": 54.0},
        ),
        ({"hwmon/hwmon4/power1_input": "99000000"}, {"power_w": 99.0}),
        (
            {"hwmon/hwmon4/freq1_input": None, "hwmon/hwmon4/freq2_input": None},
            {"sm_clock_mhz": 1700.0, "memory_clock_mhz": 96.0},
        ),
        (
            {"gpu_busy_percent": "many", "current_link_speed": "Unknown", "hwmon/hwmon4/pwm1": ""},
            dict.fromkeys(("sm_busy_pct", "pcie_generation", "fan_pct"), NONSENSE),
        ),
    ],
    ids=["no name", "no sensor at the edge", "both names of power", "only levels of clocks", "nonsense"],
)
def test_where_a_file_is_missing_or_makes_no_sense_another_goes_in_its_place_or_none(
    box: Box, changed: Mapping[str, str | None], expected: Mapping[str, Value]
) -> None:
    box.add(0, changed=changed)
    values = only(box.gpu()).values
    assert {key: values[key] for key in expected} == expected


def test_what_a_gpu_does_not_report_has_a_reason_and_leaves_the_rest(box: Box) -> None:
    device = box.add(0)
    for name in GPU:
        if name.startswith(("hwmon", "mem_", "gpu_busy", "ras", "pp_", "current", "unique")):
            (device / name).unlink()
    (gpu,) = box.gpus(has_units=True)
    values = only(gpu).values
    present = {key for key, value in values.items() if not isinstance(value, Missing)}
    assert present == {"name", "driver", "pci_address", "pcie_generation_max", "pcie_width_max"}
    assert {value.reason for value in values.values() if isinstance(value, Missing)} == {
        "this GPU, or its amdgpu driver, does not report it",
        "the kernel's compute driver lists no card at this address here",
    }
    assert values.keys() == WHOLE.keys()


def test_what_seldom_changes_is_read_seldom(box: Box) -> None:
    device = box.add(0)
    gpu = box.gpu()
    only(gpu)
    (device / "hwmon/hwmon4/power1_cap").write_text("200000000\n")
    (device / "gpu_busy_percent").write_text("5\n")
    assert only(gpu).values["power_limit_w"] == 250.0
    assert only(gpu).values["sm_busy_pct"] == 5
    box.now_ns += 11 * 10**9
    assert only(gpu).values["power_limit_w"] == 200.0


# The table gpu_metrics


@pytest.mark.parametrize("version", DECLARED, ids=str)
def test_each_known_layout_has_its_fields_where_the_kernels_header_puts_them(
    version: tuple[int, int, int],
) -> None:
    radeon = version[1] < 4
    clocks = 2371 if radeon else [2100, 2102, 0xFFFF, 2104]
    given = {
        "temperature_hotspot": 61,
        "average_socket_power": 303,
        "energy_accumulator": 123 * 2**16,
        "current_gfxclk": clocks,
        "current_uclk": 1249,
    }
    if "ppt_residency_acc" in DECLARED[version]:
        given |= {name: 1000 + at for at, name in enumerate(RESIDENCIES)}
    if "indep_throttle_status" in DECLARED[version]:
        given["indep_throttle_status"] = 1
    found = read_table(table(version, given))
    assert not isinstance(found, Missing)
    single = {name: (value,) for name, value in given.items() if isinstance(value, int)}
    assert found == {**single, "current_gfxclk": (2371,) if radeon else (2100, 2102, 2104)}
    assert live_values(found) == {
        "temperature_junction_c": 61.0,
        "power_w": 303.0,
        "energy_mj": 123_000,
        "sm_clock_mhz": 2371.0 if radeon else 2102.0,
        "memory_clock_mhz": 1249.0,
    }


def test_a_table_that_describes_itself_is_read_by_its_descriptions() -> None:
    found = read_table(MI300X_LOADED[0])
    assert not isinstance(found, Missing)
    assert found["ppt_residency_acc"] == (749905,)
    assert live_values(found)["sm_clock_mhz"] == pytest.approx(1289.75)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "is empty"),
        (table((1, 3, 120), {})[:80], "is cut off"),
        (MI300X_LOADED[0][:-3], "is cut off"),
        (b"\x78\x00\x02\x04" + bytes(116), "gpu_metrics version 2.4 of 120 bytes is not known"),
        (b"\x00\x10\x01\x08" + bytes(5000), "gpu_metrics version 1.8 of 4096 bytes is not known"),
        (table_of_attributes({}).replace(b"\x01\x09", b"\x01\x0a"), "gpu_metrics version 1.10"),
    ],
    ids=["empty", "cut", "cut attributes", "a processor's", "unknown size", "to come"],
)
def test_a_table_that_is_not_known_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    found = read_table(raw)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_an_unknown_table_costs_only_what_stands_in_it_alone(tmp_path: Path) -> None:
    values = only(only_below(radeon_7900xtx(tmp_path, b"\x78\x00\x02\x04" + bytes(116)).root)).values
    assert (values["power_w"], values["name"]) == (10.0, "AMD Radeon RX 7900 XTX")  # which libdrm lists
    assert values["throttle_bits"] == values["energy_mj"]
    assert values["energy_mj"] == Missing("gpu_metrics version 2.4 of 120 bytes is not known")


@pytest.mark.parametrize(
    ("causes", "near_limit_c", "expected"),
    [
        *(((number,), None, POWER_CAP) for number in (0, 3, 7, 16, 22, 56)),
        *(((number,), None, SW_THERMAL) for number in (32, 34, 35, 43)),
        *(((number,), None, HW_SLOWDOWN) for number in (44, 45, 46, 47)),
        ((0, 34), None, POWER_CAP | SW_THERMAL),
        ((), None, 0),
        ((36,), 69.0, 0),  # Radeons report it at 37 degrees, too
        ((36,), None, 0),
        ((36,), 4.0, SW_THERMAL),
    ],
)
def test_each_cause_of_a_radeon_becomes_the_bit_of_its_kind_and_heat_only_near_its_limit(
    causes: tuple[int, ...], near_limit_c: float | None, expected: int
) -> None:
    status = sum(1 << number for number in causes)
    assert Throttling().bits({"indep_throttle_status": (status,)}, near_limit_c) == expected


def counted(*values: int) -> dict[str, tuple[int, ...]]:
    return {name: (value,) for name, value in zip(RESIDENCIES, values, strict=True)}


def test_the_share_of_readings_is_the_share_of_time_that_an_instinct_counts() -> None:
    throttling = Throttling()
    assert throttling.bits(counted(0, 0, 0, 0, 0, 0), None) == AT_SECOND_READING
    seen = []
    for at in range(1, 101):
        found = throttling.bits(counted(1000 * at, 0, 867 * at, 100 * at, 250 * at, 20 * at), None)
        assert isinstance(found, int)
        seen.append(found)
    assert sum(bits & POWER_CAP > 0 for bits in seen) == 87
    assert sum(bits & SW_THERMAL > 0 for bits in seen) == 25
    assert not any(bits & HW_SLOWDOWN for bits in seen)


def test_counters_may_wrap_say_nothing_while_they_stand_and_are_not_believed_where_all_count() -> None:
    throttling = Throttling()
    throttling.bits(counted(2**32 - 500, 0, 2**32 - 10, 0, 0, 0), None)
    assert throttling.bits(counted(500, 0, 990, 0, 0, 0), None) == POWER_CAP
    assert throttling.bits(counted(500, 0, 990, 0, 0, 0), None) == AT_SECOND_READING
    throttling = Throttling()
    throttling.bits(counted(10657785, 0, 10657785, 10657785, 0, 10657785), None)
    found = throttling.bits(counted(10658785, 0, 10658785, 10658785, 0, 10658785), None)
    assert found == Missing("this GPU's firmware counts it as slowed all the time, for every cause")


# In runs


def test_an_mi300x_under_load_is_read_for_runs_with_power_clock_heat_and_what_slows_it(
    tmp_path: Path,
) -> None:
    box = mi300x(tmp_path, MI300X_LOADED[0])
    box.compute_process(4711, {19794: 177386942464}, queues=[19794])
    gpu = only_below(box.root)
    gpu.read(full=True)
    place = tmp_path / "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    (place / "gpu_metrics").write_bytes(MI300X_LOADED[1])
    whole = stored(gpu)
    assert {key: whole[key] for key in ("power_w", "sm_clock_mhz", "memory_clock_mhz", "temperature_c")} == {
        "power_w": 707.0,
        "sm_clock_mhz": 1289.75,
        "memory_clock_mhz": 900.0,
        "temperature_c": 42.0,
    }
    assert (whole["throttle_bits"], whole["compute_process_count"]) == (POWER_CAP, 1.0)
    assert whole["energy_mj"] == 707 * 55262364 * 65 * 1000 // 2**16
    assert whole["memory_used_mib"] == 177386942464 / 2**20
    quick = stored(gpu, full=False)
    assert quick.keys() == {"power_w", "sm_clock_mhz", "memory_clock_mhz", "energy_mj"}, "its counters stood"


def test_an_idle_radeon_is_read_for_runs_as_not_slowed(tmp_path: Path) -> None:
    values = stored(only_below(radeon_7900xtx(tmp_path).root))
    assert (values["power_w"], values["temperature_c"], values["sm_clock_mhz"]) == (10.0, 38.0, 5.0)
    assert (values["throttle_bits"], values["compute_process_count"]) == (0, 0.0)
    assert "energy_mj" not in values, "it counts none"


def test_a_gpu_that_sleeps_is_not_woken_and_one_that_is_gone_gives_a_run_the_reason(box: Box) -> None:
    device = box.add(0)
    gpu = box.gpu()
    only(gpu)
    (device / "power/runtime_status").write_text("suspended\n")
    values = only(gpu).values
    assert values["sm_busy_pct"] == values["power_w"] == values["temperature_c"] == amd.ASLEEP
    assert values["name"] == "Instinct MI210"
    assert values.keys() == WHOLE.keys()
    assert gpu.read(full=True) == amd.ASLEEP
    (device / "power/runtime_status").write_text("active\n")
    assert stored(gpu)["power_w"] == 212.0
    (device / "vendor").unlink()
    problem = gpu.read(full=True)
    assert isinstance(problem, Missing)
    assert problem.reason.startswith(LOST)


# Processes


def test_processes_that_compute_are_listed_for_all_users_and_those_that_draw_beside_them(
    tmp_path: Path,
) -> None:
    box = mi300x(tmp_path)
    box.compute_process(1168514, {19794: 177386942464}, queues=[19794])
    box.compute_process(1058463, {19794: 0})  # a monitor, which uses none
    gpu = only_below(tmp_path)
    computes = GpuUse(0, 1168514, "C", 177386942464, amd.QUEUES_UNTIMED)
    assert gpu.processes() == (computes,)


def test_partitions_are_counted_as_torch_counts_them_and_share_one_gpu(tmp_path: Path, box: Box) -> None:
    eight = mi300x(tmp_path / "eight", partitions=8)
    eight.compute_process(4711, {19794 + at: 2**30 if at == 5 else 0 for at in range(8)})
    gpu = only_below(eight.root)  # cards of partitions have no sensors
    assert only(gpu).values["partition_count"] == 8
    assert gpu.processes() == (GpuUse(0, 4711, "C", 2**30, amd.QUEUES_UNTIMED),)
    box.add(0)
    assert box.gpu().processes() == WHOLE["partition_count"], "where none is listed"
